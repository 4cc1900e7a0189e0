//! Jobs that have ended, as far as that is remembered.
//!
//! There is room for a number of jobs of all callers together. Once it is used up, the caller that has most of it loses its
//! oldest job: who ends one job after the other has its own ones forgotten, and not those of others.
// spec: E-12

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use thalweg_core::{JobId, Span, Time};

use crate::caller::Holder;
use crate::message::Failure;

/// Time for which failures are kept for members who come late, and their number.
const FAILURES_FOR: Span = Span::from_s(600);
const FAILURES_MAX: usize = 4_096;

/// Number of ids of ended jobs that are remembered: their tickets are refused.
const IDS_MAX: usize = 65_536;

/// Jobs that have ended.
#[derive(Debug)]
pub(super) struct Ended {
    failed: BTreeMap<JobId, Failed>,
    failures: Shares,
    ids: BTreeSet<JobId>,
    shares: Shares,
}

/// A job that failed.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    pub(super) name: String,
    pub(super) failure: Arc<Failure>,
    owner: Holder,
    at: Time,
}

/// Jobs of each owner in the order in which they ended.
#[derive(Debug)]
struct Shares {
    most: usize,
    count: usize,
    of_owners: BTreeMap<Holder, VecDeque<JobId>>,
    /// Owners by the number of their jobs.
    by_count: BTreeSet<(usize, Holder)>,
}

impl Default for Ended {
    fn default() -> Ended {
        Ended {
            failed: BTreeMap::new(),
            failures: Shares::new(FAILURES_MAX),
            ids: BTreeSet::new(),
            shares: Shares::new(IDS_MAX),
        }
    }
}

impl Ended {
    /// Remembers that a job has ended: its tickets open nothing any more.
    pub(super) fn note(&mut self, owner: Holder, id: JobId) {
        if self.ids.insert(id)
            && let Some(forgotten) = self.shares.add(owner, id)
        {
            self.ids.remove(&forgotten);
        }
    }

    /// Remembers why a job failed, for those who come late.
    pub(super) fn fail(
        &mut self,
        now: Time,
        (owner, id): (Holder, JobId),
        name: String,
        failure: Arc<Failure>,
    ) {
        let failed = Failed { name, failure, owner, at: now };
        if self.failed.insert(id, failed).is_none()
            && let Some(forgotten) = self.failures.add(owner, id)
        {
            self.failed.remove(&forgotten);
        }
    }

    /// The failure of a job.
    pub(super) fn failed(&self, id: JobId) -> Option<&Failed> {
        self.failed.get(&id)
    }

    /// Returns whether a job has ended.
    pub(super) fn has(&self, id: JobId) -> bool {
        self.ids.contains(&id) || self.failed.contains_key(&id)
    }

    pub(super) fn tick(&mut self, now: Time) {
        let is_over = |failed: &Failed| now.since(failed.at) >= FAILURES_FOR;
        let over = self.failed.iter().filter(|(_, failed)| is_over(failed));
        let over: Vec<(Holder, JobId)> = over.map(|(id, failed)| (failed.owner, *id)).collect();
        for (owner, id) in over {
            self.failed.remove(&id);
            self.failures.remove(owner, id);
        }
    }
}

impl Shares {
    fn new(most: usize) -> Shares {
        Shares { most, count: 0, of_owners: BTreeMap::new(), by_count: BTreeSet::new() }
    }

    /// Takes in a job. Returns the one that has to be forgotten for it: the oldest of the owner that has most of them.
    fn add(&mut self, owner: Holder, id: JobId) -> Option<JobId> {
        self.change(owner, |jobs| jobs.push_back(id));
        if self.count <= self.most {
            return None;
        }
        let (_, largest) = *self.by_count.last()?;
        self.change(largest, VecDeque::pop_front)
    }

    fn remove(&mut self, owner: Holder, id: JobId) {
        self.change(owner, |jobs| {
            // It is among the oldest.
            let at = jobs.iter().position(|job| *job == id);
            at.map(|at| jobs.remove(at));
        });
    }

    fn change<T>(&mut self, owner: Holder, change: impl FnOnce(&mut VecDeque<JobId>) -> T) -> T {
        let jobs = self.of_owners.entry(owner).or_default();
        self.by_count.remove(&(jobs.len(), owner));
        self.count -= jobs.len();
        let result = change(jobs);
        self.count += jobs.len();
        if jobs.is_empty() {
            self.of_owners.remove(&owner);
        } else {
            self.by_count.insert((jobs.len(), owner));
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::FailureKind;

    const OWNER: Holder = Holder::Token(1);

    fn failure() -> Arc<Failure> {
        Arc::new(Failure::new(FailureKind::Other, "why", vec![]))
    }

    // spec: E-12 machine
    #[test]
    fn the_memory_of_ended_jobs_has_a_bound() {
        let mut ended = Ended::default();
        for id in 0..=IDS_MAX as u64 {
            ended.note(OWNER, JobId(id));
            ended.note(OWNER, JobId(id));
            let now = Time::ZERO + Span::from_ms(id);
            ended.fail(now, (OWNER, JobId(id)), "a".into(), failure());
        }
        assert!(!ended.has(JobId(0)) && ended.has(JobId(1)), "the first is forgotten");
        assert_eq!((ended.shares.count, ended.ids.len()), (IDS_MAX, IDS_MAX));
        assert_eq!((ended.failures.count, ended.failed.len()), (FAILURES_MAX, FAILURES_MAX));
        ended.tick(Time::ZERO + Span::from_s(10_000));
        assert!(ended.failed.is_empty() && ended.has(JobId(1)), "ids are kept without a reason");
        assert!(ended.failures.of_owners.is_empty() && ended.failures.by_count.is_empty());
    }

    // spec: E-12 machine
    #[test]
    fn who_ends_many_jobs_has_none_of_others_forgotten() {
        let mut ended = Ended::default();
        let others = [(Holder::Token(2), 1_u64 << 40), (Holder::Token(0), 1 << 41)];
        for (owner, first) in others {
            for id in first..first + 1_000 {
                ended.note(owner, JobId(id));
                ended.fail(Time::ZERO, (owner, JobId(id)), "a".into(), failure());
            }
        }
        for id in 0..2 * IDS_MAX as u64 {
            ended.note(OWNER, JobId(id));
            ended.fail(Time::ZERO, (OWNER, JobId(id)), "a".into(), failure());
        }
        for (_, first) in others {
            let mut all = (first..first + 1_000).map(JobId);
            assert!(all.all(|id| ended.ids.contains(&id) && ended.failed(id).is_some()));
        }
        assert_eq!((ended.ids.len(), ended.failed.len()), (IDS_MAX, FAILURES_MAX));
    }
}
