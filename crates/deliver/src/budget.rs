//! Bytes of a tensor that may be lost, and the part of it that a loss hits.

use thalweg_core::{Operation, fibonacci};
use thalweg_wire::deliver::LOSS_UNIT;

/// The largest share of a tensor that may be missing when it is complete: from zero to less than one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LossBound {
    millionths: u32,
}

impl LossBound {
    /// Nothing may be missing.
    pub const EXACT: LossBound = LossBound { millionths: 0 };
    /// Anything above nothing is enough: for a sender who leaves it to the receiver.
    pub const ANY: LossBound = LossBound { millionths: LOSS_UNIT - 1 };

    /// A share, rounded down to a millionth. `None` unless it is from 0 to less than 1.
    pub fn new(share: f64) -> Option<LossBound> {
        let is_share = (0.0..1.0).contains(&share);
        is_share.then(|| LossBound { millionths: (share * f64::from(LOSS_UNIT)) as u32 })
    }

    /// A share in millionths. `None` from a million on.
    pub const fn from_millionths(millionths: u32) -> Option<LossBound> {
        if millionths < LOSS_UNIT { Some(LossBound { millionths }) } else { None }
    }

    /// The share in millionths.
    pub const fn millionths(self) -> u32 {
        self.millionths
    }

    /// An equal part of it for each of `parts`.
    pub const fn divided(self, parts: u64) -> LossBound {
        let parts = if parts == 0 { 1 } else { parts };
        // A part of what fits, fits.
        LossBound { millionths: (self.millionths as u64 / parts) as u32 }
    }

    /// Bytes of a tensor that may be missing.
    pub const fn allowed_bytes(self, tensor_bytes: u64) -> u64 {
        // A share of less than one fits where the whole does.
        (tensor_bytes as u128 * self.millionths as u128 / LOSS_UNIT as u128) as u64
    }
}

/// The account of one tensor at its receiver.
// spec: M-06
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    needed_bytes: u64,
    arrived_bytes: u64,
}

impl Budget {
    /// Nothing has arrived yet.
    pub const fn new(tensor_bytes: u64, bound: LossBound) -> Budget {
        let needed_bytes = tensor_bytes - bound.allowed_bytes(tensor_bytes);
        Budget { needed_bytes, arrived_bytes: 0 }
    }

    /// Notes that bytes have arrived.
    pub fn add(&mut self, bytes: u64) {
        self.arrived_bytes += bytes;
    }

    /// Bytes that have arrived.
    pub const fn arrived_bytes(&self) -> u64 {
        self.arrived_bytes
    }

    /// True if that is enough.
    pub const fn is_met(&self) -> bool {
        self.arrived_bytes >= self.needed_bytes
    }
}

/// The segment that an operation begins a tensor with. What is cut off by a receiver's "stop" lies before
/// it; so it moves from round to round and visits all places alike, whether every operation is a round or
/// a round has several: multiples of the golden ratio never gather anywhere.
// spec: M-06
pub fn first_segment(operation: Operation, segments: u32) -> u32 {
    ((u128::from(fibonacci(operation.0)) * u128::from(segments)) >> 64) as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_bound_is_a_share_below_one() {
        assert_eq!(LossBound::new(0.1).map(LossBound::millionths), Some(100_000));
        assert_eq!(LossBound::new(0.0), Some(LossBound::EXACT));
        assert_eq!(LossBound::new(0.999_999_9), Some(LossBound::ANY));
        for none in [1.0, -0.1, f64::NAN] {
            assert_eq!(LossBound::new(none), None);
        }
        assert_eq!(LossBound::from_millionths(1_000_000), None);
    }

    // spec: M-06 machine
    #[test]
    fn enough_is_what_the_bound_leaves() {
        let mut budget = Budget::new(1_001, LossBound::new(0.1).unwrap());
        budget.add(900);
        assert!(!budget.is_met());
        budget.add(1);
        assert!(budget.is_met(), "901 of 1,001: at most 100 may be missing");
        assert!(!Budget::new(1, LossBound::ANY).is_met(), "something has to arrive");
        assert!(Budget::new(0, LossBound::EXACT).is_met());
    }

    // spec: M-06 machine
    #[test]
    fn over_many_rounds_every_segment_is_cut_alike() {
        let (segments, rounds) = (200, 2_000u64);
        for operations_per_round in [1, 2, 7, 55, 1_000] {
            // A tenth is cut off in every round: the segments before the first.
            let mut cut = vec![0u32; segments as usize];
            for round in 0..rounds {
                let first = first_segment(Operation(round * operations_per_round), segments);
                (1..=20).for_each(|back| cut[((first + segments - back) % segments) as usize] += 1);
            }
            let (least, most) = (cut.iter().min().unwrap(), cut.iter().max().unwrap());
            assert!((150..=250).contains(least) && (150..=250).contains(most), "{least} {most}");
        }
    }

    proptest! {
        #[test]
        fn what_is_missing_is_within_the_bound(bytes in any::<u64>(), millionths in 0..LOSS_UNIT) {
            let bound = LossBound::from_millionths(millionths).unwrap();
            let allowed = bound.allowed_bytes(bytes);
            let exact = u128::from(bytes) * u128::from(millionths);
            prop_assert!(u128::from(allowed) * u128::from(LOSS_UNIT) <= exact);
            prop_assert!(bytes == 0 || allowed < bytes);
            prop_assert!(first_segment(Operation(bytes), millionths + 1) <= millionths);
        }
    }
}
