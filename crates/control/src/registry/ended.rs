//! Jobs that have ended, as far as that is remembered.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use thalweg_core::{JobId, Span, Time};

use crate::message::Failure;

/// How long and how many failures are kept for members who come late.
const FAILURES_FOR: Span = Span::from_s(600);
const FAILURES_MAX: usize = 4_096;

/// Number of ids of ended jobs that are remembered: their tickets are refused.
const IDS_MAX: usize = 65_536;

/// Jobs that have ended. The oldest are forgotten first.
#[derive(Debug, Default)]
pub(super) struct Ended {
    failed: BTreeMap<JobId, Failed>,
    ids: BTreeSet<JobId>,
    order: VecDeque<JobId>,
}

/// A job that failed.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    pub(super) name: String,
    pub(super) failure: Arc<Failure>,
    at: Time,
}

impl Ended {
    /// Remembers that a job has ended: its tickets open nothing any more.
    pub(super) fn note(&mut self, id: JobId) {
        if self.ids.insert(id) {
            self.order.push_back(id);
        }
        if self.order.len() > IDS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
    }

    /// Remembers why a job failed, for those who come late.
    pub(super) fn fail(&mut self, now: Time, id: JobId, name: String, failure: Arc<Failure>) {
        if self.failed.len() >= FAILURES_MAX {
            let oldest = self.failed.iter().min_by_key(|(_, failed)| failed.at).map(|(id, _)| *id);
            oldest.map(|oldest| self.failed.remove(&oldest));
        }
        self.failed.insert(id, Failed { name, failure, at: now });
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
        self.failed.retain(|_, failed| now.since(failed.at) < FAILURES_FOR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::FailureKind;

    // spec: E-12 machine
    #[test]
    fn the_memory_of_ended_jobs_has_a_bound() {
        let mut ended = Ended::default();
        let failure = Arc::new(Failure::new(FailureKind::Other, "why", vec![]));
        for id in 0..=IDS_MAX as u64 {
            ended.note(JobId(id));
            ended.note(JobId(id));
            let now = Time::ZERO + Span::from_ms(id);
            ended.fail(now, JobId(id), "a".into(), Arc::clone(&failure));
        }
        assert!(!ended.has(JobId(0)) && ended.has(JobId(1)), "the first is forgotten");
        assert_eq!((ended.order.len(), ended.ids.len()), (IDS_MAX, IDS_MAX));
        assert_eq!(ended.failed.len(), FAILURES_MAX);
        ended.tick(Time::ZERO + Span::from_s(10_000));
        assert!(ended.failed.is_empty() && ended.has(JobId(1)), "ids are kept without a reason");
    }
}
