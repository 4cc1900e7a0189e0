//! Values that collectives work on: tensors, fixed point, combinations, and the coverage of sums.
//!
//! Everything that computes with values lives here, once, so that simulations and real machines round
//! alike. The types of values are in `thalweg-core`, whose fingerprints name them.

pub mod bits;
pub mod buffer;
pub mod combine;
pub mod coverage;
pub mod fixed;
pub mod float;
pub mod slice;
pub mod sum;
pub mod tensor;

pub use bits::Bits;
pub use buffer::{Buffer, Lend};
pub use combine::{combine, divide};
pub use coverage::{Coverage, Missing, Part};
pub use fixed::{Fit, Fixed};
pub use float::Float;
pub use slice::{TensorSlice, TensorSliceMut};
pub use tensor::Tensor;
