//! No job keeps others from the aggregators.

use std::collections::BTreeMap;

use thalweg_core::{JobId, Span, Time};

use crate::index::bucket;

/// Number of aggregators that each job holds, and contention between jobs.
///
/// Aggregators are free for all as long as nobody is turned away. When a job finds one taken by
/// another job, there is contention for the next stale age: then a job that holds more than an equal share
/// takes no more, and its packets no longer keep what it holds from becoming stale. So within the
/// stale age it is down to its share.
// spec: T-06
#[derive(Debug)]
pub(super) struct Shares {
    /// Aggregators by a hash of the job. Jobs that share a counter also share a share.
    held: Box<[u32; COUNTERS]>,
    /// Number of counters above zero.
    jobs: u32,
    aggregators: u32,
    stale_after: Span,
    contended_until: Time,
}

impl Shares {
    /// Recounts from the jobs of all aggregators that are taken. Panics where a job has another number.
    // spec: T-12
    pub(super) fn check(&self, taken: impl Iterator<Item = JobId>) {
        let mut held = BTreeMap::new();
        taken.for_each(|job| *held.entry(counter(job)).or_insert(0) += 1);
        // A counter that nobody has taken anything for would count as one more job.
        assert_eq!(self.jobs as usize, held.len(), "jobs that hold aggregators");
        let is_right = held.iter().all(|(at, held)| self.held[*at] == *held);
        assert!(is_right, "a job holds the aggregators that it has taken");
    }
}

/// Many more than there are jobs on one switch.
const COUNTERS: usize = 4_096;

impl Shares {
    pub(super) fn new(aggregators: u32, stale_after: Span) -> Shares {
        let held = Box::new([0; COUNTERS]);
        Shares { held, jobs: 0, aggregators, stale_after, contended_until: Time::ZERO }
    }

    #[inline]
    pub(super) fn take(&mut self, job: JobId) {
        let held = &mut self.held[counter(job)];
        self.jobs += u32::from(*held == 0);
        *held += 1;
    }

    #[inline]
    pub(super) fn free(&mut self, job: JobId) {
        let held = &mut self.held[counter(job)];
        *held -= 1;
        self.jobs -= u32::from(*held == 0);
    }

    /// A job found an aggregator taken by another one.
    pub(super) fn contend(&mut self, now: Time) {
        self.contended_until = now + self.stale_after;
    }

    /// True if a job has all that it may have, now that others want some.
    #[inline]
    pub(super) fn is_exhausted(&self, now: Time, job: JobId) -> bool {
        now < self.contended_until && {
            let held = self.held[counter(job)];
            // Somebody who holds nothing yet was turned away, so there is one more at least.
            let jobs = self.jobs.max(2);
            held >= (self.aggregators / jobs).max(1)
        }
    }
}

#[inline]
fn counter(job: JobId) -> usize {
    bucket(job.0, COUNTERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALE: Span = Span::from_ms(100);
    const HOG: JobId = JobId(4);
    const GUEST: JobId = JobId(8);

    #[test]
    fn shares_count_only_while_jobs_stand_in_each_others_way() {
        let mut shares = Shares::new(10, STALE);
        (0..9).for_each(|_| shares.take(HOG));
        let now = Time::ZERO + Span::from_ms(5);
        assert!(!shares.is_exhausted(now, HOG), "nobody was turned away");
        shares.contend(now);
        assert!(shares.is_exhausted(now, HOG) && !shares.is_exhausted(now, GUEST));
        (0..5).for_each(|_| shares.free(HOG));
        assert!(!shares.is_exhausted(now, HOG), "four are less than half of ten");
        shares.take(HOG);
        assert!(shares.is_exhausted(now, HOG));
        shares.take(GUEST);
        shares.take(JobId(12));
        shares.free(HOG);
        shares.free(HOG);
        assert!(shares.is_exhausted(now, HOG), "a third of ten are three");
        assert!(!shares.is_exhausted(now + STALE, HOG), "the trouble is over");
    }
}
