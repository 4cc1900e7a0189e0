//! When the scale of fixed point is lowered, and to what.

use std::collections::VecDeque;

use thalweg_wire::aggregate::{Magnitude, Scale};

/// Number of completed fragments that are looked back at.
const RECENT: usize = 256;

/// No scale is smaller: its steps of 15 millionths are what a gradient can do without. What is too
/// large for it goes the way of floats, and a single huge number cannot round all others to zero.
const SCALE_LEAST: f64 = 65_536.0;

/// Overflow is frequent when more than this number of the recent fragments had it: 1 in 64.
const FREQUENT: usize = RECENT / 64;

/// History of a job's completed fragments, by which its scale is chosen.
#[derive(Debug, Default)]
pub(super) struct Scaling {
    /// Of each of the recent fragments, true if it overflowed, and the magnitude of the numbers after it.
    recent: VecDeque<(bool, Magnitude)>,
    overflows: usize,
    /// The first fragment with the scale that was chosen last: what came before says nothing.
    settled_from: u64,
}

impl Scaling {
    /// Takes note of a complete sum in fixed point.
    pub(super) fn record(&mut self, sequence: u64, overflowed: bool, magnitude: Magnitude) {
        if sequence < self.settled_from {
            return;
        }
        if self.recent.len() == RECENT
            && let Some((true, _)) = self.recent.pop_front()
        {
            self.overflows -= 1;
        }
        // Infinity and NaN fit no scale: a smaller one would not help them and harm the others.
        let finite = if magnitude.bound().is_finite() { magnitude } else { Magnitude::default() };
        self.recent.push_back((overflowed, finite));
        self.overflows += usize::from(overflowed);
    }

    /// The scale from `sequence + span` on, if another one than `current` is called for.
    // spec: A-36
    pub(super) fn decide(
        &mut self,
        sequence: u64,
        span: u16,
        current: Scale,
        workers: u32,
    ) -> Option<Scale> {
        if self.overflows <= FREQUENT || sequence < self.settled_from {
            return None;
        }
        let largest = self.recent.iter().map(|(_, magnitude)| *magnitude).max()?;
        let next = fitting(largest, workers).filter(|next| *next < current)?;
        self.settled_from = sequence.saturating_add(u64::from(span));
        self.recent.clear();
        self.overflows = 0;
        Some(next)
    }
}

/// The largest power of two with which `workers` numbers of this magnitude add up within an `i32`. Each
/// may be off by one half after rounding, and a whole one is left for it.
fn fitting(magnitude: Magnitude, workers: u32) -> Option<Scale> {
    let workers = f64::from(workers);
    let most = (2_f64.powi(31) - workers) / (workers * f64::from(magnitude.bound()));
    // Without its fraction a number is the power of two below it.
    let power = f64::from_bits(most.to_bits() >> 52 << 52);
    Scale::new(power.max(SCALE_LEAST) as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(value: f32) -> Scale {
        Scale::new(value).unwrap()
    }

    // spec: A-36 machine
    #[test]
    fn frequent_overflow_lowers_the_scale_once() {
        let mut scaling = Scaling::default();
        let five = Magnitude::of(5.0);
        for sequence in 0..4 {
            scaling.record(sequence, true, five);
            assert_eq!(scaling.decide(sequence, 100, scale(1e9), 4), None, "not frequent yet");
        }
        scaling.record(4, true, five);
        // Four numbers below 8 times 2^25 are below 2^30; 2^26 leaves no room for rounding.
        assert_eq!(scaling.decide(4, 100, scale(1e9), 4), Some(scale(33_554_432.0)));
        (5..104).for_each(|sequence| scaling.record(sequence, true, five));
        assert_eq!(scaling.decide(103, 100, scale(1e9), 4), None, "still the old scale");
        (104..109).for_each(|sequence| scaling.record(sequence, true, Magnitude::of(500.0)));
        assert_eq!(scaling.decide(108, 100, scale(33_554_432.0), 4), Some(scale(524_288.0)));
    }

    #[test]
    fn rare_overflow_and_what_fits_no_scale_change_nothing() {
        let mut scaling = Scaling::default();
        for sequence in 0..10_000 {
            scaling.record(sequence, sequence % 64 == 0, Magnitude::of(1e9));
            assert_eq!(scaling.decide(sequence, 8, scale(1e8), 4), None);
        }
        let mut scaling = Scaling::default();
        (0..300).for_each(|sequence| scaling.record(sequence, true, Magnitude::of(f32::NAN)));
        assert_eq!(scaling.decide(300, 8, scale(1e8), 4), None);
    }

    // spec: A-36 machine
    #[test]
    fn what_is_chosen_fits_and_twice_as_much_may_not() {
        for workers in [1_u32, 2, 3, 32, 1_024] {
            for value in [1e-9_f32, 0.3, 1.0, 7.9] {
                let bound = f64::from(Magnitude::of(value).bound());
                let scale = f64::from(fitting(Magnitude::of(value), workers).unwrap().value());
                let worst = |scale: f64| f64::from(workers) * (bound * scale + 0.5);
                assert!(worst(scale) < 2_147_483_648.0, "{workers} {value}");
                assert!(worst(2.0 * scale) > 2_147_483_647.0 - f64::from(workers));
            }
        }
    }
}
