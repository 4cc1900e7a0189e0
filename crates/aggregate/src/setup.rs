//! Facts that the workers and servers of a job agree on.

use std::sync::Arc;

use thalweg_core::JobId;
use thalweg_wire::aggregate::{Numbers, Scale};

use crate::parameters::CheckedParameters;
#[cfg(test)]
use crate::parameters::JobParameters;
use crate::tree::Tree;

/// One set-up of a job: everything that its workers and servers have to agree on.
#[derive(Clone, PartialEq, Debug)]
pub struct Setup {
    /// The job.
    pub job: JobId,
    /// Number of the job's set-up. Grows with each.
    pub epoch: u32,
    /// The trees, one for each server. Fragment *s* belongs to tree *s* mod their number.
    pub trees: Vec<Arc<Tree>>,
    /// Parameters of the job.
    pub parameters: CheckedParameters,
    /// Everything below is complete at every worker.
    pub resume_from: u64,
}

/// Format of bodies: a setting of the job (T-09).
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Numeric {
    /// `f32`: no range to overflow, NaN and infinity as they are.
    Float,
    /// `i32` in fixed point, which data planes without floats can add.
    Fixed {
        /// The scale to begin with.
        scale: Scale,
        /// True if the server lowers the scale when overflow is frequent.
        dynamic: bool,
    },
}

/// Method by which losses are repaired.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Recovery {
    /// The node that lacks a contribution asks those that owe it; partial sums stay where they are (T-10).
    #[default]
    Selective,
    /// Everybody sends the fragment again, past the switches.
    Paper,
}

/// Rule by which fragments are spread over aggregators.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Indexing {
    /// By a hash of job and slot, moved away from collisions.
    #[default]
    Hashed,
    /// One after the other: what the paper compares with.
    Linear,
}

/// Attempt at a fragment that a packet belongs to. Bit 0 is set for the repeat in floats; the other bits
/// count changes of the scale, so that numbers of different meaning have different identities.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Attempt(pub u8);

impl Attempt {
    /// The first try with the scale of this generation.
    pub const fn of_generation(generation: u8) -> Attempt {
        Attempt(generation << 1)
    }

    /// The repeat in floats of this try.
    pub const fn in_floats(self) -> Attempt {
        Attempt(self.0 | 1)
    }

    /// True if it is a repeat in floats.
    pub const fn is_in_floats(self) -> bool {
        self.0 & 1 == 1
    }

    /// Number of times that the scale had changed, modulo 128.
    pub const fn generation(self) -> u8 {
        self.0 >> 1
    }
}

impl Setup {
    /// The tree, and so the server, of a fragment.
    pub fn tree(&self, sequence: u64) -> &Tree {
        &self.trees[self.shard(sequence)]
    }

    /// The same with other parameters.
    #[cfg(test)]
    pub(crate) fn with(self, change: impl FnOnce(&mut JobParameters)) -> Setup {
        let mut parameters = *self.parameters;
        change(&mut parameters);
        Setup { parameters: parameters.check().unwrap(), ..self }
    }

    /// Tree of a fragment.
    // spec: A-24
    pub fn shard(&self, sequence: u64) -> usize {
        (sequence % self.trees.len() as u64) as usize
    }
}

impl Numeric {
    /// Format of bodies at first.
    pub fn numbers(self) -> Numbers {
        match self {
            Numeric::Float => Numbers::Float,
            Numeric::Fixed { scale, .. } => Numbers::Fixed(scale),
        }
    }
}
