//! Gradient packets: from what arrives to a complete sum.

use thalweg_core::{Body, Dscp, Ecn};
use thalweg_wire::aggregate::{Gradient, Identity, Numbers};

use super::Event;
use super::job::{Context, Job, Site};
use super::judge::{self, Action, Age, Answered, Asker, Relation, State};
use super::positions;
use super::ring::Place;
use super::stats::Refusal;
use crate::index;
use crate::setup::{Attempt, Indexing, Numeric, Recovery};
use crate::tree::Tree;

/// A gradient packet.
pub(super) struct Arrival<'a> {
    pub gradient: Gradient,
    pub body: Body<'a>,
    pub ecn: Ecn,
    pub dscp: Dscp,
    pub wire_bytes: u32,
}

/// Use of the values of a gradient packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Intake {
    /// They are in the sum.
    Used,
    /// They were dropped.
    Unused,
}

impl Job {
    /// Does with a gradient packet what the table says.
    pub(super) fn handle_gradient(&mut self, arrival: &Arrival<'_>, context: &mut Context<'_>) {
        self.stats.gradients += 1;
        self.stats.gradient_bytes += u64::from(arrival.wire_bytes);
        self.stats.collisions += u64::from(arrival.gradient.collision);
        let taken = self.take_in(arrival, context);
        let Gradient { identity, repair, .. } = arrival.gradient;
        // A sum that a switch sends again was paid for when it came for the first time, unless that was lost.
        // spec: E-13
        if identity.epoch == self.setup.epoch && (!repair || taken == Ok(Intake::Used)) {
            self.credit.earn(arrival.wire_bytes);
        }
        if let Err(why) = taken {
            self.stats.refuse(why);
        }
    }

    fn take_in(
        &mut self,
        arrival: &Arrival<'_>,
        context: &mut Context<'_>,
    ) -> Result<Intake, Refusal> {
        let Arrival { gradient, body, ecn, dscp, .. } = arrival;
        let sequence = gradient.identity.sequence;
        let shard = self.locate(&gradient.identity, gradient.server)?;
        self.check_form(gradient, body)?;
        let recovery = self.setup.parameters.recovery;
        let Site { tree, place, .. } = self.site(shard, sequence).ok_or(Refusal::Foreign)?;
        let (named, both) = overlap(tree, gradient, place.positions).ok_or(Refusal::Foreign)?;
        let slot = &mut *place.slot;
        if slot.differs(&gradient.identity) {
            return Err(self.differ(sequence, context));
        }
        let relation = Relation::of(named, slot.contributors, both);
        let age = Age::of(Attempt(gradient.identity.attempt), slot.attempt);
        let action = judge::judge(slot.state, gradient.result, age, relation, recovery);
        match action {
            Action::Begin | Action::Add | Action::Replace => {
                let is_complete = merge(action, tree, arrival, place)?;
                *match action {
                    Action::Replace => &mut self.stats.replaced,
                    _ => &mut self.stats.added,
                } += 1;
                if is_complete {
                    self.complete(shard, sequence, context);
                }
                return Ok(Intake::Used);
            }
            Action::Drop => {
                slot.mark(gradient, *ecn, *dscp);
                *match slot.state {
                    State::Done => &mut self.stats.late,
                    _ => &mut self.stats.overlaps,
                } += 1;
            }
            Action::Refuse => return Err(Refusal::Mismatched),
            // What comes late within the gap has crossed the repeat.
            // spec: A-23
            Action::AskFloats => {
                slot.mark(gradient, *ecn, *dscp);
                if !slot.was_answered_within_gap(context) {
                    slot.ask(false, context);
                }
            }
            Action::Answer => {
                slot.meet(&summed(gradient), gradient.aggregator);
                slot.mark(gradient, *ecn, *dscp);
                let asks = recovery == Recovery::Paper && gradient.resend;
                let asker = if asks { Asker::Resend } else { Asker::Stray };
                slot.answer(asker, context);
                self.stats.late += 1;
            }
            Action::Adopt => {
                adopt(arrival, place)?;
                self.stats.adopted += 1;
                self.finish(shard, sequence, context);
                return Ok(Intake::Used);
            }
        }
        Ok(Intake::Unused)
    }

    /// Refuses numbers that differ from what the job and the attempt call for, and a body that does not hold them.
    // spec: T-09, A-23, F-02
    fn check_form(&self, gradient: &Gradient, body: &Body<'_>) -> Result<(), Refusal> {
        let in_floats = Attempt(gradient.identity.attempt).is_in_floats();
        let fits = match (self.setup.parameters.numeric, gradient.numbers) {
            (_, Numbers::F16 | Numbers::Bf16) => {
                self.setup.parameters.sends_halves() && (gradient.result || !in_floats)
            }
            (_, Numbers::Float) if gradient.result => true,
            (Numeric::Float, Numbers::Float) => !in_floats,
            (Numeric::Float, Numbers::Fixed(_)) => false,
            (Numeric::Fixed { .. }, Numbers::Float) => in_floats,
            (Numeric::Fixed { .. }, Numbers::Fixed(_)) => !in_floats && !gradient.result,
        };
        let has_room = body.len() <= self.setup.parameters.body_bytes();
        let is_whole = body.len().is_multiple_of(gradient.numbers.value_bytes());
        if fits && has_room && is_whole { Ok(()) } else { Err(Refusal::Mismatched) }
    }

    /// All contributions are there.
    fn complete(&mut self, shard: usize, sequence: u64, context: &mut Context<'_>) {
        let Some(Site { place: Place { slot, positions, .. }, .. }) = self.site(shard, sequence)
        else {
            return;
        };
        let (watermark, magnitude) = (slot.watermark, slot.magnitude);
        let is_fixed = matches!(slot.numbers, Numbers::Fixed(_));
        let overflowed = is_fixed && slot.overflow;
        if overflowed {
            // spec: A-23
            slot.await_floats();
            positions.fill(0);
            slot.tell(Answered::First, context);
            self.stats.repeats += 1;
        }
        if is_fixed {
            self.scaling.record(sequence, overflowed, magnitude);
        }
        if !overflowed {
            self.decide_changes(shard, sequence, context);
            self.finish(shard, sequence, context);
        }
        self.advance(watermark);
    }

    /// Decides what holds from a span above this fragment on. Nobody has its result yet, so nobody is there.
    fn decide_changes(&mut self, shard: usize, sequence: u64, context: &mut Context<'_>) {
        let setup = &*self.setup;
        let Some(state) = &mut self.shards[shard] else { return };
        let slot = state.ring.at(sequence / setup.trees.len() as u64).slot;
        // spec: A-22
        let moves = slot.collision && setup.parameters.indexing == Indexing::Hashed;
        slot.next_aggregator =
            moves.then(|| index::next(setup.job, slot.aggregator, setup.parameters.aggregators));
        if let (Numeric::Fixed { dynamic: true, .. }, Some(scale)) =
            (setup.parameters.numeric, slot.scale)
        {
            let (span, workers) = (setup.parameters.span_fragments, setup.trees[shard].workers());
            slot.next_scale = self.scaling.decide(sequence, span, scale, workers);
        }
        if let Some(scale) = slot.next_scale {
            self.stats.rescaled += 1;
            let from = sequence.saturating_add(u64::from(setup.parameters.span_fragments));
            context.events.push_back(Event::Rescaled { job: setup.job, from, scale });
        }
    }

    /// The values are the result: from here on they never change.
    // spec: A-21, T-09
    pub(super) fn finish(&mut self, shard: usize, sequence: u64, context: &mut Context<'_>) {
        let Some(site) = self.site(shard, sequence) else { return };
        let slot = site.place.slot;
        assert_ne!(slot.state, State::Done, "fragment {sequence} is summed once");
        slot.state = State::Done;
        slot.round();
        slot.tell(Answered::First, context);
        self.stats.completed += 1;
    }
}

/// Number of workers that a packet names, and of those that are there already. `None` if the tree does
/// not know them.
// spec: A-12
fn overlap(tree: &Tree, gradient: &Gradient, taken: &[u64]) -> Option<(u32, u32)> {
    let ranges = tree.positions(&gradient.branch, gradient.bitmap_level, gradient.bitmap)?;
    Some(ranges.fold((0, 0), |(named, both), range| {
        (named + range.len() as u32, both + positions::count(taken, range))
    }))
}

/// Takes a packet's values and set in, and says whether all workers are there then.
fn merge(
    action: Action,
    tree: &Tree,
    arrival: &Arrival<'_>,
    place: Place<'_>,
) -> Result<bool, Refusal> {
    let Arrival { gradient, body, ecn, dscp, .. } = arrival;
    let Place { slot, positions: taken, vacant } = place;
    if action != Action::Begin && !slot.fits(gradient, body) {
        return Err(Refusal::Mismatched);
    }
    match action {
        Action::Begin => slot.begin(gradient, body, vacant),
        // The first floats after a repeat.
        Action::Add if slot.contributors == 0 => slot.replace(gradient, body, vacant),
        Action::Add => slot.add(gradient, body),
        _ => slot.replace(gradient, body, vacant),
    }
    slot.packets += 1;
    if action != Action::Add {
        slot.packets = 1;
        slot.contributors = 0;
        taken.fill(0);
    }
    slot.mark(gradient, *ecn, *dscp);
    let ranges = tree.positions(&gradient.branch, gradient.bitmap_level, gradient.bitmap);
    for range in ranges.into_iter().flatten() {
        slot.contributors += range.len() as u32;
        positions::take(taken, range);
    }
    let is_complete = slot.contributors == tree.workers();
    if is_complete {
        // A sum that lacks somebody and does not say so would be wrong at every worker.
        let contributors = positions::count(taken, 0..tree.workers());
        assert_eq!(
            contributors, slot.contributors,
            "a sum is complete when every worker is in it once"
        );
    }
    Ok(is_complete)
}

/// Takes a packet's values for the result. A worker that has it already may be a span ahead, so that it must
/// not bring changes.
// spec: A-41
fn adopt(arrival: &Arrival<'_>, place: Place<'_>) -> Result<(), Refusal> {
    let Arrival { gradient, body, ecn, dscp, .. } = arrival;
    let Place { slot, vacant, .. } = place;
    if slot.state != State::Empty && !slot.is_as_long(body) {
        return Err(Refusal::Mismatched);
    }
    if slot.state == State::Empty {
        slot.meet(&summed(gradient), gradient.aggregator);
    }
    slot.numbers = gradient.numbers;
    slot.operation = gradient.identity.operation;
    slot.body_bytes = body.len() as u32;
    slot.absent = gradient.absent;
    slot.replace(gradient, body, vacant);
    slot.mark(gradient, *ecn, *dscp);
    Ok(())
}

/// Identity of the sum that waits in switches. Results always travel in floats; what they answer does not.
fn summed(gradient: &Gradient) -> Identity {
    let attempt = Attempt(gradient.identity.attempt);
    let fixed =
        if gradient.result { Attempt::of_generation(attempt.generation()) } else { attempt };
    Identity { attempt: fixed.0, ..gradient.identity }
}
