//! How much of an operation may be missing, and what was.

use thalweg_wire::aggregate::{Absent, LossShare};

/// Whether an operation's sums may lack contributions: the same at all workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reliability {
    /// Every sum has everybody's contribution.
    #[default]
    Exact,
    /// A sum that is asked for may come without some. Of an operation's fragments, at most this share
    /// lacks any one worker.
    Bounded(LossShare),
}

/// Whose contributions the sums of an operation lack.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Absences {
    pub(crate) workers: u32,
    pub(crate) fragment_values: u16,
    /// Fragments that lack somebody, counted from the operation's first, in order.
    pub(crate) incomplete: Vec<(u64, Absent)>,
}

impl Absences {
    /// Whether every sum has everybody's contribution.
    pub fn is_empty(&self) -> bool {
        self.incomplete.is_empty()
    }

    /// The fragments that lack somebody, counted from the operation's first, in order, each with the
    /// ranks that are missing.
    pub fn fragments(&self) -> impl Iterator<Item = (u64, impl Iterator<Item = u32> + use<'_>)> {
        self.incomplete.iter().map(|(fragment, absent)| (*fragment, absent.ranks(self.workers)))
    }

    /// In how many fragments a rank is missing.
    pub fn missed_by(&self, rank: u32) -> u64 {
        let is_missing = |absent: &Absent| absent.ranks(self.workers).any(|other| other == rank);
        self.incomplete.iter().filter(|(_, absent)| is_missing(absent)).count() as u64
    }

    /// How many workers' contributions are in a fragment, at least one.
    pub fn contributors(&self, fragment: u64) -> u32 {
        let at = self.incomplete.binary_search_by_key(&fragment, |(incomplete, _)| *incomplete);
        let missing = at.map_or(0, |at| self.incomplete[at].1.ranks(self.workers).count() as u32);
        // Nobody finishes a sum of nothing.
        self.workers.saturating_sub(missing).max(1)
    }

    /// Turns an operation's sums into means, each over those that contributed. All workers get the same
    /// bits.
    pub fn mean(&self, sums: &mut [f32]) {
        let fragment_values = usize::from(self.fragment_values.max(1));
        for (fragment, sums) in (0..).zip(sums.chunks_mut(fragment_values)) {
            let contributors = self.contributors(fragment) as f32;
            sums.iter_mut().for_each(|sum| *sum /= contributors);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_is_that_of_the_contributors() {
        let absent = |ranks: &[u32]| Absent::of(ranks.iter().copied(), 4).unwrap();
        let incomplete = vec![(1, absent(&[0, 3])), (2, absent(&[3]))];
        let absences = Absences { workers: 4, fragment_values: 2, incomplete };
        let mut sums = [8.0, 4.0, 8.0, 4.0, 9.0, 3.0, 8.0];
        absences.mean(&mut sums);
        assert_eq!(sums, [2.0, 1.0, 4.0, 2.0, 3.0, 1.0, 2.0]);
        assert_eq!([0, 1, 2, 3].map(|rank| absences.missed_by(rank)), [1, 0, 0, 2]);
        let all =
            absences.fragments().map(|(fragment, ranks)| (fragment, ranks.collect::<Vec<_>>()));
        assert_eq!(all.collect::<Vec<_>>(), [(1, vec![0, 3]), (2, vec![3])]);
        assert!(!absences.is_empty() && Absences::default().is_empty());
        Absences::default().mean(&mut []);
    }
}
