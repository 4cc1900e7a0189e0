//! Sizes of Ethernet frames that carry Thalweg's packets.

use crate::packet::HEADER_BYTES;

/// Bytes that Ethernet adds to a packet on a link: preamble, header, checksum and gap.
const ETHERNET_BYTES: u32 = 38;

/// Bytes of the IPv4 and UDP headers.
const IP_UDP_BYTES: u32 = 28;

/// Bytes of the largest packet of an Ethernet link without jumbo frames.
const MTU_BYTES: u32 = 1_500;

/// Bytes that a packet occupies of a link beside its body: Ethernet, IPv4, UDP, and the header area.
pub const FRAME_OVERHEAD_BYTES: u32 = ETHERNET_BYTES + IP_UDP_BYTES + HEADER_BYTES as u32;

/// Bytes that a full frame occupies of a link.
pub const FULL_FRAME_BYTES: u32 = ETHERNET_BYTES + MTU_BYTES;

/// Bytes of the body that fills a frame.
pub const FRAME_BODY_BYTES: u16 = (FULL_FRAME_BYTES - FRAME_OVERHEAD_BYTES) as u16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_its_body_and_its_overhead() {
        assert_eq!((FRAME_OVERHEAD_BYTES, FRAME_BODY_BYTES, FULL_FRAME_BYTES), (130, 1_408, 1_538));
    }
}
