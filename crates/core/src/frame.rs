//! Sizes of Ethernet frames that carry Thalweg's packets.

use crate::packet::HEADER_BYTES;

/// Bytes that Ethernet adds to a packet on a link: preamble, header, checksum and gap.
const ETHERNET_BYTES: u32 = 38;

/// Bytes of the IPv4 and UDP headers.
const IP_UDP_BYTES: u32 = 28;

/// Bytes of the largest packet of an Ethernet link without jumbo frames.
pub const MTU_BYTES: u16 = 1_500;

/// Largest MTU that packets make use of: that of jumbo frames. Loopback interfaces have more.
// spec: F-01
pub const MTU_BYTES_MAX: u16 = 9_000;

/// Least MTU: a packet of this size passes every IPv4 network.
pub const MTU_BYTES_MIN: u16 = 576;

/// Lengths of full packets are multiples of this, so that bodies are aligned for vector instructions where several
/// packets lie behind each other in memory.
const PACKET_BYTES_UNIT: u16 = 64;

/// Bytes that a packet occupies of a link beside its body: Ethernet, IPv4, UDP, and the header area.
pub const FRAME_OVERHEAD_BYTES: u32 = ETHERNET_BYTES + IP_UDP_BYTES + HEADER_BYTES as u32;

/// Bytes that a full frame occupies of a link.
pub const FULL_FRAME_BYTES: u32 = ETHERNET_BYTES + MTU_BYTES as u32;

/// Bytes of the body that fills a frame.
pub const FRAME_BODY_BYTES: u16 = (FULL_FRAME_BYTES - FRAME_OVERHEAD_BYTES) as u16;

/// Bytes of the largest body of a packet on links of an MTU, which is held within [`MTU_BYTES_MIN`] and
/// [`MTU_BYTES_MAX`].
// spec: F-01
pub const fn body_bytes_of_mtu(mtu_bytes: u16) -> u16 {
    let mtu_bytes = if mtu_bytes > MTU_BYTES_MAX { MTU_BYTES_MAX } else { mtu_bytes };
    let mtu_bytes = if mtu_bytes < MTU_BYTES_MIN { MTU_BYTES_MIN } else { mtu_bytes };
    let datagram_bytes = mtu_bytes - IP_UDP_BYTES as u16;
    datagram_bytes - datagram_bytes % PACKET_BYTES_UNIT - HEADER_BYTES as u16
}

/// Bytes of the IP packet with a body of this number of bytes: the MTU that it needs.
pub const fn mtu_of_body_bytes(body_bytes: u32) -> u32 {
    body_bytes + HEADER_BYTES as u32 + IP_UDP_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_its_body_and_its_overhead() {
        assert_eq!((FRAME_OVERHEAD_BYTES, FRAME_BODY_BYTES, FULL_FRAME_BYTES), (130, 1_408, 1_538));
    }

    // spec: F-01 machine
    #[test]
    fn bodies_fill_the_mtu_and_never_exceed_it() {
        let bodies = [0, 576, 1_280, 1_500, 9_000, 65_535].map(body_bytes_of_mtu);
        assert_eq!(bodies, [448, 448, 1_152, FRAME_BODY_BYTES, 8_896, 8_896]);
        for mtu in MTU_BYTES_MIN..=MTU_BYTES_MAX {
            let body = body_bytes_of_mtu(mtu);
            let needed = mtu_of_body_bytes(body.into());
            assert!(needed <= mtu.into() && needed + 64 > mtu.into(), "{body} bytes at {mtu}");
            assert!((usize::from(body) + HEADER_BYTES).is_multiple_of(64));
        }
    }
}
