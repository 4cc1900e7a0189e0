//! What a job's packets have to pass.

use thalweg_core::{BodySize, Bytes, Outbox, Pacer, Packet, Rate, Span, Time};
use thalweg_pace::SlotPacer;

use super::PacedJob;

/// Of a slot, the part for which packets may leave together: fewer wake-ups, and no queue worth the name.
const BURST_PART: u64 = 1_000;

/// Opens for the packets of a job as fast as was granted.
#[derive(Debug)]
pub(crate) struct Gate {
    pacer: SlotPacer,
    segment_bytes: u32,
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
    /// Bytes of retransmissions among them.
    pub(super) resent_bytes: u64,
}

impl Gate {
    pub(super) fn new(job: &PacedJob, slot: Span) -> Gate {
        Gate {
            pacer: SlotPacer::with_burst(slot / BURST_PART),
            segment_bytes: job.segment_bytes,
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

    // spec: C-09
    fn pass(&mut self, body: BodySize, is_resend: bool) -> Option<Packet<'_>> {
        let Gated { outbox, gate, now } = self;
        let (BodySize::Length(bytes) | BodySize::Bytes(bytes)) = body;
        // Questions, answers and ends of tensors.
        let is_small = bytes < gate.segment_bytes / 2;
        if gate.is_held && !is_small {
            let opens_at = gate.pacer.next_send(*now);
            if opens_at > *now {
                gate.opens_at = opens_at;
                return None;
            }
        }
        let packet = if is_resend { outbox.lend_again(body) } else { outbox.lend(body) }?;
        if gate.is_held && bytes > 0 {
            let wire_bytes = u64::from(bytes) + u64::from(gate.overhead_bytes);
            gate.passed.bytes += wire_bytes;
            gate.passed.resent_bytes += if is_resend { wire_bytes } else { 0 };
            gate.pacer.on_send(*now, Bytes::new(wire_bytes));
        }
        Some(packet)
    }
}

impl Outbox for Gated<'_> {
    fn room(&self) -> usize {
        self.outbox.room()
    }

    fn lend(&mut self, body: BodySize) -> Option<Packet<'_>> {
        self.pass(body, false)
    }

    // spec: C-13
    fn lend_again(&mut self, body: BodySize) -> Option<Packet<'_>> {
        self.pass(body, true)
    }
}
