//! The operations of a rank in the order of its calls, for the registrar to compare.
//!
//! Transports compare what they carry before they hand it out. Aggregation compares digests alone, and has ranks
//! report their latest operations where these differ: the registrar names both sides. Ranks whose operations take
//! different paths wait for each other for ever, since nobody receives a message to compare. So a rank that waits
//! for a while reports as well.
// spec: E-11

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use thalweg_control::FromRank;
use thalweg_core::{Fingerprint, Time};

/// Operations before the first open one that a rank remembers: another rank may still wait for one of them.
const ENDED_KEPT: u64 = 64;

/// Operations from the first open one on that a rank reports: a quarter of what the registrar remembers, so that
/// ranks that are far apart find each other there.
const WINDOW: u64 = 128;

/// An operation that ranks of one host carry out together, at least in part.
pub(crate) struct HostOperation {
    pub fingerprint: Fingerprint,
    /// Number of the operation. Valid once the engine has numbered it.
    number: AtomicU64,
    pub is_done: AtomicBool,
}

impl HostOperation {
    pub fn new(fingerprint: Fingerprint) -> Arc<HostOperation> {
        let (number, is_done) = (AtomicU64::new(0), AtomicBool::new(false));
        Arc::new(HostOperation { fingerprint, number, is_done })
    }

    pub fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }
}

/// The beginning of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    /// Number of operations that had begun before it: the same at every rank, whatever carries them out.
    pub number: u64,
    pub at: Time,
}

/// The operations of a rank.
#[derive(Default)]
pub(super) struct Comparison {
    begun: u64,
    /// The latest operations; their numbers follow each other. All that are open are among them.
    recent: VecDeque<(u64, Fingerprint)>,
    /// Operations of this host that have not ended.
    shared: Vec<(Begun, Arc<HostOperation>)>,
    /// The first of these at the last heartbeat, and the time since when it is the first.
    first_at_beat: Option<Begun>,
    last_beat: Time,
    /// All below were reported.
    reported: u64,
    /// The first operation that had not ended at the last heartbeat, or the next one if all had ended.
    open_at_beat: Option<u64>,
}

impl Comparison {
    /// Numbers an operation.
    pub fn begin(&mut self, now: Time, fingerprint: Fingerprint) -> Begun {
        let number = self.begun;
        self.begun += 1;
        self.recent.push_back((number, fingerprint));
        Begun { number, at: now }
    }

    /// Numbers an operation of this host.
    pub fn begin_shared(&mut self, now: Time, operation: Arc<HostOperation>) {
        let begun = self.begin(now, operation.fingerprint);
        operation.number.store(begun.number, Ordering::Relaxed);
        self.shared.push((begun, operation));
    }

    /// The first number that has not been given.
    pub fn next(&self) -> u64 {
        self.begun
    }

    /// The first operation of this host that has not ended.
    pub fn first_shared(&mut self) -> Option<u64> {
        self.oldest_shared().map(|begun| begun.number)
    }

    /// The first operation of this host that has not ended, and the time since when it is the first. Called at
    /// heartbeats. The ranks of a host carry out one operation after the other: the time in the queue is no stall.
    // spec: T-07
    pub fn first_shared_since(&mut self, now: Time) -> Option<Begun> {
        let oldest = self.oldest_shared();
        let is_same = |known: &Begun| oldest.is_some_and(|oldest| oldest.number == known.number);
        let last_beat = std::mem::replace(&mut self.last_beat, now);
        let since = |oldest: Begun| Begun { at: oldest.at.max(last_beat), ..oldest };
        self.first_at_beat = self.first_at_beat.filter(is_same).or(oldest.map(since));
        self.first_at_beat
    }

    fn oldest_shared(&mut self) -> Option<Begun> {
        self.shared.retain(|(_, operation)| !operation.is_done.load(Ordering::Relaxed));
        self.shared.iter().map(|(begun, _)| *begun).min_by_key(|begun| begun.number)
    }

    /// Reports that are due at a heartbeat, with the first operation that has not ended.
    pub fn reports_at_beat(&mut self, first_open: u64) -> Vec<FromRank> {
        let stands_still = first_open < self.begun && self.open_at_beat == Some(first_open);
        self.open_at_beat = Some(first_open);
        let oldest = first_open.saturating_sub(ENDED_KEPT);
        while self.recent.pop_front_if(|(number, _)| *number < oldest).is_some() {}
        if stands_still { self.reports_from(self.reported, first_open) } else { Vec::new() }
    }

    /// Reports of the operations around the first one that has not ended, whatever was reported before.
    pub fn all_reports(&mut self, first_open: u64) -> Vec<FromRank> {
        self.reports_from(first_open.saturating_sub(ENDED_KEPT), first_open)
    }

    /// All reports that a registrar may need that has forgotten them.
    pub fn reports_again(&self) -> Vec<FromRank> {
        let reported = self.recent.iter().filter(|(number, _)| *number < self.reported);
        reported.filter_map(|(number, _)| self.report(*number)).collect()
    }

    fn reports_from(&mut self, from: u64, first_open: u64) -> Vec<FromRank> {
        let oldest = self.recent.front().map_or(self.begun, |(number, _)| *number);
        // Those far behind the first open one say nothing about it, and would push it out at the registrar.
        let end = self.begun.min(first_open + WINDOW);
        self.reported = self.reported.max(end);
        (from.max(oldest)..end).filter_map(|number| self.report(number)).collect()
    }

    fn report(&self, number: u64) -> Option<FromRank> {
        let (oldest, _) = *self.recent.front()?;
        let place = usize::try_from(number.checked_sub(oldest)?).ok()?;
        let (number, fingerprint) = *self.recent.get(place)?;
        Some(FromRank::Operation { number, fingerprint })
    }
}

#[cfg(test)]
mod tests {
    use thalweg_core::{Element, Span};

    use super::*;

    fn sum(values: u64) -> Fingerprint {
        Fingerprint::of_sum(Element::F32, values)
    }

    fn numbers(reports: Vec<FromRank>) -> Vec<u64> {
        let number = |report: FromRank| match report {
            FromRank::Operation { number, fingerprint } => {
                assert_eq!(fingerprint, sum(number));
                number
            }
            other => panic!("{other:?}"),
        };
        reports.into_iter().map(number).collect()
    }

    fn begin(comparison: &mut Comparison, count: u64) {
        for _ in 0..count {
            let next = comparison.next();
            assert_eq!(comparison.begin(Time::ZERO, sum(next)).number, next);
        }
    }

    #[test]
    fn only_what_stands_still_is_reported_and_once() {
        let mut comparison = Comparison::default();
        begin(&mut comparison, 300);
        assert!(comparison.reports_at_beat(290).is_empty());
        assert!(comparison.reports_at_beat(295).is_empty(), "it moves");
        let latest: Vec<u64> = (295 - ENDED_KEPT..300).collect();
        assert_eq!(numbers(comparison.reports_at_beat(295)), latest);
        assert!(comparison.reports_at_beat(295).is_empty());
        begin(&mut comparison, 1);
        assert_eq!(numbers(comparison.reports_at_beat(295)), [300]);
        assert!(comparison.reports_at_beat(301).is_empty(), "nothing is open");
        assert!(comparison.reports_at_beat(301).is_empty());
        let latest: Vec<u64> = (301 - ENDED_KEPT..301).collect();
        assert_eq!(numbers(comparison.all_reports(301)), latest, "whatever was reported before");
    }

    #[test]
    fn a_rank_that_runs_far_ahead_reports_the_operation_it_waits_for() {
        let mut comparison = Comparison::default();
        begin(&mut comparison, 10_000);
        let around: Vec<u64> = (100 - ENDED_KEPT..100 + WINDOW).collect();
        assert_eq!(numbers(comparison.all_reports(100)), around);
        assert!(comparison.reports_at_beat(100).is_empty());
        assert!(comparison.reports_at_beat(10_000).is_empty(), "all have ended");
        assert_eq!(comparison.recent.len() as u64, ENDED_KEPT);
    }

    #[test]
    fn operations_of_the_host_are_open_until_they_are_done() {
        let mut comparison = Comparison::default();
        let shared = HostOperation::new(sum(1));
        begin(&mut comparison, 1);
        comparison.begin_shared(Time::ZERO, Arc::clone(&shared));
        assert_eq!(comparison.first_shared(), Some(1));
        shared.is_done.store(true, Ordering::Relaxed);
        assert_eq!(comparison.first_shared(), None);
    }

    // spec: T-07 machine
    #[test]
    fn time_in_the_queue_of_a_host_is_no_stall() {
        let at = |ms| Time::ZERO + Span::from_ms(ms);
        let mut comparison = Comparison::default();
        let operations = [HostOperation::new(sum(1)), HostOperation::new(sum(2))];
        for operation in &operations {
            comparison.begin_shared(at(100), Arc::clone(operation));
        }
        let mut first = |now_ms| {
            let first = comparison.first_shared_since(at(now_ms));
            first.map(|begun| (begun.number, begun.at))
        };
        assert_eq!(first(500), Some((0, at(100))));
        assert_eq!(first(1_000), Some((0, at(100))));
        operations[0].is_done.store(true, Ordering::Relaxed);
        assert_eq!(first(1_500), Some((1, at(1_000))), "since the last heartbeat");
        assert_eq!(first(2_000), Some((1, at(1_000))));
        operations[1].is_done.store(true, Ordering::Relaxed);
        assert_eq!(first(2_500), None);
    }
}
