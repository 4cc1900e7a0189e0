//! What collectives work on.

use half::{bf16, f16};

use crate::buffer::Buffer;

/// The values that an operation takes in and gives back.
#[derive(Clone, PartialEq, Debug)]
pub enum Tensor {
    /// So many values that nobody reads: a simulation need not carry them.
    Length(u64),
    /// These values.
    Values(Buffer<f32>),
    /// These values, in the bits of half the length. They are summed as `f32` and rounded once.
    Halves(Half, Buffer<u16>),
}

/// Which numbers of 16 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Half {
    /// IEEE 754 half precision.
    F16,
    /// The upper half of an `f32`.
    Bf16,
}

impl Half {
    /// The number that bits stand for.
    #[inline]
    pub fn widen(self, bits: u16) -> f32 {
        match self {
            Half::F16 => f16::from_bits(bits).to_f32(),
            Half::Bf16 => bf16::from_bits(bits).to_f32(),
        }
    }

    /// The bits of the nearest number.
    #[inline]
    pub fn round(self, value: f32) -> u16 {
        match self {
            Half::F16 => f16::from_f32(value).to_bits(),
            Half::Bf16 => bf16::from_f32(value).to_bits(),
        }
    }
}

impl Tensor {
    /// How many values there are.
    pub fn len(&self) -> u64 {
        match self {
            Tensor::Length(values) => *values,
            Tensor::Values(values) => values.len() as u64,
            Tensor::Halves(_, bits) => bits.len() as u64,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same values in full.
    pub fn widened(self) -> Tensor {
        match self {
            Tensor::Halves(half, bits) => {
                Tensor::Values(bits.iter().map(|&bits| half.widen(bits)).collect())
            }
            wide => wide,
        }
    }

    /// The values, where they are carried in full.
    pub fn values(&self) -> Option<&[f32]> {
        match self {
            Tensor::Length(_) | Tensor::Halves(..) => None,
            Tensor::Values(values) => Some(values),
        }
    }
}

impl From<Vec<f32>> for Tensor {
    fn from(values: Vec<f32>) -> Tensor {
        Tensor::Values(values.into())
    }
}
