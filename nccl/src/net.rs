//! Messages between two ranks, over TCP.
//!
//! A connection carries messages one way, in order: eight bytes of length, then the bytes. A receive takes the next
//! message and may be longer than it. All sockets are non-blocking, and every call of `test` moves what the kernel takes
//! or has: there is no thread, so that nothing is left when a connection is closed.
// spec: N-01

mod channel;
mod dial;
mod silence;

use std::ffi::c_void;

pub use self::channel::{Channel, Request};
use crate::abi::{HANDLE_BYTES, status};
use crate::failure::Failure;
use crate::handle::Kind;
use crate::{listening, settings};

/// Begins to listen. Writes the handle, and returns what NCCL calls the listen communicator.
pub fn listen(handle: &mut [u8; HANDLE_BYTES]) -> Result<*mut c_void, Failure> {
    let loaded = settings::current();
    loaded.net.as_ref().map_err(|text| Failure::new(status::INVALID_USAGE, text))?;
    listening::open(Kind::Net, handle)
}

/// Connects to a handle, without waiting. `None` if it has to be called again, with the same handle.
pub fn connect(handle: &mut [u8; HANDLE_BYTES]) -> Result<Option<Box<Channel>>, Failure> {
    let connected = dial::progress(handle)?;
    connected
        .map(|stream| Channel::sending(stream, settings::current().failure_after()))
        .transpose()
}

/// Accepts a connection, without waiting. `None` if it has to be called again.
pub fn accept(listening: *mut c_void) -> Result<Option<Box<Channel>>, Failure> {
    let accepted = listening::find(listening)?.accept()?;
    let failure_after = settings::current().failure_after();
    accepted.map(|(stream, _)| Channel::receiving(stream, failure_after)).transpose()
}
