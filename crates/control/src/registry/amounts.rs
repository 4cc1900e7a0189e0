//! Sums of what jobs have, for each token and in total: budgets are checked at every call, and there are thousands of jobs.
// spec: E-12

use std::collections::BTreeMap;

use super::job::Job;
use crate::caller::Holder;

/// Ranks, trees and memory of a job, or of several together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Amount {
    pub(super) jobs: usize,
    /// Number of jobs that no rank has joined.
    pub(super) unattended: usize,
    pub(super) ranks: usize,
    pub(super) trees: usize,
    /// Bytes of the data plane.
    pub(super) memory_bytes: u64,
}

/// Sums of all jobs.
#[derive(Debug, Default)]
pub(super) struct Amounts {
    of_owners: BTreeMap<Holder, Amount>,
    total: Amount,
}

impl Amount {
    pub(super) fn of(job: &Job) -> Amount {
        Amount {
            jobs: 1,
            unattended: usize::from(job.ranks.is_empty()),
            ranks: job.ranks.len(),
            trees: job.trees.len(),
            memory_bytes: job.memory_bytes(),
        }
    }

    /// Replaces a part of the sum.
    fn replace(&mut self, before: Amount, after: Amount) {
        self.jobs = self.jobs - before.jobs + after.jobs;
        self.unattended = self.unattended - before.unattended + after.unattended;
        self.ranks = self.ranks - before.ranks + after.ranks;
        self.trees = self.trees - before.trees + after.trees;
        let others = self.memory_bytes.saturating_sub(before.memory_bytes);
        self.memory_bytes = others.saturating_add(after.memory_bytes);
    }
}

impl Amounts {
    /// The sum of the jobs of one caller.
    pub(super) fn of(&self, owner: Holder) -> Amount {
        self.of_owners.get(&owner).copied().unwrap_or_default()
    }

    pub(super) fn total(&self) -> Amount {
        self.total
    }

    /// Takes down that a job has something else than before.
    pub(super) fn replace(&mut self, owner: Holder, before: Amount, after: Amount) {
        self.total.replace(before, after);
        let own = self.of_owners.entry(owner).or_default();
        own.replace(before, after);
        if *own == Amount::default() {
            self.of_owners.remove(&owner);
        }
    }
}
