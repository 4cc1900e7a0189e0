//! A small model that trains itself, so that a run over a network can be compared, value by value,
//! with a run in one process: a multi-layer perceptron, tasks for it to learn, and the rule that
//! says which examples each worker takes.
//!
//! Everything follows from seeds. No clock, no environment and no file is read, sums are taken in
//! one fixed order, and that order does not depend on the width of the machine's vectors: equal
//! seeds give equal bits, on every machine.
//!
//! - [`network`]: the model, its gradient and its step.
//! - [`data`]: generated tasks, and how each is trained; [`idx`]: files in the format of MNIST.
//! - [`shard`]: the examples of a step, and a rank's part of them.

pub mod data;
pub mod examples;
pub mod idx;
pub mod network;
mod product;
pub mod shard;

pub use data::{DIGITS, Recipe, STRIPES, Task};
pub use examples::{Batch, Examples};
pub use idx::IdxError;
pub use network::{MOMENTUM, Network};
pub use shard::{Batches, Shard};
