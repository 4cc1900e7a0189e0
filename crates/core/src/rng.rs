//! Seeded randomness in independent streams.
//!
//! Every use draws from a stream of its own, so that one more draw in one place changes nothing in
//! another: a fault rule added to a scenario leaves the arrivals as they were.

use rand_core::{Rng as _, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::time::Span;

/// A deterministic generator, the same on every machine.
#[derive(Clone, Debug)]
pub struct Rng {
    /// Seed from which streams are derived. Drawing does not change it.
    seed: u64,
    generator: Xoshiro256PlusPlus,
}

impl Rng {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Rng {
        Rng { seed, generator: Xoshiro256PlusPlus::seed_from_u64(seed) }
    }

    /// An independent generator for one use. Equal labels give equal streams, whatever was drawn
    /// from `self` before.
    pub fn stream(&self, label: &str) -> Rng {
        let start = mix(self.seed ^ GOLDEN);
        Rng::new(label.bytes().fold(start, |hash, byte| mix(hash ^ u64::from(byte))))
    }

    /// An independent generator for one of many like uses: a link, a host, a flow.
    pub fn substream(&self, label: &str, index: u64) -> Rng {
        self.stream(label).nth(index)
    }

    /// The generator of one of many like uses, where `self` is the [`stream`](Rng::stream) of all of them:
    /// `substream` for callers that make many.
    pub fn nth(&self, index: u64) -> Rng {
        Rng::new(mix(self.seed.wrapping_add(mix(index))))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.generator.next_u64()
    }

    /// A number from 0 to `bound` − 1, each equally likely; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // Multiply-shift leaves a bias of bound / 2^64, far below what any run could notice.
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in [0, 1) with 53 random bits.
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// True with the given probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }

    /// An exponentially distributed span: the gap before the next event of a Poisson process.
    pub fn exponential(&mut self, mean: Span) -> Span {
        // 1 − u lies in (0, 1], so the logarithm is finite.
        let factor = -libm::log(1.0 - self.uniform());
        Span::from_ps(libm::rint(mean.as_ps() as f64 * factor) as u64)
    }

    /// Puts a slice into random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

/// 2⁶⁴ divided by the golden ratio: multiples of it never gather anywhere.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The product with the golden ratio (Fibonacci hashing): its upper bits depend on all bits of `x`.
#[inline]
pub const fn fibonacci(x: u64) -> u64 {
    x.wrapping_mul(GOLDEN)
}

/// A bijection that spreads every bit over all others (the finaliser of SplitMix64).
#[inline]
pub const fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(GOLDEN);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_fixes_the_sequence() {
        // Literal values: a change of generator would silently change every published run.
        let mut rng = Rng::new(1);
        let first: Vec<u64> = (0..3).map(|_| rng.bits()).collect();
        let mut again = Rng::new(1);
        assert_eq!(first, (0..3).map(|_| again.bits()).collect::<Vec<_>>());
        assert_eq!(first[0], 14_971_601_782_005_023_387);
    }

    #[test]
    fn streams_do_not_depend_on_draws() {
        let mut drawn = Rng::new(7);
        let before = drawn.stream("loss").bits();
        drawn.bits();
        assert_eq!(drawn.stream("loss").bits(), before);
        assert_ne!(drawn.stream("jitter").bits(), before);
        assert_ne!(drawn.substream("loss", 0).bits(), drawn.substream("loss", 1).bits());
        assert_eq!(drawn.stream("loss").nth(1).bits(), drawn.substream("loss", 1).bits());
    }

    #[test]
    fn exponential_has_its_mean() {
        let mut rng = Rng::new(3);
        let mean = Span::from_us(10);
        let draws = 200_000u64;
        let total: u64 = (0..draws).map(|_| rng.exponential(mean).as_ps()).sum();
        let ratio = total as f64 / draws as f64 / mean.as_ps() as f64;
        assert!((ratio - 1.0).abs() < 0.01, "{ratio}");
    }

    #[test]
    fn below_stays_below_and_reaches_both_ends() {
        let mut rng = Rng::new(4);
        let mut seen = [false; 5];
        for _ in 0..1_000 {
            seen[rng.below(5) as usize] = true;
        }
        assert_eq!(seen, [true; 5]);
        assert_eq!(rng.below(0), 0);
    }
}
