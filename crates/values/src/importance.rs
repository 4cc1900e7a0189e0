//! Importance of the packets of a tensor: those with large values matter most.
//!
//! A packet is important if the mean magnitude of its values is above a threshold, which comes from a
//! sample of the tensor. The sum of magnitudes is taken in the pass that packs the values. Deliveries and sums in
//! switches follow the same rule.

use multiversion::multiversion;
use thalweg_core::{Body, Operation, fibonacci};

use crate::{Float, TensorSlice, float};

/// Rule that makes a packet important.
// spec: M-04
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Importance {
    /// A mean magnitude above the median of such means: half of the packets have one.
    #[default]
    PacketMean,
    /// A mean magnitude above the median of single magnitudes. The paper's wording. Means of many
    /// values lie close together, and above the median where few values are large and many are small, as
    /// in gradients: so nearly every packet of real size is important.
    SingleValue,
    /// That it is a packet: for values that nothing could stand in for.
    All,
}

/// Segments for each one that is sampled: 5% are.
const SAMPLE_EVERY: u32 = 20;

/// Least number of segments that are sampled: the median of fewer says little.
const LEAST_SAMPLE: u32 = 16;

/// Magnitude that means are compared with.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Threshold {
    /// None where every packet is important.
    mean: Option<f32>,
}

impl Threshold {
    /// Everything is above it.
    pub const NONE: Threshold = Threshold { mean: None };

    /// From a sample of `values` that are cut into segments of `segment_values`. Other operations sample
    /// other segments.
    pub fn of(
        importance: Importance,
        values: &[f32],
        segment_values: u16,
        operation: Operation,
    ) -> Threshold {
        let step = usize::from(segment_values.max(1));
        let count = u32::try_from(values.len().div_ceil(step)).unwrap_or(u32::MAX);
        let segment = |index: u32| {
            let from = index as usize * step;
            TensorSlice::Values(&values[from..values.len().min(from + step)])
        };
        Threshold::sampled(importance, count, operation, segment)
    }

    /// The same from the segments of a tensor, of which there are `count`.
    pub fn sampled<'a>(
        importance: Importance,
        count: u32,
        operation: Operation,
        segment: impl Fn(u32) -> TensorSlice<'a>,
    ) -> Threshold {
        let step = (count / LEAST_SAMPLE).clamp(1, SAMPLE_EVERY);
        let first = operation.0 % u64::from(step);
        let sample = (first as u32..count).step_by(step as usize);
        let mean = match importance {
            Importance::All => None,
            Importance::PacketMean => {
                median(sample.filter_map(|index| mean_magnitude(segment(index))).collect())
            }
            Importance::SingleValue => {
                let mut magnitudes = Vec::new();
                sample.for_each(|index| push_magnitudes(segment(index), &mut magnitudes));
                median(magnitudes)
            }
        };
        Threshold { mean }
    }

    /// Returns whether a segment is important. Of segments without values every other one is.
    pub fn is_important(self, segment: TensorSlice<'_>, operation: Operation, index: u64) -> bool {
        sum_of_segment(segment).map_or_else(
            || is_drawn(operation, index),
            |sum| self.is_below(sum, segment.len() as usize),
        )
    }

    /// Returns whether a packet with this sum of magnitudes over this number of values is important. What is not
    /// a number is.
    #[inline]
    pub fn is_below(self, sum: f32, values: usize) -> bool {
        let own = sum / values as f32;
        self.mean.is_none_or(|mean| own > mean || own.is_nan())
    }
}

/// Returns whether a segment without values counts as important: every other one does, evenly spread.
#[inline]
pub fn is_drawn(operation: Operation, index: u64) -> bool {
    fibonacci(operation.0.wrapping_add(index)) >> 63 == 1
}

/// The lower one of two in the middle: a sample of equal values leaves none above it.
fn median(mut sample: Vec<f32>) -> Option<f32> {
    let middle = sample.len().checked_sub(1)? / 2;
    let (_, median, _) = sample.select_nth_unstable_by(middle, f32::total_cmp);
    Some(*median)
}

/// Writes a segment into a body, if that has bytes, and sums the magnitudes, if the values are known.
#[inline]
pub fn write_and_sum(segment: TensorSlice<'_>, body: &mut Body<'_>) -> Option<f32> {
    match (segment, body) {
        (TensorSlice::Values(values), Body::Bytes(body)) => Some(pack_and_sum(values, body)),
        (_, body) => {
            segment.write(body);
            sum_of_segment(segment)
        }
    }
}

fn mean_magnitude(segment: TensorSlice<'_>) -> Option<f32> {
    sum_of_segment(segment).map(|sum| sum / segment.len() as f32)
}

pub(crate) fn sum_of_segment(segment: TensorSlice<'_>) -> Option<f32> {
    match segment {
        TensorSlice::Length(_) => None,
        TensorSlice::Values(values) => Some(sum_of_magnitudes(values)),
        TensorSlice::F16(values) => Some(magnitudes(values).sum()),
        TensorSlice::Bf16(values) => Some(magnitudes(values).sum()),
    }
}

fn push_magnitudes(segment: TensorSlice<'_>, all: &mut Vec<f32>) {
    match segment {
        TensorSlice::Length(_) => {}
        TensorSlice::Values(values) => all.extend(magnitudes(values)),
        TensorSlice::F16(values) => all.extend(magnitudes(values)),
        TensorSlice::Bf16(values) => all.extend(magnitudes(values)),
    }
}

fn magnitudes<T: Float>(values: &[T]) -> impl Iterator<Item = f32> {
    values.iter().map(|value| value.widen().abs())
}

/// Number of sums side by side: enough that the widest vectors need not wait for each other. Their
/// number and order are fixed, so that every machine finds the same sum.
const LANES: usize = 64;

/// Writes values into a packet's body, little-endian, and sums the magnitudes. A packet's values are in the nearest cache when they have
/// been written, so the sum is taken from there: two short loops are faster than a long one.
///
/// # Panics
///
/// If `body` is not four times as long as `values`.
// spec: M-04
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
pub fn pack_and_sum(values: &[f32], body: &mut [u8]) -> f32 {
    assert!(body.len() == size_of_val(values), "four bytes for each value");
    float::write_le(values, body);
    sum(values)
}

/// The sum of the magnitudes: the same bits as [`pack_and_sum`] finds.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
pub fn sum_of_magnitudes(values: &[f32]) -> f32 {
    sum(values)
}

#[inline(always)]
fn sum(values: &[f32]) -> f32 {
    let (blocks, rest) = values.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for block in blocks {
        for lane in 0..LANES {
            sums[lane] += block[lane].abs();
        }
    }
    for (sum, value) in sums.iter_mut().zip(rest) {
        *sum += value.abs();
    }
    folded(sums)
}

/// The sum of the lanes, halves added to halves.
#[inline(always)]
fn folded(mut sums: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            sums[lane] += sums[lane + width];
        }
        width /= 2;
    }
    sums[0]
}

#[cfg(test)]
mod tests;
