//! One direction of a cable: a queue, a transmitter, and the packets on the wire.
//!
//! **One event a hop.** The loop only has to know when the next packet comes out at the far end.
//! When the transmitter becomes free is worked out later, on demand: who leaves at that moment
//! depends only on what arrived before it, so the link *catches up* before anything is put into its
//! queue and before its wire runs empty. Links whose departures matter at the exact moment, because
//! they share a buffer, because a machine is asked for the next packet, or because a fault may hold a
//! packet on the wire while later ones overtake it, are *eager* and have an event for each departure
//! too.

use std::collections::VecDeque;

use thalweg_core::{Bytes, NodeId, Rate, Rng, Span, Time};

use crate::agenda::Agenda;
use crate::config::Config;
use crate::fault::LinkFaults;
use crate::pool::{PacketRef, Pool};
use crate::queue::{Fifo, Marking, Queue};
use crate::stats::LinkStats;
use crate::topology::{Cable, LinkId, Topology};

/// A packet in flight on the wire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlight {
    pub(crate) arrives: Time,
    pub(crate) packet: PacketRef,
    /// True if it is lost on the link. It still takes its time.
    pub(crate) lost: bool,
}

/// Fields are laid out as written: what every packet touches fills the first two cache lines.
#[repr(C, align(64))]
pub(crate) struct Link {
    /// When the transmitter is, or was, free again.
    pub(crate) busy_until: Time,
    /// The moment that the agenda has for this link.
    pub(crate) armed: Time,
    /// Packets in `queue`, at hand without a call.
    pub(crate) waiting: u32,
    pub(crate) eager: bool,
    /// Of a host: what it sends waits in the machine.
    pub(crate) pulls: bool,
    /// True if the machine must be asked for a packet when the transmitter is free.
    pub(crate) wants_pull: bool,
    is_faulty: bool,
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    /// Everything that has begun to be sent, by time of arrival.
    pub(crate) wire: VecDeque<InFlight>,
    /// Picoseconds a byte where that is all there is to a serialisation time, else 0.
    ps_per_byte: u64,
    delay: Span,
    pub(crate) queue: Box<dyn Queue>,
    pub(crate) stats: LinkStats,
    rate: Rate,
    pub(crate) faults: LinkFaults,
    /// When the last packet that nobody may overtake arrives.
    last_in_turn: Time,
}

impl Link {
    pub(crate) fn new(id: LinkId, topology: &Topology, config: &Config, rng: &Rng) -> Link {
        let Cable { rate, delay, .. } = topology.cables()[id.index() / 2];
        let (from, to) = topology.link_ends(id);
        let pulls = topology.is_host(from);
        let faults = LinkFaults::new(id, &config.faults, topology, rng);
        let byte_at_1_bps_ps = 8_000_000_000_000;
        // Where a byte takes a whole number of picoseconds, a packet takes a multiple of it, if that
        // fits 64 bits for every packet.
        let is_simple = byte_at_1_bps_ps % rate.as_bps() == 0 && rate.as_bps() >= 1_000_000;
        Link {
            busy_until: Time::ZERO,
            armed: Time::NEVER,
            waiting: 0,
            eager: pulls || config.buffer.is_shared() || faults.can_delay(),
            pulls,
            wants_pull: false,
            is_faulty: !faults.is_empty(),
            from,
            to,
            wire: VecDeque::new(),
            ps_per_byte: if is_simple { byte_at_1_bps_ps / rate.as_bps() } else { 0 },
            delay,
            // A host's machine is its queue. Only what it forwards waits here.
            queue: if pulls {
                Box::new(Fifo::new(Marking::NONE))
            } else {
                config.discipline.queue(&rng.substream("queue", u64::from(id.0)))
            },
            stats: LinkStats::default(),
            rate,
            faults,
            last_in_turn: Time::ZERO,
        }
    }

    #[inline]
    pub(crate) fn is_idle(&self, now: Time) -> bool {
        self.busy_until <= now && self.waiting == 0
    }

    /// Sends a packet from `start` on.
    #[inline]
    pub(crate) fn serve(&mut self, packet: PacketRef, bytes: u32, start: Time, pool: &mut Pool) {
        self.busy_until = start + self.serialization(bytes);
        self.stats.sent_packets += 1;
        self.stats.sent_bytes += u64::from(bytes);
        let arrives = self.busy_until + self.delay;
        if self.is_faulty {
            self.serve_by_fate((packet, bytes), arrives, start, pool);
        } else {
            self.wire.push_back(InFlight { arrives, packet, lost: false });
        }
    }

    /// Does what the transmitter would have done by now, and says how many bytes left the queue.
    #[inline]
    pub(crate) fn catch_up(&mut self, now: Time, pool: &mut Pool) -> u64 {
        let mut left_bytes = 0;
        while self.waiting > 0 && self.busy_until <= now {
            let (packet, bytes) = self.queue.dequeue().expect("as many as were counted");
            self.waiting -= 1;
            self.serve(packet, bytes, self.busy_until, pool);
            left_bytes += u64::from(bytes);
        }
        left_bytes
    }

    /// Tells the agenda when this link next needs the loop.
    #[inline]
    pub(crate) fn rearm(&mut self, id: LinkId, now: Time, agenda: &mut Agenda) {
        let at = self.next_event(now);
        // An event that is being handled must be set anew even if the next one is at the same time.
        if at != self.armed || at == now {
            self.armed = at;
            agenda.set(id.0, at);
        }
    }

    /// The next arrival or, where it counts, the next departure.
    #[inline]
    fn next_event(&self, now: Time) -> Time {
        let arrival = self.wire.front().map_or(Time::NEVER, |next| next.arrives);
        let wants_departure = self.wants_pull || (self.eager && self.waiting > 0);
        if wants_departure && self.busy_until > now {
            return arrival.min(self.busy_until);
        }
        arrival
    }

    #[inline]
    fn serialization(&self, bytes: u32) -> Span {
        if self.ps_per_byte != 0 {
            return Span::from_ps(u64::from(bytes) * self.ps_per_byte);
        }
        self.rate.serialization(Bytes::from(bytes))
    }

    #[cold]
    fn serve_by_fate(
        &mut self,
        (packet, bytes): (PacketRef, u32),
        arrives: Time,
        start: Time,
        pool: &mut Pool,
    ) {
        let fate = self.faults.judge(start, bytes);
        let in_turn = self.last_in_turn.max(arrives + fate.delayed);
        if fate.held == Span::ZERO {
            self.last_in_turn = in_turn;
        }
        let arrives = in_turn + fate.held;
        self.insert(InFlight { arrives, packet, lost: fate.is_lost });
        for _ in 0..fate.copies {
            let copy = pool.copy(packet);
            self.stats.duplicated_packets += 1;
            self.insert(InFlight { arrives, packet: copy, lost: fate.is_lost });
        }
    }

    /// Keeps the wire in order of arrival; equal times in order of sending.
    fn insert(&mut self, flight: InFlight) {
        let behind = self.wire.iter().rev().take_while(|other| other.arrives > flight.arrives);
        let position = self.wire.len() - behind.count();
        self.wire.insert(position, flight);
    }
}
