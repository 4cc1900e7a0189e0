//! All incoming messages of an endpoint.
//!
//! Memory is bounded whatever arrives: by limits for messages at once, for real bytes, and for
//! completed messages that are remembered. What does not fit is dropped without an answer, so that its sender
//! tries again later.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::FixedState;
use thalweg_core::{Body, Dscp, Meta, NodeId, Time};
use thalweg_wire::flow::{Ack, Data};

use super::config::MessageConfig;
use super::held::AckTime;
use super::message::{Event, FlowId, Received, packets_of};
use super::receiver::{Intake, Receiver};

/// Stands in the table for a message that is complete.
const COMPLETE: u32 = u32::MAX;

/// Number of places where a new message looks for one whose sender is gone. More than one, so that
/// messages that nobody ends go away faster than they come.
const SWEPT_PLACES: usize = 4;

/// Sender and flow.
type Name = (NodeId, u64);

/// Incoming messages in places that are used again. The places keep the memory of the messages that they had, so that
/// a message allocates nothing; a slab would drop it.
pub struct Incoming {
    /// The place of each message that is arriving, or [`COMPLETE`]. Never iterated.
    table: HashMap<Name, u32, FixedState>,
    receivers: Vec<Receiver>,
    vacant: Vec<u32>,
    /// The completed messages that are remembered, oldest first.
    completed: VecDeque<Name>,
    /// Real bytes that all arriving messages hold.
    held_bytes: u64,
    /// Place where the next search for messages without a sender begins.
    sweep_from: usize,
    arrivals: ArrivalStats,
    /// True if answers report losses that show in the priorities of packets.
    compares_priorities: bool,
}

/// Counts of packets of messages that have arrived.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ArrivalStats {
    /// Packets that came for the first time.
    pub packets: u64,
    /// Packets that had come before: sent again for nothing, or doubled by the network.
    pub copies: u64,
    /// Bytes of full packets that wait for others before them, now.
    pub held_bytes: u64,
    /// The most that ever waited.
    pub peak_held_bytes: u64,
    /// Sum over all packets of what waited of its message when a packet came.
    pub summed_held_bytes: u64,
}

impl ArrivalStats {
    /// Mean over all packets of what waited of its message when a packet came.
    pub fn mean_held_bytes(&self) -> f64 {
        self.summed_held_bytes as f64 / self.packets.max(1) as f64
    }

    /// Counts of two endpoints together. The peak is that of one of them: they need not have been at the same time.
    #[must_use]
    pub fn merge(self, other: ArrivalStats) -> ArrivalStats {
        ArrivalStats {
            packets: self.packets + other.packets,
            copies: self.copies + other.copies,
            held_bytes: self.held_bytes + other.held_bytes,
            peak_held_bytes: self.peak_held_bytes.max(other.peak_held_bytes),
            summed_held_bytes: self.summed_held_bytes + other.summed_held_bytes,
        }
    }

    /// A packet came for the first time, and changed what waits of its message.
    #[inline]
    fn note(&mut self, before_bytes: u64, after_bytes: u64) {
        self.packets += 1;
        self.held_bytes = self.held_bytes - before_bytes + after_bytes;
        self.peak_held_bytes = self.peak_held_bytes.max(self.held_bytes);
        self.summed_held_bytes += after_bytes;
    }
}

/// Why a packet was not taken in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// No honest sender sends it.
    Malformed,
    /// There is no room for it now.
    NoRoom,
}

impl Incoming {
    /// No messages yet. All other calls need the same settings. With `compares_priorities`, answers
    /// report losses that show in the priorities of packets.
    pub(crate) fn new(config: &MessageConfig, compares_priorities: bool) -> Incoming {
        Incoming {
            // The job's random number makes it hard to choose flows that collide.
            table: HashMap::with_hasher(FixedState::with_seed(config.credentials.job.0)),
            receivers: Vec::new(),
            vacant: Vec::new(),
            completed: VecDeque::new(),
            held_bytes: 0,
            sweep_from: 0,
            arrivals: ArrivalStats::default(),
            compares_priorities,
        }
    }

    /// Number of messages that are arriving.
    pub fn live(&self) -> usize {
        self.receivers.len() - self.vacant.len()
    }

    /// Counts of the packets that have arrived so far.
    pub fn arrivals(&self) -> ArrivalStats {
        self.arrivals
    }

    /// Takes in a packet. Returns the answer, and whether it may wait for those of later packets.
    #[inline]
    pub(crate) fn on_data(
        &mut self,
        config: &MessageConfig,
        now: Time,
        meta: &Meta,
        data: &Data,
        body: &Body<'_>,
        events: &mut VecDeque<Event>,
    ) -> Result<(Ack, AckTime), Refusal> {
        if body.len() != data.payload_bytes() as usize {
            return Err(Refusal::Malformed);
        }
        let slot = match self.table.get(&(meta.src, data.flow)) {
            Some(&COMPLETE) => {
                self.arrivals.copies += 1;
                return Ok((answer_complete(config, meta, data)?, AckTime::Alone));
            }
            Some(&slot) => slot,
            None => self.open(config, now, meta.src, data, body)?,
        };
        let receiver = &mut self.receivers[slot as usize];
        let held_before = receiver.held_bytes();
        let intake = receiver.take_in(config, self.compares_priorities, now, data, body);
        let mut ack = answer(config, meta, data);
        ack.cumulative = receiver.cumulative();
        ack.sack = receiver.sack();
        ack.resend = receiver.shows_loss();
        let mut time = AckTime::Now { slot };
        if config.ack_batch_packets > 1 {
            ack.run = receiver.run(data.index);
            let is_plain = !data.wants_ack && !ack.congested && !ack.resend;
            // spec: F-06
            if is_plain && intake == Intake::Taken && receiver.is_calm() {
                time = AckTime::Later { slot, arrived: now };
            }
        }
        match intake {
            Intake::Contradiction => return Err(Refusal::Malformed),
            Intake::TooFarAhead => return Err(Refusal::NoRoom),
            Intake::Copy => self.arrivals.copies += 1,
            Intake::Taken => self.arrivals.note(held_before, receiver.held_bytes()),
            Intake::Complete => {
                self.arrivals.note(held_before, 0);
                events.push_back(Event::Received(self.complete(config, now, slot, meta.dscp)));
            }
        }
        Ok((ack, time))
    }

    /// Takes in a packet that has lost its payload, or was sent to ask. The answer asks for it again if it
    /// is missing.
    pub(crate) fn on_header(
        &mut self,
        config: &MessageConfig,
        now: Time,
        meta: &Meta,
        data: &Data,
        body: &Body<'_>,
    ) -> Result<Ack, Refusal> {
        let slot = match self.table.get(&(meta.src, data.flow)) {
            Some(&COMPLETE) => return answer_complete(config, meta, data),
            Some(&slot) => slot,
            None => self.open(config, now, meta.src, data, body)?,
        };
        let receiver = &mut self.receivers[slot as usize];
        let resend = receiver.hear_of(now, data, body).ok_or(Refusal::Malformed)?;
        let (cumulative, sack) = (receiver.cumulative(), receiver.sack());
        Ok(Ack { cumulative, sack, resend, ..answer(config, meta, data) })
    }

    /// Number of packets of a message that have not arrived; `None` if it is complete or not known.
    pub fn missing(&self, src: NodeId, flow: FlowId) -> Option<u32> {
        let slot = self.table.get(&(src, flow.0)).filter(|slot| **slot != COMPLETE)?;
        Some(self.receivers[*slot as usize].missing())
    }

    /// Makes a place for the message of a first packet.
    fn open(
        &mut self,
        config: &MessageConfig,
        now: Time,
        src: NodeId,
        data: &Data,
        body: &Body<'_>,
    ) -> Result<u32, Refusal> {
        let packets =
            packets_of(data.message_bytes, data.segment_bytes).ok_or(Refusal::Malformed)?;
        self.sweep(config, now);
        let body = match body {
            Body::Length(_) => None,
            Body::Bytes(_) => Some(self.allocate(config, data.message_bytes.as_u64())?),
        };
        let Some(slot) = self.vacant_slot(config) else { return Err(Refusal::NoRoom) };
        self.held_bytes += body.as_ref().map_or(0, |body| body.len() as u64);
        self.receivers[slot as usize].begin(now, src, data, packets, body);
        self.table.insert((src, data.flow), slot);
        Ok(slot)
    }

    /// Zeroed memory for a message, within the limits. The system provides pages of it only as they
    /// are written.
    fn allocate(&self, config: &MessageConfig, message_bytes: u64) -> Result<Box<[u8]>, Refusal> {
        let is_held = self.held_bytes.saturating_add(message_bytes) <= config.max_incoming_bytes;
        if message_bytes > config.max_message_bytes || !is_held {
            return Err(Refusal::NoRoom);
        }
        let length = usize::try_from(message_bytes).map_err(|_| Refusal::NoRoom)?;
        Ok(vec![0; length].into_boxed_slice())
    }

    fn vacant_slot(&mut self, config: &MessageConfig) -> Option<u32> {
        if let Some(slot) = self.vacant.pop() {
            return Some(slot);
        }
        let slot = self.receivers.len() as u32;
        if slot >= config.max_incoming {
            return None;
        }
        self.receivers.push(Receiver::default());
        Some(slot)
    }

    /// Looks at a few places for messages whose sender must have given up.
    fn sweep(&mut self, config: &MessageConfig, now: Time) {
        let forget_after = config.give_up_after * 2;
        for _ in 0..SWEPT_PLACES.min(self.receivers.len()) {
            self.sweep_from = (self.sweep_from + 1) % self.receivers.len();
            let receiver = &mut self.receivers[self.sweep_from];
            let name = (receiver.src, receiver.flow);
            let slot = self.sweep_from as u32;
            // A vacant place keeps the name of its last message, which the table has dropped.
            if now.since(receiver.last_arrival_at) > forget_after
                && self.table.get(&name) == Some(&slot)
            {
                self.arrivals.held_bytes -= receiver.held_bytes();
                self.held_bytes -= receiver.abandon();
                self.table.remove(&name);
                self.vacant.push(slot);
            }
        }
    }

    fn complete(&mut self, config: &MessageConfig, now: Time, slot: u32, dscp: Dscp) -> Received {
        let received = self.receivers[slot as usize].finish(now, dscp);
        self.held_bytes -= received.body.as_ref().map_or(0, |body| body.len() as u64);
        self.vacant.push(slot);
        self.remember(config, (received.src, received.flow.0));
        received
    }

    fn remember(&mut self, config: &MessageConfig, name: Name) {
        self.table.insert(name, COMPLETE);
        self.completed.push_back(name);
        if self.completed.len() > config.completed_memory as usize
            && let Some(oldest) = self.completed.pop_front()
        {
            self.table.remove(&oldest);
        }
    }
}

impl Incoming {
    /// Looks at every message. Panics where a place, a name or a byte is counted twice or not at all.
    // spec: T-12
    pub fn check(&self, config: &MessageConfig) {
        let (mut live, mut held_bytes, mut waiting_bytes) = (0, 0, 0);
        for (slot, receiver) in (0..).zip(&self.receivers) {
            // A vacant place keeps the name of its last message.
            let is_live = self.table.get(&(receiver.src, receiver.flow)) == Some(&slot);
            assert_eq!(is_live, !self.vacant.contains(&slot), "a place is vacant or has a message");
            if is_live {
                receiver.check();
                live += 1;
                held_bytes += receiver.body_bytes();
                waiting_bytes += receiver.held_bytes();
            }
        }
        assert_eq!(live, self.live(), "places are vacant once each");
        assert_eq!(held_bytes, self.held_bytes, "real bytes of all messages");
        assert_eq!(
            waiting_bytes, self.arrivals.held_bytes,
            "bytes that wait for others before them"
        );
        let most = config.completed_memory as usize;
        assert!(self.completed.len() <= most, "the number of remembered messages is bounded");
        let known = live + self.completed.len();
        assert_eq!(
            self.table.len(),
            known,
            "every name is of a message that arrives or is complete"
        );
    }
}

/// The answer to a late copy: its sender missed an earlier one.
fn answer_complete(config: &MessageConfig, meta: &Meta, data: &Data) -> Result<Ack, Refusal> {
    let packets = packets_of(data.message_bytes, data.segment_bytes).ok_or(Refusal::Malformed)?;
    Ok(Ack { cumulative: packets, ..answer(config, meta, data) })
}

/// The part of an answer that echoes the packet.
#[inline]
fn answer(config: &MessageConfig, meta: &Meta, data: &Data) -> Ack {
    Ack {
        job: config.credentials.job,
        epoch: config.credentials.epoch,
        flow: data.flow,
        sent_at: data.sent_at,
        sack: 0,
        cumulative: 0,
        index: data.index,
        transmission: data.transmission,
        congested: meta.ecn.is_congested(),
        resend: false,
        class: 0,
        run: 0,
    }
}
