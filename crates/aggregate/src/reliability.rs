//! Share of an operation that may be missing, and contributions that were.

use thalweg_core::Fingerprint;
use thalweg_wire::aggregate::{Absent, LossShare};

/// Guarantee of an operation's sums, exact or bounded: the same at all workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reliability {
    /// Every sum has everybody's contribution.
    #[default]
    Exact,
    /// A sum that is asked for may come without some. Of an operation's fragments, at most this share
    /// lacks any one worker.
    Bounded(LossShare),
}

/// Options of an operation: the same at all workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SumOptions {
    /// Share that may be missing.
    pub reliability: Reliability,
    /// The layer of the model that its values belong to, from 0 at the front, and how many there are:
    /// front layers are more urgent. Without it, as urgent as the settings say.
    pub layer: Option<(u16, u16)>,
    /// The operation as the caller knows it: sums are of contributions to the same one (E-11). Without it, the exact
    /// all-reduce of the tensor.
    pub fingerprint: Option<Fingerprint>,
}

impl From<Reliability> for SumOptions {
    fn from(reliability: Reliability) -> SumOptions {
        SumOptions { reliability, ..SumOptions::default() }
    }
}

/// Ranks whose contributions the sums of an operation lack.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Absences {
    pub(crate) workers: u32,
    pub(crate) fragment_values: u16,
    /// Fragments that lack somebody, counted from the operation's first, in order.
    pub(crate) incomplete: Vec<(u64, Absent)>,
}

impl Absences {
    /// True if every sum has everybody's contribution.
    pub fn is_empty(&self) -> bool {
        self.incomplete.is_empty()
    }

    /// The fragments that lack somebody, counted from the operation's first, in order, each with the
    /// ranks that are missing.
    pub fn fragments(&self) -> impl Iterator<Item = (u64, impl Iterator<Item = u32> + use<'_>)> {
        self.incomplete.iter().map(|(fragment, absent)| (*fragment, absent.ranks(self.workers)))
    }

    /// Number of workers of the job.
    pub fn workers(&self) -> u32 {
        self.workers
    }

    /// Number of values in a fragment, the last one of an operation perhaps less.
    pub fn fragment_values(&self) -> u16 {
        self.fragment_values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_ranks_are_reported_by_fragment() {
        let absent = |ranks: &[u32]| Absent::of(ranks.iter().copied(), 4).unwrap();
        let incomplete = vec![(1, absent(&[0, 3])), (2, absent(&[3]))];
        let absences = Absences { workers: 4, fragment_values: 2, incomplete };
        let all =
            absences.fragments().map(|(fragment, ranks)| (fragment, ranks.collect::<Vec<_>>()));
        assert_eq!(all.collect::<Vec<_>>(), [(1, vec![0, 3]), (2, vec![3])]);
        assert!(!absences.is_empty() && Absences::default().is_empty());
    }
}
