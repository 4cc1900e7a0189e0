//! A worker: streams fragments through the switch's slots.

use std::collections::VecDeque;
use std::ops::Range;

use thalweg_core::{
    Body, BodySize, Ecn, Machine, Operation, Outbox, Packet, Purpose, Reports, Tag, Time, Verdict,
};
use thalweg_transport::LossDetector;
use thalweg_values::{Fixed, Tensor};
use thalweg_wire::aggregate::{Branch, Gradient, Identity, Numbers, Parameter};
use thalweg_wire::{Prefix, peek};

use super::{Config, ConfigError, EPOCH, place};

/// One worker of one job.
///
/// [`submit`](Worker::submit) tensors, in the same order and of the same lengths at every worker; each
/// becomes the sum of all workers' tensors, in place. When [`Event::Finished`] comes,
/// [`tensor`](Worker::tensor) has the sum; [`release`](Worker::release) it afterwards.
///
/// Everything else is the [`Machine`] contract.
// spec: A-50
#[derive(Clone, Debug)]
pub struct Worker {
    config: Config,
    fixed: Fixed,
    branch: Branch,
    slots: Vec<Slot>,
    /// Slots that have something to send, in the order in which they came to have it. A plain queue: slots have no
    /// ranks, and none leaves before its turn.
    ready: VecDeque<u32>,
    /// Fragments without an answer, in the order of sending: all wait equally long.
    unanswered: LossDetector<Unanswered>,
    /// The operations that are not released, in order, without gaps.
    operations: VecDeque<Submitted>,
    next_operation: u64,
    /// The first fragment of the next operation.
    next_sequence: u64,
    events: VecDeque<Event>,
    stats: WorkerStats,
}

/// Event that a worker reports to the application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// An operation's tensor is the sum.
    Finished {
        /// The operation.
        operation: Operation,
    },
}

/// Counts of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WorkerStats {
    /// Packets sent, resent ones included.
    pub sent_packets: u64,
    /// Packets sent again after a timeout.
    pub resent_packets: u64,
    /// Results that were there already, or that nobody waited for.
    pub ignored_packets: u64,
    /// Packets with values that the scale cannot express: their sums are wrong.
    pub clipped_packets: u64,
    /// Values that are not zero and are at most half a step of the scale: they are summed as zero.
    pub underflowed_values: u64,
}

/// A slot of the switch as this worker uses it.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The fragment that is in it, or that will be as soon as it is submitted.
    sequence: u64,
    /// When it was last sent; `None` before.
    sent_at: Option<Time>,
    /// True if it is in `ready`.
    is_ready: bool,
}

#[derive(Clone, Copy, Debug)]
struct Unanswered {
    slot: u32,
    sequence: u64,
    sent_at: Time,
}

#[derive(Clone, Debug)]
struct Submitted {
    first_sequence: u64,
    unfinished_fragments: u64,
    is_released: bool,
    tensor: Tensor,
}

impl Worker {
    /// A worker of a job that has its slots.
    pub fn new(config: Config) -> Result<Worker, ConfigError> {
        config.check()?;
        let Config { rank, workers, slots, .. } = config;
        let slot = |sequence| Slot { sequence, sent_at: None, is_ready: false };
        Ok(Worker {
            fixed: Fixed::new(config.scale.value()).expect("scales are positive"),
            branch: Branch::new([workers, 0, 0, 0], [rank, 0, 0, 0]).expect("the rank was checked"),
            slots: (0..u64::from(slots)).map(slot).collect(),
            ready: VecDeque::with_capacity(slots as usize),
            unanswered: LossDetector::by_time(),
            operations: VecDeque::new(),
            next_operation: 0,
            next_sequence: 0,
            events: VecDeque::new(),
            stats: WorkerStats::default(),
            config,
        })
    }

    /// Begins the next operation. Sums of halves come back in full.
    pub fn submit(&mut self, _now: Time, tensor: Tensor) -> Operation {
        let tensor = tensor.widened();
        let operation = Operation(self.next_operation);
        self.next_operation += 1;
        let fragments = tensor.len().div_ceil(u64::from(self.config.fragment_values));
        let first_sequence = self.next_sequence;
        self.next_sequence += fragments;
        if fragments == 0 {
            self.events.push_back(Event::Finished { operation });
        }
        self.operations.push_back(Submitted {
            first_sequence,
            unfinished_fragments: fragments,
            is_released: false,
            tensor,
        });
        let pool = u64::from(self.config.slots);
        for sequence in first_sequence..self.next_sequence.min(first_sequence + pool) {
            let (slot, _) = place(sequence, self.config.slots);
            if self.slots[slot as usize].sequence == sequence {
                self.make_ready(slot);
            }
        }
        operation
    }

    /// The result of an operation once it is finished, until it is released.
    pub fn tensor(&self, operation: Operation) -> Option<&Tensor> {
        let submitted = self.operations.get(self.position(operation)?)?;
        (submitted.unfinished_fragments == 0).then_some(&submitted.tensor)
    }

    /// The application is done with a finished operation.
    pub fn release(&mut self, operation: Operation) {
        if let Some(at) = self.position(operation) {
            self.operations[at].is_released |= self.operations[at].unfinished_fragments == 0;
        }
        while self.operations.front().is_some_and(|front| front.is_released) {
            self.operations.pop_front();
        }
    }

    /// Counts so far.
    pub fn stats(&self) -> WorkerStats {
        self.stats
    }

    fn position(&self, operation: Operation) -> Option<usize> {
        let first = self.next_operation - self.operations.len() as u64;
        let at = operation.0.checked_sub(first)? as usize;
        (at < self.operations.len()).then_some(at)
    }

    /// The operation that a fragment belongs to, and the values of the fragment there.
    fn values_of(&self, sequence: u64) -> Option<(usize, Range<u64>)> {
        let after = self.operations.partition_point(|one| one.first_sequence <= sequence);
        let at = after.checked_sub(1)?;
        let submitted = &self.operations[at];
        let length = u64::from(self.config.fragment_values);
        let begin = (sequence - submitted.first_sequence) * length;
        let end = (begin + length).min(submitted.tensor.len());
        (begin < end).then_some((at, begin..end))
    }

    fn make_ready(&mut self, slot: u32) {
        if !std::mem::replace(&mut self.slots[slot as usize].is_ready, true) {
            self.ready.push_back(slot);
        }
    }

    /// Sends the fragment of a slot. `false` without room.
    fn send(&mut self, now: Time, slot: u32, outbox: &mut dyn Outbox) -> bool {
        let Slot { sequence, sent_at, .. } = self.slots[slot as usize];
        let Some((at, range)) = self.values_of(sequence) else { return true };
        let bytes = (range.end - range.start) as u32 * 4;
        let tensor = self.operations[at].tensor.values();
        let size = if tensor.is_some() { BodySize::Bytes(bytes) } else { BodySize::Length(bytes) };
        let purpose = Purpose::of_data(sent_at.is_some());
        let Some(packet) = outbox.lend(size, purpose) else { return false };
        self.gradient(sequence).encode(packet.header);
        packet.meta.dst = self.config.switch;
        packet.meta.wire_bytes = bytes + self.config.overhead_bytes;
        packet.meta.entropy = self.config.job.0 as u16;
        packet.meta.dscp = Tag::training().dscp;
        packet.meta.ecn = Ecn::NotCapable;
        if let (Some(tensor), Body::Bytes(body)) = (tensor, packet.body) {
            let fit = self.fixed.encode_le(&tensor[range.start as usize..range.end as usize], body);
            self.stats.clipped_packets += u64::from(fit.is_clipped);
            if sent_at.is_none() {
                self.stats.underflowed_values += fit.underflowed;
            }
        }
        self.stats.sent_packets += 1;
        self.stats.resent_packets += u64::from(sent_at.is_some());
        self.slots[slot as usize].sent_at = Some(now);
        let unanswered = Unanswered { slot, sequence, sent_at: now };
        self.unanswered.on_sent(self.stats.sent_packets, unanswered);
        true
    }

    fn gradient(&self, sequence: u64) -> Gradient {
        let Config { switch, scale, slots, .. } = self.config;
        let (aggregator, _) = place(sequence, slots);
        let numbers = Numbers::Fixed(scale);
        Gradient::fresh(self.identity(sequence), aggregator, numbers, switch, self.branch)
    }

    /// Operations are not compared.
    fn identity(&self, sequence: u64) -> Identity {
        let Config { job, slots, .. } = self.config;
        let (_, attempt) = place(sequence, slots);
        Identity { job, epoch: EPOCH, sequence, attempt, operation: 0 }
    }

    /// Takes in a packet whose prefix the caller has [read](peek).
    pub fn handle_checked(&mut self, _now: Time, prefix: Prefix, packet: &Packet<'_>) {
        let is_taken = Parameter::decode_checked(prefix, packet.header)
            .is_ok_and(|parameter| self.take_in(&parameter, &packet.body));
        self.stats.ignored_packets += u64::from(!is_taken);
        self.unanswered.pass_over(|sent| is_owed(&self.slots, &sent.item));
    }

    /// Writes a result where it belongs, once. `false` if nobody waits for it.
    fn take_in(&mut self, parameter: &Parameter, body: &Body<'_>) -> bool {
        let Config { scale, slots, .. } = self.config;
        let Identity { sequence, .. } = parameter.identity;
        let (index, _) = place(sequence, slots);
        let slot = self.slots[index as usize];
        if parameter.identity != self.identity(sequence)
            || parameter.numbers != Numbers::Fixed(scale)
            || slot.sequence != sequence
            || slot.sent_at.is_none()
        {
            return false;
        }
        let Some((at, range)) = self.values_of(sequence) else { return false };
        if body.len() as u64 != (range.end - range.start) * 4 {
            return false;
        }
        match (&mut self.operations[at].tensor, body) {
            (Tensor::Values(values), Body::Bytes(bytes)) => {
                let here = &mut values[range.start as usize..range.end as usize];
                self.fixed.decode_le(bytes, here);
            }
            (Tensor::Length(_), _) => {}
            _ => return false,
        }
        self.finish_fragment(at);
        self.advance(index);
        true
    }

    fn finish_fragment(&mut self, at: usize) {
        let first = self.next_operation - self.operations.len() as u64;
        let submitted = &mut self.operations[at];
        submitted.unfinished_fragments -= 1;
        if submitted.unfinished_fragments == 0 {
            self.events.push_back(Event::Finished { operation: Operation(first + at as u64) });
        }
    }

    /// The slot is free for its next fragment, in the other version.
    fn advance(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.sequence += u64::from(self.config.slots);
        slot.sent_at = None;
        if slot.sequence < self.next_sequence {
            self.make_ready(index);
        }
    }
}

/// Returns whether the answer has not come yet, and nothing was sent since.
fn is_owed(slots: &[Slot], unanswered: &Unanswered) -> bool {
    let slot = &slots[unanswered.slot as usize];
    slot.sequence == unanswered.sequence && slot.sent_at == Some(unanswered.sent_at)
}

impl Machine for Worker {
    fn handle_packet(&mut self, now: Time, packet: Packet<'_>) -> Verdict<'_> {
        match peek(packet.header) {
            Ok(prefix) => self.handle_checked(now, prefix, &packet),
            Err(_) => self.stats.ignored_packets += 1,
        }
        Verdict::Consume
    }

    fn handle_timeout(&mut self, now: Time) {
        let timeout = self.config.timeout_after;
        while let Some(late) = self.unanswered.pop_expired(
            |sent| is_owed(&self.slots, &sent.item),
            |sent| sent.item.sent_at + timeout <= now,
        ) {
            self.make_ready(late.item.slot);
        }
    }

    fn poll_transmit(&mut self, now: Time, outbox: &mut dyn Outbox) {
        while let Some(&slot) = self.ready.front() {
            if !self.send(now, slot, outbox) {
                return;
            }
            self.ready.pop_front();
            self.slots[slot as usize].is_ready = false;
        }
    }

    fn has_backlog(&self) -> bool {
        !self.ready.is_empty()
    }

    fn poll_timeout(&self) -> Time {
        let oldest = self.unanswered.iter().next();
        oldest.map_or(Time::NEVER, |sent| sent.item.sent_at + self.config.timeout_after)
    }
}

impl Reports for Worker {
    type Event = Event;

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}
