//! Heartbeats, operations that do not move, and values that fixed point loses.

use thalweg_aggregate::worker::Waiting;
use thalweg_aggregate::{Numeric, Setup};
use thalweg_control::{Failure, FailureKind, FromRank, Progress, Stall, Waits};
use thalweg_core::{Span, Time};
use thalweg_stack::{Participant, TrainingHost};

use super::gathering::Gathering;
use super::pending::Peer;
use super::{Deadlines, Engine};
use crate::error::Error;
use crate::events::Note;

/// Time between two reports of a rank's progress.
const BEAT: Span = Span::from_ms(500);

/// Time that the rank that noticed a failure has to report it, before another one repeats what it received.
const HEARSAY_AFTER: Span = Span::from_s(2);

/// Time beyond the deadline of joining after which a rank fails by itself, should the registrar not have failed the job.
const JOIN_MARGIN: Span = Span::from_s(1);

/// When things were last reported.
#[derive(Debug, Default)]
pub(super) struct Watch {
    beat_at: Time,
    stall_said_at: Time,
    pub gathering: Gathering,
    /// True if the job was reported to fail because of a transfer.
    is_transfer_reported: bool,
    precision: Precision,
}

/// Number of underflowed values as last reported, and the latest scale of fixed point.
#[derive(Debug, Default)]
struct Precision {
    underflowed_values: u64,
    scale: Option<f32>,
}

impl Precision {
    /// An epoch begins, with the scale of the job.
    fn begin(&mut self, numeric: Numeric) {
        self.scale = match numeric {
            Numeric::Fixed { scale, .. } => Some(scale.value()),
            Numeric::Float => None,
        };
    }

    /// Returns the reports that are due, for this number of underflowed values and this scale.
    // spec: A-36, T-09
    fn notes(&mut self, underflowed_values: u64, scale: f32) -> Vec<Note> {
        let mut notes = Vec::new();
        if self.scale.is_some_and(|before| scale < before) {
            notes.push(Note::Rescaled { scale });
        }
        self.scale = Some(scale);
        // Twice as many every time, or a tensor of small values would be reported for each of its sums.
        let is_news = underflowed_values >= self.underflowed_values.saturating_mul(2).max(1);
        if is_news {
            self.underflowed_values = underflowed_values;
            notes.push(Note::Underflowed { values: underflowed_values, scale });
        }
        notes
    }
}

impl Engine {
    /// Says how far it is now and then, and if something does not move.
    // spec: T-07
    pub(super) fn look_around(&mut self) {
        let now = self.driver.now();
        if self.failure.is_some() {
            return;
        }
        // The others end with the first one.
        // spec: F-04
        if self.identity.thread == 0
            && let Some(reason) = self.cancel.reason().map(str::to_owned)
        {
            return self.abort(&reason);
        }
        self.check_departures();
        if now.since(self.watch.beat_at) < BEAT {
            return;
        }
        self.watch.beat_at = now;
        self.check_oversize();
        self.check_deadlines(now);
        self.remember();
        self.report_precision();
        let (fragment, waiting) = self.sum_progress();
        let stall = waiting.map(|waiting| self.stalled_sum(now, waiting));
        let stall = stall.or_else(|| self.stalled_flow()).or_else(|| self.stalled_call());
        let in_memory = self.stalled_in_memory(now);
        let stall = stall.or(in_memory);
        // Also when nothing is awaited: a rank that thinks that this one stalls learns that it does not.
        self.compare_at_beat(now);
        let operation = self.first_open();
        self.say(FromRank::Progress(Progress {
            operation,
            fragment,
            since: stall.as_ref().map_or(Span::ZERO, |stall| stall.since),
        }));
        let stall_after = self.deadlines.stall_after;
        if let Some(stall) = stall
            && stall.since >= stall_after
            && now.since(self.watch.stall_said_at) >= stall_after
        {
            self.watch.stall_said_at = now;
            self.say(FromRank::Stalled(stall));
            self.check_paths();
        }
    }

    /// Fails what takes too long and is not known to the registrar: joining without it, and transfers.
    // spec: E-02
    fn check_deadlines(&mut self, now: Time) {
        let Deadlines { join_timeout, operation_timeout, .. } = self.deadlines;
        let joining = self.joining.as_ref().map(|(began, _)| now.since(*began));
        if let Some(waited) = joining.filter(|waited| *waited >= join_timeout + JOIN_MARGIN) {
            let missing = self.watch.gathering.missing().to_vec();
            let who = if missing.is_empty() {
                "no answer of the server".into()
            } else {
                format!("ranks {missing:?} are missing")
            };
            let text = format!("joining timed out after {:.1} s: {who}", waited.as_s_f64());
            let failure = Failure::new(FailureKind::Timeout, text, missing);
            self.say(FromRank::Failing(failure.clone()));
            return self.fail(Error::failed(failure));
        }
        let Some(Peer { rank, is_sender, at }) = self.pending.oldest_transfer() else { return };
        if now.since(at) >= operation_timeout && !self.watch.is_transfer_reported {
            self.watch.is_transfer_reported = true;
            let what = if is_sender { "receiving from" } else { "sending to" };
            let seconds = now.since(at).as_s_f64();
            let who = rank.map_or_else(|| "any rank".into(), |rank| format!("rank {rank}"));
            let text = format!("{what} {who} timed out after {seconds:.1} s");
            let ranks = rank.into_iter().collect();
            self.say(FromRank::Failing(Failure::new(FailureKind::Timeout, text, ranks)));
        }
    }

    /// An epoch begins with this set-up.
    pub(super) fn watch_epoch(&mut self, setup: &Setup) {
        self.watch.precision.begin(setup.parameters.numeric);
    }

    /// Reports values that fixed point has lost, and a scale that fell.
    pub(super) fn report_precision(&mut self) {
        let Some(job) = self.membership.as_ref().map(|membership| membership.job()) else { return };
        let Some(Participant::Aggregate(worker)) =
            self.driver.machine().machine().machine().participant(job)
        else {
            return;
        };
        let Some(scale) = worker.scale() else { return };
        let underflowed_values = worker.stats().underflowed_values;
        for note in self.watch.precision.notes(underflowed_values, scale.value()) {
            self.notes.send(note);
        }
    }

    /// The first operation that has not ended, or the next one to begin.
    pub(super) fn first_open(&mut self) -> u64 {
        let shared = self.comparison.first_shared();
        let open = self.pending.first_open().into_iter().chain(shared).min();
        open.unwrap_or(self.comparison.next())
    }

    /// Reports the operations of a rank that waits, and the failure that it received if nobody reports more.
    // spec: E-11
    fn compare_at_beat(&mut self, now: Time) {
        let first_open = self.first_open();
        for report in self.comparison.reports_at_beat(first_open) {
            self.say(report);
        }
        if let Some((_, hearsay)) =
            self.hearsay.take_if(|(since, _)| now.since(*since) >= HEARSAY_AFTER)
        {
            self.say(FromRank::Failing(hearsay.failure(self.identity.rank)));
        }
    }

    /// Returns the progress of the sums through aggregation, and what they wait for.
    fn sum_progress(&mut self) -> (u64, Option<Waiting>) {
        let job = self.membership.as_ref().map(|membership| membership.job());
        let look = |host: &mut TrainingHost, _| {
            let worker = host.worker_mut(job?)?;
            Some((worker.watermark(), worker.waits_for()))
        };
        self.command(look, |_| {}).unwrap_or_default()
    }

    fn stalled_sum(&mut self, now: Time, waiting: Waiting) -> Stall {
        Stall {
            operation: self.first_open(),
            waits: Waits::Fragment(waiting.sequence),
            since: now.since(waiting.since),
        }
    }

    /// The oldest sum that hosts make among themselves. Any of the others may be late.
    fn stalled_flow(&self) -> Option<Stall> {
        let membership = self.membership.as_ref()?;
        let lanes = membership.direct_lanes();
        let oldest = lanes.into_iter().filter_map(|lane| self.pending.oldest_sum(lane));
        let begun = oldest.min_by_key(|begun| begun.number)?;
        Some(Stall {
            operation: begun.number,
            waits: Waits::Ranks(membership.other_leaders(self.identity.rank)),
            since: self.driver.now().since(begun.at),
        })
    }

    /// The oldest collective of the mesh, and the ranks that keep it.
    fn stalled_call(&self) -> Option<Stall> {
        let (operation, begun) = self.pending.oldest_call()?;
        let mesh = self.membership.as_ref()?.mesh(&self.driver)?;
        let waits = mesh.waits_for(operation);
        let now = self.driver.now();
        let since = waits.iter().map(|wait| wait.since).max()?;
        let ranks = waits.iter().map(|wait| wait.rank).collect();
        let waits = Waits::Ranks(ranks);
        Some(Stall { operation: begun.number, waits, since: now.since(since) })
    }

    /// The first operation of this host in shared memory. Any of the other ranks here may be late, and those that
    /// wait themselves are not.
    fn stalled_in_memory(&mut self, now: Time) -> Option<Stall> {
        let begun = self.comparison.first_shared_since(now)?;
        let mates = self.membership.as_ref()?.mates(self.identity.rank);
        if mates.is_empty() {
            return None;
        }
        let waits = Waits::Ranks(mates);
        Some(Stall { operation: begun.number, waits, since: now.since(begun.at) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: T-09 machine
    #[test]
    fn values_that_vanish_are_reported_at_once_and_then_whenever_they_double() {
        let mut precision = Precision::default();
        let mut reported = |values| precision.notes(values, 1e8);
        assert_eq!(reported(0), []);
        let note = |values| [Note::Underflowed { values, scale: 1e8 }];
        assert_eq!(reported(3), note(3));
        assert_eq!((reported(3), reported(5)), (vec![], vec![]));
        assert_eq!(reported(6), note(6));
    }

    // spec: A-36, T-09 machine
    #[test]
    fn a_scale_that_fell_is_reported_once() {
        let mut precision = Precision::default();
        let scale = thalweg_wire::aggregate::Scale::new(1e8).expect("a scale");
        let numeric = Numeric::Fixed { scale, dynamic: true };
        precision.begin(numeric);
        assert_eq!(precision.notes(0, 65_536.0), [Note::Rescaled { scale: 65_536.0 }]);
        assert_eq!(precision.notes(0, 65_536.0), []);
        precision.begin(numeric);
        assert_eq!(precision.notes(0, 1e8), [], "an epoch begins with the scale of the job again");
    }
}
