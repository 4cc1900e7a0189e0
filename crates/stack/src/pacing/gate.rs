//! What a job's packets have to pass.

use thalweg_core::{BodySize, Bytes, Outbox, Pacer, Packet, Purpose, Rate, Span, Time};
use thalweg_pace::{Enforce, SlotPacer};

use super::PacedJob;
use super::budget::Budget;

/// Of a slot, the part for which packets may leave together: fewer wake-ups, and no queue worth the name.
const BURST_PART: u64 = 1_000;

/// Opens for the packets of a job as fast as was granted.
#[derive(Debug)]
pub(crate) struct Gate {
    enforce: Enforce,
    pacer: SlotPacer,
    /// Counter in place of the pacer where plans are budgets.
    pub(super) budget: Budget,
    /// Data packets with a shorter body do not wait.
    waiting_bytes: u32,
    overhead_bytes: u32,
    /// Whether anybody watches. A job with nothing planned sends as it likes: what is sent again.
    is_held: bool,
    opens_at: Time,
    passed: Passed,
}

/// Bytes that have passed a gate while it was held, with everything that packets occupy of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Passed {
    /// All bytes.
    pub(super) bytes: u64,
    /// Bytes among them that are no progress: those of retransmissions, and of control packets with a
    /// body.
    pub(super) other_bytes: u64,
}

impl Gate {
    pub(super) fn new(job: &PacedJob, slot: Span, enforce: Enforce) -> Gate {
        Gate {
            enforce,
            pacer: SlotPacer::with_burst(slot / BURST_PART),
            budget: Budget::default(),
            waiting_bytes: job.segment_bytes / 2,
            overhead_bytes: job.overhead_bytes,
            is_held: false,
            opens_at: Time::NEVER,
            passed: Passed::default(),
        }
    }

    pub(super) fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    pub(super) fn grant(&mut self, now: Time, rate: Option<Rate>, volume: Bytes, until: Time) {
        self.pacer.grant(now, rate, volume, until);
        self.budget.grant(volume, until);
    }

    // spec: C-16
    /// True if it is the job's turn. One with nothing planned has almost nothing to send.
    pub(super) fn is_in_turn(&self, now: Time) -> bool {
        !self.is_held || self.budget.is_in_turn(now)
    }

    pub(super) fn probe(&mut self, packets: u32) {
        self.pacer.probe(packets);
    }

    /// When somebody who waits should try again.
    pub(super) fn opens_at(&self) -> Time {
        if self.is_held { self.opens_at } else { Time::NEVER }
    }

    /// Whoever waits has been called.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        if self.opens_at <= now {
            self.opens_at = Time::NEVER;
        }
    }

    pub(super) fn take_passed(&mut self) -> Passed {
        std::mem::take(&mut self.passed)
    }
}

/// An outbox behind a gate.
pub(crate) struct Gated<'a> {
    outbox: &'a mut dyn Outbox,
    gate: &'a mut Gate,
    now: Time,
}

impl<'a> Gated<'a> {
    pub(crate) fn new(outbox: &'a mut dyn Outbox, gate: &'a mut Gate, now: Time) -> Gated<'a> {
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
            let opens_at = gate.pacer.next_send(*now);
            if opens_at > *now {
                gate.opens_at = opens_at;
                return None;
            }
        }
        let packet = outbox.lend(body, purpose)?;
        // Packets without a body are not planned, and are too few bytes to be.
        if gate.is_held && bytes > 0 {
            let wire_bytes = u64::from(bytes) + u64::from(gate.overhead_bytes);
            gate.passed.bytes += wire_bytes;
            gate.passed.other_bytes += if purpose == Purpose::Data { 0 } else { wire_bytes };
            gate.pacer.on_send(*now, Bytes::new(wire_bytes));
            gate.budget.spend(*now, wire_bytes);
        }
        Some(packet)
    }
}
