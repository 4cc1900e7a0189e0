//! Time of an agent.
//!
//! Slots are counted by the clock of the host, by which hosts agree on them. A person or a program can set that
//! clock, so time passes here by one that nobody sets. When the two clocks drift apart by more than a slot, slots get
//! other numbers, and time goes on.

use std::time::Duration;

use thalweg_core::{Span, Time};
use thalweg_pace::Slot;

/// Both clocks at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reading {
    /// Time since 1970.
    pub(crate) wall: Duration,
    /// Time since any fixed moment, by a clock that nobody sets.
    pub(crate) steady: Duration,
}

/// Report that the clock of the host was set.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct ClockSet {
    /// Seconds by which it was set, below zero if it was set back.
    pub(crate) by_s: f64,
    /// Network slot of time zero from now on.
    pub(crate) base: Slot,
}

/// The clock of an agent. It never goes back, and never stands still for more than a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotClock {
    slot: Duration,
    /// Time since 1970 at time zero: a multiple of the slot.
    base_time: Duration,
    steady: Duration,
    now: Duration,
}

impl SlotClock {
    /// A clock whose time zero is the begin of the current slot.
    pub(crate) fn new(slot: Span, reading: Reading) -> SlotClock {
        let slot = Duration::from_nanos((slot.as_ps() / 1_000).max(1));
        let base_time = whole_slots(reading.wall, slot);
        SlotClock {
            slot,
            base_time,
            steady: reading.steady,
            now: reading.wall.saturating_sub(base_time),
        }
    }

    /// Time now, as of the last reading.
    pub(crate) fn now(&self) -> Time {
        Time::ZERO + Span::from_ns(u64::try_from(self.now.as_nanos()).unwrap_or(u64::MAX / 1_000))
    }

    /// Network slot of time zero.
    pub(crate) fn base(&self) -> Slot {
        Slot((self.base_time.as_nanos() / self.slot.as_nanos()) as u64)
    }

    /// Takes in a reading. Returns whether the clock of the host was set since the last one.
    // spec: E-14
    pub(crate) fn read(&mut self, reading: Reading) -> Option<ClockSet> {
        let steady = self.now + reading.steady.saturating_sub(self.steady);
        self.steady = self.steady.max(reading.steady);
        let nanos = |span: Duration| span.as_nanos() as i128;
        let off = nanos(reading.wall) - nanos(self.base_time) - nanos(steady);
        if off.unsigned_abs() <= self.slot.as_nanos() {
            self.now = self.now.max(reading.wall.saturating_sub(self.base_time));
            return None;
        }
        let before = self.base_time;
        self.base_time = whole_slots(reading.wall.saturating_sub(steady), self.slot);
        self.now = steady.max(reading.wall.saturating_sub(self.base_time));
        // A clock before the start of the agent, counted from 1970, cannot be followed.
        (self.base_time != before).then(|| ClockSet { by_s: off as f64 / 1e9, base: self.base() })
    }
}

fn whole_slots(time: Duration, slot: Duration) -> Duration {
    let slots = time.as_nanos() / slot.as_nanos();
    Duration::from_nanos((slots * slot.as_nanos()) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const SLOT: Span = Span::from_ms(60);
    /// Not a whole number of slots.
    const START: Duration = Duration::from_millis(1_700_000_000_010);

    fn clock() -> SlotClock {
        SlotClock::new(SLOT, Reading { wall: START, steady: 5 * MS })
    }

    fn ms(clock: &SlotClock) -> u64 {
        clock.now().as_ps() / 1_000_000_000
    }

    // spec: E-14 machine
    #[test]
    fn a_clock_that_is_set_changes_numbers_of_slots_and_not_the_passing_of_time() {
        for (by_s, wall) in [
            (-600, START - Duration::from_secs(600)),
            (600, START + Duration::from_secs(600)),
            (-1, START - Duration::from_secs(1)),
        ] {
            let mut clock = clock();
            let (first, base) = (ms(&clock), clock.base());
            let steady = 5 * MS;
            for step in 1..=10 {
                let reading =
                    Reading { wall: START + 10 * MS * step, steady: steady + 10 * MS * step };
                assert_eq!(clock.read(reading), None);
            }
            assert_eq!((ms(&clock), clock.base()), (first + 100, base));
            let reading = Reading { wall: wall + 110 * MS, steady: steady + 110 * MS };
            let set = clock.read(reading).expect("it was set");
            assert!((set.by_s - f64::from(by_s)).abs() < 0.001, "{set:?}");
            assert_eq!(set.base, clock.base());
            // At most one slot is passed over, so that slots begin when those of other hosts do.
            assert!((first + 110..first + 170).contains(&ms(&clock)), "{}", ms(&clock));
            let number = clock.base().0 + ms(&clock) / 60;
            assert_eq!(u128::from(number), (wall + 110 * MS).as_millis() / 60);
            let before = ms(&clock);
            let reading = Reading { wall: wall + 200 * MS, steady: steady + 200 * MS };
            assert_eq!((clock.read(reading), ms(&clock)), (None, before + 90));
        }
    }

    #[test]
    fn a_small_correction_is_followed_without_going_back() {
        let mut clock = clock();
        let first = ms(&clock);
        let mut read = |wall_ms: u32, steady_ms: u32| {
            let reading = Reading { wall: START + wall_ms * MS, steady: (5 + steady_ms) * MS };
            assert_eq!(clock.read(reading), None);
            ms(&clock) - first
        };
        assert_eq!(read(100, 100), 100);
        assert_eq!(read(90, 110), 100, "it waits");
        assert_eq!(read(101, 121), 101);
        assert_eq!(read(171, 141), 171, "it is ahead");
    }

    #[test]
    fn a_clock_near_1970_is_not_followed_and_time_passes() {
        let mut clock = clock();
        let steady = |s: u64| Duration::from_secs(s);
        clock.read(Reading { wall: START + steady(100), steady: steady(100) });
        let now = clock.now();
        assert!(clock.read(Reading { wall: Duration::ZERO, steady: steady(101) }).is_some());
        assert!(clock.now() > now);
        let now = clock.now();
        assert_eq!(clock.read(Reading { wall: steady(1), steady: steady(102) }), None);
        assert!(clock.now().since(now) >= Span::from_ms(999), "{:?}", clock.now());
    }
}
