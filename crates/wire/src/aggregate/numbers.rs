//! Encoding of numbers as values of a body.

use super::AggregateError;

/// Length of a value of 32 bits: `f32`, and `i32` in fixed point. Sums in memory have this length in every format.
pub const VALUE_BYTES: usize = 4;

/// Bits of a format byte that name the body format; the others are zero in this version.
const FORMAT: u8 = 0xf;
/// Body format: `f32`.
const FLOAT: u8 = 0;
/// Body format: `i32` in fixed point.
pub(super) const FIXED: u8 = 1;
/// Body format: `bf16`.
pub(super) const BF16: u8 = 2;
/// Body format: `f16`.
pub(super) const F16: u8 = 3;

/// Format of the values of a body.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Numbers {
    /// `i32` in fixed point: the number times this scale, rounded to nearest.
    Fixed(Scale),
    /// `f32`.
    Float,
    /// `f16`. Sums are computed in `f32` and rounded when they are sent (F-02).
    F16,
    /// `bf16`, as above.
    Bf16,
}

impl Numbers {
    /// The bits of the scale, zero for floats.
    #[inline]
    pub(super) fn scale_bits(self) -> u32 {
        match self {
            Numbers::Fixed(scale) => scale.bits(),
            Numbers::Float | Numbers::F16 | Numbers::Bf16 => 0,
        }
    }

    /// Returns whether the values are in fixed point.
    #[inline]
    pub const fn is_fixed(self) -> bool {
        matches!(self, Numbers::Fixed(_))
    }

    /// Length of a value in a body.
    #[inline]
    pub const fn value_bytes(self) -> usize {
        match self {
            Numbers::Fixed(_) | Numbers::Float => VALUE_BYTES,
            Numbers::F16 | Numbers::Bf16 => VALUE_BYTES / 2,
        }
    }

    /// The body format as it travels.
    #[inline]
    pub const fn format(self) -> u8 {
        match self {
            Numbers::Float => FLOAT,
            Numbers::Fixed(_) => FIXED,
            Numbers::F16 => F16,
            Numbers::Bf16 => BF16,
        }
    }

    #[inline]
    pub(super) fn read(format: u8, scale_bits: u32) -> Result<Numbers, AggregateError> {
        match (format, scale_bits) {
            (FLOAT, 0) => Ok(Numbers::Float),
            (F16, 0) => Ok(Numbers::F16),
            (BF16, 0) => Ok(Numbers::Bf16),
            (FLOAT | F16 | BF16, _) => Err(AggregateError::Reserved),
            (FIXED, bits) => Scale::read(bits).map(Numbers::Fixed),
            (other, _) if other & !FORMAT != 0 => Err(AggregateError::Reserved),
            (other, _) => Err(AggregateError::Format(other)),
        }
    }
}

/// A factor from numbers to fixed point: positive, finite, normal.
///
/// Equal scales have equal bits, and smaller scales have smaller ones, so a data plane without
/// floats can compare them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Scale(u32);

impl Scale {
    /// The scale of this value, or `None` if it is not positive and normal.
    #[inline]
    pub fn new(value: f32) -> Option<Scale> {
        (value.is_normal() && value > 0.0).then_some(Scale(value.to_bits()))
    }

    /// The factor.
    #[inline]
    pub fn value(self) -> f32 {
        f32::from_bits(self.0)
    }

    /// Bits of the scale on the wire.
    #[inline]
    pub fn bits(self) -> u32 {
        self.0
    }

    #[inline]
    pub(super) fn read(bits: u32) -> Result<Scale, AggregateError> {
        Scale::new(f32::from_bits(bits)).ok_or(AggregateError::Scale(bits))
    }
}

/// Magnitude of numbers, to the next power of two: the biased exponent of an `f32`.
///
/// One byte says enough to choose a scale, and the largest of many is the largest byte, so any switch
/// can merge them: the largest magnitude is the smallest scale.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Magnitude(u8);

impl Magnitude {
    /// The magnitude of one number. Zero and subnormal numbers have the smallest, infinity and NaN
    /// the largest.
    #[inline]
    pub fn of(value: f32) -> Magnitude {
        // The shift leaves the sign and the exponent; the cut to a byte drops the sign.
        Magnitude((value.to_bits() >> 23) as u8)
    }

    /// The magnitude with this biased exponent.
    #[inline]
    pub const fn from_exponent(exponent: u8) -> Magnitude {
        Magnitude(exponent)
    }

    /// The biased exponent.
    #[inline]
    pub const fn exponent(self) -> u8 {
        self.0
    }

    /// The smallest power of two that is larger than every number of this magnitude; infinity if an
    /// `f32` has none.
    #[inline]
    pub fn bound(self) -> f32 {
        f32::from_bits(u32::from(self.0.saturating_add(1)) << 23)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn scales_are_positive_and_normal() {
        assert_eq!(Scale::new(1e8).unwrap().bits(), 0x4cbe_bc20);
        assert_eq!(Scale::new(1e8).unwrap().value(), 100_000_000.0);
        for value in [0.0, -1.0, 1e-40, f32::INFINITY, f32::NAN] {
            assert_eq!(Scale::new(value), None, "{value}");
        }
    }

    #[test]
    fn magnitudes_are_exponents() {
        assert_eq!(Magnitude::of(1.0).exponent(), 127);
        assert_eq!(Magnitude::of(-1.5).bound(), 2.0);
        assert_eq!(Magnitude::of(0.2).bound(), 0.25);
        assert_eq!(Magnitude::of(0.0), Magnitude::default());
        assert_eq!(Magnitude::of(f32::NAN).exponent(), 255);
        assert_eq!(Magnitude::of(f32::MAX).bound(), f32::INFINITY);
        assert!(Magnitude::of(f32::INFINITY).bound().is_infinite());
    }

    proptest! {
        #[test]
        fn every_number_is_below_its_bound(value in prop::num::f32::NORMAL) {
            let bound = Magnitude::of(value).bound();
            prop_assert!(value.abs() < bound);
            prop_assert!(bound.is_infinite() || value.abs() >= bound / 2.0);
        }

        #[test]
        fn scales_sort_by_their_bits(a in prop::num::f32::POSITIVE, b in prop::num::f32::POSITIVE) {
            if let (Some(first), Some(second)) = (Scale::new(a), Scale::new(b)) {
                prop_assert_eq!(a < b, first < second);
            }
        }
    }
}
