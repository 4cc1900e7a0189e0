//! Sums of 16-bit values in the bodies of packets: computed in single precision, rounded when they are sent.
//!
//! A body has two bytes for each value and the sums four, all of them little-endian. What is beyond the shorter one of
//! both is left alone.
// spec: F-02

use multiversion::multiversion;
use thalweg_core::Element;

/// A type of 16-bit floats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Half {
    /// `f16`: 11 bits of precision.
    F16,
    /// `bf16`: the range of single precision, and 8 bits of precision.
    Bf16,
}

impl Half {
    /// Returns the type of 16-bit floats that elements are.
    pub const fn of(element: Element) -> Option<Half> {
        match element {
            Element::F16 => Some(Half::F16),
            Element::Bf16 => Some(Half::Bf16),
            _ => None,
        }
    }

    /// Makes sums of the values of one body.
    pub fn take(self, body: &[u8], sums: &mut [u8]) {
        let (body, sums) = (body.as_chunks().0, sums.as_chunks_mut().0);
        match self {
            Half::F16 => take::<F16>(body, sums),
            Half::Bf16 => take::<Bf16>(body, sums),
        }
    }

    /// Adds the values of a body to sums.
    pub fn add(self, body: &[u8], sums: &mut [u8]) {
        let (body, sums) = (body.as_chunks().0, sums.as_chunks_mut().0);
        match self {
            Half::F16 => add::<F16>(body, sums),
            Half::Bf16 => add::<Bf16>(body, sums),
        }
    }

    /// Writes sums into a body, each rounded to the nearest value, to the even one of two.
    pub fn round(self, sums: &[u8], body: &mut [u8]) {
        let (sums, body) = (sums.as_chunks().0, body.as_chunks_mut().0);
        match self {
            Half::F16 => round::<F16>(sums, body),
            Half::Bf16 => round::<Bf16>(sums, body),
        }
    }

    /// Replaces sums by the body that [`Half::round`] writes.
    pub fn round_in_place(self, sums: &mut Vec<u8>) {
        let mut block = [0; 2 * BLOCK];
        let length = sums.len() / 4 * 4;
        for from in (0..length).step_by(4 * BLOCK) {
            let to = length.min(from + 4 * BLOCK);
            let block = &mut block[..(to - from) / 2];
            self.round(&sums[from..to], block);
            sums[from / 2..to / 2].copy_from_slice(block);
        }
        sums.truncate(length / 2);
    }
}

/// Number of values that are rounded at a time where sums lie: they stay in the first-level cache.
const BLOCK: usize = 256;

/// Conversions of one value, without branches: those of `half` ask for features of the processor or branch for every
/// value, and loops over them are not vectorized.
pub(crate) trait Narrow {
    /// The value of these bits.
    fn widen(bits: u16) -> f32;
    /// The bits of the nearest value, of the even one of two.
    fn round(value: f32) -> u16;
}

pub(crate) struct F16;
pub(crate) struct Bf16;

/// Bits of infinity in single precision. NaN is above.
const INFINITY: u32 = 0xff << 23;

impl Narrow for F16 {
    #[inline(always)]
    fn widen(bits: u16) -> f32 {
        let (sign, magnitude) = (u32::from(bits & 0x8000) << 16, u32::from(bits & 0x7fff) << 13);
        // The exponents differ by 112. The product is exact, for subnormal numbers as well.
        let finite = (f32::from_bits(magnitude) * f32::from_bits((127 + 112) << 23)).to_bits();
        let is_finite = bits & 0x7c00 != 0x7c00;
        f32::from_bits(sign | if is_finite { finite } else { INFINITY | magnitude })
    }

    #[inline(always)]
    fn round(value: f32) -> u16 {
        let sign = (value.to_bits() >> 16) as u16 & 0x8000;
        let magnitude = value.to_bits() & 0x7fff_ffff;
        // Added to a subnormal result, this number leaves the bits of the result at the end, rounded.
        const SHIFT: u32 = (127 - 15 + 23 - 10 + 1) << 23;
        let subnormal =
            (f32::from_bits(magnitude) + f32::from_bits(SHIFT)).to_bits().wrapping_sub(SHIFT);
        let is_odd = magnitude >> 13 & 1;
        let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + is_odd) >> 13;
        let finite = if magnitude < 113 << 23 { subnormal } else { normal };
        let beyond = if magnitude > INFINITY { 0x7e00 } else { 0x7c00 };
        let rounded = if magnitude >= (127 + 16) << 23 { beyond } else { finite };
        rounded as u16 | sign
    }
}

impl Narrow for Bf16 {
    #[inline(always)]
    fn widen(bits: u16) -> f32 {
        f32::from_bits(u32::from(bits) << 16)
    }

    #[inline(always)]
    fn round(value: f32) -> u16 {
        let bits = value.to_bits();
        let is_odd = bits >> 16 & 1;
        let rounded = bits.wrapping_add(0x7fff + is_odd) >> 16;
        // Rounding could make infinity of a NaN.
        let is_nan = bits & 0x7fff_ffff > INFINITY;
        (if is_nan { bits >> 16 | 0x40 } else { rounded }) as u16
    }
}

// Compiled for wider vectors as well; the widest that the machine has is chosen at run time. The bits are
// the same in all of them.

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512bw", "x86_64+avx+avx2"))]
fn take<N: Narrow>(body: &[[u8; 2]], sums: &mut [[u8; 4]]) {
    for (sum, value) in sums.iter_mut().zip(body) {
        *sum = N::widen(u16::from_le_bytes(*value)).to_le_bytes();
    }
}

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512bw", "x86_64+avx+avx2"))]
fn add<N: Narrow>(body: &[[u8; 2]], sums: &mut [[u8; 4]]) {
    for (sum, value) in sums.iter_mut().zip(body) {
        let wide = N::widen(u16::from_le_bytes(*value));
        *sum = (f32::from_le_bytes(*sum) + wide).to_le_bytes();
    }
}

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512bw", "x86_64+avx+avx2"))]
fn round<N: Narrow>(sums: &[[u8; 4]], body: &mut [[u8; 2]]) {
    for (value, sum) in body.iter_mut().zip(sums) {
        *value = N::round(f32::from_le_bytes(*sum)).to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use proptest::prelude::*;

    use super::*;

    const HALVES: [Half; 2] = [Half::F16, Half::Bf16];

    fn widen(half: Half, bits: u16) -> f32 {
        match half {
            Half::F16 => f16::from_bits(bits).to_f32(),
            Half::Bf16 => bf16::from_bits(bits).to_f32(),
        }
    }

    fn rounded(half: Half, value: f32) -> u16 {
        match half {
            Half::F16 => f16::from_f32(value).to_bits(),
            Half::Bf16 => bf16::from_f32(value).to_bits(),
        }
    }

    fn body(bits: &[u16]) -> Vec<u8> {
        bits.iter().flat_map(|bits| bits.to_le_bytes()).collect()
    }

    fn floats(sums: &[u8]) -> Vec<f32> {
        sums.as_chunks().0.iter().map(|sum| f32::from_le_bytes(*sum)).collect()
    }

    #[test]
    fn elements_of_16_bits_are_halves() {
        let halves: Vec<Half> = Element::ALL.into_iter().filter_map(Half::of).collect();
        assert_eq!(halves, HALVES);
    }

    #[test]
    fn every_value_is_widened_as_it_is() {
        for half in HALVES {
            for bits in 0..=u16::MAX {
                let mut sum = [0; 4];
                half.take(&bits.to_le_bytes(), &mut sum);
                let (own, expected) = (f32::from_le_bytes(sum), widen(half, bits));
                let is_same = own.to_bits() == expected.to_bits();
                assert!(is_same || own.is_nan() && expected.is_nan(), "{half:?} {bits:#06x}");
            }
        }
    }

    /// Between two neighbours the middle is decided by the even one, and everything else by the nearer one.
    #[test]
    fn rounding_is_to_the_nearest_and_to_even() {
        for half in HALVES {
            for bits in (0..=u16::MAX).filter(|bits| widen(half, *bits).is_finite()) {
                let value = f64::from(widen(half, bits));
                let next = f64::from(widen(half, bits.wrapping_add(1)));
                let middle = ((value + next) / 2.0) as f32;
                for value in [value as f32, middle, middle.next_up(), middle.next_down()] {
                    let mut own = [0; 2];
                    half.round(&value.to_le_bytes(), &mut own);
                    let (own, expected) = (u16::from_le_bytes(own), rounded(half, value));
                    let is_nan = widen(half, own).is_nan() && widen(half, expected).is_nan();
                    assert!(own == expected || is_nan, "{half:?} {value:e} {own:#x} {expected:#x}");
                }
            }
        }
    }

    // spec: F-02 machine
    #[test]
    fn sums_are_rounded_once() {
        for (half, large) in [(Half::F16, 2_048.0), (Half::Bf16, 256.0)] {
            let one = body(&[rounded(half, 1.0)]);
            let mut sums = vec![0; 4];
            half.take(&body(&[rounded(half, large)]), &mut sums);
            half.add(&one, &mut sums);
            half.add(&one, &mut sums);
            half.round_in_place(&mut sums);
            assert_eq!(
                sums,
                body(&[rounded(half, large + 2.0)]),
                "one at a time, none would count"
            );
        }
    }

    // spec: F-02, T-09 machine
    #[test]
    fn nan_and_infinity_are_carried() {
        let values = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::INFINITY, 1.0];
        let others = [1.0, 1.0, 1.0, f32::NEG_INFINITY, f32::NAN];
        for half in HALVES {
            let bits = |values: [f32; 5]| body(&values.map(|value| rounded(half, value)));
            let (mut sums, mut narrow) = (vec![0; 20], vec![0; 10]);
            half.take(&bits(values), &mut sums);
            half.add(&bits(others), &mut sums);
            half.round(&sums, &mut narrow);
            let read: Vec<u16> =
                narrow.as_chunks().0.iter().map(|bits| u16::from_le_bytes(*bits)).collect();
            let back: Vec<f32> = read.into_iter().map(|bits| widen(half, bits)).collect();
            assert!(back[0].is_nan() && back[3].is_nan() && back[4].is_nan(), "{half:?} {back:?}");
            assert_eq!(back[1..3], [f32::INFINITY, f32::NEG_INFINITY]);
        }
    }

    #[test]
    fn a_sum_beyond_the_range_is_infinite() {
        let most = rounded(Half::F16, 65_504.0);
        let (mut sums, mut narrow) = (vec![0; 4], vec![0; 2]);
        Half::F16.take(&body(&[most]), &mut sums);
        Half::F16.add(&body(&[most]), &mut sums);
        assert_eq!(floats(&sums), [131_008.0]);
        Half::F16.round(&sums, &mut narrow);
        assert_eq!(narrow, body(&[f16::INFINITY.to_bits()]));
    }

    proptest! {
        // spec: F-02 machine
        #[test]
        fn kernels_agree_with_single_values(
            pairs in prop::collection::vec((any::<u16>(), any::<u16>()), 0..700),
        ) {
            let (one, other): (Vec<u16>, Vec<u16>) = pairs.into_iter().unzip();
            for half in HALVES {
                let mut sums = vec![0; 4 * one.len()];
                half.take(&body(&one), &mut sums);
                half.add(&body(&other), &mut sums);
                let expected: Vec<f32> =
                    one.iter().zip(&other).map(|(one, other)| widen(half, *one) + widen(half, *other)).collect();
                let agrees = |(sum, expected): (f32, &f32)| sum == *expected || sum.is_nan() && expected.is_nan();
                prop_assert!(floats(&sums).into_iter().zip(&expected).all(agrees));
                let mut narrow = vec![0; 2 * one.len()];
                half.round(&sums, &mut narrow);
                let agrees = |(bits, expected): (&[u8; 2], &f32)| {
                    let own = widen(half, u16::from_le_bytes(*bits));
                    let other = widen(half, rounded(half, *expected));
                    own == other || own.is_nan() && other.is_nan()
                };
                prop_assert!(narrow.as_chunks().0.iter().zip(&expected).all(agrees));
                half.round_in_place(&mut sums);
                prop_assert_eq!(sums, narrow);
            }
        }
    }
}
