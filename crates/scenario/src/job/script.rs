//! When a worker hands over which tensor.
//!
//! | what happens | what follows |
//! |---|---|
//! | a round starts | its tensors get ready one after the other, and are handed over |
//! | all tensors of a round are handed over | the next one starts, if it is not too far ahead |
//! | all sums of a round are there | the same |
//!
//! A training job is never ahead: what it computes next needs all sums of the last iteration. Where its forward pass is
//! *pipelined*, it goes on layer by layer: each needs the sums of its own tensors, and the pass may begin while others
//! are missing.

use std::collections::VecDeque;

use thalweg_core::{Span, Time};

/// Steps of every worker of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Script {
    /// The tensors of a round, in the order in which they get ready.
    pub(crate) tensors: Vec<Ready>,
    pub(crate) rounds: u64,
    /// Most rounds that may be open at once.
    pub(crate) open_rounds: u64,
    /// Parts of the forward pass, each of which waits for sums of the round before. Empty if a round only starts as a whole.
    pub(crate) forward: Vec<Forward>,
}

/// A part of a forward pass that goes on as sums come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Forward {
    /// Time that it takes.
    pub(crate) lasts: Span,
    /// Tensors of the round before whose sums it needs.
    pub(crate) needs: Vec<usize>,
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
    /// Sums of each round that has started and not ended.
    open: VecDeque<Sums>,
    /// Parts of the forward pass of the round that are computed, and the time at which the last of them ends.
    passed: usize,
    passed_at: Time,
}

/// Sums of a round.
#[derive(Clone, Debug)]
struct Sums {
    /// Tensors whose sums are there.
    present: Vec<bool>,
    /// Number of the others.
    missing: usize,
}

impl Sums {
    fn new(script: &Script) -> Sums {
        let tensors = script.tensors.len();
        Sums { present: vec![false; tensors], missing: tensors }
    }

    fn add(&mut self, tensor: usize) {
        self.missing -= usize::from(!std::mem::replace(&mut self.present[tensor], true));
    }
}

impl Place {
    /// At the beginning.
    pub(crate) fn new(script: &Script, start: Time) -> Place {
        let open = VecDeque::from([Sums::new(script)]);
        let mut place = Place {
            round: 0,
            started: start,
            next: 0,
            ended: 0,
            open,
            passed: 0,
            passed_at: start,
        };
        place.pass_forward(start, script);
        place
    }

    /// When it has something to hand over, and what. `None` while it waits for sums, and at
    /// the end.
    pub(crate) fn next(&self, script: &Script) -> Option<(Time, Ready)> {
        let ready = script.tensors.get(self.next).filter(|_| self.has_passed(script))?;
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
        let tensors = script.tensors.len() as u64;
        let (round, tensor) = (operation / tensors, (operation % tensors) as usize);
        let open = round.checked_sub(self.ended).map(|open| open as usize);
        let Some(sums) = open.and_then(|open| self.open.get_mut(open)) else {
            return (0, None);
        };
        sums.add(tensor);
        let before = self.ended;
        while self.open.pop_front_if(|sums| sums.missing == 0).is_some() {
            self.ended += 1;
        }
        self.pass_forward(now, script);
        (self.ended - before, self.start_round(now, script))
    }

    /// Number of rounds that have ended.
    pub(crate) fn ended(&self) -> u64 {
        self.ended
    }

    /// True if all rounds have ended.
    pub(crate) fn is_over(&self, script: &Script) -> bool {
        self.ended == script.rounds
    }

    fn start_round(&mut self, now: Time, script: &Script) -> Option<u64> {
        let next = self.round + 1;
        let is_due = self.next == script.tensors.len() && next < script.rounds;
        if !is_due || next >= self.ended + script.open_rounds {
            return None;
        }
        self.open.push_back(Sums::new(script));
        (self.round, self.started, self.next) = (next, now, 0);
        (self.passed, self.passed_at) = (0, now);
        self.pass_forward(now, script);
        Some(next)
    }

    /// Computes as much of the forward pass as the sums of the round before allow.
    fn pass_forward(&mut self, now: Time, script: &Script) {
        if self.has_passed(script) {
            return;
        }
        while let Some(part) = script.forward.get(self.passed) {
            if !part.needs.iter().all(|&tensor| self.has_sum_before(tensor)) {
                return;
            }
            self.passed += 1;
            self.passed_at = self.passed_at.max(now) + part.lasts;
        }
        // Tensors get ready as if the pass had begun later and had never waited.
        let whole = script.forward.iter().fold(Span::ZERO, |whole, part| whole + part.lasts);
        self.started = Time::ZERO + self.passed_at.since(Time::ZERO + whole);
    }

    /// Returns whether the forward pass of the round is computed, or is not computed in parts.
    fn has_passed(&self, script: &Script) -> bool {
        self.passed == script.forward.len()
    }

    /// Returns whether the sum of a tensor of the round before is there.
    fn has_sum_before(&self, tensor: usize) -> bool {
        let open = self.round.checked_sub(self.ended + 1).map(|open| open as usize);
        open.and_then(|open| self.open.get(open)).is_none_or(|sums| sums.present[tensor])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(at_ps: &[u64], rounds: u64, open_rounds: u64) -> Script {
        let ready = |&ps: &u64| Ready { at: Span::from_ps(ps), values: ps / 10, layer: 0 };
        let tensors = at_ps.iter().map(ready).collect();
        Script { tensors, rounds, open_rounds, forward: Vec::new() }
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

    /// Two layers of 50 and 30 ps and a backward pass of 20 and 30 ps, the second layer first.
    #[test]
    fn a_pipelined_pass_goes_on_layer_by_layer() {
        let parts = [(50, 1), (30, 0)];
        let forward =
            parts.map(|(ps, tensor)| Forward { lasts: Span::from_ps(ps), needs: vec![tensor] });
        let script = Script { forward: forward.to_vec(), ..script(&[100, 130], 3, 2) };
        let mut place = Place::new(&script, at(1_000));
        assert_eq!(
            next(&place, &script),
            Some((at(1_100), 10)),
            "nothing precedes the first round"
        );
        assert_eq!(place.on_submitted(at(1_100), &script), None);
        assert_eq!(next(&place, &script), Some((at(1_130), 13)));
        assert_eq!(place.on_submitted(at(1_130), &script), Some(1), "while sums are missing");
        assert_eq!(next(&place, &script), None, "the first layer waits for its sum");
        assert_eq!(place.on_sum(at(1_200), &script, 1), (0, None));
        assert_eq!(next(&place, &script), None, "the second one for its own");
        // The first layer is computed until 1,250; the sum of the second is there before.
        assert_eq!(place.on_sum(at(1_220), &script, 0), (1, None));
        assert_eq!(next(&place, &script), Some((at(1_280 + 20), 10)));
        assert_eq!(place.on_submitted(at(1_300), &script), None);
        assert_eq!(place.on_submitted(at(1_330), &script), Some(2));
        // The sum of the second layer comes last: it begins then.
        assert_eq!(place.on_sum(at(1_340), &script, 3), (0, None));
        assert_eq!(place.on_sum(at(1_500), &script, 2), (1, None));
        assert_eq!(next(&place, &script), Some((at(1_530 + 20), 10)));
    }

    #[test]
    fn what_is_never_ready_never_comes() {
        let script = script(&[u64::MAX], 1, 1);
        assert_eq!(next(&Place::new(&script, at(1)), &script), None);
    }
}
