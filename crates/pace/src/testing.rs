//! A kit for tests: how well rates are kept that change from slot to slot.

use thalweg_core::{Bytes, Span, Time};

/// Grants of a flow, slot by slot from time zero on, and moments at which bytes left: the record by which a transport
/// that obeys grants is judged.
#[derive(Clone, Debug)]
pub struct Trail {
    slot: Span,
    /// By slot, in bytes.
    granted: Vec<u64>,
    /// In order: when, and how much until then, this included.
    left: Vec<(Time, u64)>,
}

/// A stretch of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stretch {
    /// When it began.
    pub start: Time,
    /// Length of the stretch.
    pub length: Span,
    /// Bytes that were granted for it.
    pub granted: Bytes,
    /// Bytes that left in it.
    pub left: Bytes,
}

/// Slots over which rates are kept, from any start.
const KEPT_OVER_SLOTS: u64 = 10;
/// Starts that differ by less than this count as one.
const STEP: Span = Span::from_ms(1);
/// Tolerance as one part of this number, too much or too little: 2%.
const TOLERANCE_PART: u64 = 50;

impl Trail {
    /// Slots of that length, of which none has begun.
    pub fn new(slot: Span) -> Trail {
        Trail { slot, granted: Vec::new(), left: Vec::new() }
    }

    /// Grants these bytes for the next slot, spread evenly over it.
    pub fn grant(&mut self, volume: Bytes) {
        self.granted.push(volume.as_u64());
    }

    /// These bytes leave at a moment, which is not before the last one.
    pub fn leave(&mut self, now: Time, bytes: Bytes) {
        self.left.push((now, self.total() + bytes.as_u64()));
    }

    /// Checks that rates were kept: over any ten slots, from any start, bytes that left are within 2% of bytes granted,
    /// and in no slot more bytes left than were granted plus `excess`. Else returns the first stretch that is off.
    pub fn check(&self, excess: Bytes) -> Result<(), Stretch> {
        let is_off = |it: &Stretch| {
            it.left.as_u64().abs_diff(it.granted.as_u64()) * TOLERANCE_PART > it.granted.as_u64()
        };
        let off = self.stretches(KEPT_OVER_SLOTS, STEP).find(is_off);
        let exceeds = |it: &Stretch| it.left > it.granted + excess;
        match off.or_else(|| self.stretches(1, self.slot).find(exceeds)) {
            Some(stretch) => Err(stretch),
            None => Ok(()),
        }
    }

    /// All stretches of that number of slots, each one step later than the one before.
    fn stretches(&self, slots: u64, step: Span) -> impl Iterator<Item = Stretch> {
        let length = self.slot * slots;
        let end = Time::ZERO + self.slot * self.granted.len() as u64;
        let starts = (0..).map(move |at| Time::ZERO + step * at);
        starts.take_while(move |&start| start + length <= end).map(move |start| Stretch {
            start,
            length,
            granted: Bytes::new(self.granted_until(start + length) - self.granted_until(start)),
            left: Bytes::new(self.left_until(start + length) - self.left_until(start)),
        })
    }

    fn total(&self) -> u64 {
        self.left.last().map_or(0, |(_, total)| *total)
    }

    /// Bytes that had left before a moment.
    fn left_until(&self, moment: Time) -> u64 {
        let before = self.left.partition_point(|(at, _)| *at < moment);
        before.checked_sub(1).map_or(0, |last| self.left[last].1)
    }

    /// Bytes that had been granted until a moment.
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

    /// Twenty slots, for each of which 1,000 bytes are granted; this number of bytes leaves in every millisecond.
    fn steady(bytes_at: impl Fn(u64) -> u64) -> Trail {
        let left: Vec<_> = (0..200).map(|ms| (ms, bytes_at(ms))).collect();
        trail(&[1_000; 20], &left)
    }

    #[test]
    fn stretches_start_anywhere() {
        // What a slot is granted leaves at once, in the middle of it.
        let trail = trail(&[100, 100, 200], &[(5, 100), (15, 100), (25, 200)]);
        let volumes = |step| {
            let stretches = trail.stretches(1, step);
            stretches.map(|it| (it.granted.as_u64(), it.left.as_u64())).collect::<Vec<_>>()
        };
        assert_eq!(volumes(Span::from_ms(10)), [(100, 100), (100, 100), (200, 200)]);
        // From 15 ms on the second leaves, and not yet the third; from 16 ms on it is the other way round.
        assert_eq!(volumes(Span::from_ms(1))[15..17], [(150, 100), (160, 200)]);
        assert_eq!(volumes(Span::from_ms(1)).len(), 21);
    }

    #[test]
    fn ten_slots_may_be_off_by_two_per_cent() {
        let nothing = Bytes::ZERO;
        assert_eq!(steady(|_| 100).check(nothing), Ok(()));
        let much = |extra: u64| steady(move |ms| if ms == 150 { 100 + extra } else { 100 });
        assert_eq!(much(200).check(Bytes::new(200)), Ok(()));
        let (start, length, granted) = (at(51), Span::from_ms(100), Bytes::new(10_000));
        let off = Stretch { start, length, granted, left: Bytes::new(10_201) };
        assert_eq!(much(201).check(Bytes::new(999)), Err(off));
        let little = |bytes| steady(move |ms| if (60..63).contains(&ms) { bytes } else { 100 });
        assert_eq!(little(34).check(nothing), Ok(()));
        let off = Stretch { start: at(0), length, granted, left: Bytes::new(9_799) };
        assert_eq!(little(33).check(nothing), Err(off));
    }

    #[test]
    fn what_is_too_much_in_a_slot_is_seen() {
        let trail = trail(&[100, 100], &[(9, 90), (10, 115)]);
        assert_eq!(trail.check(Bytes::new(15)), Ok(()));
        let (start, length) = (at(10), Span::from_ms(10));
        let off = Stretch { start, length, granted: Bytes::new(100), left: Bytes::new(115) };
        assert_eq!(trail.check(Bytes::new(14)), Err(off));
    }
}
