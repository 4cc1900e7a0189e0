//! Floats in memory and as little-endian bytes: the kernels that copy, widen and round them.
//!
//! All take slices, so that they compile to vector instructions. The shorter one of both sides counts.

use half::{bf16, f16};
use multiversion::multiversion;
use thalweg_core::Element;

/// A float that tensors consist of. Halves are summed in single precision and rounded once.
pub trait Float: Copy + Default {
    /// The type of the value.
    const ELEMENT: Element;

    /// The bytes of one value.
    type Bytes: Copy;

    /// The value in single precision.
    fn widen(self) -> f32;

    /// The value nearest to one in single precision.
    fn round(wide: f32) -> Self;

    /// The value as little-endian bytes.
    fn to_le(self) -> Self::Bytes;

    /// The value of little-endian bytes.
    fn from_le(bytes: Self::Bytes) -> Self;

    /// Bytes by value. What is behind the last whole value is left out.
    fn chunks(bytes: &[u8]) -> &[Self::Bytes];

    /// Bytes by value, for writing.
    fn chunks_mut(bytes: &mut [u8]) -> &mut [Self::Bytes];
}

macro_rules! floats {
    ($($type:ty, $element:expr, $widen:expr, $round:expr);*) => {$(
        impl Float for $type {
            const ELEMENT: Element = $element;
            type Bytes = [u8; size_of::<$type>()];
            #[inline(always)]
            fn widen(self) -> f32 {
                $widen(self)
            }
            #[inline(always)]
            fn round(wide: f32) -> $type {
                $round(wide)
            }
            #[inline(always)]
            fn to_le(self) -> Self::Bytes {
                self.to_le_bytes()
            }
            #[inline(always)]
            fn from_le(bytes: Self::Bytes) -> $type {
                <$type>::from_le_bytes(bytes)
            }
            #[inline(always)]
            fn chunks(bytes: &[u8]) -> &[Self::Bytes] {
                bytes.as_chunks().0
            }
            #[inline(always)]
            fn chunks_mut(bytes: &mut [u8]) -> &mut [Self::Bytes] {
                bytes.as_chunks_mut().0
            }
        }
    )*};
}

floats!(
    f32, Element::F32, std::convert::identity, std::convert::identity;
    f16, Element::F16, f16::to_f32, f16::from_f32;
    bf16, Element::Bf16, bf16::to_f32, bf16::from_f32
);

/// Writes values as bytes of their own type.
#[inline]
pub fn write_le<T: Float>(values: &[T], bytes: &mut [u8]) {
    for (bytes, value) in T::chunks_mut(bytes).iter_mut().zip(values) {
        *bytes = value.to_le();
    }
}

/// Reads values from bytes of their own type.
#[inline]
pub fn read_le<T: Float>(bytes: &[u8], values: &mut [T]) {
    for (value, bytes) in values.iter_mut().zip(T::chunks(bytes)) {
        *value = T::from_le(*bytes);
    }
}

/// Writes values as bytes of single precision.
#[inline]
pub fn widen_le<T: Float>(values: &[T], bytes: &mut [u8]) {
    for (bytes, value) in f32::chunks_mut(bytes).iter_mut().zip(values) {
        *bytes = value.widen().to_le_bytes();
    }
}

/// Reads values, rounded, from bytes of single precision.
#[inline]
pub fn round_le<T: Float>(bytes: &[u8], values: &mut [T]) {
    for (value, bytes) in values.iter_mut().zip(f32::chunks(bytes)) {
        *value = T::round(f32::from_le_bytes(*bytes));
    }
}

/// Writes values in single precision.
#[inline]
pub fn widen<T: Float>(values: &[T], wide: &mut [f32]) {
    for (wide, value) in wide.iter_mut().zip(values) {
        *wide = value.widen();
    }
}

/// Reads values, rounded, from single precision.
#[inline]
pub fn round<T: Float>(wide: &[f32], values: &mut [T]) {
    for (value, wide) in values.iter_mut().zip(wide) {
        *value = T::round(*wide);
    }
}

// Compiled for wider vectors as well; the widest that the machine has is chosen at run time. The bits are
// the same in all of them.

/// Adds values to sums in single precision.
#[multiversion(targets("x86_64+avx512f+avx512vl", "x86_64+avx+avx2"))]
pub fn add<T: Float>(values: &[T], sums: &mut [f32]) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum += value.widen();
    }
}

/// Adds values to sums that are bytes of single precision.
#[multiversion(targets("x86_64+avx512f+avx512vl", "x86_64+avx+avx2"))]
pub fn add_le<T: Float>(values: &[T], sums: &mut [u8]) {
    for (sum, value) in f32::chunks_mut(sums).iter_mut().zip(values) {
        *sum = (f32::from_le_bytes(*sum) + value.widen()).to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_are_little_endian() {
        let mut bytes = [0; 8];
        write_le(&[1.0_f32, -2.5], &mut bytes);
        assert_eq!(bytes, [0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc0]);
        let mut halves = [0; 4];
        write_le(&[bf16::from_f32(1.0), bf16::from_f32(-2.5)], &mut halves);
        assert_eq!(halves, [0x80, 0x3f, 0x20, 0xc0]);
        widen_le(&[f16::from_f32(1.0), f16::from_f32(-2.5)], &mut bytes);
        assert_eq!(bytes, [0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc0]);
        add_le(&[f16::from_f32(1.0), f16::from_f32(0.5)], &mut bytes);
        let mut sums = [0.0; 2];
        read_le(&bytes, &mut sums);
        assert_eq!(sums, [2.0, -2.0]);
    }

    #[test]
    fn halves_are_rounded_once() {
        // 2048 + 1 rounds back to 2048 in half precision, but 2048 + 1 + 1 is 2050.
        let mut sums = [2_048.0];
        add(&[f16::from_f32(1.0)], &mut sums);
        add(&[f16::from_f32(1.0)], &mut sums);
        let mut halves = [f16::ZERO];
        round(&sums, &mut halves);
        assert_eq!(halves, [f16::from_f32(2_050.0)]);
    }

    proptest! {
        #[test]
        fn every_half_survives_being_widened(bits in prop::collection::vec(any::<u16>(), 0..40)) {
            let values: Vec<f16> = bits.iter().map(|&bits| f16::from_bits(bits)).collect();
            let (mut bytes, mut back) = (vec![0; 4 * bits.len()], vec![f16::ZERO; bits.len()]);
            widen_le(&values, &mut bytes);
            round_le(&bytes, &mut back);
            let same = |(one, other): (&f16, &f16)| {
                one.to_bits() == other.to_bits() || one.is_nan() && other.is_nan()
            };
            prop_assert!(values.iter().zip(&back).all(same));
            let (mut native, mut back) = (vec![0; 2 * bits.len()], vec![f16::ZERO; bits.len()]);
            write_le(&values, &mut native);
            read_le(&native, &mut back);
            prop_assert!(back.iter().map(|value| value.to_bits()).eq(bits));
        }
    }
}
