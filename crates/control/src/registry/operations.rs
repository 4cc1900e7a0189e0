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
    /// The rank that reported an operation first, and as what.
    reports: BTreeMap<u64, (u32, Fingerprint)>,
}

impl Operations {
    /// Takes in the report of one rank, and compares it with the first one of the operation.
    pub(super) fn note(
        &mut self,
        rank: u32,
        number: u64,
        fingerprint: &Fingerprint,
    ) -> Result<(), Mismatch> {
        let (first, its) = *self.reports.entry(number).or_insert((rank, *fingerprint));
        while self.reports.len() > OPERATIONS_MAX {
            self.reports.pop_first();
        }
        Fingerprint::compare((first, &its), (rank, fingerprint))
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
    fn whoever_differs_is_named_with_the_first() {
        let mut operations = Operations::default();
        assert_eq!(operations.note(2, 4, &sum(704)), Ok(()));
        assert_eq!(operations.note(0, 4, &sum(704)), Ok(()));
        assert_eq!(operations.note(2, 5, &sum(1_056)), Ok(()), "another operation");
        let mismatch = operations.note(1, 4, &sum(1_056)).expect_err("they differ");
        assert_eq!((mismatch.one, mismatch.other), ((1, sum(1_056)), (2, sum(704))));
    }

    #[test]
    fn a_rank_cannot_make_it_grow() {
        let mut operations = Operations::default();
        for number in 0..10_000 {
            assert_eq!(operations.note(0, number, &sum(1)), Ok(()));
        }
        assert_eq!(operations.reports.len(), OPERATIONS_MAX);
        assert!(operations.note(1, 9_999, &sum(2)).is_err());
        assert!(operations.note(1, 0, &sum(2)).is_ok(), "it is forgotten");
    }
}
