//! Values that collectives work on: tensors, fixed point and combinations.
//!
//! Everything that computes with values lives here, once, so that simulations and real machines round
//! alike. The types of values are in `thalweg-core`, whose fingerprints name them, and so is the coverage of sums,
//! which travels in messages.
//!
//! A part of the crate `thalweg`, without a promise of stability: depend on that one.

pub mod bits;
pub mod buffer;
pub mod combine;
pub mod fixed;
pub mod float;
pub mod importance;
pub mod narrow;
pub mod slice;
pub mod split;
pub mod sum;
pub mod tensor;

pub use bits::Bits;
pub use buffer::{Buffer, Lend};
pub use combine::{combine, divide};
pub use fixed::{Fit, Fixed};
pub use float::Float;
pub use importance::Importance;
pub use narrow::Half;
pub use slice::{TensorSlice, TensorSliceMut};
pub use split::{split, unsplit};
pub use tensor::Tensor;
pub use thalweg_core::coverage::{Coverage, Missing, Part};
