//! Slices of tensors: the values of a fragment, a segment or a message, where they lie.

use std::ops::Range;

use half::{bf16, f16};
use thalweg_core::{Body, BodySize};

use crate::float::{self, Float};
use crate::tensor::Tensor;

/// Consecutive values of a tensor.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum TensorSlice<'a> {
    /// This number of values that nobody reads.
    Length(u64),
    /// Values in single precision.
    Values(&'a [f32]),
    /// Values in half precision.
    F16(&'a [f16]),
    /// Values in the upper half of single precision.
    Bf16(&'a [bf16]),
}

/// Consecutive values of a tensor, for writing.
#[derive(PartialEq, Debug)]
pub enum TensorSliceMut<'a> {
    /// This number of values that nobody reads.
    Length(u64),
    /// Values in single precision.
    Values(&'a mut [f32]),
    /// Values in half precision.
    F16(&'a mut [f16]),
    /// Values in the upper half of single precision.
    Bf16(&'a mut [bf16]),
}

/// One expression for slices of any float, another one for those without values.
macro_rules! by_float {
    ($slice:expr, $values:pat => $with:expr, $length:pat => $without:expr) => {
        match $slice {
            Self::Length($length) => $without,
            Self::Values($values) => $with,
            Self::F16($values) => $with,
            Self::Bf16($values) => $with,
        }
    };
}

impl Tensor {
    /// The values of a range, which lies within the tensor.
    #[inline]
    pub fn slice(&self, range: Range<u64>) -> TensorSlice<'_> {
        match self {
            Tensor::Length(_) => TensorSlice::Length(range.end - range.start),
            Tensor::Values(values) => TensorSlice::Values(&values[indices(range)]),
            Tensor::F16(values) => TensorSlice::F16(&values[indices(range)]),
            Tensor::Bf16(values) => TensorSlice::Bf16(&values[indices(range)]),
        }
    }

    /// The values of a range, which lies within the tensor, for writing.
    #[inline]
    pub fn slice_mut(&mut self, range: Range<u64>) -> TensorSliceMut<'_> {
        match self {
            Tensor::Length(_) => TensorSliceMut::Length(range.end - range.start),
            Tensor::Values(values) => TensorSliceMut::Values(&mut values[indices(range)]),
            Tensor::F16(values) => TensorSliceMut::F16(&mut values[indices(range)]),
            Tensor::Bf16(values) => TensorSliceMut::Bf16(&mut values[indices(range)]),
        }
    }
}

/// Values that are in memory have indices.
#[inline]
fn indices(range: Range<u64>) -> Range<usize> {
    range.start as usize..range.end as usize
}

impl<'a> TensorSlice<'a> {
    /// Number of values.
    #[inline]
    pub fn len(self) -> u64 {
        by_float!(self, values => values.len() as u64, length => length)
    }

    /// Returns whether there are no values.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The values of a range, which lies within the slice.
    #[inline]
    pub fn slice(self, range: Range<u64>) -> TensorSlice<'a> {
        match self {
            TensorSlice::Length(_) => TensorSlice::Length(range.end - range.start),
            TensorSlice::Values(values) => TensorSlice::Values(&values[indices(range)]),
            TensorSlice::F16(values) => TensorSlice::F16(&values[indices(range)]),
            TensorSlice::Bf16(values) => TensorSlice::Bf16(&values[indices(range)]),
        }
    }

    /// Size of a value in bytes.
    #[inline]
    pub fn value_bytes(self) -> u64 {
        match self {
            TensorSlice::Length(_) | TensorSlice::Values(_) => 4,
            TensorSlice::F16(_) | TensorSlice::Bf16(_) => 2,
        }
    }

    /// Size of the values in single precision.
    #[inline]
    pub fn wide_bytes(self) -> u64 {
        4 * self.len()
    }

    /// Size of a packet body with the values in their own type.
    #[inline]
    pub fn body_size(self) -> BodySize {
        by_float!(
            self,
            values => BodySize::Bytes(size_of_val(values) as u32),
            length => BodySize::Length(4 * length as u32)
        )
    }

    /// Size of a packet body with the values in single precision.
    #[inline]
    pub fn wide_body_size(self) -> BodySize {
        let bytes = self.wide_bytes() as u32;
        by_float!(self, _ => BodySize::Bytes(bytes), _ => BodySize::Length(bytes))
    }

    /// Writes the values in their own type into a body, if that has bytes.
    #[inline]
    pub fn write(self, body: &mut Body<'_>) {
        if let Body::Bytes(bytes) = body {
            by_float!(self, values => float::write_le(values, bytes), _ => {});
        }
    }

    /// Writes the values in single precision, as bytes. Leaves the bytes alone if there are no values.
    pub fn widen_le(self, bytes: &mut [u8]) {
        by_float!(self, values => float::widen_le(values, bytes), _ => {});
    }

    /// Writes the values in single precision. Leaves the others alone if there are no values.
    pub fn widen(self, wide: &mut [f32]) {
        by_float!(self, values => float::widen(values, wide), _ => {});
    }

    /// Adds the values to sums in single precision, which are bytes.
    pub fn add_le(self, sums: &mut [u8]) {
        by_float!(self, values => float::add_le(values, sums), _ => {});
    }

    /// Adds the values to sums in single precision.
    pub fn add(self, sums: &mut [f32]) {
        by_float!(self, values => float::add(values, sums), _ => {});
    }

    /// The largest magnitude, where NaN is larger than infinity. 0 if there are no values.
    pub fn largest_magnitude(self) -> f32 {
        by_float!(self, values => largest_magnitude(values), _ => 0.0)
    }

    /// Calls back with the values in single precision, block by block, and the index of each block's first value.
    #[inline]
    pub(crate) fn for_wide_blocks(self, mut visit: impl FnMut(usize, &[f32])) {
        match self {
            TensorSlice::Length(_) => {}
            TensorSlice::Values(values) => visit(0, values),
            TensorSlice::F16(values) => for_widened(values, visit),
            TensorSlice::Bf16(values) => for_widened(values, visit),
        }
    }
}

impl TensorSliceMut<'_> {
    /// Reads values of their own type.
    #[inline]
    pub fn read_le(self, bytes: &[u8]) {
        by_float!(self, values => float::read_le(bytes, values), _ => {});
    }

    /// Reads values, rounded, from bytes of single precision.
    pub fn round_le(self, bytes: &[u8]) {
        by_float!(self, values => float::round_le(bytes, values), _ => {});
    }

    /// Reads values, rounded, from single precision.
    pub fn round(self, wide: &[f32]) {
        by_float!(self, values => float::round(wide, values), _ => {});
    }

    /// Sets all values to zero.
    pub fn clear(self) {
        by_float!(self, values => values.fill(Default::default()), _ => {});
    }

    /// Has the values written in single precision, block by block, by a function of the index of each
    /// block's first value.
    #[inline]
    pub(crate) fn fill_wide_blocks(self, mut write: impl FnMut(usize, &mut [f32])) {
        match self {
            TensorSliceMut::Length(_) => {}
            TensorSliceMut::Values(values) => write(0, values),
            TensorSliceMut::F16(values) => from_rounded(values, write),
            TensorSliceMut::Bf16(values) => from_rounded(values, write),
        }
    }
}

/// Halves are converted as many at a time as stay in the first-level cache.
const BLOCK_VALUES: usize = 256;

fn for_widened<T: Float>(values: &[T], mut visit: impl FnMut(usize, &[f32])) {
    let mut wide = [0.0; BLOCK_VALUES];
    for (block, values) in values.chunks(BLOCK_VALUES).enumerate() {
        let wide = &mut wide[..values.len()];
        float::widen(values, wide);
        visit(block * BLOCK_VALUES, wide);
    }
}

fn from_rounded<T: Float>(values: &mut [T], mut write: impl FnMut(usize, &mut [f32])) {
    let mut wide = [0.0; BLOCK_VALUES];
    for (block, values) in values.chunks_mut(BLOCK_VALUES).enumerate() {
        let wide = &mut wide[..values.len()];
        write(block * BLOCK_VALUES, wide);
        float::round(wide, values);
    }
}

/// Without their signs, bits are in the order of magnitudes.
fn largest_magnitude<T: Float>(values: &[T]) -> f32 {
    let magnitudes = values.iter().map(|value| value.widen().to_bits() & 0x7fff_ffff);
    f32::from_bits(magnitudes.max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn halves(count: u64) -> Tensor {
        Tensor::Bf16((0..count).map(|value| bf16::from_f32(value as f32)).collect())
    }

    #[test]
    fn slices_of_slices_are_slices() {
        for tensor in [Tensor::Length(9), vec![1.0; 9].into(), halves(9)] {
            let slice = tensor.slice(2..9).slice(1..4);
            assert_eq!((slice, slice.len()), (tensor.slice(3..6), 3));
        }
    }

    #[test]
    fn bodies_have_the_size_of_the_values() {
        let sizes = |tensor: &Tensor| {
            let slice = tensor.slice(0..5);
            (slice.body_size(), slice.wide_body_size())
        };
        let (length, full) = (BodySize::Length(20), BodySize::Bytes(20));
        assert_eq!(sizes(&Tensor::Length(5)), (length, length));
        assert_eq!(sizes(&vec![0.0; 5].into()), (full, full));
        assert_eq!(sizes(&halves(5)), (BodySize::Bytes(10), full));
    }

    #[test]
    fn blocks_are_all_values_in_order() {
        let count = 2 * BLOCK_VALUES as u64 + 7;
        let (tensor, mut wide, mut back) = (halves(count), Vec::new(), halves(count));
        tensor.slice(0..count).for_wide_blocks(|first, values| {
            assert_eq!(first, wide.len());
            wide.extend_from_slice(values);
        });
        back.slice_mut(0..count).clear();
        assert_eq!(back.slice(0..count).largest_magnitude(), 0.0);
        back.slice_mut(0..count).fill_wide_blocks(|first, values| {
            values.copy_from_slice(&wide[first..first + values.len()]);
        });
        assert_eq!(back, tensor);
    }
}
