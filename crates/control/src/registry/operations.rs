//! The operations that ranks of a job have called, as far as they report them.
// spec: E-11

use std::collections::BTreeMap;

use thalweg_core::{Fingerprint, Mismatch};

/// Most operations of a job that are remembered: more than honest ranks have under way. The oldest gives way,
/// and a rank that reports it again is compared with nobody.
pub(super) const OPERATIONS_MAX: usize = 512;

/// The operations of one job, by number.
#[derive(Debug, Default)]
pub(super) struct Operations {
    reports: BTreeMap<u64, Report>,
}

/// One operation.
#[derive(Debug)]
struct Report {
    /// The rank that reported it first, and as what.
    first: (u32, Fingerprint),
    /// A bit for each rank that has reported it.
    ranks: Vec<u64>,
    count: u32,
}

/// Result of comparing a report with the reports before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Compared {
    /// Not all ranks have reported the operation.
    Waiting,
    /// This was the last rank.
    Complete,
    /// All ranks had reported it before.
    Again,
    /// Two ranks differ.
    Differs(Mismatch),
}

impl Operations {
    /// Takes in the report of one rank of the job. The pair is that rank and the number of ranks.
    pub(super) fn note(
        &mut self,
        (rank, workers): (u32, u32),
        number: u64,
        fingerprint: &Fingerprint,
    ) -> Compared {
        let report = self.reports.entry(number).or_insert_with(|| Report {
            first: (rank, *fingerprint),
            ranks: vec![0; workers.div_ceil(64) as usize],
            count: 0,
        });
        let compared = report.note(rank, workers, fingerprint);
        while self.reports.len() > OPERATIONS_MAX {
            self.reports.pop_first();
        }
        compared
    }
}

impl Report {
    fn note(&mut self, rank: u32, workers: u32, fingerprint: &Fingerprint) -> Compared {
        let (first, its) = &self.first;
        if let Err(mismatch) = Fingerprint::compare((*first, its), (rank, fingerprint)) {
            return Compared::Differs(mismatch);
        }
        let (word, bit) = ((rank / 64) as usize, 1_u64 << (rank % 64));
        let is_unset = self.ranks.get(word).is_some_and(|word| word & bit == 0);
        let is_new = rank < workers && is_unset;
        if is_new {
            self.ranks[word] |= bit;
            self.count += 1;
        }
        match (self.count == workers, is_new) {
            (true, true) => Compared::Complete,
            (true, false) => Compared::Again,
            (false, _) => Compared::Waiting,
        }
    }
}

#[cfg(test)]
mod tests {
    use thalweg_core::Element;

    use super::*;

    fn sum(values: u64) -> Fingerprint {
        Fingerprint::of_sum(Element::F32, values)
    }

    #[test]
    fn an_operation_is_complete_when_all_ranks_have_reported_the_same() {
        let mut operations = Operations::default();
        let mut note = |rank, number| operations.note((rank, 3), number, &sum(number));
        assert_eq!([note(0, 7), note(0, 7), note(2, 7)], [Compared::Waiting; 3]);
        assert_eq!(note(2, 8), Compared::Waiting);
        assert_eq!([note(1, 7), note(0, 7)], [Compared::Complete, Compared::Again]);
    }

    #[test]
    fn whoever_differs_is_named_with_the_first() {
        let mut operations = Operations::default();
        assert_eq!(operations.note((2, 3), 4, &sum(704)), Compared::Waiting);
        let Compared::Differs(mismatch) = operations.note((1, 3), 4, &sum(1_056)) else {
            panic!("they differ");
        };
        assert_eq!((mismatch.one, mismatch.other), ((1, sum(1_056)), (2, sum(704))));
    }

    #[test]
    fn a_rank_cannot_make_it_grow() {
        let mut operations = Operations::default();
        for number in 0..10_000 {
            operations.note((0, 2), number, &sum(1));
        }
        assert_eq!(operations.reports.len(), OPERATIONS_MAX);
        assert_eq!(operations.note((1, 2), 9_999, &sum(1)), Compared::Complete);
        assert_eq!(operations.note((9, 2), 9_999, &sum(1)), Compared::Again, "no such rank");
    }
}
