//! One end of a channel over flows.
//!
//! The ends meet over TCP, at the address in the handle. The caller sends the address of its UDP socket with the secret, and
//! the other end answers with that of its own, and with the name and the key of the channel. The connection stays open.
// spec: N-01

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use thalweg::Error;
use thalweg::internal::{self, ChannelKey, Channels, Direction, draw_key};

use crate::abi::status;
use crate::device::device;
use crate::failure::Failure;
use crate::handle::{ADDRESS_BYTES, address_bytes, read_address};
use crate::listening::{lock, watch};
use crate::log;
use crate::memory::Memory;
use crate::settings;

/// Bytes of the answer to a caller: one that says whether there is a flow, the address, the name and the key.
pub const ANSWER_BYTES: usize = 1 + ADDRESS_BYTES + 8 + 16;
/// First byte of an answer: messages go over the TCP connection, since there is no flow between these two ends.
const OVER_TCP: u8 = 0;
/// First byte of an answer: messages go over a flow.
const OVER_FLOW: u8 = 1;

/// One end of a channel over flows. All channels of the process share a thread, which ends with the last one.
pub struct Flow {
    channel: internal::Channel,
    has_logged: AtomicBool,
}

/// The other end of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    socket: SocketAddr,
    key: ChannelKey,
}

/// The channels of this process.
static CHANNELS: Mutex<Weak<Channels>> = Mutex::new(Weak::new());

/// Returns the channels of this process, and starts their thread where it does not run.
pub fn channels() -> Result<Arc<Channels>, Failure> {
    let mut shared = lock(&CHANNELS);
    if let Some(channels) = shared.upgrade() {
        return Ok(channels);
    }
    let channels = Channels::start(device().address).map_err(|error| Failure::from(&error))?;
    *shared = Arc::downgrade(&channels);
    Ok(channels)
}

/// Answers a caller, and opens the receiving end. `None` if messages go over the TCP connection, which is kept then.
pub fn accept(stream: &TcpStream, caller: Option<SocketAddr>) -> Result<Option<Flow>, Failure> {
    let channels = channels()?;
    let Some(caller) = caller.filter(|caller| channels.can_reach(*caller)) else {
        send(stream, &[OVER_TCP; ANSWER_BYTES])?;
        return Ok(None);
    };
    let key = draw_key().map_err(Failure::system("there are no random bytes"))?;
    send(stream, &Answer { socket: channels.address(), key }.to_bytes())?;
    let answer = Answer { socket: caller, key };
    Flow::open(&channels, Direction::Receiving, answer, stream).map(Some)
}

fn send(mut stream: &TcpStream, answer: &[u8]) -> Result<(), Failure> {
    // Nothing was sent before: the kernel has room for it.
    stream.write_all(answer).map_err(|error| {
        Failure::new(status::REMOTE, format!("a rank that has connected is gone: {error}"))
    })
}

impl Answer {
    fn to_bytes(self) -> [u8; ANSWER_BYTES] {
        let mut bytes = [0; ANSWER_BYTES];
        bytes[0] = OVER_FLOW;
        bytes[1..][..ADDRESS_BYTES].copy_from_slice(&address_bytes(self.socket));
        bytes[1 + ADDRESS_BYTES..][..8].copy_from_slice(&self.key.name.to_le_bytes());
        bytes[1 + ADDRESS_BYTES + 8..].copy_from_slice(&self.key.key);
        bytes
    }

    /// The answer of bytes: `Some(None)` if messages go over TCP, and `None` if they are no answer.
    pub fn read(bytes: &[u8; ANSWER_BYTES]) -> Option<Option<Answer>> {
        match bytes[0] {
            OVER_TCP => Some(None),
            OVER_FLOW => {
                let socket = read_address(bytes[1..].first_chunk()?)?;
                let name = u64::from_le_bytes(*bytes[1 + ADDRESS_BYTES..].first_chunk()?);
                let key = *bytes.last_chunk()?;
                Some(Some(Answer { socket, key: ChannelKey { name, key } }))
            }
            _ => None,
        }
    }
}

impl Flow {
    /// Opens the sending end, with the answer that came over this connection.
    pub fn sending(
        channels: &Arc<Channels>,
        answer: Answer,
        stream: &TcpStream,
    ) -> Result<Flow, Failure> {
        Flow::open(channels, Direction::Sending, answer, stream)
    }

    fn open(
        channels: &Arc<Channels>,
        direction: Direction,
        Answer { socket, key }: Answer,
        stream: &TcpStream,
    ) -> Result<Flow, Failure> {
        let loaded = settings::current();
        let line = stream
            .try_clone()
            .and_then(|line| watch(&line, loaded.failure_after()).map(|()| line))
            .map_err(Failure::system("cannot set up a connection"))?;
        let patience = loaded.operation_timeout();
        let opened = channels.open(direction, socket, key, line, patience);
        let channel = opened.map_err(|error| Failure::from(&error))?;
        Ok(Flow { channel, has_logged: AtomicBool::new(false) })
    }

    /// Begins to send, or to receive into memory. `None` if as many requests are in flight as there may be.
    pub fn begin(&self, memory: Memory) -> Result<Option<usize>, Failure> {
        self.channel.begin(Box::new(memory)).map_err(|error| self.failure(&error))
    }

    /// Returns the number of bytes once the request has ended, which frees it.
    pub fn test(&self, index: usize) -> Result<Option<usize>, Failure> {
        self.channel.test(index).map_err(|error| self.failure(&error))
    }

    /// The failure of the channel, which is logged once.
    // spec: N-06
    fn failure(&self, error: &Error) -> Failure {
        let Failure { status, text } = Failure::from(error);
        if !self.has_logged.swap(true, Ordering::Relaxed)
            && let Some(text) = text
        {
            log::warn(&text);
        }
        Failure::logged(status)
    }
}
