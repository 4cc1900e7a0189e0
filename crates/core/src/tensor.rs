//! What collectives work on.

/// Names a collective operation of one worker: counted from 0 in the order of the calls, never used
/// again in a job's life. The same number is the same operation at every worker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Operation(pub u64);

/// The values that an operation takes in and gives back.
#[derive(Clone, PartialEq, Debug)]
pub enum Tensor {
    /// So many values that nobody reads: a simulation need not carry them.
    Length(u64),
    /// These values.
    Values(Vec<f32>),
}

impl Tensor {
    /// How many values there are.
    pub fn len(&self) -> u64 {
        match self {
            Tensor::Length(values) => *values,
            Tensor::Values(values) => values.len() as u64,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The values, where they are carried.
    pub fn values(&self) -> Option<&[f32]> {
        match self {
            Tensor::Length(_) => None,
            Tensor::Values(values) => Some(values),
        }
    }
}
