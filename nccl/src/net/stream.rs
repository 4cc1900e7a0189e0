//! One end of a channel over TCP. A message is eight bytes of length, and then its bytes.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::time::Duration;

use super::silence::Silence;
use crate::REQUESTS_MAX;
use crate::abi::{Status, status};
use crate::failure::Failure;
use crate::listening::{lock, watch};
use crate::log;
use crate::memory::Memory;

/// Bytes of a message's length.
const LENGTH_BYTES: usize = 8;
/// Most bytes that one call moves, so that others of the same thread get their turn.
const BYTES_PER_CALL: usize = 1 << 20;

/// One end of a channel. Several threads may use it at a time. Every call moves what the kernel takes or has: there is no
/// thread, so that nothing is left when it is closed.
pub struct Stream(Mutex<State>);

struct State {
    stream: TcpStream,
    peer: SocketAddr,
    is_sending: bool,
    silence: Silence,
    transfers: [Transfer; REQUESTS_MAX],
    /// Transfers that have not ended, in order.
    queue: VecDeque<usize>,
    /// Status of all that has not ended, after a failure.
    failed: Option<Status>,
}

/// State of a request.
#[derive(Clone, Copy)]
enum Transfer {
    Free,
    /// Under way: the memory, the message's length, and the bytes of both that have moved. A receiver learns the length
    /// from the connection.
    Moving {
        memory: Memory,
        length: [u8; LENGTH_BYTES],
        moved: usize,
    },
    /// Ended, with this many bytes.
    Ended(usize),
}

/// Result of an attempt to move bytes.
enum Moved {
    /// Bytes moved.
    Some(usize),
    /// The kernel has no room, or nothing has arrived.
    Blocked,
}

impl Stream {
    /// An end of a connection: the sending one, or the receiving one.
    pub fn new(
        stream: TcpStream,
        is_sending: bool,
        failure_after: Duration,
    ) -> Result<Stream, Failure> {
        let peer = stream.peer_addr().map_err(Failure::system("a connection has no other end"))?;
        watch(&stream, failure_after).map_err(Failure::system("cannot set up a connection"))?;
        Ok(Stream(Mutex::new(State {
            stream,
            peer,
            is_sending,
            silence: Silence::new(failure_after),
            transfers: [Transfer::Free; REQUESTS_MAX],
            queue: VecDeque::new(),
            failed: None,
        })))
    }

    /// Begins to send, or to receive into memory. `None` if as many requests are in flight as there may be.
    pub fn begin(&self, memory: Memory) -> Result<Option<usize>, Failure> {
        let mut state = lock(&self.0);
        if let Some(status) = state.failed {
            return Err(Failure::logged(status));
        }
        let is_free = |transfer: &Transfer| matches!(transfer, Transfer::Free);
        let Some(index) = state.transfers.iter().position(is_free) else { return Ok(None) };
        let length = (memory.len() as u64).to_le_bytes();
        state.transfers[index] = Transfer::Moving { memory, length, moved: 0 };
        state.queue.push_back(index);
        // What can be moved at once is. A failure shows when the request is tested.
        let _ = state.progress(index);
        Ok(Some(index))
    }

    /// Returns the number of bytes once the request has ended, which frees it.
    pub fn test(&self, index: usize) -> Result<Option<usize>, Failure> {
        let mut state = lock(&self.0);
        if matches!(state.transfers[index], Transfer::Moving { .. }) {
            state.progress(index)?;
        }
        match state.transfers[index] {
            Transfer::Ended(bytes) => {
                state.transfers[index] = Transfer::Free;
                Ok(Some(bytes))
            }
            Transfer::Moving { .. } => Ok(None),
            Transfer::Free => Err(Failure::argument("the request has ended already")),
        }
    }
}

impl State {
    /// Moves bytes until the request has ended, the kernel has no more, or this was enough for one call.
    fn progress(&mut self, until: usize) -> Result<(), Failure> {
        if let Some(status) = self.failed {
            return Err(Failure::logged(status));
        }
        let mut budget = BYTES_PER_CALL;
        while let Some(first) = self.queue.front().copied() {
            match self.progress_one(first) {
                Ok(Moved::Some(bytes)) => budget = budget.saturating_sub(bytes),
                Ok(Moved::Blocked) if self.is_sending && self.silence.is_there(&self.stream) => {
                    let failure = self.gone("its host does not answer");
                    return Err(self.fail(failure));
                }
                Ok(Moved::Blocked) => return Ok(()),
                Err(failure) => return Err(self.fail(failure)),
            }
            let has_ended = matches!(self.transfers[until], Transfer::Ended(_));
            if has_ended || budget == 0 {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Moves bytes of the first request in the queue.
    fn progress_one(&mut self, index: usize) -> Result<Moved, Failure> {
        let Transfer::Moving { memory, mut length, moved } = self.transfers[index] else {
            self.queue.pop_front();
            return Ok(Moved::Some(0));
        };
        let result = if self.is_sending {
            send(&self.stream, memory, &length, moved)
        } else {
            receive(&self.stream, memory, &mut length, moved)?
        };
        let bytes = match result {
            Ok(0) => return Err(self.gone("it closed the connection")),
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Moved::Blocked),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(Moved::Some(0)),
            Err(error) => return Err(self.gone(&error.to_string())),
        };
        let moved = moved + bytes;
        let total = length_of(length).filter(|_| moved >= LENGTH_BYTES);
        self.transfers[index] = match total {
            // The length may be anything: nothing is added to it.
            Some(message) if moved - LENGTH_BYTES == message => {
                self.queue.pop_front();
                Transfer::Ended(message)
            }
            _ => Transfer::Moving { memory, length, moved },
        };
        Ok(Moved::Some(bytes))
    }

    fn gone(&self, why: &str) -> Failure {
        Failure::new(status::REMOTE, format!("the rank at {} is gone: {why}", self.peer))
    }

    /// Keeps the failure for all later calls, and logs it once.
    fn fail(&mut self, failure: Failure) -> Failure {
        self.failed = Some(failure.status);
        if let Some(text) = &failure.text {
            log::warn(text);
        }
        Failure::logged(failure.status)
    }
}

/// Length of a message, if it fits this machine.
fn length_of(length: [u8; LENGTH_BYTES]) -> Option<usize> {
    usize::try_from(u64::from_le_bytes(length)).ok()
}

fn send(
    mut stream: &TcpStream,
    memory: Memory,
    length: &[u8; LENGTH_BYTES],
    moved: usize,
) -> io::Result<usize> {
    let body = memory.skip(moved.saturating_sub(LENGTH_BYTES));
    if moved >= LENGTH_BYTES {
        return stream.write(body.as_ref());
    }
    stream.write_vectored(&[IoSlice::new(&length[moved..]), IoSlice::new(body.as_ref())])
}

/// Receives the rest of the length, or of the message. The outer error is a message that does not fit.
fn receive(
    mut stream: &TcpStream,
    memory: Memory,
    length: &mut [u8; LENGTH_BYTES],
    moved: usize,
) -> Result<io::Result<usize>, Failure> {
    if moved < LENGTH_BYTES {
        return Ok(stream.read(&mut length[moved..]));
    }
    let room = memory.len();
    let Some(message) = length_of(*length).filter(|message| *message <= room) else {
        let message = u64::from_le_bytes(*length);
        let text = format!("a message of {message} bytes came where {room} were expected");
        return Err(Failure::new(status::INVALID_USAGE, text));
    };
    Ok(stream.read(memory.first(message).skip(moved - LENGTH_BYTES).as_mut()))
}
