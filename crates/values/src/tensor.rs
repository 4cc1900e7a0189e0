//! Tensors that collectives work on.

use half::{bf16, f16};
use thalweg_core::Element;

use crate::buffer::Buffer;

/// The values that an operation takes in and gives back.
#[derive(Clone, PartialEq, Debug)]
pub enum Tensor {
    /// This number of values that nobody reads: a simulation need not carry them.
    Length(u64),
    /// Values in single precision.
    Values(Buffer<f32>),
    /// Values in half precision. They are summed as `f32` and rounded once.
    F16(Buffer<f16>),
    /// Values in the upper half of single precision. They are summed as `f32` and rounded once.
    Bf16(Buffer<bf16>),
}

impl Tensor {
    /// Number of values.
    pub fn len(&self) -> u64 {
        match self {
            Tensor::Length(values) => *values,
            Tensor::Values(values) => values.len() as u64,
            Tensor::F16(values) => values.len() as u64,
            Tensor::Bf16(values) => values.len() as u64,
        }
    }

    /// Returns whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The type of the values. Those that nobody reads count as `f32`.
    pub const fn element(&self) -> Element {
        match self {
            Tensor::Length(_) | Tensor::Values(_) => Element::F32,
            Tensor::F16(_) => Element::F16,
            Tensor::Bf16(_) => Element::Bf16,
        }
    }

    /// A copy of all values from one on.
    pub fn copy_from(&self, first: u64) -> Tensor {
        // Values that are in memory have indices.
        let at = first as usize;
        match self {
            Tensor::Length(values) => Tensor::Length(values - first),
            Tensor::Values(values) => Tensor::Values(values[at..].to_vec().into()),
            Tensor::F16(values) => Tensor::F16(values[at..].to_vec().into()),
            Tensor::Bf16(values) => Tensor::Bf16(values[at..].to_vec().into()),
        }
    }

    /// The same values in single precision.
    pub fn widened(self) -> Tensor {
        match self {
            Tensor::F16(values) => {
                Tensor::Values(values.iter().map(|half| half.to_f32()).collect())
            }
            Tensor::Bf16(values) => {
                Tensor::Values(values.iter().map(|half| half.to_f32()).collect())
            }
            wide => wide,
        }
    }

    /// The values, where they are carried in single precision.
    pub fn values(&self) -> Option<&[f32]> {
        match self {
            Tensor::Values(values) => Some(values),
            Tensor::Length(_) | Tensor::F16(_) | Tensor::Bf16(_) => None,
        }
    }
}

impl From<Vec<f32>> for Tensor {
    fn from(values: Vec<f32>) -> Tensor {
        Tensor::Values(values.into())
    }
}
