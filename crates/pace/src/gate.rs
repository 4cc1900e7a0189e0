//! The gate that the packets of a job pass on their host.

mod budget;

use thalweg_core::{BodySize, Bytes, Outbox, Pacer, Packet, Purpose, Rate, Span, Time};

use crate::agent::Order;
use crate::load::FlowId;
use crate::pacer::SlotPacer;
use crate::rank::{LAST_CLASS, LAST_TURN_CLASS};
use crate::settings::Enforce;

use budget::Budget;

/// While a job waits, a packet may leave this often where orders come from another process: questions and answers, so
/// that others need not wait for it.
const TRICKLE_EVERY: Span = Span::from_ms(10);

/// A class of the packets of a job.
// spec: C-16
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// Class of a job in its turn.
    In(u8),
    /// Class of a job outside its turn.
    Out(u8),
}

/// Packets of a job, for its [`Gate`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Framing {
    /// Payload of a full packet.
    pub segment_bytes: u32,
    /// Bytes that a packet occupies of a link beside its payload.
    pub overhead_bytes: u32,
}

impl Framing {
    /// Bytes that a volume of payload occupies of a link.
    pub fn wire_bytes(self, payload: u64) -> u64 {
        let packets = payload.div_ceil(u64::from(self.segment_bytes.max(1)));
        payload.saturating_add(packets.saturating_mul(u64::from(self.overhead_bytes)))
    }
}

/// Obeys the [orders](Order) for a job: opens for its packets as fast as was granted, or knows its class.
///
/// A job has one gate. Its packets leave for its destinations in turn, so they are counted in turn.
#[derive(Debug)]
pub struct Gate {
    enforce: Enforce,
    pacer: SlotPacer,
    /// Counter in place of the pacer where plans are budgets.
    budget: Budget,
    class: u8,
    /// Data packets with a shorter body do not wait.
    waiting_bytes: u32,
    overhead_bytes: u32,
    /// True if anything is planned. A job with nothing planned sends as it likes: what is sent again.
    is_held: bool,
    opens_at: Time,
    flows: Vec<Outgoing>,
    /// The flow whose turn it was to be counted.
    turn: usize,
    passed: Passed,
    /// Set where orders come from another process.
    remote: Option<Remote>,
}

/// A flow of the job that leaves the host.
#[derive(Debug)]
struct Outgoing {
    id: FlowId,
    rate: Option<Rate>,
    left: u64,
    until: Time,
}

/// State of a gate whose orders come from another process.
#[derive(Debug)]
struct Remote {
    /// The rate of a flow of which nothing is planned.
    idle: Option<Rate>,
    moved_at: Time,
}

/// Bytes that have passed a gate while it was held, with everything that packets occupy of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Passed {
    /// All bytes.
    bytes: u64,
    /// Bytes among them that are no progress: those of retransmissions, and of control packets with a
    /// body.
    other_bytes: u64,
}

/// Bytes of a flow that have passed, with everything that packets occupy of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    /// The flow.
    pub flow: FlowId,
    /// Bytes that have left for the first time.
    pub bytes: Bytes,
    /// Bytes that are no progress.
    pub again: Bytes,
}

impl Gate {
    /// A gate for these flows, which nobody holds yet. `pacer` spaces packets where plans are rates.
    pub fn new(
        enforce: Enforce,
        pacer: SlotPacer,
        framing: Framing,
        flows: impl IntoIterator<Item = FlowId>,
    ) -> Gate {
        let flow = |id| Outgoing { id, rate: None, left: 0, until: Time::ZERO };
        Gate {
            enforce,
            pacer,
            budget: Budget::default(),
            class: LAST_TURN_CLASS,
            waiting_bytes: framing.segment_bytes / 2,
            overhead_bytes: framing.overhead_bytes,
            is_held: false,
            opens_at: Time::NEVER,
            flows: flows.into_iter().map(flow).collect(),
            turn: 0,
            passed: Passed::default(),
            remote: None,
        }
    }

    /// A gate whose orders come from another process, which says at which rate flows may send of which nothing is planned.
    /// That rate holds until another one is ordered, and when an order ends.
    #[must_use]
    pub fn with_idle_rate(self, idle: Option<Rate>) -> Gate {
        let remote = Some(Remote { idle, moved_at: Time::ZERO });
        Gate { remote, is_held: true, ..self }
    }

    /// A flow of the job that was not known before.
    pub fn add_flow(&mut self, id: FlowId) {
        self.flows.push(Outgoing { id, rate: None, left: 0, until: Time::ZERO });
    }

    /// Obeys an order.
    pub fn obey(&mut self, now: Time, order: Order) {
        match order {
            Order::Probe { packets } => self.pacer.probe(packets),
            Order::Grant { flow, rate, volume, until } => {
                self.grant(now, (flow, rate, volume.as_u64()), until);
            }
            // spec: C-16
            // A job with nothing planned is in its turn anyway, and one with something planned not by this flow.
            Order::Idle { flow } if self.enforce == Enforce::Class => {
                self.grant(now, (flow, None, 0), Time::NEVER);
            }
            Order::Idle { flow } => {
                let idle = self.remote.as_ref().and_then(|remote| remote.idle);
                self.grant(now, (flow, idle, u64::MAX), Time::NEVER);
            }
            Order::Hold(is_held) => self.is_held = is_held,
            Order::Enter { bytes, until } => self.budget.enter(bytes, until),
            Order::Class(class) => self.class = class,
        }
    }

    /// A flow may send; the gate opens for what all may.
    fn grant(&mut self, now: Time, (flow, rate, left): (FlowId, Option<Rate>, u64), until: Time) {
        if let Some(own) = self.flows.iter_mut().find(|own| own.id == flow) {
            (own.rate, own.left, own.until) = (rate, left, until);
        }
        let is_remote = self.remote.is_some();
        // Within a process all grants of a slot end with it, and come again in the next.
        let holds = |own: &&Outgoing| own.left > 0 && (own.until > now || !is_remote);
        let granted = self.flows.iter().filter(holds);
        let rates = granted.clone().filter_map(|own| own.rate).map(Rate::as_bps);
        let bps = rates.fold(0, u64::saturating_add);
        let left = granted.clone().fold(0_u64, |left, own| left.saturating_add(own.left));
        let ends = granted.map(|own| own.until).filter(|_| is_remote);
        let until = ends.min().unwrap_or(until);
        self.pacer.grant(now, Rate::from_bps(bps), Bytes::new(left), until);
        self.budget.grant(Bytes::new(left), until);
    }

    // spec: C-16
    /// The class of the job. One with nothing planned is in its turn: it has almost nothing to send. Out of its turn a job
    /// is behind those of its class, and before those that have far more left: in their class, or, once it has been without
    /// a link for a slot, in the last one, which always goes on.
    pub fn class(&self, now: Time) -> Turn {
        if !self.is_held || self.budget.is_in_turn(now) {
            return Turn::In(self.class);
        }
        let is_last = self.class >= LAST_TURN_CLASS || self.budget.is_starved();
        Turn::Out(if is_last { LAST_CLASS } else { self.class + 1 })
    }

    /// Takes in whether the job has nothing to send at the moment.
    pub fn rest(&mut self, is_resting: bool) {
        self.budget.rest(is_resting);
    }

    /// When somebody who waits should try again.
    pub fn opens_at(&self) -> Time {
        if self.is_held { self.opens_at } else { Time::NEVER }
    }

    /// Notes that everybody who waits has been called.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.opens_at <= now {
            self.opens_at = Time::NEVER;
        }
    }

    // spec: C-13
    /// Takes out what has passed. Retransmissions and control packets use up what was granted, and bring nobody further.
    pub fn settle(&mut self, mut sent: impl FnMut(Sent)) {
        let Passed { mut bytes, other_bytes: mut other } = std::mem::take(&mut self.passed);
        while bytes > 0 {
            let Some(flow) = self.next_to_count() else { return };
            // Bytes that are too many for one flow are the next one's, so that all together have sent what they may.
            let counted = if flow.left > 0 { bytes.min(flow.left) } else { bytes };
            let again = counted.min(other);
            flow.left = flow.left.saturating_sub(counted);
            (bytes, other) = (bytes - counted, other - again);
            sent(Sent {
                flow: flow.id,
                bytes: Bytes::new(counted - again),
                again: Bytes::new(again),
            });
        }
    }

    /// A packet of a flow has left, for those who know whose it is and count by themselves.
    pub fn on_send(&mut self, now: Time, flow: FlowId, wire_bytes: Bytes) {
        if let Some(own) = self.flows.iter_mut().find(|own| own.id == flow) {
            own.left = own.left.saturating_sub(wire_bytes.as_u64());
        }
        self.pacer.on_send(now, wire_bytes);
        self.budget.spend(now, wire_bytes.as_u64());
        self.remote.iter_mut().for_each(|remote| remote.moved_at = now);
    }

    /// The flow that the next packet is counted for: in turn, of those that may send something.
    fn next_to_count(&mut self) -> Option<&mut Outgoing> {
        let flows = self.flows.len();
        let in_turn = (0..flows).map(|step| (self.turn + 1 + step) % flows);
        let may_send = |at: &usize| self.flows[*at].left > 0;
        self.turn = in_turn.clone().find(may_send).or_else(|| in_turn.clone().next())?;
        self.flows.get_mut(self.turn)
    }

    /// When the next full packet may leave.
    pub fn next_send(&mut self, now: Time) -> Time {
        if self.enforce == Enforce::Class {
            return now;
        }
        let at = self.pacer.next_send(now);
        let Some(remote) = &self.remote else { return at };
        let at = if at == Time::NEVER {
            self.pacer.grant(now, remote.idle, Bytes::new(u64::MAX), Time::NEVER);
            self.pacer.next_send(now)
        } else {
            at
        };
        at.min(remote.moved_at + TRICKLE_EVERY)
    }
}

/// An outbox behind a gate.
pub struct Gated<'a> {
    outbox: &'a mut dyn Outbox,
    gate: &'a mut Gate,
    now: Time,
}

impl<'a> Gated<'a> {
    /// Puts a gate in front of an outbox.
    pub fn new(outbox: &'a mut dyn Outbox, gate: &'a mut Gate, now: Time) -> Gated<'a> {
        gate.opens_at = Time::NEVER;
        Gated { outbox, gate, now }
    }
}

impl Outbox for Gated<'_> {
    fn room(&self) -> usize {
        self.outbox.room()
    }

    // spec: C-09, C-13
    fn lend(&mut self, body: BodySize, purpose: Purpose) -> Option<Packet<'_>> {
        let Gated { outbox, gate, now } = self;
        let (BodySize::Length(bytes) | BodySize::Bytes(bytes)) = body;
        // Plans count the full packets of an iteration. The short end of a message may be all that is left when the
        // plan is used up, and other hosts would wait for it until the job's turn comes again: it leaves at once, and
        // what follows waits the longer.
        let may_leave_early = purpose == Purpose::Control || bytes < gate.waiting_bytes;
        // spec: C-16
        let holds_back = gate.enforce == Enforce::Rate;
        let must_wait = holds_back && gate.is_held && !may_leave_early;
        if must_wait {
            let opens_at = gate.next_send(*now);
            if opens_at > *now {
                gate.opens_at = opens_at;
                return None;
            }
        }
        let packet = outbox.lend(body, purpose)?;
        // Packets without a body are not planned, and are too few bytes to be.
        if (gate.is_held || gate.remote.is_some()) && bytes > 0 {
            let wire_bytes = u64::from(bytes) + u64::from(gate.overhead_bytes);
            gate.passed.bytes += wire_bytes;
            gate.passed.other_bytes += if purpose == Purpose::Data { 0 } else { wire_bytes };
            gate.pacer.on_send(*now, Bytes::new(wire_bytes));
            gate.budget.spend(*now, wire_bytes);
            gate.remote.iter_mut().for_each(|remote| remote.moved_at = *now);
        }
        Some(packet)
    }
}

#[cfg(test)]
mod tests;
