//! TCP connections of a network namespace, as socket diagnostics report them.
//!
//! Anybody may list connections. Reports of connections that close need the permission to administer the network.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use netlink_sys::{Socket, SocketAddr as NetlinkAddr};

// From the kernel's `sock_diag.h`, `inet_diag.h` and `tcp_states.h`.
const BY_FAMILY: u16 = 20;
const CLOSED_GROUPS: [u32; 2] = [1, 3];
const INFO: u16 = 2;
/// Established, and all states of closing in which a connection may still send.
const STATES: u32 = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11;

// Types and flags of netlink.
const ERROR: u16 = 2;
const DONE: u16 = 3;
const REQUEST_DUMP: u16 = 0x301;

const HEADER_BYTES: usize = 16;
/// `struct inet_diag_msg`.
const MESSAGE_BYTES: usize = 72;
/// Longest answer; the kernel fills at most half of it.
const ANSWER_BYTES: usize = 64 * 1024;
/// Room for reports that nobody has read, some thousands of them.
const REPORTS_BYTES: usize = 4 << 20;

// Places in `struct tcp_info`, whose fields only ever get more.
const UNACKED_AT: usize = 24;
const WAITING_AT: usize = 144;
const SENT_AT: usize = 200;
const RESENT_AT: usize = 208;

/// A TCP connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connection {
    /// The kernel's number for the socket, which is never used again.
    pub id: u64,
    /// This end.
    pub own: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
    /// Bytes of data that were sent, without those that were sent again.
    pub sent_bytes: u64,
    /// Nothing waits to be sent or to be acknowledged.
    pub is_quiet: bool,
}

/// The connections of the namespace that the thread which opened this was in.
pub struct Connections {
    lists: Socket,
    closed: Option<Socket>,
    sequence: u32,
}

impl Connections {
    /// Opens sockets for lists, and for reports if this process may have them.
    pub fn open() -> io::Result<Connections> {
        let mut lists = Socket::new(NETLINK_SOCK_DIAG)?;
        lists.bind_auto()?;
        lists.connect(&NetlinkAddr::new(0, 0))?;
        Ok(Connections { lists, closed: open_closed().ok(), sequence: 0 })
    }

    /// Returns whether connections that close are reported.
    pub fn reports_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// Lists all connections.
    pub fn list(&mut self, on_connection: &mut dyn FnMut(Connection)) -> io::Result<()> {
        for family in [libc::AF_INET, libc::AF_INET6] {
            self.sequence = self.sequence.wrapping_add(1);
            self.lists.send(&question(family as u8, self.sequence), 0)?;
            loop {
                let mut bytes = Vec::with_capacity(ANSWER_BYTES);
                self.lists.recv(&mut bytes, 0)?;
                if handle_messages(&bytes, Some(self.sequence), on_connection)? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Passes on what was reported of connections that have closed, without waiting. Returns whether reports were lost.
    pub fn closed(&mut self, on_connection: &mut dyn FnMut(Connection)) -> io::Result<bool> {
        let Some(closed) = &self.closed else { return Ok(false) };
        let mut are_lost = false;
        loop {
            let mut bytes = Vec::with_capacity(ANSWER_BYTES);
            match closed.recv(&mut bytes, libc::MSG_DONTWAIT) {
                Ok(_) => {
                    handle_messages(&bytes, None, on_connection)?;
                }
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => are_lost = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(are_lost),
                Err(error) => return Err(error),
            }
        }
    }
}

fn open_closed() -> io::Result<Socket> {
    let mut closed = Socket::new(NETLINK_SOCK_DIAG)?;
    closed.bind_auto()?;
    closed.set_rx_buf_sz(REPORTS_BYTES as libc::c_int)?;
    CLOSED_GROUPS.into_iter().try_for_each(|group| closed.add_membership(group))?;
    Ok(closed)
}

/// A request for all connections of a family.
fn question(family: u8, sequence: u32) -> Vec<u8> {
    const QUESTION_BYTES: usize = 56;
    let mut bytes = vec![0; HEADER_BYTES + QUESTION_BYTES];
    bytes[..4].copy_from_slice(&((HEADER_BYTES + QUESTION_BYTES) as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&REQUEST_DUMP.to_ne_bytes());
    bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
    bytes[16..19].copy_from_slice(&[family, libc::IPPROTO_TCP as u8, 1 << (INFO - 1)]);
    bytes[20..24].copy_from_slice(&STATES.to_ne_bytes());
    bytes
}

/// Passes on the connections in an answer. Returns whether it was the last one. Messages that are cut end it.
fn handle_messages(
    mut bytes: &[u8],
    sequence: Option<u32>,
    on_connection: &mut dyn FnMut(Connection),
) -> io::Result<bool> {
    while bytes.len() >= HEADER_BYTES {
        let length = int(bytes, 0) as usize;
        let Some(message) = bytes.get(HEADER_BYTES..length) else { return Ok(false) };
        let is_meant = sequence.is_none_or(|sequence| sequence == int(bytes, 8));
        match short(bytes, 4) {
            DONE if is_meant => return Ok(true),
            ERROR if is_meant && message.len() >= 4 => {
                return match int(message, 0) as i32 {
                    0 => Ok(true),
                    code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
                };
            }
            BY_FAMILY if is_meant => connection(message).into_iter().for_each(&mut *on_connection),
            _ => {}
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// The connection that a message describes. `None` if it has no numbers of TCP.
fn connection(message: &[u8]) -> Option<Connection> {
    let (fixed, mut attributes) = message.split_at_checked(MESSAGE_BYTES)?;
    let is_ipv4 = i32::from(fixed[0]) == libc::AF_INET;
    let end = |port: usize, address: usize| {
        let bytes: [u8; 16] = *fixed[address..].first_chunk()?;
        let [a, b, c, d, ..] = bytes;
        let address =
            if is_ipv4 { IpAddr::from([a, b, c, d]) } else { Ipv6Addr::from(bytes).to_canonical() };
        Some(SocketAddr::new(address, u16::from_be_bytes([fixed[port], fixed[port + 1]])))
    };
    let (own, peer) = (end(4, 8)?, end(6, 24)?);
    let id = u64::from(int(fixed, 44)) | u64::from(int(fixed, 48)) << 32;
    while attributes.len() >= 4 {
        let length = usize::from(short(attributes, 0));
        let value = attributes.get(4..length)?;
        if short(attributes, 2) == INFO && value.len() >= RESENT_AT + 8 {
            let long = |at: usize| u64::from(int(value, at)) | u64::from(int(value, at + 4)) << 32;
            let sent_bytes = long(SENT_AT).saturating_sub(long(RESENT_AT));
            let is_quiet = int(value, UNACKED_AT) == 0 && int(value, WAITING_AT) == 0;
            return Some(Connection { id, own, peer, sent_bytes, is_quiet });
        }
        attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    None
}

/// Four bytes of a slice that is long enough.
fn int(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Two bytes of a slice that is long enough.
fn short(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[expect(clippy::disallowed_methods, reason = "the test needs real connections")]
    fn pair(bind: &str) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(bind).unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    fn listed(connections: &mut Connections, stream: &TcpStream) -> Option<Connection> {
        let (own, mut found) = (stream.local_addr().unwrap(), None);
        let on = &mut |one: Connection| found = if one.own == own { Some(one) } else { found };
        connections.list(on).unwrap();
        found
    }

    // spec: Q-13 sockets
    #[test]
    fn connections_and_their_ends_are_seen() {
        let mut connections = Connections::open().unwrap();
        let (mut near, mut far) = pair("127.0.0.1:0");
        near.write_all(&[7; 100_000]).unwrap();
        far.read_exact(&mut [0; 100_000]).unwrap();
        let seen = listed(&mut connections, &near).expect("it is listed");
        assert_eq!((seen.sent_bytes, seen.peer), (100_000, near.peer_addr().unwrap()));
        let other = listed(&mut connections, &far).expect("so is the other end");
        assert_eq!((other.sent_bytes, other.is_quiet), (0, true));
        assert_ne!(other.id, seen.id);
        near.set_nonblocking(true).unwrap();
        while near.write(&[7; 65_536]).is_ok() {}
        assert!(!listed(&mut connections, &near).unwrap().is_quiet, "nobody reads");
        if !connections.reports_closed() {
            return;
        }
        drop((near, far));
        let mut has_closed = false;
        for _ in 0..500 {
            let on = &mut |one: Connection| has_closed |= one.id == seen.id;
            assert!(!connections.closed(on).unwrap());
            #[expect(clippy::disallowed_methods, reason = "connections close in real time")]
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        assert!(has_closed);
    }

    #[test]
    fn cut_and_odd_messages_make_no_connection() {
        let mut whole = vec![0; HEADER_BYTES + MESSAGE_BYTES + 4 + RESENT_AT + 8];
        let length = whole.len() as u32;
        whole[..4].copy_from_slice(&length.to_ne_bytes());
        whole[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
        whole[16] = libc::AF_INET as u8;
        let attribute = HEADER_BYTES + MESSAGE_BYTES;
        whole[attribute..attribute + 2].copy_from_slice(&((RESENT_AT + 12) as u16).to_ne_bytes());
        whole[attribute + 2..attribute + 4].copy_from_slice(&INFO.to_ne_bytes());
        let count = |bytes: &[u8]| {
            let mut found = 0;
            handle_messages(bytes, None, &mut |_| found += 1).unwrap();
            found
        };
        assert_eq!(count(&whole), 1);
        for cut in 0..whole.len() {
            assert_eq!(count(&whole[..cut]), 0);
            let mut odd = whole.clone();
            odd[cut] ^= 0xff;
            assert!(count(&odd) <= 1);
        }
        let mut short = whole;
        short[..4].copy_from_slice(&0_u32.to_ne_bytes());
        assert_eq!(count(&short), 0, "a length of nothing ends it");
    }
}
