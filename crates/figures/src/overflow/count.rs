//! Packets that a cautious worker keeps from the switch, and packets that it had no reason to keep.

use std::ops::AddAssign;

use super::gradients::{Draws, Gradients};

/// A job as far as overflow is concerned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) gradients: Gradients,
    pub(super) workers: u32,
    pub(super) values_a_packet: u64,
    /// Steps of fixed point to the unit.
    pub(super) scale: f64,
}

/// Packets, over all workers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Counts {
    pub(super) packets: u64,
    /// Packets with a value beyond the bound.
    pub(super) flagged: u64,
    /// Flagged packets whose sum over all workers would have fitted.
    pub(super) false_positives: u64,
}

impl Job {
    /// Values up to this one cannot overflow, whatever the other workers send.
    pub(super) fn bound(&self) -> f64 {
        let workers = f64::from(self.workers);
        (TWO_TO_31 - workers) / (workers * self.scale)
    }

    /// Counts the packets of one iteration of a model with tensors of these sizes.
    pub(super) fn iteration(&self, tensors: &[u64], draws: &mut Draws) -> Counts {
        let mut counts = Counts::default();
        let mut of_workers = vec![0.0; self.workers as usize];
        for &values in tensors {
            let mut fragment = Fragment::new(0, of_workers.len());
            let bound = self.bound();
            self.gradients.large_values(values, bound, draws, &mut of_workers, |index, values| {
                let sequence = index / self.values_a_packet;
                if sequence != fragment.sequence {
                    counts += fragment.counts();
                    fragment.clear(sequence);
                }
                fragment.add(values, bound, self.scale);
            });
            counts += fragment.counts();
            counts.packets += values.div_ceil(self.values_a_packet) * u64::from(self.workers);
        }
        counts
    }
}

const TWO_TO_31: f64 = 2_147_483_648.0;

/// The packets of all workers with one sequence number.
struct Fragment {
    sequence: u64,
    is_flagged: Vec<bool>,
    overflows: bool,
}

impl Fragment {
    fn new(sequence: u64, workers: usize) -> Fragment {
        Fragment { sequence, is_flagged: vec![false; workers], overflows: false }
    }

    fn clear(&mut self, sequence: u64) {
        self.sequence = sequence;
        self.is_flagged.fill(false);
        self.overflows = false;
    }

    /// Takes in one value of every worker.
    fn add(&mut self, of_workers: &[f64], bound: f64, scale: f64) {
        let mut sum = 0_i64;
        for (value, is_flagged) in of_workers.iter().zip(&mut self.is_flagged) {
            *is_flagged |= value.abs() > bound;
            sum = sum.saturating_add(libm::rint(value * scale) as i64);
        }
        self.overflows |= i32::try_from(sum).is_err();
    }

    fn counts(&self) -> Counts {
        let flagged = self.is_flagged.iter().filter(|is_flagged| **is_flagged).count() as u64;
        let false_positives = if self.overflows { 0 } else { flagged };
        Counts { packets: 0, flagged, false_positives }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.packets += other.packets;
        self.flagged += other.flagged;
        self.false_positives += other.false_positives;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: f64 = 10.73;
    const SCALE: f64 = 1e8;

    fn counts(values: &[[f64; 2]]) -> (u64, u64) {
        let mut fragment = Fragment::new(0, 2);
        for of_workers in values {
            fragment.add(of_workers, BOUND, SCALE);
        }
        let counts = fragment.counts();
        (counts.flagged, counts.false_positives)
    }

    #[test]
    fn a_packet_is_a_false_positive_when_the_sum_would_have_fitted() {
        assert_eq!(counts(&[[1.0, -2.0]]), (0, 0), "nothing is large");
        assert_eq!(counts(&[[11.0, 1.0]]), (1, 1), "large, but the sum fits");
        assert_eq!(counts(&[[11.0, 10.0], [-12.0, 3.0]]), (1, 1), "one packet counts once");
        assert_eq!(counts(&[[11.0, -12.0]]), (2, 2), "they cancel");
        assert_eq!(counts(&[[11.0, 10.5]]), (1, 0), "21.5 is beyond 2^31 steps");
        assert_eq!(counts(&[[11.0, 0.0], [-10.8, -10.8]]), (2, 0), "one value spoils the fragment");
        assert_eq!(counts(&[[1e300, 1e300]]), (2, 0), "too large for any integer");
    }

    #[test]
    fn the_integer_range_is_the_edge() {
        assert_eq!(counts(&[[21.474_836_47, 0.0]]), (1, 1));
        assert_eq!(counts(&[[21.474_836_48, 0.0]]), (1, 0));
        assert_eq!(counts(&[[-21.474_836_48, 0.0]]), (1, 1));
        assert_eq!(counts(&[[-21.474_836_49, 0.0]]), (1, 0));
    }
}
