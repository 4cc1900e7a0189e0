//! Messages between two ranks, over TCP or over flows.
//!
//! A channel carries messages one way, in order. A receive takes the next message and may be longer than it. The rank that
//! listens chooses the transport: it is part of the handle. Two ranks of one process, and ranks of different networks, have
//! TCP whatever was chosen.
// spec: N-01

mod channel;
mod dial;
mod flow;
mod silence;
mod stream;

use std::ffi::c_void;
use std::net::TcpStream;

use self::channel::Transport;
pub use self::channel::{Channel, Request};
use self::dial::Dialled;
use self::flow::Flow;
use self::stream::Stream;
use crate::abi::{HANDLE_BYTES, status};
use crate::failure::Failure;
use crate::handle::Kind;
use crate::listening::Caller;
use crate::{listening, settings};

/// Begins to listen. Writes the handle, and returns what NCCL calls the listen communicator.
pub fn listen(handle: &mut [u8; HANDLE_BYTES]) -> Result<*mut c_void, Failure> {
    let loaded = settings::current();
    let net = loaded.net.as_ref().map_err(|text| Failure::new(status::INVALID_USAGE, text))?;
    let kind = match net {
        settings::Transport::Tcp => Kind::Tcp,
        settings::Transport::Flows => Kind::Flows,
    };
    listening::open(kind, handle)
}

/// Connects to a handle, without waiting. `None` if it has to be called again, with the same handle.
pub fn connect(handle: &mut [u8; HANDLE_BYTES]) -> Result<Option<Box<Channel>>, Failure> {
    let Some(dialled) = dial::progress(handle)? else { return Ok(None) };
    let Dialled { stream, flow } = dialled;
    let transport = match flow {
        Some((channels, answer)) => Transport::Flow(Flow::sending(&channels, answer, &stream)?),
        None => Transport::Tcp(tcp(stream, true)?),
    };
    Ok(Some(Channel::new(transport)))
}

/// Accepts a connection, without waiting. `None` if it has to be called again.
pub fn accept(listening: *mut c_void) -> Result<Option<Box<Channel>>, Failure> {
    let listening = listening::find(listening)?;
    let Some(Caller { stream, socket, .. }) = listening.accept()? else { return Ok(None) };
    let flow = match listening.kind {
        Kind::Flows => flow::accept(&stream, socket)?,
        _ => None,
    };
    let transport = match flow {
        Some(flow) => Transport::Flow(flow),
        None => Transport::Tcp(tcp(stream, false)?),
    };
    Ok(Some(Channel::new(transport)))
}

fn tcp(stream: TcpStream, is_sending: bool) -> Result<Box<Stream>, Failure> {
    Stream::new(stream, is_sending, settings::current().failure_after()).map(Box::new)
}
