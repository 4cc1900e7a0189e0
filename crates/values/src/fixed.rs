//! Fixed point: floats as 32-bit integers, which every switch can add and whose sum is the same
//! bits in whatever order they arrive.

use multiversion::multiversion;

use crate::slice::{TensorSlice, TensorSliceMut};

/// Turns floats into integers by multiplying with a scale, and back by dividing.
///
/// Both ways round once, to the nearest, ties to even, whatever the scale. Two hosts that agree on
/// the scale therefore agree on every bit.
// spec: A-31
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fixed {
    /// Has the 24 significant bits of an `f32`, so a product with another `f32` is exact.
    scale: f64,
    /// One over the scale, rounded up: [`quotient`] counts on an error that is never negative.
    reciprocal: f64,
}

/// Precision with which integers stand for the floats they were made from.
///
/// An integer that is neither clipped nor underflowed stands for its value to within half a step, which is
/// less than the value itself.
// spec: T-09
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[must_use = "clipped integers do not stand for the values: these have to travel as floats"]
pub struct Fit {
    /// At least one value was NaN, infinite, or rounded to something beyond an `i32`.
    pub is_clipped: bool,
    /// Number of values that are not zero and became zero: their magnitude is at most half a step, so
    /// nothing is left of them.
    pub underflowed: u64,
}

impl Fit {
    /// The fit of values that were all within range, none of which became zero.
    pub const WHOLE: Fit = Fit { is_clipped: false, underflowed: 0 };

    /// The fit of both together.
    #[inline]
    pub fn and(self, other: Fit) -> Fit {
        Fit {
            is_clipped: self.is_clipped | other.is_clipped,
            underflowed: self.underflowed + other.underflowed,
        }
    }
}

/// A flaw anywhere sends a block through the slow path, so a block is small; it is large enough to
/// hide what checking it costs.
const BLOCK_VALUES: usize = 1_024;

/// 1.5 · 2^52. Doubles of this size are one apart, so adding it rounds to an integer and leaves that
/// in the low bits, in two's complement. It compiles to vector instructions on every x86-64, where
/// `round_ties_even` is a call for each value.
const ROUNDER: f64 = 6_755_399_441_055_744.0;

/// The bits of [`ROUNDER`] with the smallest integer added. The bits of the sums in range are the
/// 2^32 numbers from here.
const SMALLEST: u64 = ROUNDER.to_bits() - (1 << 31);

impl Fixed {
    /// The scale of the paper.
    pub const DEFAULT_SCALE: f32 = 1e8;

    /// Fixed point with `scale` steps to the unit. `None` unless it is finite and above zero.
    pub fn new(scale: f32) -> Option<Fixed> {
        (scale.is_finite() && scale > 0.0).then(|| Fixed::of(scale))
    }

    /// Steps to the unit.
    pub fn scale(self) -> f32 {
        self.scale as f32
    }

    /// Writes each of `values` as the nearest integer after scaling. What does not fit becomes the
    /// nearest integer that there is, NaN becomes 0; the answer says whether that happened, and how many
    /// values were too small for the scale.
    ///
    /// # Panics
    ///
    /// If `out` is not as long as `values`.
    pub fn encode(self, values: &[f32], out: &mut [i32]) -> Fit {
        encode(self, values, out)
    }

    /// [`Fixed::encode`] into the body of a packet, little-endian.
    ///
    /// # Panics
    ///
    /// If `out` is not four times as long as `values`.
    pub fn encode_le(self, values: &[f32], out: &mut [u8]) -> Fit {
        let (out, rest) = out.as_chunks_mut();
        assert!(rest.is_empty(), "the last integer is cut off");
        encode_le(self, values, out)
    }

    /// Writes each of `integers`, divided by the scale, as the nearest float.
    ///
    /// # Panics
    ///
    /// If `out` is not as long as `integers`.
    pub fn decode(self, integers: &[i32], out: &mut [f32]) {
        decode(self, integers, out);
    }

    /// [`Fixed::decode`] out of the body of a packet, little-endian.
    ///
    /// # Panics
    ///
    /// If `integers` is not four times as long as `out`.
    pub fn decode_le(self, integers: &[u8], out: &mut [f32]) {
        let (integers, rest) = integers.as_chunks();
        assert!(rest.is_empty(), "the last integer is cut off");
        decode_le(self, integers, out);
    }

    /// [`Fixed::encode_le`] of values of any type. Writes nothing if there are no values.
    ///
    /// # Panics
    ///
    /// If `out` does not have four bytes for each value.
    pub fn encode_slice_le(self, values: TensorSlice<'_>, out: &mut [u8]) -> Fit {
        let mut fit = Fit::WHOLE;
        values.for_wide_blocks(|first, values| {
            let bytes = 4 * first..4 * (first + values.len());
            fit = fit.and(self.encode_le(values, &mut out[bytes]));
        });
        fit
    }

    /// [`Fixed::decode_le`] to values of any type, which are rounded once more.
    ///
    /// # Panics
    ///
    /// If `integers` does not have four bytes for each value.
    pub fn decode_slice_le(self, integers: &[u8], out: TensorSliceMut<'_>) {
        out.fill_wide_blocks(|first, out| {
            self.decode_le(&integers[4 * first..4 * (first + out.len())], out);
        });
    }

    fn of(scale: f32) -> Fixed {
        let scale = f64::from(scale);
        Fixed { scale, reciprocal: scale.recip().next_up() }
    }

    #[inline(always)]
    fn encode_as<T>(self, values: &[f32], out: &mut [T], pack: impl Fn(i32) -> T + Copy) -> Fit {
        assert_eq!(values.len(), out.len(), "one integer for each value");
        let mut fit = Fit::WHOLE;
        for (values, out) in values.chunks(BLOCK_VALUES).zip(out.chunks_mut(BLOCK_VALUES)) {
            let mut block = self.encode_block(values, out, pack);
            if block.is_clipped {
                block = self.clip_block(values, out, pack);
            }
            fit = fit.and(block);
        }
        fit
    }

    /// Encodes what is in range and says whether everything was; if not, what it counted means nothing.
    /// Free of branches, so that it compiles to vector instructions.
    #[inline(always)]
    fn encode_block<T>(self, values: &[f32], out: &mut [T], pack: impl Fn(i32) -> T) -> Fit {
        let mut offsets = 0;
        // A block has fewer values than 32 bits count, so nothing wraps. A checked addition keeps the loop from
        // vector instructions: encoding takes ten times as long (`cargo bench -p thalweg-values --bench fixed`).
        let mut underflowed = 0_u32;
        for (value, out) in values.iter().zip(out) {
            let rounded = (f64::from(*value) * self.scale + ROUNDER).to_bits();
            offsets |= rounded.wrapping_sub(SMALLEST);
            let integer = rounded as i32;
            underflowed = underflowed.wrapping_add(u32::from((integer == 0) & (*value != 0.0)));
            *out = pack(integer);
        }
        Fit { is_clipped: offsets >> 32 != 0, underflowed: u64::from(underflowed) }
    }

    /// Encodes a block with a value that does not fit, one at a time: the cast saturates, and turns
    /// NaN into 0.
    #[cold]
    fn clip_block<T>(self, values: &[f32], out: &mut [T], pack: impl Fn(i32) -> T) -> Fit {
        let mut underflowed = 0;
        for (value, out) in values.iter().zip(out) {
            let integer = (f64::from(*value) * self.scale).round_ties_even() as i32;
            underflowed += u64::from(integer == 0 && *value != 0.0 && !value.is_nan());
            *out = pack(integer);
        }
        Fit { is_clipped: true, underflowed }
    }

    #[inline(always)]
    fn decode_as<T: Copy>(self, integers: &[T], out: &mut [f32], unpack: impl Fn(T) -> i32) {
        assert_eq!(integers.len(), out.len(), "one value for each integer");
        for (integer, out) in integers.iter().zip(out) {
            *out = quotient(unpack(*integer), self.reciprocal);
        }
    }
}

impl Default for Fixed {
    fn default() -> Fixed {
        Fixed::of(Fixed::DEFAULT_SCALE)
    }
}

// Compiled for wider vectors as well; the widest that the machine has is chosen at run time. The
// arithmetic is the same in all of them, and so are the bits.

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq", "x86_64+avx+avx2"))]
fn encode(fixed: Fixed, values: &[f32], out: &mut [i32]) -> Fit {
    fixed.encode_as(values, out, |integer| integer)
}

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq", "x86_64+avx+avx2"))]
fn encode_le(fixed: Fixed, values: &[f32], out: &mut [[u8; 4]]) -> Fit {
    fixed.encode_as(values, out, i32::to_le_bytes)
}

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq", "x86_64+avx+avx2"))]
fn decode(fixed: Fixed, integers: &[i32], out: &mut [f32]) {
    fixed.decode_as(integers, out, |integer| integer);
}

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq", "x86_64+avx+avx2"))]
fn decode_le(fixed: Fixed, integers: &[[u8; 4]], out: &mut [f32]) {
    fixed.decode_as(integers, out, i32::from_le_bytes);
}

/// The float nearest to the exact quotient, from a reciprocal that was rounded up.
///
/// Only a quotient that lies near the middle between two floats could go wrong. One in the middle
/// has 25 significant bits; its product comes out less than four units in the last place too large,
/// and loses that with its last three bits. Any other quotient is more than 16 such units away from
/// the middle (an integer divided by 24 bits cannot come closer), and stays on its side.
#[inline(always)]
fn quotient(integer: i32, reciprocal: f64) -> f32 {
    f64::from_bits((f64::from(integer) * reciprocal).to_bits() & !0b111) as f32
}

#[cfg(test)]
mod tests;
