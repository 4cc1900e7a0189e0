//! Sockets of other processes.
//!
//! A file of another process is copied for as long as it takes to look at it or to set an option, and
//! closed again: a copy that is held longer would keep connections open that the process has closed. It
//! takes the permission to debug the process: that of root, or of its parent.

use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use socket2::{Protocol, Socket};

use crate::sys;

/// A rate that limits nothing.
pub const UNLIMITED: u64 = u64::MAX;

/// Another process. Its number cannot become somebody else's while this is held.
#[derive(Debug)]
pub struct Process {
    file: OwnedFd,
    number: u32,
}

/// A socket of a process, as its table of files has it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SocketFile {
    /// Number of its file descriptor.
    pub place: i32,
    /// The kernel's number for the socket.
    pub inode: u64,
}

/// An established TCP connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connection {
    /// The address of the other end.
    pub peer: Ipv4Addr,
    /// The address of this end.
    pub own: Ipv4Addr,
    /// Bytes that have left, what was sent again included.
    pub sent_bytes: u64,
    /// Of those, what was sent again.
    pub resent_bytes: u64,
    /// Bytes that the process has written and that have not left.
    pub waiting_bytes: u64,
    /// The limit of its rate before this visit, bytes a second.
    pub limit: u64,
}

impl Process {
    /// Finds it.
    pub fn open(number: u32) -> io::Result<Process> {
        Ok(Process { file: sys::open_process(number)?, number })
    }

    /// Sockets of any kind of the process.
    pub fn sockets(&self) -> io::Result<Vec<SocketFile>> {
        let mut sockets = Vec::new();
        for entry in fs::read_dir(format!("/proc/{}/fd", self.number))? {
            let entry = entry?;
            let place = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let inode = fs::read_link(entry.path()).ok().and_then(|link| inode(link.to_str()?));
            if let (Some(place), Some(inode)) = (place, inode) {
                sockets.push(SocketFile { place, inode });
            }
        }
        Ok(sockets)
    }

    /// Looks at a socket, and limits its rate if one is given. `None` if it is not a TCP connection
    /// between two hosts, or is no more.
    ///
    /// Bytes a second, before headers; [`UNLIMITED`] lifts the limit.
    pub fn visit(&self, socket: SocketFile, limit: Option<u64>) -> io::Result<Option<Connection>> {
        let copy = File::from(sys::copy_file(self.file.as_fd(), socket.place)?);
        // The place may have been given to another file.
        if copy.metadata()?.ino() != socket.inode {
            return Ok(None);
        }
        let copy = Socket::from(OwnedFd::from(copy));
        if copy.protocol()? != Some(Protocol::TCP) {
            return Ok(None);
        }
        let Some((own, peer)) = ends(&copy) else { return Ok(None) };
        let before = sys::long_option(copy.as_fd(), libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE)?;
        if let Some(limit) = limit {
            sys::set_long_option(copy.as_fd(), libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, limit)?;
        }
        let info = Info::of(&copy)?;
        Ok(info.is_established().then(|| Connection {
            peer,
            own,
            sent_bytes: info.long(SENT_AT),
            resent_bytes: info.long(RESENT_AT),
            waiting_bytes: u64::from(info.int(WAITING_AT)),
            limit: before,
        }))
    }
}

/// Returns whether this process may touch files of another. A process that has ended needs no permission.
pub fn is_permitted(number: u32) -> bool {
    let denied = |error: io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    let Ok(process) = Process::open(number) else { return true };
    !sys::copy_file(process.file.as_fd(), 0).is_err_and(denied)
}

/// Numbers of the processes that a process has started, and they, and so on; itself first.
pub fn family(number: u32) -> Vec<u32> {
    let mut family = vec![number];
    let mut next = 0;
    while let Some(&parent) = family.get(next) {
        next += 1;
        let Ok(threads) = fs::read_dir(format!("/proc/{parent}/task")) else { continue };
        for thread in threads.flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            family
                .extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
    }
    family
}

/// Time at which a process began, in ticks of the kernel since the boot. `None` if there is no such process.
pub fn began(number: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    // The name of the program, in brackets, may have spaces and brackets of its own.
    let (_, rest) = text.rsplit_once(')')?;
    rest.split_whitespace().nth(19)?.parse().ok()
}

/// From `socket:[123]`.
fn inode(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// Own and other address, if they are of different hosts.
// spec: C-15
fn ends(socket: &Socket) -> Option<(Ipv4Addr, Ipv4Addr)> {
    let ipv4 = |address: SocketAddr| match address.ip() {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(ip) => ip.to_ipv4_mapped(),
    };
    let own = ipv4(socket.local_addr().ok()?.as_socket()?)?;
    let peer = ipv4(socket.peer_addr().ok()?.as_socket()?)?;
    (own != peer && !peer.is_loopback()).then_some((own, peer))
}

/// State of a connection in the kernel: `struct tcp_info`, whose fields only ever get more.
struct Info([u8; INFO_BYTES]);

const INFO_BYTES: usize = 216;
const ESTABLISHED: u8 = 1;
/// The other end has closed, and this one can still send.
const CLOSE_WAIT: u8 = 8;
const WAITING_AT: usize = 144;
const SENT_AT: usize = 200;
const RESENT_AT: usize = 208;

impl Info {
    fn of(socket: &Socket) -> io::Result<Info> {
        let mut bytes = [0; INFO_BYTES];
        // A kernel that knows fewer fields leaves zeroes.
        sys::option_bytes(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, &mut bytes)?;
        Ok(Info(bytes))
    }

    fn is_established(&self) -> bool {
        [ESTABLISHED, CLOSE_WAIT].contains(&self.0[0])
    }

    fn int(&self, at: usize) -> u32 {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&self.0[at..at + 4]);
        u32::from_ne_bytes(bytes)
    }

    fn long(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.0[at..at + 8]);
        u64::from_ne_bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::*;

    #[expect(clippy::disallowed_methods, reason = "the test needs real connections")]
    fn pair(bind: &str) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(bind).unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    fn file(process: &Process, stream: &TcpStream) -> SocketFile {
        let sockets = process.sockets().unwrap();
        *sockets.iter().find(|socket| socket.place == stream.as_raw_fd()).expect("it is there")
    }

    #[test]
    fn numbers_of_the_kernel_are_where_we_think() {
        let (mut near, mut far) = pair("127.0.0.1:0");
        near.write_all(&[7; 100_000]).unwrap();
        far.read_exact(&mut [0; 100_000]).unwrap();
        let info = Info::of(&Socket::from(near.try_clone().unwrap())).unwrap();
        assert!(info.is_established());
        assert_eq!((info.long(SENT_AT), info.int(WAITING_AT)), (100_000, 0));
        // Nobody reads: what the other end has no room for waits here.
        near.set_nonblocking(true).unwrap();
        let mut written = 100_000;
        while let Ok(bytes) = near.write(&[7; 65_536]) {
            written += bytes as u64;
        }
        let info = Info::of(&Socket::from(near)).unwrap();
        assert_eq!(info.long(SENT_AT) + u64::from(info.int(WAITING_AT)), written);
    }

    // spec: C-15 machine
    #[test]
    fn connections_within_a_host_and_other_files_are_left_alone() {
        let process = Process::open(std::process::id()).unwrap();
        let (near, _far) = pair("127.0.0.1:0");
        let socket = file(&process, &near);
        assert_eq!(process.visit(socket, Some(1_000)).unwrap(), None);
        let gone = SocketFile { inode: socket.inode + 1_000_000, ..socket };
        assert_eq!(process.visit(gone, None).unwrap(), None, "the place is another file's");
        assert!(process.visit(SocketFile { place: 1 << 20, inode: 1 }, None).is_err());
        assert!(Process::open(u32::MAX >> 1).is_err());
    }

    #[test]
    fn a_family_is_all_that_a_process_started() {
        let mut child = std::process::Command::new("sh");
        let mut child = child.args(["-c", "sleep 5 & wait"]).spawn().unwrap();
        let own = std::process::id();
        let is_complete = || {
            let all = family(own);
            let below = family(child.id());
            all[0] == own && all.contains(&child.id()) && below.len() == 2
        };
        let deadline = std::time::Duration::from_millis(10);
        let appears = (0..500).any(|_| {
            #[expect(clippy::disallowed_methods, reason = "processes start in real time")]
            std::thread::sleep(deadline);
            is_complete()
        });
        let grandchild = family(child.id()).last().copied();
        child.kill().unwrap();
        child.wait().unwrap();
        if let Some(grandchild) = grandchild {
            let _ = std::process::Command::new("kill").arg(grandchild.to_string()).status();
        }
        assert!(appears);
    }

    #[test]
    fn links_are_read() {
        assert_eq!(inode("socket:[123]"), Some(123));
        assert_eq!(inode("pipe:[123]"), None);
        assert_eq!(inode("socket:[x]"), None);
    }
}
