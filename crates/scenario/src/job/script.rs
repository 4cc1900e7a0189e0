//! When a worker hands over which tensor.
//!
//! | what happens | what follows |
//! |---|---|
//! | a round starts | its tensors get ready one after the other, and are handed over |
//! | all tensors of a round are handed over | the next one starts, if it is not too far ahead |
//! | all sums of a round are there | the same |
//!
//! A training job is never ahead: what it computes next needs all sums of the last iteration.

use std::collections::VecDeque;

use thalweg_core::{Span, Time};

/// What every worker of a job does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Script {
    /// The tensors of a round, in the order in which they get ready.
    pub(crate) tensors: Vec<Ready>,
    pub(crate) rounds: u64,
    /// How many rounds may be open at once.
    pub(crate) open_rounds: u64,
}

/// A tensor of a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ready {
    /// When it can be handed over, counted from the start of the round.
    pub(crate) at: Span,
    pub(crate) values: u64,
    /// The layer of the model that it belongs to, from 0 at the front.
    pub(crate) layer: u16,
}

/// One worker's place in the script.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The round whose tensors are handed over, and when it started.
    round: u64,
    started: Time,
    /// The next tensor of it; past the end when it waits for sums.
    next: usize,
    /// Rounds whose sums are all there, and all before them.
    ended: u64,
    /// How many sums each round lacks that has started and not ended.
    missing: VecDeque<usize>,
}

impl Place {
    /// At the beginning.
    pub(crate) fn new(script: &Script, start: Time) -> Place {
        let missing = VecDeque::from([script.tensors.len()]);
        Place { round: 0, started: start, next: 0, ended: 0, missing }
    }

    /// When it has something to hand over, and what. `None` while it waits for sums, and at
    /// the end.
    pub(crate) fn next(&self, script: &Script) -> Option<(Time, Ready)> {
        let ready = script.tensors.get(self.next)?;
        // Computing may outlast time itself.
        let at = self.started + ready.at;
        (at < Time::NEVER).then_some((at, *ready))
    }

    /// It handed that over. Says which round it started thereby, if it did.
    pub(crate) fn on_submitted(&mut self, now: Time, script: &Script) -> Option<u64> {
        self.next += 1;
        self.start_round(now, script)
    }

    /// A sum is there. Says how many rounds ended thereby, and which one it started, if it did.
    pub(crate) fn on_sum(
        &mut self,
        now: Time,
        script: &Script,
        operation: u64,
    ) -> (u64, Option<u64>) {
        let round = operation / script.tensors.len() as u64;
        let open = round.checked_sub(self.ended).map(|open| open as usize);
        let Some(missing) = open.and_then(|open| self.missing.get_mut(open)) else {
            return (0, None);
        };
        *missing = missing.saturating_sub(1);
        let before = self.ended;
        while self.missing.front() == Some(&0) {
            self.missing.pop_front();
            self.ended += 1;
        }
        (self.ended - before, self.start_round(now, script))
    }

    /// How many rounds have ended.
    pub(crate) fn ended(&self) -> u64 {
        self.ended
    }

    /// Whether all rounds have ended.
    pub(crate) fn is_over(&self, script: &Script) -> bool {
        self.ended == script.rounds
    }

    fn start_round(&mut self, now: Time, script: &Script) -> Option<u64> {
        let next = self.round + 1;
        let is_due = self.next == script.tensors.len() && next < script.rounds;
        if !is_due || next >= self.ended + script.open_rounds {
            return None;
        }
        self.missing.push_back(script.tensors.len());
        (self.round, self.started, self.next) = (next, now, 0);
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(at_ps: &[u64], rounds: u64, open_rounds: u64) -> Script {
        let ready = |&ps: &u64| Ready { at: Span::from_ps(ps), values: ps / 10, layer: 0 };
        Script { tensors: at_ps.iter().map(ready).collect(), rounds, open_rounds }
    }

    fn at(ps: u64) -> Time {
        Time::from_ps(ps)
    }

    /// When a worker has something to hand over, and how many values.
    fn next(place: &Place, script: &Script) -> Option<(Time, u64)> {
        place.next(script).map(|(at, ready)| (at, ready.values))
    }

    #[test]
    fn an_iteration_waits_for_all_sums_of_the_last() {
        let script = script(&[130, 160], 2, 1);
        let mut place = Place::new(&script, at(1_000));
        assert_eq!(next(&place, &script), Some((at(1_130), 13)));
        assert_eq!(place.on_submitted(at(1_130), &script), None);
        assert_eq!(next(&place, &script), Some((at(1_160), 16)));
        assert_eq!(place.on_submitted(at(1_160), &script), None);
        assert_eq!(next(&place, &script), None);
        assert_eq!(place.on_sum(at(1_200), &script, 1), (0, None));
        assert_eq!(place.on_sum(at(1_300), &script, 0), (1, Some(1)));
        assert_eq!(next(&place, &script), Some((at(1_430), 13)));
        assert!(!place.is_over(&script));
        (0..2).for_each(|_| assert_eq!(place.on_submitted(at(1_500), &script), None));
        assert_eq!(place.on_sum(at(1_600), &script, 2), (0, None));
        assert_eq!(place.on_sum(at(1_700), &script, 3), (1, None));
        assert!(place.is_over(&script));
        assert_eq!(next(&place, &script), None);
    }

    #[test]
    fn rounds_may_be_ahead_and_sums_may_come_in_any_order() {
        let script = script(&[0], 4, 2);
        let mut place = Place::new(&script, at(5));
        assert_eq!(place.on_submitted(at(5), &script), Some(1));
        assert_eq!(next(&place, &script), Some((at(5), 0)));
        assert_eq!(place.on_submitted(at(5), &script), None, "two are open");
        assert_eq!(place.on_sum(at(7), &script, 1), (0, None), "the first is still open");
        assert_eq!(place.on_sum(at(8), &script, 0), (2, Some(2)));
        assert_eq!(place.on_submitted(at(8), &script), Some(3));
        assert_eq!(place.on_sum(at(9), &script, 7), (0, None), "nobody asked for that");
        assert_eq!(place.on_submitted(at(9), &script), None);
        assert_eq!(place.on_sum(at(9), &script, 2), (1, None));
        assert_eq!(place.on_sum(at(9), &script, 3), (1, None));
        assert!(place.is_over(&script));
    }

    #[test]
    fn what_is_never_ready_never_comes() {
        let script = script(&[u64::MAX], 1, 1);
        assert_eq!(next(&Place::new(&script, at(1)), &script), None);
    }
}
