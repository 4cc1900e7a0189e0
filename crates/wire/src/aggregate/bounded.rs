//! Sums from which somebody may be left out.

use std::num::NonZeroU32;

use crate::int24::U24_MAX;

/// Share of an operation that may be missing, in 256ths, rounded down: it fits into a query.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LossShare(u8);

impl LossShare {
    /// The share that is not above this one. `None` unless it is at least 0 and below 1.
    pub fn new(share: f64) -> Option<LossShare> {
        (0.0..1.0).contains(&share).then_some(LossShare((share * 256.0) as u8))
    }

    /// The share of this number of 256ths.
    pub const fn from_parts(parts: u8) -> LossShare {
        LossShare(parts)
    }

    /// The share in 256ths.
    pub const fn parts(self) -> u8 {
        self.0
    }

    /// Number of these fragments that one worker may miss.
    pub const fn of(self, fragments: u32) -> u32 {
        ((fragments as u64 * self.0 as u64) >> 8) as u32
    }
}

/// Description of an operation that need not be exact, as a query carries it (T-02).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounded {
    /// Distance from the operation's first fragment to this one: below `fragments`.
    pub first_distance: u32,
    /// Number of the operation's fragments, at most [`Bounded::FRAGMENTS_MAX`].
    pub fragments: u32,
    /// Share of it that each worker may miss.
    pub share: LossShare,
}

impl Bounded {
    /// The longest operation that a query can describe. Longer ones are exact.
    pub const FRAGMENTS_MAX: u32 = U24_MAX;

    /// `None` if the fragment lies outside its operation.
    pub(super) fn read(first_distance: u32, fragments: u32, share: u8) -> Option<Bounded> {
        let share = LossShare(share);
        (first_distance < fragments).then_some(Bounded { first_distance, fragments, share })
    }
}

/// Ranks whose contributions a finished sum lacks: at least one.
///
/// With up to 32 workers any of them, one bit each; with more, one rank or two. Each half of the bits
/// is then a rank plus one, the lower rank in the lower half, and zero in the upper for nobody.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Absent(NonZeroU32);

impl Absent {
    /// The workers that bits can name one by one.
    const BITS: u32 = u32::BITS;

    /// Names ranks of a job of `workers`, in any order, each once. `None` if there are no ranks, or more than
    /// can be named.
    pub fn of(ranks: impl IntoIterator<Item = u32>, workers: u32) -> Option<Absent> {
        let mut bits = 0;
        for rank in ranks.into_iter() {
            if rank >= workers {
                return None;
            }
            bits = if workers <= Absent::BITS { bits | 1 << rank } else { join(bits, rank)? };
        }
        Absent::read(bits)
    }

    /// As it travels.
    pub const fn bits(self) -> u32 {
        self.0.get()
    }

    /// From what has travelled.
    pub const fn read(bits: u32) -> Option<Absent> {
        match NonZeroU32::new(bits) {
            Some(bits) => Some(Absent(bits)),
            None => None,
        }
    }

    /// The ranks, in order, of a job of `workers`.
    pub fn ranks(self, workers: u32) -> impl Iterator<Item = u32> {
        let bits = self.bits();
        let by_bit = (0..workers.min(Absent::BITS)).filter(move |rank| bits >> rank & 1 == 1);
        let by_half =
            [bits & 0xffff, bits >> 16].into_iter().filter_map(|half| half.checked_sub(1));
        let (has_bits, has_halves) = (workers <= Absent::BITS, workers > Absent::BITS);
        by_bit
            .filter(move |_| has_bits)
            .chain(by_half.filter(move |rank| has_halves && *rank < workers))
    }
}

/// One more rank in halves.
fn join(bits: u32, rank: u32) -> Option<u32> {
    let half = u32::from(u16::try_from(rank + 1).ok()?);
    match bits {
        0 => Some(half),
        other if other >> 16 == 0 => Some(other.min(half) | other.max(half) << 16),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shares_are_rounded_down() {
        let parts = |share| LossShare::new(share).map(LossShare::parts);
        assert_eq!([0.0, 0.1, 0.5, 0.999].map(parts), [Some(0), Some(25), Some(128), Some(255)]);
        assert_eq!([1.0, -0.1, f64::NAN].map(parts), [None; 3]);
        let tenth = LossShare::new(0.1).unwrap();
        assert_eq!(
            [0, 10, 11, 1_000, u32::MAX].map(|all| tenth.of(all)),
            [0, 0, 1, 97, 419_430_399]
        );
    }

    #[test]
    fn too_many_cannot_be_named() {
        assert_eq!(Absent::of([0, 31], 32).map(Absent::bits), Some(1 << 31 | 1));
        assert_eq!(Absent::of([40, 7], 41).map(Absent::bits), Some(41 << 16 | 8));
        assert_eq!(Absent::of([1, 2, 3], 33), None, "three of more than 32");
        assert_eq!(Absent::of([65_535], 70_000), None, "no half holds it");
        assert_eq!(Absent::of([4], 4), None, "nobody's rank");
        assert_eq!(Absent::of([], 4), None);
        assert_eq!(Absent::read(u32::MAX).unwrap().ranks(40).count(), 0, "no such ranks");
    }

    proptest! {
        #[test]
        fn names_come_back(
            workers in 1..80_u32,
            drawn in prop::collection::btree_set(0..80_u32, 1..5),
        ) {
            let ranks: Vec<u32> = drawn.into_iter().filter(|rank| *rank < workers).collect();
            let fits = !ranks.is_empty() && (workers <= 32 || ranks.len() <= 2);
            let absent = Absent::of(ranks.iter().rev().copied(), workers);
            prop_assert_eq!(absent.is_some(), fits);
            if let Some(absent) = absent {
                prop_assert_eq!(absent.ranks(workers).collect::<Vec<_>>(), ranks);
                prop_assert_eq!(Absent::read(absent.bits()), Some(absent));
            }
        }
    }
}
