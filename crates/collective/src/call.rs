//! What a sum is asked for with.

use thalweg_core::Tensor;

/// A tensor to be summed over all workers. A [`Tensor`] alone is one, of the front layer.
#[derive(Clone, PartialEq, Debug)]
pub struct SumCall {
    /// This worker's values.
    pub tensor: Tensor,
    /// The layer of the model that they belong to, from 0 at the front: how urgent they are, where that
    /// makes a difference.
    pub layer: u16,
    /// What values of the result that were lost read as, of the same length: for parameters, those of the
    /// round before. Without it nothing of the result may be lost. Flows lose nothing.
    pub older: Option<Tensor>,
}

impl From<Tensor> for SumCall {
    fn from(tensor: Tensor) -> SumCall {
        SumCall { tensor, layer: 0, older: None }
    }
}
