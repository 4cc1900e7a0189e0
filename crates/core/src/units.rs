//! Rates and sizes.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul, Sub, SubAssign};

use crate::time::Span;

/// A data rate in bits per second. Never zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(u64);

/// Largest byte count whose bits, in picoseconds at 1 bit/s, still fit 64 bits.
const NARROW_BYTES: u64 = u64::MAX / (8 * 1_000_000_000_000);

impl Rate {
    /// `bits_per_s`, or `None` for zero: nothing would ever arrive.
    pub const fn from_bps(bits_per_s: u64) -> Option<Rate> {
        if bits_per_s == 0 { None } else { Some(Rate(bits_per_s)) }
    }

    /// A rate of whole megabits per second. Zero is a programming error.
    pub const fn from_mbps(mbps: u64) -> Rate {
        assert!(mbps > 0, "a rate is never zero");
        Rate(mbps * 1_000_000)
    }

    /// A rate of whole gigabits per second. Zero is a programming error.
    pub const fn from_gbps(gbps: u64) -> Rate {
        assert!(gbps > 0, "a rate is never zero");
        Rate(gbps * 1_000_000_000)
    }

    /// Bits per second.
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// Time that `bytes` occupy a link of this rate, rounded up to the picosecond.
    #[inline]
    pub const fn serialization(self, bytes: Bytes) -> Span {
        if bytes.0 <= NARROW_BYTES {
            return Span::from_ps((bytes.0 * 8 * 1_000_000_000_000).div_ceil(self.0));
        }
        let ps = (bytes.0 as u128 * 8 * 1_000_000_000_000).div_ceil(self.0 as u128);
        Span::from_ps(if ps > u64::MAX as u128 { u64::MAX } else { ps as u64 })
    }

    /// Number of whole bytes that pass in `span`.
    pub const fn bytes_in(self, span: Span) -> Bytes {
        let bits = self.0 as u128 * span.as_ps() as u128 / 1_000_000_000_000;
        let bytes = bits / 8;
        Bytes(if bytes > u64::MAX as u128 { u64::MAX } else { bytes as u64 })
    }
}

impl Bytes {
    /// Nothing.
    pub const ZERO: Bytes = Bytes(0);

    /// `count` bytes.
    pub const fn new(count: u64) -> Bytes {
        Bytes(count)
    }

    /// The count.
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// The difference, zero where `other` is larger.
    pub const fn saturating_sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }
}

impl Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0 + other.0)
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Bytes) {
        self.0 += other.0;
    }
}

impl Sub for Bytes {
    type Output = Bytes;
    fn sub(self, other: Bytes) -> Bytes {
        Bytes(self.0 - other.0)
    }
}

impl SubAssign for Bytes {
    fn sub_assign(&mut self, other: Bytes) {
        self.0 -= other.0;
    }
}

impl Mul<u64> for Bytes {
    type Output = Bytes;
    fn mul(self, factor: u64) -> Bytes {
        Bytes(self.0 * factor)
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(iter: I) -> Bytes {
        iter.fold(Bytes::ZERO, Add::add)
    }
}

impl From<u32> for Bytes {
    fn from(count: u32) -> Bytes {
        Bytes(u64::from(count))
    }
}

impl fmt::Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1_000_000_000.. => write!(f, "{} Gbps", self.0 as f64 / 1e9),
            1_000_000.. => write!(f, "{} Mbps", self.0 as f64 / 1e6),
            _ => write!(f, "{} bps", self.0),
        }
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B", self.0)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn serialization_is_exact_at_common_rates() {
        assert_eq!(Rate::from_gbps(100).serialization(Bytes::new(1_564)), Span::from_ps(125_120));
        assert_eq!(Rate::from_gbps(400).serialization(Bytes::new(1_500)), Span::from_ps(30_000));
        assert_eq!(Rate::from_gbps(10).serialization(Bytes::new(1_500)), Span::from_ps(1_200_000));
    }

    #[test]
    fn serialization_rounds_up() {
        let third = Rate::from_gbps(3);
        assert_eq!(third.serialization(Bytes::new(1)), Span::from_ps(2_667));
    }

    proptest! {
        #[test]
        fn the_narrow_path_agrees_with_the_wide_one(bytes in 0..4_000_000u64, bps in 1..1u64 << 41) {
            let wide = (u128::from(bytes) * 8_000_000_000_000).div_ceil(u128::from(bps));
            let rate = Rate::from_bps(bps).expect("not zero");
            let wide = u64::try_from(wide).unwrap_or(u64::MAX);
            prop_assert_eq!(rate.serialization(Bytes::new(bytes)).as_ps(), wide);
        }

        #[test]
        fn what_was_serialised_fits_the_time_it_took(bytes in 0..1u64 << 40, gbps in 1..800u64) {
            let rate = Rate::from_gbps(gbps);
            let span = rate.serialization(Bytes::new(bytes));
            prop_assert!(rate.bytes_in(span) >= Bytes::new(bytes));
        }
    }
}
