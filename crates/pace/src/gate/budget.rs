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
    /// Bytes of a slot of the host's link; zero before the first iteration.
    slot_bytes: u64,
    slot: SlotUse,
    is_resting: bool,
    /// Slots in a row in which almost nothing left, of more than that.
    starved_slots: u32,
}

/// Bytes that left in a slot.
#[derive(Clone, Copy, Debug, Default)]
struct SlotUse {
    until: Time,
    bytes: u64,
}

/// A job that sent less than this part of a slot of its host's link was without a link. It is more than the last class has
/// at least, so that a job stays in that class until others leave more.
const STARVED_PART: u64 = 16;
/// After this number of such slots a job is in the last class. Fewer have jobs change places that others are soon out of
/// the way of.
const STARVED_SLOTS: u32 = 4;

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
        if until > self.slot.until {
            let is_starved = self.slot.bytes < self.slot_bytes / STARVED_PART && !self.is_resting;
            self.starved_slots = if is_starved { self.starved_slots.saturating_add(1) } else { 0 };
            self.slot = SlotUse { until, bytes: 0 };
        }
    }

    /// Takes in whether there is nothing to send.
    pub(super) fn rest(&mut self, is_resting: bool) {
        self.is_resting = is_resting;
    }

    /// True if almost nothing has left for several slots, and others have to make room.
    pub(super) fn is_starved(&self) -> bool {
        self.starved_slots >= STARVED_SLOTS
    }

    /// An iteration begins.
    pub(super) fn enter(&mut self, bytes: u64, until: Time) {
        self.entry = Share { bytes, until };
        (self.slot_bytes, self.starved_slots) = (bytes, 0);
        self.slot.bytes = bytes;
    }

    /// True if it is the turn of the job.
    pub(super) fn is_in_turn(&self, now: Time) -> bool {
        self.granted.is_left(now) || self.entry.is_left(now)
    }

    /// Takes what leaves from what was granted, then from the rest.
    pub(super) fn spend(&mut self, now: Time, bytes: u64) {
        self.slot.bytes = self.slot.bytes.saturating_add(bytes);
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
    fn a_job_is_starved_after_slots_almost_without_a_link() {
        let (mut budget, mut number) = (Budget::default(), 0);
        budget.enter(16_000, at_ms(60));
        let mut slot = |sent: u64, is_resting: bool| {
            number += 1;
            budget.spend(at_ms(number), sent);
            budget.rest(is_resting);
            budget.grant(Bytes::ZERO, at_ms(60 * number));
            budget.is_starved()
        };
        assert!(!slot(0, false), "its first slot");
        let starved = [999, 0, 999].map(|sent| slot(sent, false));
        assert_eq!((starved, slot(999, false)), ([false; 3], true), "four in a row");
        assert!(slot(999, false), "as long as it has no more than the last class has");
        assert!(!slot(1_000, false));
        assert!((0..9).all(|_| !slot(0, true)), "who has nothing to send lacks nothing");
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
