//! Handles: where a rank listens, in the 128 bytes that NCCL carries to the others.
//!
//! | bytes | contents |
//! |---|---|
//! | 0–7 | `THALWEG` and the version of this layout |
//! | 8 | kind: 1 net over TCP, 2 CollNet, 3 net over flows |
//! | 9–27 | address of the TCP socket: 4 or 6, the version of IP; the port, big-endian; the address, the rest zero |
//! | 28–43 | secret: a caller shows it, so that strangers are turned away |
//! | 44–51 | number of a connection under way, for [`connect`](crate::net::connect); zero before |

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::abi::HANDLE_BYTES;

/// First bytes of every handle. Another version of the layout has another last byte.
const MAGIC: [u8; 8] = *b"THALWEG\x02";

/// Bytes of a secret.
pub const SECRET_BYTES: usize = 16;

/// Bytes of an address.
pub const ADDRESS_BYTES: usize = 19;

/// Purpose of a handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Messages between two ranks, over TCP.
    Tcp = 1,
    /// Sums of all ranks.
    Coll = 2,
    /// Messages between two ranks, over flows.
    Flows = 3,
}

/// Contents of a handle.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Handle {
    /// Purpose.
    pub kind: Kind,
    /// Address of the listener.
    pub address: SocketAddr,
    /// Secret that callers show.
    pub secret: [u8; SECRET_BYTES],
}

impl Handle {
    /// Writes a handle.
    pub fn write(&self, to: &mut [u8; HANDLE_BYTES]) {
        *to = [0; HANDLE_BYTES];
        to[..8].copy_from_slice(&MAGIC);
        to[8] = self.kind as u8;
        to[9..28].copy_from_slice(&address_bytes(self.address));
        to[28..44].copy_from_slice(&self.secret);
    }

    /// Reads a handle of this kind. `None` if it is none of this version: its rank has another library, or none.
    // spec: N-04
    pub fn read(from: &[u8; HANDLE_BYTES], kind: Kind) -> Option<Handle> {
        if from[..8] != MAGIC || from[8] != kind as u8 {
            return None;
        }
        let address = read_address(from[9..].first_chunk()?)?;
        let secret = from[28..44].try_into().ok()?;
        Some(Handle { kind, address, secret })
    }
}

/// An address as bytes.
pub fn address_bytes(address: SocketAddr) -> [u8; ADDRESS_BYTES] {
    let mut to = [0; ADDRESS_BYTES];
    to[1..3].copy_from_slice(&address.port().to_be_bytes());
    match address.ip() {
        IpAddr::V4(ip) => {
            to[0] = 4;
            to[3..7].copy_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            to[0] = 6;
            to[3..].copy_from_slice(&ip.octets());
        }
    }
    to
}

/// The address of bytes. `None` if they are none.
pub fn read_address(from: &[u8; ADDRESS_BYTES]) -> Option<SocketAddr> {
    let port = u16::from_be_bytes([from[1], from[2]]);
    let ip: IpAddr = match from[0] {
        4 => <[u8; 4]>::try_from(&from[3..7]).ok()?.into(),
        6 => Ipv6Addr::from(<[u8; 16]>::try_from(&from[3..]).ok()?).into(),
        _ => return None,
    };
    Some((ip, port).into())
}

/// Number of the connection under way that NCCL keeps in a handle, zero for a new one.
pub fn attempt(handle: &[u8; HANDLE_BYTES]) -> u64 {
    u64::from_le_bytes(handle[44..52].try_into().unwrap_or_default())
}

/// Keeps the number of a connection under way.
pub fn set_attempt(handle: &mut [u8; HANDLE_BYTES], number: u64) {
    handle[44..52].copy_from_slice(&number.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_comes_back_and_nothing_else_is_one() {
        for address in ["10.1.2.3:4567", "[fd00::7]:80"] {
            let address = address.parse().unwrap();
            let handle = Handle { kind: Kind::Coll, address, secret: [9; SECRET_BYTES] };
            let mut bytes = [7; HANDLE_BYTES];
            handle.write(&mut bytes);
            assert_eq!(attempt(&bytes), 0);
            set_attempt(&mut bytes, 1 << 40);
            assert_eq!(
                (Handle::read(&bytes, Kind::Coll), attempt(&bytes)),
                (Some(handle), 1 << 40)
            );
            assert_eq!(Handle::read(&bytes, Kind::Tcp), None);
            bytes[7] += 1;
            assert_eq!(Handle::read(&bytes, Kind::Coll), None, "another version");
        }
        assert_eq!(Handle::read(&[0; HANDLE_BYTES], Kind::Flows), None);
        assert_eq!(read_address(&[0; ADDRESS_BYTES]), None);
    }
}
