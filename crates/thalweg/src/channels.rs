//! Messages between two processes, one way and in order, over flows.
//!
//! All channels of a process share one UDP socket and one thread. The processes have met over a TCP connection, which stays
//! open: it agrees on the name and the key of the channel, and its kernels notice when a process or a host is gone. A
//! receiver grants messages when it has memory for them, so that none waits in a process that does not want it.
//!
//! The last thing that a receiver sends over the TCP connection is the number of messages that it has. An acknowledgement
//! that was lost when it ended is then no failure.
// spec: N-01, N-06

mod engine;
mod link;
mod links;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use thalweg_control::random;
use thalweg_core::{JobId, NodeId, Span};
use thalweg_net::{Driver, DriverConfig, Endpoint, EndpointConfig, Network, Peers, Waker, mtu_of};
use thalweg_wire::tag::Key;

use self::engine::{Command, Engine, Opened};
use self::link::Link;
pub(crate) use self::link::{PIECE_BYTES, PIECE_HEADER_BYTES};
use self::links::Links;
use crate::error::{Error, ErrorKind};
use crate::session::ByteMemory;
use crate::tuning;

/// Largest number of requests of a channel that are in flight.
const REQUESTS_MAX: usize = 32;

/// States of a request. Any other value is the number of bytes of one that has ended, and [`ENDED`].
const FREE: u64 = 0;
const MOVING: u64 = 1;
const ENDED: u64 = 2;

/// Memory of a request, which the caller keeps valid until the request has ended or the channel is dropped.
pub type RequestMemory = Box<dyn ByteMemory>;

/// Direction of the messages of a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// This process sends.
    Sending,
    /// This process receives.
    Receiving,
}

/// Name and key of a channel, which both ends have to know and nobody else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChannelKey {
    /// A number that nobody can guess.
    pub name: u64,
    /// The key of its packets.
    pub key: [u8; 16],
}

/// The channels of a process: a socket and a thread, which end when this and all channels are dropped.
pub struct Channels {
    address: SocketAddr,
    network: Network,
    segment_bytes: u32,
    commands: Sender<Command>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
    /// The process that has the thread. A child of it does not.
    pid: u32,
}

impl Channels {
    /// Opens a socket at an address of this host, and starts the thread.
    ///
    /// # Errors
    ///
    /// [`System`](ErrorKind::System) if there is no port or no thread.
    pub fn start(bind: IpAddr) -> Result<Arc<Channels>, Error> {
        let config = EndpointConfig { bind: (bind, 0).into(), ..EndpointConfig::default() };
        let send_buffer_bytes = config.send_buffer_bytes;
        let endpoint = Endpoint::open_block(&config)?;
        let address = endpoint.local_address();
        let network = Network::of(address.ip());
        let node = network.node(address).ok_or_else(|| Error::other_network(address, address))?;
        let config = DriverConfig {
            node,
            send_buffer_most_bytes: Some(send_buffer_bytes),
            ..DriverConfig::default()
        };
        let mut driver =
            Driver::new(config, endpoint, Peers::in_network(network), Links::default())?;
        let waker = driver.waker().map_err(Error::system("cannot make a wake-up"))?;
        let (commands, inbox) = channel();
        let thread = std::thread::Builder::new()
            .name("thalweg-flows".into())
            .spawn(move || Engine::new(driver, inbox).run())
            .map_err(Error::system("cannot start a thread"))?;
        let segment_bytes = tuning::segment_bytes(mtu_of(address.ip()));
        let (thread, pid) = (Some(thread), std::process::id());
        Ok(Arc::new(Channels { address, network, segment_bytes, commands, waker, thread, pid }))
    }

    /// Address of the socket.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns whether a channel to a process at this address is possible: another process, in the same network.
    pub fn can_reach(&self, peer: SocketAddr) -> bool {
        peer != self.address && self.network.node(peer).is_some()
    }

    /// Opens a channel to the process whose socket is at this address. `line` is the connection over which both have
    /// agreed on the key; the caller has its kernel watch the other host. Nothing is sent to the peer for longer than
    /// `patience` without an answer.
    ///
    /// # Errors
    ///
    /// [`Network`](ErrorKind::Network) if the peer [cannot be reached](Channels::can_reach), and
    /// [`System`](ErrorKind::System) if the system refuses the connection.
    pub fn open(
        self: &Arc<Channels>,
        direction: Direction,
        peer: SocketAddr,
        key: ChannelKey,
        line: TcpStream,
        patience: Duration,
    ) -> Result<Channel, Error> {
        let node = self.node_of(peer)?;
        let job = JobId(key.name);
        let patience = Span::from_s_f64(patience.as_secs_f64());
        let flow = tuning::channel_flow(job, Key(key.key), patience, self.segment_bytes);
        let link = Link::new(direction, node, flow)
            .map_err(|error| Error::caused(ErrorKind::Internal, error.to_string(), error))?;
        let state = Arc::new(State::new());
        let name = line.peer_addr().map_or(peer, |address| address);
        line.set_nonblocking(true).map_err(Error::system("cannot set up a connection"))?;
        let opened = Opened::new(line, direction, name, Arc::clone(&state));
        self.send(Command::Open(job, Box::new(link), opened));
        Ok(Channel { channels: Arc::clone(self), job, state })
    }

    fn node_of(&self, peer: SocketAddr) -> Result<NodeId, Error> {
        let node = self.network.node(peer).filter(|_| self.can_reach(peer));
        node.ok_or_else(|| Error::other_network(self.address, peer))
    }

    /// Hands a command over. Returns whether the thread is there.
    fn send(&self, command: Command) -> bool {
        let is_sent = std::process::id() == self.pid && self.commands.send(command).is_ok();
        if is_sent {
            self.waker.wake();
        }
        is_sent
    }
}

impl Drop for Channels {
    fn drop(&mut self) {
        self.send(Command::Stop);
        if let Some(thread) = self.thread.take().filter(|_| std::process::id() == self.pid) {
            // It has failed its channels, if it has panicked.
            let _ = thread.join();
        }
    }
}

/// One end of a channel. Dropping it closes it: then nothing works on the memory of its requests.
pub struct Channel {
    channels: Arc<Channels>,
    job: JobId,
    state: Arc<State>,
}

impl Channel {
    /// Begins to send the memory, or to receive into it. `None` if as many requests are in flight as there may be.
    /// Requests of one channel are matched with those of its other end in their order. Does not wait.
    ///
    /// # Errors
    ///
    /// The reason why the channel has failed.
    pub fn begin(&self, memory: RequestMemory) -> Result<Option<usize>, Error> {
        self.state.check()?;
        let Some(request) = self.state.take() else { return Ok(None) };
        if !self.channels.send(Command::Begin(self.job, request, memory)) {
            self.state.fail(Error::closed());
        }
        Ok(Some(request))
    }

    /// Returns the number of bytes of a request once it has ended, which frees it. Does not wait.
    ///
    /// # Errors
    ///
    /// The reason why the channel has failed, if the request has not ended, and [`Call`](ErrorKind::Call) if there is no
    /// such request.
    pub fn test(&self, request: usize) -> Result<Option<usize>, Error> {
        self.state.test(request)
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        let (done, is_done) = channel();
        if self.channels.send(Command::Close(self.job, done)) {
            // The thread waits for nobody. It may be gone, which drops the command.
            let _ = is_done.recv();
        }
    }
}

/// The state of a channel that both threads see.
struct State {
    requests: [AtomicU64; REQUESTS_MAX],
    failure: OnceLock<Error>,
}

impl State {
    fn new() -> State {
        State { requests: [const { AtomicU64::new(FREE) }; REQUESTS_MAX], failure: OnceLock::new() }
    }

    /// Takes a free request.
    fn take(&self) -> Option<usize> {
        self.requests.iter().position(|request| {
            request.compare_exchange(FREE, MOVING, Ordering::Acquire, Ordering::Relaxed).is_ok()
        })
    }

    fn test(&self, request: usize) -> Result<Option<usize>, Error> {
        let unknown = || Error::call("the request has ended already");
        let place = self.requests.get(request).ok_or_else(unknown)?;
        match place.load(Ordering::Acquire) {
            FREE => Err(unknown()),
            MOVING => self.check().map(|()| None),
            ended => {
                place.store(FREE, Ordering::Release);
                // It was made from a length.
                Ok(Some((ended - ENDED) as usize))
            }
        }
    }

    fn check(&self) -> Result<(), Error> {
        self.failure.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    fn end(&self, request: usize, bytes: usize) {
        self.requests[request].store(bytes as u64 + ENDED, Ordering::Release);
    }

    /// Ends all requests in flight, and those to come. The first reason stands.
    fn fail(&self, error: Error) {
        let _ = self.failure.set(error);
    }
}

/// Draws the name and the key of a new channel.
///
/// # Errors
///
/// Those of the system's source of random numbers.
pub fn draw_key() -> io::Result<ChannelKey> {
    let [name, low, high] = [random::draw()?, random::draw()?, random::draw()?];
    let mut key = [0; 16];
    key[..8].copy_from_slice(&low.to_le_bytes());
    key[8..].copy_from_slice(&high.to_le_bytes());
    Ok(ChannelKey { name, key })
}

#[cfg(test)]
mod tests;
