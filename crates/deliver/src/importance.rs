//! Which packets matter most: those with large values.
//!
//! A packet is important if the mean magnitude of its values is above a threshold, which comes from a
//! sample of the tensor. The sum of magnitudes is taken in the pass that packs the values.

use multiversion::multiversion;
use thalweg_core::{Body, Operation};
use thalweg_values::{Float, TensorSlice, float};

use crate::segments::Segments;

/// What makes a packet important.
// spec: M-04
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Importance {
    /// Its mean magnitude is above the median of such means: half of the packets are.
    #[default]
    PacketMean,
    /// Its mean magnitude is above the median of single magnitudes. The paper's wording. Means of many
    /// values lie close together, and above the median where few values are large and many are small, as
    /// in gradients: so nearly every packet of real size is important.
    SingleValue,
    /// That it is a packet: for values that nothing could stand in for.
    All,
}

/// One segment in so many is sampled: 5%.
const SAMPLE_EVERY: u32 = 20;

/// Least number of segments that are sampled: the median of fewer says little.
const LEAST_SAMPLE: u32 = 16;

/// What a mean magnitude is compared with.
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
        let bytes = thalweg_core::Bytes::new(4 * values.len() as u64);
        let segments = segment_values.checked_mul(4).and_then(|step| Segments::new(bytes, 0, step));
        segments.map_or(Threshold::NONE, |segments| {
            Threshold::sampled(importance, TensorSlice::Values(values), &segments, operation)
        })
    }

    pub(crate) fn sampled(
        importance: Importance,
        source: TensorSlice<'_>,
        segments: &Segments,
        operation: Operation,
    ) -> Threshold {
        let count = segments.tensor_count();
        let step = (count / LEAST_SAMPLE).clamp(1, SAMPLE_EVERY);
        let first = operation.0 % u64::from(step);
        let sample = (first as u32..count).step_by(step as usize);
        let segment = |index| source.slice(segments.values(index, source.value_bytes()));
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

    /// Whether a packet with so large a sum of magnitudes over so many values is important. What is not
    /// a number is.
    #[inline]
    pub fn is_below(self, sum: f32, values: usize) -> bool {
        let own = sum / values as f32;
        self.mean.is_none_or(|mean| own > mean || own.is_nan())
    }
}

/// The lower one of two in the middle: a sample of equal values leaves none above it.
fn median(mut sample: Vec<f32>) -> Option<f32> {
    let middle = sample.len().checked_sub(1)? / 2;
    let (_, median, _) = sample.select_nth_unstable_by(middle, f32::total_cmp);
    Some(*median)
}

/// Writes a segment into a body, if that has bytes, and sums the magnitudes, if the values are known.
#[inline]
pub(crate) fn write_and_sum(segment: TensorSlice<'_>, body: &mut Body<'_>) -> Option<f32> {
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

/// How many sums run side by side: enough that the widest vectors need not wait for each other. Their
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
