//! Ranks that leave: this one, and others that operations may still need.

use std::collections::BTreeMap;

use thalweg_control::{Failure, FailureKind, FromRank};
use thalweg_core::{Span, Time};

use super::{Engine, HASTY_LINGER};
use crate::handle::Reply;

/// Departure of a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Leaving {
    /// When everything that was begun has ended, and others have what they need of it.
    WhenDone,
    /// Whatever is under way.
    AtOnce,
}

/// A rank that leaves.
pub(super) struct Departing {
    how: Leaving,
    /// When it began to wait for nobody but those that need something of it.
    since: Time,
    reply: Reply,
}

/// Ranks that have left, with the number of operations that each has called.
#[derive(Debug, Default)]
pub(super) struct Departures {
    ranks: BTreeMap<u32, u64>,
    is_reported: bool,
}

impl Departures {
    pub fn note(&mut self, rank: u32, operations: u64) {
        self.ranks.insert(rank, operations);
    }

    /// The rank without which operations that have begun cannot end, and the first of them.
    fn first_needed(&self, begun: u64) -> Option<(u32, u64)> {
        let needed = self.ranks.iter().filter(|(_, operations)| **operations < begun);
        needed.min_by_key(|(_, operations)| **operations).map(|(rank, first)| (*rank, *first))
    }
}

impl Engine {
    pub(super) fn depart(&mut self, how: Leaving, reply: Reply) {
        self.leaving = Some(Departing { how, since: self.driver.now(), reply });
    }

    /// Returns whether the rank is done, and has answered those that still need something of it.
    pub(super) fn has_left(&mut self) -> bool {
        let now = self.driver.now();
        // Those that other sending threads have begun are operations of the first one.
        // spec: F-04
        let is_done = self.pending.is_empty() && self.comparison.first_shared().is_none();
        // A set-up that others wait for needs it.
        let is_paused = self.membership.as_ref().is_some_and(|own| own.is_paused());
        let is_quiet =
            is_done && !is_paused && self.driver.machine().machine().machine().outgoing() == 0;
        let linger = self.deadlines.linger;
        let Some(Departing { how, since, .. }) = &mut self.leaving else { return false };
        if *how == Leaving::WhenDone && !is_done {
            *since = now;
        }
        let linger: Span = if *how == Leaving::AtOnce { linger.min(HASTY_LINGER) } else { linger };
        let is_over = is_quiet || self.failure.is_some() || now.since(*since) >= linger;
        if is_over && let Some(Departing { reply, .. }) = self.leaving.take() {
            // Those that it gives up on, others cannot end either.
            reply.end(Ok(self.first_open()));
        }
        is_over
    }

    /// Fails the job if something that has begun here needs a rank that has left.
    // spec: E-01
    pub(super) fn check_departures(&mut self) {
        if self.departures.ranks.is_empty() || self.departures.is_reported {
            return;
        }
        let needed = self.departures.first_needed(self.comparison.next());
        let operation = needed.map(|(rank, first)| (rank, format!("operation {first}")));
        let mut left = self.departures.ranks.keys();
        let transfer = left.find(|rank| self.pending.has_transfer_with(**rank));
        let transfer = transfer.map(|rank| (*rank, "a transfer".to_owned()));
        let Some((rank, what)) = operation.or(transfer) else { return };
        self.departures.is_reported = true;
        let text = format!("rank {rank} has left, and {what} needs it");
        self.say(FromRank::Failing(Failure::new(FailureKind::Peer, text, vec![rank])));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: E-01 machine
    #[test]
    fn a_rank_that_left_is_needed_by_operations_that_it_has_not_called() {
        let mut departures = Departures::default();
        assert_eq!(departures.first_needed(9), None);
        departures.note(2, 7);
        departures.note(1, 5);
        let table = [(5, None), (6, Some((1, 5))), (9, Some((1, 5)))];
        for (begun, needed) in table {
            assert_eq!(departures.first_needed(begun), needed, "{begun} have begun");
        }
    }
}
