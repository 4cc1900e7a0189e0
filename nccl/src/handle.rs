//! Handles: where a rank listens, in the 128 bytes that NCCL carries to the others.
//!
//! | bytes | contents |
//! |---|---|
//! | 0–7 | `THALWEG` and the version of this layout |
//! | 8 | kind: 1 net, 2 CollNet |
//! | 9 | 4 or 6, the version of IP |
//! | 10–11 | TCP port, big-endian |
//! | 12–27 | address, the rest zero |
//! | 28–43 | secret: a caller shows it, so that strangers are turned away |
//! | 44–51 | number of a connection under way, for [`connect`](crate::net::connect); zero before |

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::abi::HANDLE_BYTES;

/// First bytes of every handle. Another version of the layout has another last byte.
const MAGIC: [u8; 8] = *b"THALWEG\x01";

/// Bytes of a secret.
pub const SECRET_BYTES: usize = 16;

/// Purpose of a handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Messages between two ranks.
    Net = 1,
    /// Sums of all ranks.
    Coll = 2,
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
        to[10..12].copy_from_slice(&self.address.port().to_be_bytes());
        match self.address.ip() {
            IpAddr::V4(ip) => {
                to[9] = 4;
                to[12..16].copy_from_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                to[9] = 6;
                to[12..28].copy_from_slice(&ip.octets());
            }
        }
        to[28..44].copy_from_slice(&self.secret);
    }

    /// Reads a handle of this kind. `None` if it is none of this version: its rank has another library, or none.
    // spec: N-04
    pub fn read(from: &[u8; HANDLE_BYTES], kind: Kind) -> Option<Handle> {
        if from[..8] != MAGIC || from[8] != kind as u8 {
            return None;
        }
        let port = u16::from_be_bytes([from[10], from[11]]);
        let ip: IpAddr = match from[9] {
            4 => <[u8; 4]>::try_from(&from[12..16]).ok()?.into(),
            6 => Ipv6Addr::from(<[u8; 16]>::try_from(&from[12..28]).ok()?).into(),
            _ => return None,
        };
        let secret = from[28..44].try_into().ok()?;
        Some(Handle { kind, address: (ip, port).into(), secret })
    }
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
            assert_eq!(Handle::read(&bytes, Kind::Net), None);
            bytes[7] += 1;
            assert_eq!(Handle::read(&bytes, Kind::Coll), None, "another version");
        }
        assert_eq!(Handle::read(&[0; HANDLE_BYTES], Kind::Net), None);
    }
}
