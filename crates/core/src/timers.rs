//! Many timers behind one wake-up.
//!
//! A transport moves a flow's timer with every acknowledgement, nearly always to a later moment.
//! Moving an entry of a heap each time would cost more than the rest of the step. So a timer keeps
//! its old, earlier entry; when that comes up, the owner compares with the real deadline and arms it
//! again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::time::Time;

/// Timers of things with dense indices. Wakes may be early, never late.
#[derive(Clone, Debug, Default)]
pub struct Timers {
    /// Ordered by time, then by index: no tie depends on the heap's shape.
    heap: BinaryHeap<Reverse<(Time, u32)>>,
    /// The entry that counts for each index; an entry with another time is an old one.
    armed: Vec<Time>,
}

impl Timers {
    /// Makes sure that `index` comes up at `at` or before. Arming for later than what is armed
    /// already costs nothing.
    #[inline]
    pub fn arm(&mut self, index: u32, at: Time) {
        if at < self.armed(index) {
            self.arm_earlier(index, at);
        }
    }

    #[cold]
    fn arm_earlier(&mut self, index: u32, at: Time) {
        let slot = index as usize;
        if slot >= self.armed.len() {
            self.armed.resize(slot + 1, Time::NEVER);
        }
        self.armed[slot] = at;
        self.heap.push(Reverse((at, index)));
    }

    /// When `index` comes up at the latest: [`Time::NEVER`] if it is not armed.
    #[inline]
    pub fn armed(&self, index: u32) -> Time {
        self.armed.get(index as usize).copied().unwrap_or(Time::NEVER)
    }

    /// When something comes up next, at the earliest.
    #[inline]
    pub fn next(&self) -> Time {
        self.heap.peek().map_or(Time::NEVER, |Reverse((at, _))| *at)
    }

    /// Takes the next index that is due. It is no longer armed: who was woken early arms it again.
    #[inline]
    pub fn pop_due(&mut self, now: Time) -> Option<u32> {
        // Nearly always nothing is due.
        if self.next() > now { None } else { self.pop_reached(now) }
    }

    fn pop_reached(&mut self, now: Time) -> Option<u32> {
        while let Some(&Reverse((at, index))) = self.heap.peek() {
            if at > now {
                return None;
            }
            self.heap.pop();
            if self.armed[index as usize] == at {
                self.armed[index as usize] = Time::NEVER;
                return Some(index);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ps: u64) -> Time {
        Time::from_ps(ps)
    }

    #[test]
    fn a_later_deadline_wakes_early_and_an_earlier_one_in_time() {
        let mut timers = Timers::default();
        timers.arm(3, at(10));
        timers.arm(3, at(20));
        assert_eq!(timers.next(), at(10));
        timers.arm(3, at(5));
        assert_eq!(timers.pop_due(at(4)), None);
        assert_eq!(timers.pop_due(at(5)), Some(3));
        assert_eq!(timers.pop_due(at(30)), None, "the old entry is ignored");
        assert_eq!(timers.next(), Time::NEVER);
    }

    proptest! {
        #[test]
        fn nobody_is_woken_late(arms in prop::collection::vec((0..8u32, 0..100u64), 1..60)) {
            let mut timers = Timers::default();
            let mut wanted = [u64::MAX; 8];
            for (index, time) in arms {
                timers.arm(index, at(time));
                wanted[index as usize] = wanted[index as usize].min(time);
                prop_assert_eq!(timers.armed(index), at(wanted[index as usize]));
            }
            for now in 0..100 {
                while let Some(index) = timers.pop_due(at(now)) {
                    prop_assert_eq!(wanted[index as usize], now);
                    wanted[index as usize] = u64::MAX;
                }
            }
            prop_assert_eq!(wanted, [u64::MAX; 8]);
        }
    }
}
