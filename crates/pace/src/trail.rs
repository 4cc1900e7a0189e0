//! How well rates are kept that change from slot to slot.

use thalweg_core::{Bytes, Span, Time};

/// What was granted to a flow, slot by slot from time zero on, and when what left. Whoever has to obey grants is
/// judged by it.
#[derive(Clone, Debug)]
pub struct Trail {
    slot: Span,
    /// By slot, in bytes.
    granted: Vec<u64>,
    /// In order: when, and how much until then, this included.
    left: Vec<(Time, u64)>,
}

/// How far what left in windows was off what was granted for them, as parts of it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Errors {
    /// The most that was too much.
    pub above: f64,
    /// The most that was too little.
    pub below: f64,
}

impl Trail {
    /// Slots of that length, of which none has begun.
    pub fn new(slot: Span) -> Trail {
        Trail { slot, granted: Vec::new(), left: Vec::new() }
    }

    /// So much is granted for the next slot, spread evenly over it.
    pub fn grant(&mut self, volume: Bytes) {
        self.granted.push(volume.as_u64());
    }

    /// So much leaves at a moment, which is not before the last one.
    pub fn leave(&mut self, now: Time, bytes: Bytes) {
        self.left.push((now, self.total() + bytes.as_u64()));
    }

    /// The largest errors over all windows of so many whole slots' length, wherever they start; starts that
    /// differ by less than `step` count as one.
    pub fn errors(&self, slots: u64, step: Span) -> Errors {
        let (length, end) = (self.slot * slots, Time::ZERO + self.slot * self.granted.len() as u64);
        let mut errors = Errors::default();
        let mut start = Time::ZERO;
        while start + length <= end {
            let granted = self.granted_until(start + length) - self.granted_until(start);
            let left = self.left_until(start + length) - self.left_until(start);
            let error = left as f64 / granted as f64 - 1.0;
            errors.above = errors.above.max(error);
            errors.below = errors.below.max(-error);
            start += step;
        }
        errors
    }

    /// The most that left in a slot beyond what was granted for it.
    pub fn excess(&self) -> u64 {
        let slots = self.granted.iter().enumerate();
        let excess = slots.map(|(at, granted)| {
            let start = Time::ZERO + self.slot * at as u64;
            let left = self.left_until(start + self.slot) - self.left_until(start);
            left.saturating_sub(*granted)
        });
        excess.max().unwrap_or(0)
    }

    fn total(&self) -> u64 {
        self.left.last().map_or(0, |(_, total)| *total)
    }

    /// What had left before a moment.
    fn left_until(&self, moment: Time) -> u64 {
        let before = self.left.partition_point(|(at, _)| *at < moment);
        before.checked_sub(1).map_or(0, |last| self.left[last].1)
    }

    /// What had been granted until a moment.
    fn granted_until(&self, moment: Time) -> u64 {
        let slot_ps = self.slot.as_ps();
        let whole = ((moment.as_ps() / slot_ps) as usize).min(self.granted.len());
        let current = self.granted.get(whole).copied().unwrap_or(0);
        let part = u128::from(current) * u128::from(moment.as_ps() % slot_ps) / u128::from(slot_ps);
        self.granted[..whole].iter().sum::<u64>() + part as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_ms(ms)
    }

    fn trail(granted: &[u64], left: &[(u64, u64)]) -> Trail {
        let mut trail = Trail::new(Span::from_ms(10));
        granted.iter().for_each(|&bytes| trail.grant(Bytes::new(bytes)));
        left.iter().for_each(|&(ms, bytes)| trail.leave(at(ms), Bytes::new(bytes)));
        trail
    }

    #[test]
    fn windows_start_anywhere() {
        // What a slot is granted leaves at once, in the middle of it.
        let trail = trail(&[100, 100, 200], &[(5, 100), (15, 100), (25, 200)]);
        assert_eq!(trail.errors(1, Span::from_ms(10)), Errors::default(), "slot by slot");
        assert_eq!(trail.excess(), 0);
        // From 16 ms on 200 bytes leave and 40 + 120 are granted; from 15 ms on 100, and 50 + 100.
        let errors = trail.errors(1, Span::from_ms(1));
        assert!((errors.above - 0.25).abs() < 1e-9, "{errors:?}");
        assert!((errors.below - 1.0 / 3.0).abs() < 1e-9, "{errors:?}");
    }

    #[test]
    fn what_is_too_much_in_a_slot_is_seen() {
        let trail = trail(&[100, 100], &[(9, 90), (10, 115)]);
        assert_eq!(trail.excess(), 15);
        let errors = trail.errors(2, Span::from_ms(1));
        assert!((errors.above - 0.025).abs() < 1e-9 && errors.below == 0.0, "{errors:?}");
    }
}
