//! The operations of a rank in the order of its calls, for the registrar to compare.
//!
//! Transports compare what they carry before they hand it out. Aggregation compares digests alone, and has ranks
//! report their latest operations where these differ: the registrar names both sides. Ranks whose operations take
//! different paths wait for each other for ever, since nobody receives a message to compare. So a rank that waits
//! for a while reports as well.
// spec: E-11

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use thalweg_control::FromRank;
use thalweg_core::{Fingerprint, Time};

/// Operations before the first open one that a rank remembers: another rank may still wait for one of them.
const ENDED_KEPT: u64 = 64;

/// Operations from the first open one on that a rank reports: a quarter of what the registrar remembers, so that
/// ranks that are far apart find each other there.
const WINDOW: u64 = 128;

/// An operation that several threads carry out: sending threads, each a part of a sum, and the one on which ranks of a host
/// work together. The first sending thread numbers it, in the order of the calls.
// spec: F-04
pub(crate) struct JointOperation {
    pub fingerprint: Fingerprint,
    /// [`UNNUMBERED`] until it has a number.
    number: AtomicU64,
    /// Parts that have not ended.
    open: AtomicU32,
}

/// A part of an operation, open until it is dropped.
pub(crate) struct OpenPart(Arc<JointOperation>);

/// More operations than a job can have.
const UNNUMBERED: u64 = u64::MAX;

impl JointOperation {
    /// An operation, with its first part.
    pub fn begin(fingerprint: Fingerprint) -> OpenPart {
        let (number, open) = (AtomicU64::new(UNNUMBERED), AtomicU32::new(1));
        OpenPart(Arc::new(JointOperation { fingerprint, number, open }))
    }

    /// Number of the operation, once the first sending thread has given it.
    pub fn number(&self) -> Option<u64> {
        Some(self.number.load(Ordering::Relaxed)).filter(|number| *number != UNNUMBERED)
    }

    fn open_parts(&self) -> u32 {
        self.open.load(Ordering::Acquire)
    }
}

impl OpenPart {
    /// A further part of the same operation.
    pub fn another(&self) -> OpenPart {
        self.0.open.fetch_add(1, Ordering::Relaxed);
        OpenPart(Arc::clone(&self.0))
    }

    pub fn operation(&self) -> &Arc<JointOperation> {
        &self.0
    }
}

impl Drop for OpenPart {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Release);
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
    /// Operations of several threads that have not ended.
    shared: Vec<(Begun, Arc<JointOperation>)>,
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

    /// Numbers an operation of several threads.
    pub fn begin_shared(&mut self, now: Time, operation: Arc<JointOperation>) {
        let begun = self.begin(now, operation.fingerprint);
        operation.number.store(begun.number, Ordering::Relaxed);
        self.shared.push((begun, operation));
    }

    /// Has the next operation get this number. Nothing is open.
    // spec: F-01
    pub fn count_from(&mut self, number: u64) {
        self.recent.clear();
        (self.begun, self.reported) = (number, number);
    }

    /// The first number that has not been given.
    pub fn next(&self) -> u64 {
        self.begun
    }

    /// The first operation of several threads that has not ended.
    pub fn first_shared(&mut self) -> Option<u64> {
        self.oldest_shared().map(|(begun, _)| begun.number)
    }

    /// The first operation that has not ended, and the time since when it is the first, if no sending thread has a part of
    /// it: then the ranks of the host have it. Called at heartbeats. They carry out one operation after the other: the time
    /// in the queue is no stall.
    // spec: T-07
    pub fn first_shared_since(&mut self, now: Time) -> Option<Begun> {
        let oldest = self.oldest_shared();
        let is_same =
            |known: &Begun| oldest.is_some_and(|(oldest, _)| oldest.number == known.number);
        let last_beat = std::mem::replace(&mut self.last_beat, now);
        let since = |(oldest, _): (Begun, u32)| Begun { at: oldest.at.max(last_beat), ..oldest };
        self.first_at_beat = self.first_at_beat.filter(is_same).or(oldest.map(since));
        self.first_at_beat.filter(|_| oldest.is_some_and(|(_, open)| open == 1))
    }

    /// The first operation of several threads that has not ended, and its parts that have not.
    fn oldest_shared(&mut self) -> Option<(Begun, u32)> {
        self.shared.retain(|(_, operation)| operation.open_parts() > 0);
        let open = self.shared.iter().map(|(begun, operation)| (*begun, operation.open_parts()));
        open.min_by_key(|(begun, _)| begun.number)
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
        let shared = JointOperation::begin(sum(1));
        assert_eq!(shared.operation().number(), None);
        begin(&mut comparison, 1);
        comparison.begin_shared(Time::ZERO, Arc::clone(shared.operation()));
        assert_eq!(comparison.first_shared(), Some(1));
        drop(shared);
        assert_eq!(comparison.first_shared(), None);
    }

    // spec: F-04, T-07 machine
    #[test]
    fn an_operation_has_one_number_and_ends_with_its_last_part() {
        let mut comparison = Comparison::default();
        let host = JointOperation::begin(sum(1));
        let threads = [host.another(), host.another()];
        comparison.begin_shared(Time::ZERO, Arc::clone(host.operation()));
        assert_eq!(threads[1].operation().number(), Some(0));
        let now = Time::ZERO + Span::from_s(1);
        assert!(comparison.first_shared_since(now).is_none(), "sending threads have it");
        drop(threads);
        assert!(comparison.first_shared_since(now).is_some(), "the ranks of the host have it");
        assert_eq!(comparison.first_shared(), Some(0));
        drop(host);
        assert_eq!((comparison.first_shared(), comparison.next()), (None, 1));
    }

    // spec: T-07 machine
    #[test]
    fn time_in_the_queue_of_a_host_is_no_stall() {
        let at = |ms| Time::ZERO + Span::from_ms(ms);
        let mut comparison = Comparison::default();
        let mut operations = [sum(1), sum(2)].map(|sum| Some(JointOperation::begin(sum)));
        for part in operations.iter().flatten() {
            comparison.begin_shared(at(100), Arc::clone(part.operation()));
        }
        let mut first = |now_ms| {
            let first = comparison.first_shared_since(at(now_ms));
            first.map(|begun| (begun.number, begun.at))
        };
        assert_eq!(first(500), Some((0, at(100))));
        assert_eq!(first(1_000), Some((0, at(100))));
        operations[0] = None;
        assert_eq!(first(1_500), Some((1, at(1_000))), "since the last heartbeat");
        assert_eq!(first(2_000), Some((1, at(1_000))));
        operations[1] = None;
        assert_eq!(first(2_500), None);
    }
}
