//! Values of a tensor where they lie.

use thalweg_core::{Body, BodySize};
use thalweg_values::{Half, Tensor};

use crate::importance::{pack, pack_and_sum, sum_of_magnitudes};

/// A part of a tensor that is shared with the application.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'a> {
    /// So many bytes that nobody reads.
    Length(u64),
    Values(&'a [f32]),
    Halves(Half, &'a [u16]),
}

/// How long one value is on the wire.
pub(crate) const fn value_bytes(tensor: &Tensor) -> u64 {
    match tensor {
        Tensor::Length(_) | Tensor::Values(_) => 4,
        Tensor::Halves(..) => 2,
    }
}

impl<'a> Source<'a> {
    /// The values in a range, which lies within the tensor.
    #[inline]
    pub fn of(tensor: &'a Tensor, from: u64, to: u64) -> Source<'a> {
        // What lies in memory has lengths that fit.
        let range = from as usize..to as usize;
        match tensor {
            Tensor::Length(_) => Source::Length(4 * (to - from)),
            Tensor::Values(values) => Source::Values(&values[range]),
            Tensor::Halves(half, bits) => Source::Halves(*half, &bits[range]),
        }
    }

    /// The segment at `offset`. Segments do not cut values in two.
    #[inline]
    pub fn segment(&self, offset: u64, bytes: u16) -> Source<'a> {
        let values = |value_bytes: usize| {
            let from = offset as usize / value_bytes;
            from..from + usize::from(bytes) / value_bytes
        };
        match self {
            Source::Length(_) => Source::Length(u64::from(bytes)),
            Source::Values(all) => Source::Values(&all[values(4)]),
            Source::Halves(half, all) => Source::Halves(*half, &all[values(2)]),
        }
    }

    /// The body that a segment needs.
    #[inline]
    pub fn body_size(&self) -> BodySize {
        match self {
            Source::Length(bytes) => BodySize::Length(*bytes as u32),
            Source::Values(values) => BodySize::Bytes(4 * values.len() as u32),
            Source::Halves(_, bits) => BodySize::Bytes(2 * bits.len() as u32),
        }
    }

    /// How many values there are.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Source::Length(bytes) => *bytes as usize / 4,
            Source::Values(values) => values.len(),
            Source::Halves(_, bits) => bits.len(),
        }
    }

    /// Writes a segment into a body, if that has bytes.
    #[inline]
    pub fn pack(&self, body: &mut Body<'_>) {
        match (self, body) {
            (Source::Values(values), Body::Bytes(body)) => pack(values, body),
            (Source::Halves(_, bits), Body::Bytes(body)) => pack_halves(bits, body),
            _ => {}
        }
    }

    /// [`pack`](Source::pack), and the sum of the magnitudes, if the values are known.
    #[inline]
    pub fn pack_and_sum(&self, body: &mut Body<'_>) -> Option<f32> {
        match (self, body) {
            (Source::Values(values), Body::Bytes(body)) => Some(pack_and_sum(values, body)),
            (_, body) => {
                self.pack(body);
                self.sum_of_magnitudes()
            }
        }
    }

    pub fn mean_magnitude(&self) -> Option<f32> {
        self.sum_of_magnitudes().map(|sum| sum / self.len() as f32)
    }

    pub fn push_magnitudes(&self, magnitudes: &mut Vec<f32>) {
        match self {
            Source::Length(_) => {}
            Source::Values(values) => magnitudes.extend(values.iter().map(|value| value.abs())),
            Source::Halves(half, bits) => {
                magnitudes.extend(bits.iter().map(|&bits| half.widen(bits).abs()));
            }
        }
    }

    fn sum_of_magnitudes(&self) -> Option<f32> {
        match self {
            Source::Length(_) => None,
            Source::Values(values) => Some(sum_of_magnitudes(values)),
            Source::Halves(half, bits) => {
                Some(bits.iter().map(|&bits| half.widen(bits).abs()).sum())
            }
        }
    }
}

fn pack_halves(bits: &[u16], body: &mut [u8]) {
    for (bits, out) in bits.iter().zip(body.as_chunks_mut().0) {
        *out = bits.to_le_bytes();
    }
}
