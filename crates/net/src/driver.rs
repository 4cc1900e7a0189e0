//! The loop that runs a machine over a socket.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use thalweg_core::{
    Body, Dscp, Ecn, HEADER_BYTES, MTU_BYTES_MAX, Meta, NodeId, Packet, Reports, Span, Time,
    Verdict, body_bytes_of_mtu,
};
use thiserror::Error;

use crate::clock::{Clock, duration};
use crate::cut::{Uncuttable, segment_bytes};
use crate::depth::Depth;
use crate::memory::Memory;
use crate::message::{Arrival, MESSAGES_PER_CALL};
use crate::outbox::{Arena, Lender, Pace, enqueue};
use crate::pacer::HostPacer;
use crate::peers::Peers;
use crate::queue::{Area, Areas, Extent, Obstacle, SendQueue};
use crate::socket::{Endpoint, SEND_BYTES};
use crate::stats::Stats;
use crate::waker::Waker;

/// Room for the largest batch that the kernel coalesces.
const SLOT_BYTES: usize = 1 << 16;
/// Number of times that a turn refills the outbox before it looks at what arrived.
const REFILLS_PER_TURN: usize = 4;
/// Longest time until a sleeping driver notices the stop flag.
const STOP_LATENCY: Duration = Duration::from_millis(10);
/// Pause when the system has no memory for a packet. To ask at once would take the
/// processor from those who could free some.
const NO_MEMORY_PAUSE: Duration = Duration::from_millis(1);
/// IP and UDP headers.
const HEADERS_V4_BYTES: u32 = 28;
const HEADERS_V6_BYTES: u32 = 48;

/// Settings of a driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DriverConfig {
    /// Node of this driver: the source of what it sends and the destination of what it receives.
    pub node: NodeId,
    /// Bytes that a packet occupies of a link beside its IP packet. 38 by default: Ethernet's preamble,
    /// header, checksum and gap.
    pub framing_bytes: u32,
    /// GSO batches to take in with one call and one reading of the clock, 1 to
    /// [`MESSAGES_PER_CALL`]. 8 by default: half a megabyte, which stays in a core's cache.
    pub burst_batches: usize,
    /// The longest packet that the machine may send, header included. 8,960 by default: what fills a jumbo frame.
    pub max_packet_bytes: usize,
    /// Memory for what the machine sends between two calls to the kernel. 256 KiB by default: four
    /// GSO batches. More makes longer batches for many destinations; less leaves more of what
    /// waits for a slow interface in the machine, which can still change its mind.
    pub outbox_bytes: usize,
    /// Time that a packet is kept if the kernel has no room for it. 100 ms by default: every transport has given such a
    /// packet up by then.
    pub patience: Span,
    /// Bytes of the socket's send buffer, where its depth follows the rate of the interface: the buffer and the outbox hold
    /// about two milliseconds, and at most this. `None` by default: the buffer stays as it was opened.
    // spec: F-07
    pub send_buffer_most_bytes: Option<usize>,
    /// Wait of a driver that has nothing to do.
    pub wait: Wait,
}

/// Wait of a driver that has nothing to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Wait {
    /// Leaves the core to others. A wake-up takes some 50 µs.
    #[default]
    Sleep,
    /// Asks again at once, for which it wants a core of its own. Other threads that wait for the core get it in between.
    Spin,
}

impl Default for DriverConfig {
    fn default() -> DriverConfig {
        DriverConfig {
            node: NodeId(0),
            framing_bytes: 38,
            burst_batches: 8,
            max_packet_bytes: HEADER_BYTES + body_bytes_of_mtu(MTU_BYTES_MAX) as usize,
            outbox_bytes: 256 << 10,
            patience: Span::from_ms(100),
            send_buffer_most_bytes: None,
            wait: Wait::Sleep,
        }
    }
}

/// Why a driver cannot start, or not go on.
#[derive(Debug, Error)]
pub enum DriverError {
    /// A burst of none, or of more than one call takes.
    #[error("burst_batches is {0}; choose 1 to {MESSAGES_PER_CALL}")]
    Burst(usize),
    /// Packets without room for a header, or longer than a datagram.
    #[error("max_packet_bytes is {0}; choose {HEADER_BYTES} to {SEND_BYTES}")]
    PacketSize(usize),
    /// An outbox that cannot hold one packet.
    #[error("outbox_bytes is {0}; choose at least max_packet_bytes and 8 more")]
    OutboxSize(usize),
    /// A peer that the socket cannot reach.
    #[error("the peer {peer} and the socket {socket} must both be IPv4 or both IPv6")]
    Family {
        /// The peer's address.
        peer: SocketAddr,
        /// The socket's.
        socket: SocketAddr,
    },
    /// The machine sends packets that are too long for this driver.
    #[error(
        "the machine wants to send a packet of {bytes} bytes, and max_packet_bytes is {limit}; \
         raise that, to at most {SEND_BYTES}, or let the machine send shorter packets"
    )]
    Oversize {
        /// Length of the first such packet, header included.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The socket is broken.
    #[error("the socket failed: {0}")]
    Socket(#[from] io::Error),
}

/// Result of one turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Turn {
    /// Packets that the machine was handed.
    pub packets: usize,
    /// True if there was nothing left to receive or to send when it ended.
    pub is_idle: bool,
}

/// Runs one machine over one socket: any machine of the contract, as it is, so that what was
/// simulated is what runs.
///
/// The thread belongs to the caller, who calls [`run`](Driver::run), or [`turn`](Driver::turn) and
/// [`wait`](Driver::wait) in a loop of his own, with [`command`](Driver::command) between them. A
/// turn never waits. Events go to the function that each call is given. Commands of other threads
/// come through whatever the caller shares with them, and a [`Waker`].
///
/// When the kernel has no room, the driver keeps what it has, and asks the machine for nothing until that is sent. It
/// receives meanwhile, unless what it keeps lies where received packets do. So what it keeps is bounded by one burst and
/// one outbox.
// spec: T-03
#[derive(Debug)]
pub struct Driver<M> {
    config: DriverConfig,
    endpoint: Endpoint,
    peers: Peers,
    machine: M,
    clock: Clock,
    /// Bytes that a packet occupies of a link beside the datagram.
    overhead_bytes: u32,
    received: Memory,
    arrivals: [Arrival; MESSAGES_PER_CALL],
    arena: Arena,
    queue: SendQueue,
    stats: Stats,
    /// None before the first is asked for.
    waker: Option<Waker>,
    pacer: Option<Held>,
}

/// A pacer, whatever it is.
struct Held(Box<dyn HostPacer + Send>);

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a pacer")
    }
}

impl<M: Reports> Driver<M> {
    /// Takes in everything a run needs. Time starts here, at less than a second: full ones are those of
    /// the system's clock.
    pub fn new(
        config: DriverConfig,
        endpoint: Endpoint,
        peers: Peers,
        machine: M,
    ) -> Result<Driver<M>, DriverError> {
        config.check()?;
        let socket = endpoint.local_address();
        if let Some(peer) = peers.addresses().find(|peer| peer.is_ipv4() != socket.is_ipv4()) {
            return Err(DriverError::Family { peer, socket });
        }
        let headers_bytes = if socket.is_ipv4() { HEADERS_V4_BYTES } else { HEADERS_V6_BYTES };
        Ok(Driver {
            overhead_bytes: headers_bytes.saturating_add(config.framing_bytes),
            received: Memory::new(config.burst_batches * SLOT_BYTES),
            arrivals: [Arrival::default(); MESSAGES_PER_CALL],
            arena: Arena::new(config.outbox_bytes, config.max_packet_bytes),
            queue: SendQueue::new(config.patience, config.send_buffer_most_bytes.map(Depth::new)),
            stats: Stats::default(),
            waker: None,
            pacer: None,
            clock: Clock::start(),
            config,
            endpoint,
            peers,
            machine,
        })
    }

    /// Turns until `stop` is set. A sleeping driver notices within some milliseconds, or at once when
    /// it is [woken](Driver::waker).
    pub fn run(
        &mut self,
        stop: &AtomicBool,
        mut events: impl FnMut(M::Event),
    ) -> Result<(), DriverError> {
        while !stop.load(Ordering::Relaxed) {
            if self.turn(&mut events)?.is_idle {
                self.wait(STOP_LATENCY)?;
            }
        }
        Ok(())
    }

    /// Receives a burst, does what is due, and sends what comes of it. An error is of the socket, or
    /// says that the machine wanted, in this turn or in a command before it, to send a packet that is
    /// too long: to the machine it looked as if there were no room, so it may wait for ever.
    pub fn turn(&mut self, mut events: impl FnMut(M::Event)) -> Result<Turn, DriverError> {
        // What waits to be sent may lie where the next burst would go.
        let batches = if self.queue.refers_to_received() { 0 } else { self.receive()? };
        let now = self.clock.now();
        if self.machine.poll_timeout() <= now {
            self.machine.handle_timeout(now);
            self.drain(now, &mut events);
        }
        let packets_before = self.stats.received_packets;
        for slot in 0..batches {
            self.hand_over(slot, now, &mut events);
        }
        let has_more = self.refill(now, &mut events);
        if let Some(bytes) = self.arena.take_oversize() {
            return Err(DriverError::Oversize { bytes, limit: self.config.max_packet_bytes });
        }
        Ok(Turn {
            packets: (self.stats.received_packets - packets_before) as usize,
            is_idle: batches < self.config.burst_batches && !has_more,
        })
    }

    /// Gives the machine an input of the caller's own, and sends what comes of it.
    pub fn command<R>(
        &mut self,
        command: impl FnOnce(&mut M, Time) -> R,
        mut events: impl FnMut(M::Event),
    ) -> R {
        let now = self.clock.now();
        let answer = command(&mut self.machine, now);
        self.refill(now, &mut events);
        answer
    }

    /// Waits as configured until there may be something to do, or somebody wakes it, but not longer
    /// than `at_most`.
    pub fn wait(&mut self, at_most: Duration) -> Result<(), DriverError> {
        if self.config.wait == Wait::Spin {
            // Where there are more such threads than cores, the one that has work to do is another.
            std::thread::yield_now();
            return Ok(());
        }
        let now = self.clock.now();
        let mut until_due = duration(self.machine.poll_timeout().since(now));
        if let Some(pacer) =
            self.pacer.as_ref().filter(|pacer| !pacer.0.is_open() && self.machine.has_backlog())
        {
            until_due = until_due.min(duration(pacer.0.next_send(now).since(now)));
        }
        let at_most = until_due.min(at_most);
        let (writable, at_most) = match self.queue.obstacle() {
            None => (None, at_most),
            Some(Obstacle::FullBuffer) => (Some(self.queue.path()), at_most),
            Some(Obstacle::NoMemory) => (None, at_most.min(NO_MEMORY_PAUSE)),
        };
        let is_readable = !self.queue.refers_to_received();
        let waker = self.waker.as_ref();
        Ok(self.endpoint.wait_or_wake(is_readable, writable, waker, at_most)?)
    }

    /// Handle by which another thread ends the driver's sleep.
    pub fn waker(&mut self) -> io::Result<Waker> {
        if let Some(waker) = &self.waker {
            return Ok(waker.clone());
        }
        let waker = Waker::new()?;
        self.waker = Some(waker.clone());
        Ok(waker)
    }

    /// From now on packets leave when the pacer allows one, a few at a time; control packets do not wait. The
    /// pacer has to let those that follow make up for what a late wake-up missed.
    pub fn set_pacer(&mut self, pacer: Option<Box<dyn HostPacer + Send>>) {
        self.pacer = pacer.map(Held);
    }

    /// The time that machines are given.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// The machine.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// The machine, when the run is over.
    pub fn into_machine(self) -> M {
        self.machine
    }

    /// The table of peers, to add to it.
    pub fn peers_mut(&mut self) -> &mut Peers {
        &mut self.peers
    }

    /// The address others reach this node at.
    pub fn local_address(&self) -> SocketAddr {
        self.endpoint.local_address()
    }

    /// Counts so far.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Fills the slots with what is there.
    fn receive(&mut self) -> Result<usize, DriverError> {
        let mut slots = self.received.chunks_exact_mut(SLOT_BYTES);
        let mut buffers: [IoSliceMut<'_>; MESSAGES_PER_CALL] =
            std::array::from_fn(|_| IoSliceMut::new(slots.next().unwrap_or_default()));
        let buffers = &mut buffers[..self.config.burst_batches];
        match self.endpoint.receive(buffers, &mut self.arrivals) {
            Ok(batches) => {
                self.stats.received_batches += batches as u64;
                Ok(batches)
            }
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => Ok(0),
            Err(error) if passes(&error) => {
                self.stats.receive_errors += 1;
                Ok(0)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Hands the packets of one GSO batch to the machine, where they are.
    fn hand_over(&mut self, slot: usize, now: Time, events: &mut impl FnMut(M::Event)) {
        let arrival = self.arrivals[slot];
        let Some((segment_bytes, meta)) = self.admit(&arrival) else { return };
        let slot_start = slot * SLOT_BYTES;
        for start in (0..arrival.bytes).step_by(segment_bytes) {
            let bytes = segment_bytes.min(arrival.bytes - start);
            let extent = Extent { area: Area::Received, start: slot_start + start, bytes };
            self.hand_over_packet(extent, meta, now);
            self.drain(now, events);
        }
    }

    /// Segment length and metadata of a GSO batch, unless the batch is dropped.
    fn admit(&mut self, arrival: &Arrival) -> Option<(usize, Meta)> {
        let stats = &mut self.stats;
        let segment_bytes = match segment_bytes(arrival, SLOT_BYTES) {
            Ok(bytes) => bytes,
            Err(reason) => {
                match reason {
                    Uncuttable::Truncated => stats.dropped_truncated += 1,
                    Uncuttable::BadSegment => stats.dropped_bad_segment += 1,
                }
                return None;
            }
        };
        if segment_bytes < HEADER_BYTES {
            stats.dropped_short += arrival.bytes.div_ceil(segment_bytes).max(1) as u64;
            return None;
        }
        let sender = arrival.from.and_then(|from| Some((from, self.peers.node(from)?)));
        let Some((from, node)) = sender else {
            stats.dropped_strangers += 1;
            return None;
        };
        let meta = Meta {
            src: node,
            dst: self.config.node,
            wire_bytes: 0,
            rank: 0,
            entropy: from.port(),
            dscp: Dscp::new(arrival.tos >> 2),
            ecn: Ecn::from_bits(arrival.tos),
        };
        Some((segment_bytes, meta))
    }

    #[inline]
    fn hand_over_packet(&mut self, extent: Extent, mut meta: Meta, now: Time) {
        let Driver { machine, queue, peers, stats, received, overhead_bytes, endpoint, .. } = self;
        let paths = endpoint.paths();
        let datagram = &mut received[extent.start..extent.start + extent.bytes];
        let Some((header, body)) = datagram.split_first_chunk_mut() else {
            stats.dropped_short += 1;
            return;
        };
        meta.wire_bytes = overhead_bytes.saturating_add(extent.bytes as u32);
        stats.received_packets += 1;
        let packet = Packet { meta: &mut meta, header, body: Body::Bytes(body) };
        match machine.handle_packet(now, packet) {
            Verdict::Consume => {}
            Verdict::Forward => {
                stats.forwarded_packets += 1;
                enqueue(queue, peers, paths, stats, meta.dst, &meta, extent);
            }
            Verdict::Multicast(nodes) => {
                stats.forwarded_packets += nodes.len() as u64;
                for &node in nodes {
                    enqueue(queue, peers, paths, stats, node, &meta, extent);
                }
            }
        }
    }

    /// Takes what the machine has to send, as far as there is room, and to tell.
    /// Answers whether it may send more at once if there is room.
    #[inline]
    fn drain(&mut self, now: Time, events: &mut impl FnMut(M::Event)) -> bool {
        let mut was_cut_short = false;
        if self.arena.room() > 0 && !self.queue.is_deferred() {
            let overhead_bytes = self.overhead_bytes;
            let pace = self.pacer.as_mut();
            let left_packets = pace.as_ref().map_or(usize::MAX, |pacer| {
                if pacer.0.next_send(now) <= now { pacer.0.burst_packets() } else { 0 }
            });
            let mut lender = Lender {
                source: self.config.node,
                arena: &mut self.arena,
                queue: &mut self.queue,
                peers: &self.peers,
                paths: self.endpoint.paths(),
                stats: &mut self.stats,
                left_packets,
                pace: pace.map(|pacer| Pace { pacer: &mut *pacer.0, now, overhead_bytes }),
            };
            self.machine.poll_transmit(now, &mut lender);
            lender.settle();
            was_cut_short = left_packets > 0 && lender.left_packets == 0;
        }
        while let Some(event) = self.machine.poll_event() {
            events(event);
        }
        was_cut_short
    }

    /// Sends, and asks the machine for more as room appears. Answers whether it may have still more.
    fn refill(&mut self, now: Time, events: &mut impl FnMut(M::Event)) -> bool {
        for _ in 0..REFILLS_PER_TURN {
            let was_cut_short = self.drain(now, events);
            let had_no_room = was_cut_short || self.arena.room() == 0 || self.queue.is_deferred();
            self.flush(now);
            let has_room = self.queue.is_empty();
            if !(had_no_room && has_room) {
                return false;
            }
        }
        true
    }

    fn flush(&mut self, now: Time) {
        let areas = Areas { received: &self.received, lent: self.arena.bytes() };
        self.queue.flush(now, areas, &mut self.endpoint, &mut self.stats);
        if self.queue.is_empty() {
            self.arena.reset();
        }
        if let Some(bytes) = self.queue.take_changed_depth() {
            // Where it fails the buffer stays as deep as it was.
            let _ = self.endpoint.set_send_buffer_bytes(bytes);
            let is_most = Some(bytes) == self.config.send_buffer_most_bytes;
            self.arena.set_limit(if is_most { self.config.outbox_bytes } else { bytes });
        }
    }
}

impl DriverConfig {
    fn check(&self) -> Result<(), DriverError> {
        if !(1..=MESSAGES_PER_CALL).contains(&self.burst_batches) {
            return Err(DriverError::Burst(self.burst_batches));
        }
        if !(HEADER_BYTES..=SEND_BYTES).contains(&self.max_packet_bytes) {
            return Err(DriverError::PacketSize(self.max_packet_bytes));
        }
        if self.outbox_bytes < self.max_packet_bytes + 8 {
            return Err(DriverError::OutboxSize(self.outbox_bytes));
        }
        Ok(())
    }
}

/// True if an error is that of a packet and not of the socket.
fn passes(error: &io::Error) -> bool {
    use libc::{
        EACCES, ECONNREFUSED, EHOSTUNREACH, EMSGSIZE, ENETDOWN, ENETUNREACH, ENOBUFS, ENOMEM,
        EPROTO,
    };
    matches!(
        error.raw_os_error(),
        Some(
            EACCES
                | ECONNREFUSED
                | EHOSTUNREACH
                | EMSGSIZE
                | ENETDOWN
                | ENETUNREACH
                | ENOBUFS
                | ENOMEM
                | EPROTO
        )
    )
}

#[cfg(test)]
mod tests;
