//! The kernel's byte layouts of addresses and control messages.
//!
//! The kernel's side of these is fixed, so they are written and read as bytes, without pointers.
//! What the kernel hands over is checked like any other input.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Room for the longest address: that of IPv6.
pub(crate) const NAME_BYTES: usize = 28;
/// Length of an IPv4 address structure, of which the last eight bytes are padding.
const NAME_V4_BYTES: usize = 16;

/// Room for a type of service, a segment length, and one more.
const CONTROL_BYTES: usize = 3 * 24;
/// Length, level and type.
const CONTROL_HEADER_BYTES: usize = size_of::<usize>() + 8;

/// An address as the kernel reads it, and how long it is.
pub(crate) fn encode_address(address: &SocketAddr) -> ([u8; NAME_BYTES], usize) {
    let mut name = [0; NAME_BYTES];
    name[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address {
        SocketAddr::V4(v4) => {
            name[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            name[4..8].copy_from_slice(&v4.ip().octets());
            (name, NAME_V4_BYTES)
        }
        SocketAddr::V6(v6) => {
            name[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
            name[4..8].copy_from_slice(&v6.flowinfo().to_be_bytes());
            name[8..24].copy_from_slice(&v6.ip().octets());
            name[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
            (name, NAME_BYTES)
        }
    }
}

/// Reads an address that the kernel wrote. `None` for a family that is not IP, or none at all.
pub(crate) fn decode_address(name: &[u8]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes(*name.first_chunk()?));
    let port = u16::from_be_bytes(chunk(name, 2)?);
    match family {
        libc::AF_INET => Some(SocketAddrV4::new(Ipv4Addr::from(chunk::<4>(name, 4)?), port).into()),
        libc::AF_INET6 => {
            let flow = u32::from_be_bytes(chunk(name, 4)?);
            let ip = Ipv6Addr::from(chunk::<16>(name, 8)?);
            let scope = u32::from_ne_bytes(chunk(name, 24)?);
            Some(SocketAddrV6::new(ip, port, flow, scope).into())
        }
        _ => None,
    }
}

/// Control messages of one send or receive.
#[derive(Clone, Copy, Debug)]
#[repr(align(8))]
pub(crate) struct Control {
    bytes: [u8; CONTROL_BYTES],
    used: usize,
}

/// Facts about a received datagram beside its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Ancillary {
    /// DSCP and ECN.
    pub(crate) tos: u8,
    /// The length by which to cut, as claimed.
    pub(crate) segment_bytes: Option<i32>,
}

impl Control {
    /// No messages.
    pub(crate) const EMPTY: Control = Control { bytes: [0; CONTROL_BYTES], used: 0 };

    /// Adds DSCP and ECN.
    pub(crate) fn push_tos(&mut self, is_ipv6: bool, tos: u8) {
        let (level, kind) = if is_ipv6 {
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS)
        } else {
            (libc::IPPROTO_IP, libc::IP_TOS)
        };
        self.push(level, kind, &i32::from(tos).to_ne_bytes());
    }

    /// Adds the length into which the kernel is to cut.
    pub(crate) fn push_segment_bytes(&mut self, segment_bytes: u16) {
        self.push(libc::SOL_UDP, libc::UDP_SEGMENT, &segment_bytes.to_ne_bytes());
    }

    /// Control messages that were pushed.
    pub(crate) fn filled(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.used]
    }

    /// Buffer that a receive writes.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Reads what a receive wrote into the first `used` bytes of [`Control::room`].
    pub(crate) fn decode(&self, used: usize) -> Ancillary {
        let mut ancillary = Ancillary::default();
        let mut rest = &self.bytes[..used.min(CONTROL_BYTES)];
        while let Some((level, kind, data, after)) = split_message(rest) {
            match (level, kind) {
                (libc::IPPROTO_IP, libc::IP_TOS) => {
                    ancillary.tos = data.first().copied().unwrap_or(0);
                }
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    ancillary.tos = chunk(data, 0).map_or(0, |tos| i32::from_ne_bytes(tos) as u8);
                }
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    ancillary.segment_bytes = Some(chunk(data, 0).map_or(0, i32::from_ne_bytes));
                }
                _ => {}
            }
            rest = after;
        }
        ancillary
    }

    fn push(&mut self, level: i32, kind: i32, data: &[u8]) {
        let length = CONTROL_HEADER_BYTES + data.len();
        let message = &mut self.bytes[self.used..self.used + length];
        let (head, body) = message.split_at_mut(CONTROL_HEADER_BYTES);
        let (length_field, rest) = head.split_at_mut(size_of::<usize>());
        length_field.copy_from_slice(&length.to_ne_bytes());
        rest[..4].copy_from_slice(&level.to_ne_bytes());
        rest[4..].copy_from_slice(&kind.to_ne_bytes());
        body.copy_from_slice(data);
        self.used += length.next_multiple_of(size_of::<usize>());
    }
}

/// Level, type and data of the first message, and the bytes after it.
fn split_message(bytes: &[u8]) -> Option<(i32, i32, &[u8], &[u8])> {
    let length = usize::from_ne_bytes(chunk(bytes, 0)?);
    let level = i32::from_ne_bytes(chunk(bytes, size_of::<usize>())?);
    let kind = i32::from_ne_bytes(chunk(bytes, size_of::<usize>() + 4)?);
    let data = bytes.get(CONTROL_HEADER_BYTES..length)?;
    let after = bytes.get(length.next_multiple_of(size_of::<usize>())..).unwrap_or(&[]);
    Some((level, kind, data, after))
}

fn chunk<const N: usize>(bytes: &[u8], start: usize) -> Option<[u8; N]> {
    bytes.get(start..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back() {
        for text in ["127.0.0.1:4791", "[fe80::1%7]:65535"] {
            let address: SocketAddr = text.parse().unwrap();
            let (name, length) = encode_address(&address);
            assert_eq!(decode_address(&name[..length]), Some(address));
            assert_eq!(decode_address(&name[..length.min(7)]), None, "cut short");
        }
        assert_eq!(decode_address(&[0; NAME_BYTES]), None, "no family");
    }

    #[test]
    fn an_ipv4_address_stands_as_the_kernel_has_it() {
        let (name, length) = encode_address(&"10.1.2.3:258".parse().unwrap());
        assert_eq!(length, 16);
        assert_eq!(name[2..8], [1, 2, 10, 1, 2, 3]);
    }

    #[test]
    fn control_messages_come_back() {
        let mut control = Control::EMPTY;
        control.push_tos(true, 0xbb);
        control.push(libc::SOL_UDP, libc::UDP_GRO, &1_024i32.to_ne_bytes());
        control.push(libc::SOL_SOCKET, 99, &[1]);
        let used = control.filled().len();
        let expected = Ancillary { tos: 0xbb, segment_bytes: Some(1_024) };
        assert_eq!(control.decode(used), expected);
    }

    #[test]
    fn broken_control_messages_end_the_reading() {
        let mut control = Control::EMPTY;
        control.push_tos(false, 7);
        let used = control.filled().len();
        for length in [0usize, 3, 1_000, usize::MAX] {
            control.bytes[..size_of::<usize>()].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(control.decode(used), Ancillary::default(), "length {length}");
        }
        assert_eq!(control.decode(5), Ancillary::default());
        assert_eq!(control.decode(usize::MAX), Ancillary::default());
    }
}
