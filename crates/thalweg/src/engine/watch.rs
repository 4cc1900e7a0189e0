//! Heartbeats, and operations that do not move.

use thalweg_aggregate::worker::Waiting;
use thalweg_control::{FromRank, Progress, Stall, Waits};
use thalweg_core::{Span, Time};
use thalweg_stack::Host;

use super::Engine;

/// How often a rank says how far it is.
const BEAT: Span = Span::from_ms(500);

/// How long the rank that noticed a failure is waited for before another one repeats what it was told.
const HEARSAY_AFTER: Span = Span::from_s(2);

/// When things were last said.
#[derive(Debug, Default)]
pub(super) struct Watch {
    beat_at: Time,
    stall_said_at: Time,
}

impl Engine {
    /// Says how far it is now and then, and if something does not move.
    // spec: T-07
    pub(super) fn look_around(&mut self) {
        let now = self.driver.now();
        if now.since(self.watch.beat_at) < BEAT || self.failure.is_some() {
            return;
        }
        self.watch.beat_at = now;
        self.remember();
        let (fragment, waiting) = self.sum_progress();
        let stall = waiting.map(|waiting| self.stalled_sum(now, waiting));
        let stall = stall.or_else(|| self.stalled_flow()).or_else(|| self.stalled_call());
        // Also when nothing is awaited: whoever thinks that this rank stalls learns that it does not.
        self.compare_at_beat(now);
        let operation = self.first_open();
        self.say(FromRank::Progress(Progress {
            operation,
            fragment,
            since: stall.as_ref().map_or(Span::ZERO, |stall| stall.since),
        }));
        let stall_after = self.patience.stall_after;
        if let Some(stall) = stall
            && stall.since >= stall_after
            && now.since(self.watch.stall_said_at) >= stall_after
        {
            self.watch.stall_said_at = now;
            self.say(FromRank::Stalled(stall));
        }
    }

    /// The first operation that has not ended, or the next one to begin.
    fn first_open(&mut self) -> u64 {
        let shared = self.comparison.first_shared();
        let open = self.pending.first_open().into_iter().chain(shared).min();
        open.unwrap_or(self.comparison.next())
    }

    /// Reports the operations of a rank that waits, and what it was told if nobody says more.
    // spec: E-11
    fn compare_at_beat(&mut self, now: Time) {
        let first_open = self.first_open();
        for report in self.comparison.reports_at_beat(first_open) {
            self.say(report);
        }
        if let Some((_, text)) =
            self.hearsay.take_if(|(since, _)| now.since(*since) >= HEARSAY_AFTER)
        {
            self.say(FromRank::Failing { text });
        }
    }

    /// How far the sums through aggregation are, and what they wait for.
    fn sum_progress(&mut self) -> (u64, Option<Waiting>) {
        let job = self.membership.as_ref().map(|membership| membership.job());
        let look = |host: &mut Host, _| {
            let worker = host.worker_mut(job?)?;
            Some((worker.watermark(), worker.waits_for()))
        };
        self.driver.command(look, |_| {}).unwrap_or_default()
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
}
