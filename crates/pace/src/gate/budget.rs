//! Urgent bytes of a job.

use thalweg_core::{Bytes, Time};

/// Bytes that a job may send in its class. What leaves beyond them leaves in the last class.
// spec: C-16
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Budget {
    /// Bytes that its plan has left for the slot.
    granted: Share,
    /// Bytes that a job has because its iteration has just begun: it needs no answer before it takes part, and the order
    /// of classes says whether it passes.
    entry: Share,
}

/// Bytes until a moment.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    bytes: u64,
    until: Time,
}

impl Share {
    fn is_left(self, now: Time) -> bool {
        self.bytes > 0 && now < self.until
    }
}

impl Budget {
    /// Replaces what was granted before.
    pub(super) fn grant(&mut self, bytes: Bytes, until: Time) {
        self.granted = Share { bytes: bytes.as_u64(), until };
    }

    /// An iteration begins.
    pub(super) fn enter(&mut self, bytes: u64, until: Time) {
        self.entry = Share { bytes, until };
    }

    /// True if it is the turn of the job.
    pub(super) fn is_in_turn(&self, now: Time) -> bool {
        self.granted.is_left(now) || self.entry.is_left(now)
    }

    /// Takes what leaves from what was granted, then from the rest.
    pub(super) fn spend(&mut self, now: Time, bytes: u64) {
        let share = if self.granted.is_left(now) { &mut self.granted } else { &mut self.entry };
        share.bytes = share.bytes.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use thalweg_core::Span;

    use super::*;

    fn at_ms(ms: u64) -> Time {
        Time::ZERO + Span::from_ms(ms)
    }

    // spec: C-16 machine
    #[test]
    fn a_job_is_in_turn_while_something_urgent_is_left_of_its_slot() {
        let mut budget = Budget::default();
        assert!(!budget.is_in_turn(at_ms(0)));
        budget.grant(Bytes::new(3_000), at_ms(60));
        let mut turns = Vec::new();
        for ms in [0, 1, 2] {
            turns.push(budget.is_in_turn(at_ms(ms)));
            budget.spend(at_ms(ms), 1_500);
        }
        assert_eq!(turns, [true, true, false]);
        budget.grant(Bytes::new(3_000), at_ms(60));
        assert!(budget.is_in_turn(at_ms(59)) && !budget.is_in_turn(at_ms(60)), "the slot is over");
    }

    // spec: C-16 machine
    #[test]
    fn a_newcomer_takes_part_at_once() {
        let mut budget = Budget::default();
        budget.enter(1_500, at_ms(120));
        assert!(budget.is_in_turn(at_ms(5)));
        budget.grant(Bytes::ZERO, at_ms(60));
        assert!(budget.is_in_turn(at_ms(6)), "a host that finds no room for it does not end that");
        budget.spend(at_ms(7), 1_500);
        assert!(!budget.is_in_turn(at_ms(7)));
    }
}
