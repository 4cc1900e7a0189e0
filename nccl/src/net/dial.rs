//! Connections under way.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use thalweg::internal::Channels;

use super::flow::{self, ANSWER_BYTES, Answer};
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
    /// Channels of this process, where the other end listens for flows.
    channels: Option<Arc<Channels>>,
    answer: [u8; ANSWER_BYTES],
    received: usize,
    since: Instant,
}

/// A connection that is made.
pub struct Dialled {
    /// The connection.
    pub stream: TcpStream,
    /// Answer of the other end, if messages go over a flow.
    pub flow: Option<(Arc<Channels>, Answer)>,
}

/// All of them, by the number that NCCL keeps in the handle.
static DIALS: Mutex<BTreeMap<u64, Dial>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Goes on with the connection to a handle, or begins it. Returns it when it is made.
pub fn progress(bytes: &mut [u8; HANDLE_BYTES]) -> Result<Option<Dialled>, Failure> {
    let handle = [Kind::Tcp, Kind::Flows].into_iter().find_map(|kind| Handle::read(bytes, kind));
    let handle = handle.ok_or_else(|| {
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
            let channels = (handle.kind == Kind::Flows).then(flow::channels).transpose()?;
            begin(&handle, channels).map_err(|error| refused(&handle, &error))?
        }
    };
    drop(dials);
    let is_done = dial.progress().map_err(|error| refused(&handle, &error))?;
    if is_done {
        handle::set_attempt(bytes, 0);
        return dial.end(&handle).map(Some);
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

fn begin(handle: &Handle, channels: Option<Arc<Channels>>) -> io::Result<Dial> {
    let domain = Domain::for_address(handle.address);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    match socket.connect(&handle.address.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
        Err(error) => return Err(error),
    }
    let hello = hello(handle.secret, 0, channels.as_ref().map(|channels| channels.address()));
    let (answer, since) = ([0; ANSWER_BYTES], Instant::now());
    Ok(Dial { stream: socket.into(), hello, sent: None, channels, answer, received: 0, since })
}

impl Dial {
    /// Returns whether the connection is made, the first bytes are sent, and the answer is there, where one is due.
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
        while self.channels.is_some() && self.received < ANSWER_BYTES {
            match self.stream.read(&mut self.answer[self.received..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.received += read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn end(self, handle: &Handle) -> Result<Dialled, Failure> {
        let Some(channels) = self.channels else {
            return Ok(Dialled { stream: self.stream, flow: None });
        };
        let answer = Answer::read(&self.answer).ok_or_else(|| {
            refused(handle, &io::Error::other("it answers as another version of the library"))
        })?;
        Ok(Dialled { stream: self.stream, flow: answer.map(|answer| (channels, answer)) })
    }
}

fn refused(handle: &Handle, error: &io::Error) -> Failure {
    Failure::new(status::REMOTE, format!("cannot connect to {}: {error}", handle.address))
}
