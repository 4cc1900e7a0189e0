//! State of one fragment at a server.

use thalweg_core::{Body, Dscp, Ecn, NodeId, Time};
use thalweg_values::{Half, sum};
use thalweg_wire::aggregate::{
    Absent, Gradient, Identity, Magnitude, Numbers, Parameter, Scale, SumImportance,
};

use super::job::Context;
use super::judge::{self, Answered, Asker, Lacking, State, Whom};
use super::queue::Task;
use crate::setup::{Attempt, Setup};

/// One fragment. Whose contributions are in it stands beside it, in the words of the ring.
#[derive(Debug)]
pub(super) struct Slot {
    pub state: State,
    /// Sequence number of the fragment, unless empty.
    pub sequence: u64,
    /// The attempt that is summed, or was. Before anything came, the one that was asked about.
    pub attempt: Attempt,
    /// The digest of the operation that it belongs to; 0 before anything came.
    pub operation: u32,
    /// Format of the values, unless empty.
    pub numbers: Numbers,
    /// The scale of the attempt in fixed point, once something of it came.
    pub scale: Option<Scale>,
    /// Aggregator that switches sum it in.
    pub aggregator: u32,
    /// Length of its values, unless empty.
    pub body_bytes: u32,
    pub body: Values,
    /// Number of workers whose contributions are in it.
    pub contributors: u32,
    /// Number of packets that these came in.
    pub packets: u32,
    /// The most urgent class that its contributions came in: its result goes back in that one. `None` before any came.
    pub dscp: Option<Dscp>,
    pub congested: bool,
    pub overflow: bool,
    pub collision: bool,
    /// Importance of the contributions in it (M-20).
    pub importance: SumImportance,
    /// The least watermark of the contributions in it.
    pub watermark: u64,
    /// The largest of all magnitudes that came with it.
    pub magnitude: Magnitude,
    /// Next aggregator that workers get for later fragments. Decided when it is done and never after, since all must
    /// get the same.
    pub next_aggregator: Option<u32>,
    /// As above.
    pub next_scale: Option<Scale>,
    /// Ranks whose contributions the result lacks (T-02).
    pub absent: Option<Absent>,
    /// A result of an earlier epoch: attempt and aggregator are those of the first worker that asks.
    pub is_inherited: bool,
    pub answered: Answered,
    /// Time at which `answered` became what it is.
    pub answered_at: Time,
    /// Time at which others were last asked for what is missing, and true if directly.
    pub asked: Option<(Time, bool)>,
    pub outgoing: Outgoing,
}

/// Packets of a fragment that wait to be sent. Each waits at most once.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// The result or repeat goes to all, and the next of the top nodes is this one.
    pub tell: Option<usize>,
    /// True if that is not the first time.
    pub is_again: bool,
    /// It goes to this one as well.
    pub answer: Option<Lacking>,
    /// Missing workers are asked, from this position on.
    pub ask: Option<u32>,
}

/// The values of a fragment.
#[derive(Debug, Default)]
pub(super) enum Values {
    /// Nobody carries them.
    #[default]
    Length,
    /// Little-endian, as they are in a body.
    Real(Vec<u8>),
    /// Sums of 16-bit values that are not rounded yet: little-endian, in single precision (F-02).
    Wide(Vec<u8>),
}

/// Buffers that are not in use.
pub(super) type Vacant = Vec<Vec<u8>>;

impl Default for Slot {
    fn default() -> Slot {
        Slot {
            state: State::Empty,
            sequence: 0,
            attempt: Attempt::default(),
            operation: 0,
            numbers: Numbers::Float,
            scale: None,
            aggregator: 0,
            body_bytes: 0,
            body: Values::Length,
            contributors: 0,
            packets: 0,
            dscp: None,
            congested: false,
            overflow: false,
            collision: false,
            importance: SumImportance::UNKNOWN,
            watermark: u64::MAX,
            magnitude: Magnitude::default(),
            next_aggregator: None,
            next_scale: None,
            absent: None,
            is_inherited: false,
            answered: Answered::Nobody,
            answered_at: Time::ZERO,
            asked: None,
            outgoing: Outgoing::default(),
        }
    }
}

impl Slot {
    /// Begins a sum with a packet. Reports of its sender about the network stay.
    pub(super) fn begin(&mut self, gradient: &Gradient, body: &Body<'_>, vacant: &mut Vacant) {
        let attempt = Attempt(gradient.identity.attempt);
        self.state = if attempt.is_in_floats() { State::Floats } else { State::Partial };
        self.sequence = gradient.identity.sequence;
        self.attempt = attempt;
        self.operation = gradient.identity.operation;
        self.numbers = gradient.numbers;
        if let Numbers::Fixed(scale) = gradient.numbers {
            self.scale = Some(scale);
        }
        self.aggregator = gradient.aggregator;
        self.body_bytes = body.len() as u32;
        self.replace(gradient, body, vacant);
    }

    /// Takes the packet's values instead of its own.
    pub(super) fn replace(&mut self, gradient: &Gradient, body: &Body<'_>, vacant: &mut Vacant) {
        // What is a result already is neither summed nor rounded again.
        let half = half(self.numbers).filter(|_| !gradient.result);
        self.body.write(body, half, vacant);
        self.overflow = gradient.overflow;
        self.importance = gradient.importance;
        self.watermark = gradient.watermark();
        self.magnitude = self.magnitude.max(gradient.next_magnitude);
    }

    /// Adds the packet's values. Once the range was left, values no longer matter.
    // spec: A-20
    pub(super) fn add(&mut self, gradient: &Gradient, body: &Body<'_>) {
        self.overflow |= gradient.overflow;
        if let (Values::Real(sum) | Values::Wide(sum), Body::Bytes(body)) = (&mut self.body, body) {
            match self.numbers {
                Numbers::Float => sum::add_float(sum, body),
                Numbers::F16 => Half::F16.add(body, sum),
                Numbers::Bf16 => Half::Bf16.add(body, sum),
                Numbers::Fixed(_) if self.overflow => {}
                Numbers::Fixed(_) => self.overflow = sum::add_fixed(sum, body),
            }
        }
        self.importance = self.importance.with(gradient.importance);
        self.watermark = self.watermark.min(gradient.watermark());
        self.magnitude = self.magnitude.max(gradient.next_magnitude);
    }

    /// Notes what the network did to a packet, whatever becomes of its values.
    // spec: A-10, M-03
    pub(super) fn mark(&mut self, gradient: &Gradient, ecn: Ecn, dscp: Dscp) {
        let is_first = self.dscp.is_none_or(|known| dscp.priority() < known.priority());
        self.dscp = if is_first { Some(dscp) } else { self.dscp };
        self.congested |= gradient.congested || ecn.is_congested();
        self.collision |= gradient.collision;
    }

    /// True if a packet has the same format: only then may it be added.
    pub(super) fn fits(&self, gradient: &Gradient, body: &Body<'_>) -> bool {
        gradient.numbers == self.numbers && self.is_as_long(body)
    }

    /// True if a packet has as many values, of which both or none are real.
    pub(super) fn is_as_long(&self, body: &Body<'_>) -> bool {
        let is_real = !matches!(self.body, Values::Length);
        body.len() as u32 == self.body_bytes && is_real == matches!(body, Body::Bytes(_))
    }

    /// Returns whether a packet belongs to another operation than what came before.
    // spec: E-11
    pub(super) fn differs(&self, identity: &Identity) -> bool {
        self.operation != 0 && self.operation != identity.operation
    }

    /// Gives up the sum and waits for floats.
    // spec: A-23
    pub(super) fn await_floats(&mut self) {
        self.state = State::Floats;
        self.attempt = self.attempt.in_floats();
        self.numbers = Numbers::Float;
        self.contributors = 0;
        self.overflow = false;
        self.watermark = u64::MAX;
        self.asked = None;
    }

    /// Rounds sums of 16-bit values, once, to what everybody is sent.
    // spec: F-02
    pub(super) fn round(&mut self) {
        if let (Values::Wide(sums), Some(half)) = (&mut self.body, half(self.numbers)) {
            half.round_in_place(sums);
            self.body = Values::Real(std::mem::take(sums));
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self, vacant: &mut Vacant) {
        let body = std::mem::take(self).body;
        body.release(vacant);
    }

    /// Learns what only senders know, where there is nothing of this epoch yet.
    pub(super) fn meet(&mut self, identity: &Identity, aggregator: u32) {
        if self.state == State::Empty || self.is_inherited {
            self.attempt = Attempt(identity.attempt);
            self.operation = identity.operation;
            self.sequence = identity.sequence;
            self.aggregator = aggregator;
            self.is_inherited = false;
        }
    }

    /// Sends to all what there is to tell: a result or, which is small, the wish for floats.
    pub(super) fn tell(&mut self, answered: Answered, context: &mut Context<'_>) {
        (self.answered, self.answered_at) = (answered, context.now);
        self.outgoing.is_again = answered == Answered::Again;
        // A node that got something older from a round that was cut short gets this as well.
        if self.outgoing.tell.replace(0).is_some() {
            return;
        }
        let task = Task::Tell(self.sequence);
        match self.state {
            State::Done => context.queue.push_sum(context.job, task),
            _ => context.queue.push_small(context.job, task),
        }
    }

    /// Sends the result once more, to whom it is due.
    // spec: A-21
    pub(super) fn answer(&mut self, asker: Asker, context: &mut Context<'_>) {
        if self.outgoing.tell.is_some() {
            return;
        }
        let recently = self.was_answered_within_gap(context);
        match (judge::answer(asker, self.answered, recently), self.outgoing.answer) {
            (Some(Whom::One(node)), None) => {
                (self.answered, self.answered_at) = (Answered::One(node), context.now);
                self.outgoing.answer = Some(node);
                context.queue.push_sum(context.job, Task::Answer(self.sequence));
            }
            (Some(Whom::One(node)), Some(waiting)) if node == waiting => {}
            (Some(_), _) => self.tell(Answered::Again, context),
            (None, _) => {}
        }
    }

    /// True if everybody or somebody was answered less than a gap ago.
    pub(super) fn was_answered_within_gap(&self, context: &Context<'_>) -> bool {
        self.answered != Answered::Nobody && context.now.since(self.answered_at) < context.gap
    }

    /// Time at which everybody was answered, unless somebody was answered again since.
    pub(super) fn first_answered_at(&self) -> Option<Time> {
        (self.state == State::Done && self.answered == Answered::First).then_some(self.answered_at)
    }

    /// True if a question left before the result could come. The asker names the result that it received last, which
    /// was sent at `last_answered_at`: if that was earlier, this one may still be in flight.
    pub(super) fn has_crossed(&self, last_answered_at: Option<Time>) -> bool {
        self.first_answered_at()
            .zip(last_answered_at)
            .is_some_and(|(answered_at, received)| received < answered_at)
    }

    /// Asks for what is missing, unless that was done just now. A direct question, which reaches
    /// everybody, need not wait for one that does not.
    // spec: T-10
    pub(super) fn ask(&mut self, bypass: bool, context: &mut Context<'_>) {
        if let Some((at, was_bypass)) = self.asked
            && context.now.since(at) < context.gap
            && (was_bypass || !bypass)
        {
            return;
        }
        self.asked = Some((context.now, bypass));
        if self.state == State::Floats && self.contributors == 0 {
            self.tell(Answered::Again, context);
        } else if self.outgoing.ask.replace(0).is_none() {
            context.queue.push_small(context.job, Task::Ask(self.sequence));
        }
    }

    pub(super) fn identity(&self, setup: &Setup, attempt: Attempt) -> Identity {
        let (sequence, operation) = (self.sequence, self.operation);
        Identity { job: setup.job, epoch: setup.epoch, sequence, attempt: attempt.0, operation }
    }

    /// Parameter packet for the workers: the result, or the wish for floats.
    // spec
    pub(super) fn parameter(&self, setup: &Setup, server: NodeId, job_watermark: u64) -> Parameter {
        let repeat = self.state != State::Done;
        // A repeat answers, and frees, what was sent in fixed point.
        let fixed = Attempt::of_generation(self.attempt.generation());
        let attempt = if repeat { fixed } else { self.attempt };
        let numbers = match self.scale {
            Some(scale) if repeat => Numbers::Fixed(scale),
            None if repeat => setup.parameters.numeric.numbers(),
            _ => self.numbers,
        };
        let ahead = self.sequence.saturating_sub(job_watermark);
        // The server is above all stations.
        let level = setup.tree(self.sequence).branch(0).end();
        Parameter {
            next_aggregator: self.next_aggregator,
            next_scale: self.next_scale,
            next_distance: setup.parameters.span_fragments,
            // The window is no wider.
            job_watermark_distance: ahead as u16,
            congested: self.congested,
            repeat,
            absent: self.absent.filter(|_| !repeat),
            ..Parameter::sum(self.identity(setup, attempt), self.aggregator, numbers, server, level)
        }
    }
}

impl Values {
    /// Takes the values of a body, in single precision where they are halves that are summed.
    fn write(&mut self, body: &Body<'_>, half: Option<Half>, vacant: &mut Vacant) {
        let old = std::mem::take(self);
        let Body::Bytes(bytes) = body else { return old.release(vacant) };
        let mut buffer = match old {
            Values::Real(buffer) | Values::Wide(buffer) => buffer,
            Values::Length => vacant.pop().unwrap_or_default(),
        };
        buffer.clear();
        // Not more than that: what a job may take is calculated with the length of a fragment.
        // spec: E-12
        buffer.reserve_exact(if half.is_some() { 2 * bytes.len() } else { bytes.len() });
        *self = match half {
            Some(half) => {
                buffer.resize(2 * bytes.len(), 0);
                half.take(bytes, &mut buffer);
                Values::Wide(buffer)
            }
            None => {
                buffer.extend_from_slice(bytes);
                Values::Real(buffer)
            }
        };
    }

    fn release(self, vacant: &mut Vacant) {
        if let Values::Real(buffer) | Values::Wide(buffer) = self {
            vacant.push(buffer);
        }
    }
}

/// The type of 16-bit values that numbers are.
fn half(numbers: Numbers) -> Option<Half> {
    match numbers {
        Numbers::F16 => Some(Half::F16),
        Numbers::Bf16 => Some(Half::Bf16),
        Numbers::Fixed(_) | Numbers::Float => None,
    }
}
