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

/// Operations that a rank remembers to report: half of what the registrar remembers, so that ranks that are far
/// apart find each other there.
const RECENT_MAX: usize = 256;

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
    /// The latest operations; their numbers follow each other.
    recent: VecDeque<(u64, Fingerprint)>,
    /// Operations of this host that have not ended.
    shared: Vec<Arc<HostOperation>>,
    /// All below were reported.
    reported: u64,
    /// The first operation that had not ended at the last heartbeat.
    open_at_beat: Option<u64>,
}

impl Comparison {
    /// Numbers an operation.
    pub fn begin(&mut self, now: Time, fingerprint: Fingerprint) -> Begun {
        let number = self.begun;
        self.begun += 1;
        self.recent.push_back((number, fingerprint));
        if self.recent.len() > RECENT_MAX {
            self.recent.pop_front();
        }
        Begun { number, at: now }
    }

    /// Numbers an operation of this host.
    pub fn begin_shared(&mut self, now: Time, operation: Arc<HostOperation>) {
        let begun = self.begin(now, operation.fingerprint);
        operation.number.store(begun.number, Ordering::Relaxed);
        self.shared.push(operation);
    }

    /// The first number that has not been given.
    pub fn next(&self) -> u64 {
        self.begun
    }

    /// The first operation of this host that has not ended.
    pub fn first_shared(&mut self) -> Option<u64> {
        self.shared.retain(|operation| !operation.is_done.load(Ordering::Relaxed));
        self.shared.iter().map(|operation| operation.number()).min()
    }

    /// Reports that are due at a heartbeat, with the first operation that has not ended.
    pub fn reports_at_beat(&mut self, first_open: u64) -> Vec<FromRank> {
        let is_open = first_open < self.begun;
        let stands_still = is_open && self.open_at_beat == Some(first_open);
        self.open_at_beat = is_open.then_some(first_open);
        if stands_still { self.new_reports() } else { Vec::new() }
    }

    /// Reports of all operations that are remembered.
    pub fn all_reports(&mut self) -> Vec<FromRank> {
        self.reported = self.begun;
        self.recent.iter().filter_map(|(number, _)| self.report(*number)).collect()
    }

    /// All reports that a registrar may need that has forgotten them.
    pub fn reports_again(&self) -> Vec<FromRank> {
        let reported = self.recent.iter().filter(|(number, _)| *number < self.reported);
        reported.filter_map(|(number, _)| self.report(*number)).collect()
    }

    fn new_reports(&mut self) -> Vec<FromRank> {
        let oldest = self.recent.front().map_or(self.begun, |(number, _)| *number);
        let numbers = self.reported.max(oldest)..self.begun;
        self.reported = self.begun;
        numbers.filter_map(|number| self.report(number)).collect()
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
    use thalweg_core::Element;

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
        let latest: Vec<u64> = (300 - RECENT_MAX as u64..300).collect();
        assert_eq!(numbers(comparison.reports_at_beat(295)), latest);
        assert!(comparison.reports_at_beat(295).is_empty());
        begin(&mut comparison, 1);
        assert_eq!(numbers(comparison.reports_at_beat(295)), [300]);
        assert!(comparison.reports_at_beat(301).is_empty(), "nothing is open");
        assert!(comparison.reports_at_beat(301).is_empty());
        let latest: Vec<u64> = (301 - RECENT_MAX as u64..301).collect();
        assert_eq!(numbers(comparison.all_reports()), latest, "whatever was reported before");
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
}
