//! Connections under way.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::abi::{HANDLE_BYTES, status};
use crate::failure::Failure;
use crate::handle::{self, Handle, Kind};
use crate::listening::{HELLO_BYTES, hello, lock};
use crate::settings;

/// A connection under way.
struct Dial {
    stream: TcpStream,
    hello: [u8; HELLO_BYTES],
    /// Bytes of it that were sent. `None` while the connection is not made.
    sent: Option<usize>,
    since: Instant,
}

/// All of them, by the number that NCCL keeps in the handle.
static DIALS: Mutex<BTreeMap<u64, Dial>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Goes on with the connection to a handle, or begins it. Returns the socket when it is connected.
pub fn progress(bytes: &mut [u8; HANDLE_BYTES]) -> Result<Option<TcpStream>, Failure> {
    let handle = Handle::read(bytes, Kind::Net).ok_or_else(|| {
        Failure::new(
            status::REMOTE,
            "the handle is none of this plug-in: all ranks need the same version of the library",
        )
    })?;
    let limit = settings::current().join_timeout();
    let mut number = handle::attempt(bytes);
    let mut dials = lock(&DIALS);
    let mut dial = match dials.remove(&number) {
        Some(dial) => dial,
        None => {
            // NCCL may have given up others.
            dials.retain(|_, dial| dial.since.elapsed() <= limit);
            number = NEXT.fetch_add(1, Ordering::Relaxed);
            begin(&handle).map_err(|error| refused(&handle, &error))?
        }
    };
    drop(dials);
    let is_done = dial.progress().map_err(|error| refused(&handle, &error))?;
    if is_done {
        handle::set_attempt(bytes, 0);
        return Ok(Some(dial.stream));
    }
    if dial.since.elapsed() > limit {
        let (address, limit) = (handle.address, limit.as_secs_f64());
        return Err(Failure::new(
            status::REMOTE,
            format!("{address} did not answer for {limit:.1} s"),
        ));
    }
    handle::set_attempt(bytes, number);
    lock(&DIALS).insert(number, dial);
    Ok(None)
}

fn begin(handle: &Handle) -> io::Result<Dial> {
    let domain = Domain::for_address(handle.address);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    match socket.connect(&handle.address.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
        Err(error) => return Err(error),
    }
    let hello = hello(handle.secret, 0);
    Ok(Dial { stream: socket.into(), hello, sent: None, since: Instant::now() })
}

impl Dial {
    /// Returns whether the connection is made and the first bytes are sent.
    fn progress(&mut self) -> io::Result<bool> {
        if self.sent.is_none() {
            if let Some(error) = SockRef::from(&self.stream).take_error()? {
                return Err(error);
            }
            match self.stream.peer_addr() {
                Ok(_) => self.sent = Some(0),
                Err(error) if error.kind() == io::ErrorKind::NotConnected => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        while let Some(sent) = self.sent.filter(|sent| *sent < HELLO_BYTES) {
            match self.stream.write(&self.hello[sent..]) {
                Ok(written) => self.sent = Some(sent + written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

fn refused(handle: &Handle, error: &io::Error) -> Failure {
    Failure::new(status::REMOTE, format!("cannot connect to {}: {error}", handle.address))
}
