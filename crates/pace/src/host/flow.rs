//! State of a host's jobs and flows.

use thalweg_core::{Bytes, NodeId, Time};

use super::foresight::Foresight;
use crate::adjust::Relation;
use crate::ahead::{Ahead, Slot};
use crate::load::{FlowId, Refusal};
use crate::path::{Feedback, Progress, Recent};
use crate::rank::Rank;
use crate::settings::Covers;

/// A flow that leaves a host in every iteration of its job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowSpec {
    /// Name of the flow.
    pub id: FlowId,
    /// The host that receives it.
    pub to: NodeId,
    /// Bytes that it sends in an iteration.
    pub volume: Bytes,
    /// Dependency on other flows of the job.
    pub relation: Relation,
    /// Flows that it depends on.
    pub others: Vec<FlowId>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Job {
    pub(super) iteration: u64,
    reported: Reported,
}

/// The highest rank of other hosts of a job, of this slot and of the one before: who has most left holds up all.
#[derive(Clone, Copy, Debug, Default)]
struct Reported {
    slot: Slot,
    now: Option<Rank>,
    before: Option<Rank>,
}

impl Job {
    /// Takes in the rank of the job at another host.
    pub(super) fn report(&mut self, slot: Slot, rank: Rank) {
        let reported = &mut self.reported;
        if slot > reported.slot {
            let before = reported.now.filter(|_| slot.since(reported.slot) == 1);
            *reported = Reported { slot, now: None, before };
        }
        reported.now = reported.now.max(Some(rank));
    }

    /// The highest rank that was reported lately.
    pub(super) fn reported(&self, slot: Slot) -> Option<Rank> {
        let Reported { slot: last, now, before } = self.reported;
        match slot.since(last) {
            0 => now.max(before),
            1 => now,
            _ => None,
        }
    }
}

/// Slots after which the progress of another flow no longer counts, where it is counted from the announcement: its host
/// may have no agent any more, or a switch may know nothing of it.
const STALE_AFTER_SLOTS: u64 = 3;

/// A flow that another one depends on.
#[derive(Clone, Copy, Debug)]
struct Other {
    id: FlowId,
    volume: u64,
    /// Slots that have ended since its progress came last. `None` before it came.
    silent_slots: Option<u64>,
}

/// Bytes of a flow that have nothing to do with the flows it depends on: those of other collectives of its job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unrelated {
    /// Bytes that were handed over, in all.
    pub ready: u64,
    /// Bytes that have left, in all.
    pub sent: u64,
}

/// A flow and what is planned for it.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    pub(super) id: FlowId,
    /// Iteration of its job.
    pub(super) iteration: u64,
    pub(super) to: NodeId,
    volume: u64,
    covers: Covers,
    /// True if only a part of what is ready can be seen.
    is_guessed: bool,
    /// Bytes of that which belong to the iteration before, and leave first.
    owed: u64,
    pub(super) relation: Relation,
    others: Vec<Other>,
    unrelated: Unrelated,
    /// Bytes of all iterations before, where volumes are counted from the announcement. `None` where they are counted from
    /// the begin of an iteration.
    before: Option<u64>,
    pub(super) ready: u64,
    foresight: Foresight,
    pub(super) sent: u64,
    /// Of `sent`, and of what was lost and left again, what left in the current slot.
    pub(super) sent_in_slot: u64,
    /// True if it waits for something else than the network.
    pub(super) is_resting: bool,
    /// Bytes that it wanted in the slot before this one, and bytes that it got.
    pub(super) last: (u64, u64),
    /// Bytes that left in each of the last slots in which it wanted to send. While there are too few of them, only what
    /// is free limits it.
    pub(super) recent: Recent,
    /// True if its plan was made without feedback of the network.
    pub(super) is_blind: bool,
    /// When it was last decided upon.
    pub(super) decided_in: Option<Slot>,
    /// Bytes that were ready then.
    pub(super) decided_ready: u64,
    /// True if bytes got ready that its plan does not cover.
    pub(super) has_unplanned: bool,
    /// Latest feedback of the network.
    pub(super) feedback: Option<Feedback>,
    /// By slot, bytes to send; in the current one, from its beginning.
    pub(super) plan: Ahead,
    /// Rate of each slot, as bytes in a whole slot.
    pub(super) rate: Ahead,
    /// When the plan was last made or changed.
    pub(super) planned_in: Slot,
}

impl Flow {
    pub(super) fn new(spec: FlowSpec, iteration: u64, covers: Covers) -> Flow {
        Flow {
            id: spec.id,
            iteration,
            to: spec.to,
            volume: spec.volume.as_u64(),
            covers,
            is_guessed: false,
            owed: 0,
            relation: spec.relation,
            others: spec.others.into_iter().map(Other::new).collect(),
            unrelated: Unrelated::default(),
            before: None,
            ready: 0,
            foresight: Foresight::default(),
            sent: 0,
            sent_in_slot: 0,
            is_resting: false,
            last: (0, 0),
            recent: Recent::new(u64::MAX),
            is_blind: false,
            decided_in: None,
            decided_ready: 0,
            has_unplanned: false,
            feedback: None,
            plan: Ahead::empty(Slot(0), 0),
            rate: Ahead::empty(Slot(0), 0),
            planned_in: Slot(0),
        }
    }

    pub(super) fn begin_iteration(&mut self) {
        if let Some(before) = &mut self.before {
            *before = before.saturating_add(self.sent);
        } else {
            self.others.iter_mut().for_each(|other| other.volume = 0);
        }
        (self.ready, self.sent) = (0, 0);
        self.volume -= std::mem::take(&mut self.owed);
        self.decided_in = None;
        self.foresight.begin_iteration();
    }

    /// True if it has begun and has something left.
    pub(super) fn is_active(&self) -> bool {
        self.ready > 0 && self.remaining() > 0
    }

    /// Panics where it has sent or could send more than it has.
    pub(super) fn check(&self) {
        let Flow { id, volume, ready, sent, owed, .. } = self;
        assert!(sent <= volume, "{id:?} has sent {sent} of {volume} bytes");
        assert!(ready <= volume, "{ready} of {volume} bytes of {id:?} are ready");
        assert!(owed <= volume, "{id:?} owes {owed} of {volume} bytes");
    }

    pub(super) fn covers(&self) -> Covers {
        self.covers
    }

    pub(super) fn remaining(&self) -> u64 {
        self.volume - self.sent
    }

    pub(super) fn ready(&mut self, now: Time, bytes: u64) {
        self.ready = self.ready.saturating_add(bytes).min(self.volume);
        self.foresight.note(now, self.ready.saturating_sub(self.owed));
    }

    // spec: C-17
    /// Bytes that it can send until a moment, as far as that is known: those that are ready or are expected to be. What
    /// the flows allow that it depends on is known for the current slot only, and limits that alone.
    pub(super) fn sendable_by(&self, at: Time) -> u64 {
        let expected = self.foresight.ready_by(at).saturating_add(self.owed);
        self.ready.max(expected).min(self.volume).saturating_sub(self.sent)
    }

    // spec: C-17
    /// True if it used less than half of what it had planned for a slot that ends, although it had something to send.
    pub(super) fn left_unused(&self, slot: Slot) -> bool {
        !self.is_guessed && !self.is_resting && self.sent_in_slot < self.plan.at(slot) / 2
    }

    pub(super) fn sent(&mut self, bytes: u64) {
        self.sent = self.sent.saturating_add(bytes).min(self.volume);
        self.sent_in_slot = self.sent_in_slot.saturating_add(bytes);
    }

    pub(super) fn resent(&mut self, bytes: u64) {
        self.sent_in_slot = self.sent_in_slot.saturating_add(bytes);
    }

    /// Changes the volume of this iteration, which turns out to be another one.
    pub(super) fn set_volume(&mut self, volume: u64) {
        self.volume = volume.saturating_add(self.owed).max(self.sent);
        self.ready = self.ready.min(self.volume);
    }

    /// More bytes of the iteration before are left: they are ready, and leave before anything else.
    pub(super) fn owe(&mut self, bytes: u64) {
        self.owed = self.owed.saturating_add(bytes);
        self.volume = self.volume.saturating_add(bytes);
        self.ready = self.ready.saturating_add(bytes);
    }

    /// Marks it as waiting for something else than the network, or not. A flow with nothing to send owes nothing,
    /// whatever was counted.
    pub(super) fn rest(&mut self, is_resting: bool) {
        self.is_resting = is_resting;
        if is_resting {
            self.sent = self.sent.max(self.owed);
        }
    }

    pub(super) fn end_slot(&mut self, asked: u64) {
        self.last = (asked, self.sent_in_slot);
        // A slot in which it had to wait for others says nothing about how fast it can be.
        if asked > 0 {
            self.recent.push(self.sent_in_slot);
        }
        self.sent_in_slot = 0;
        for silent_slots in self.others.iter_mut().filter_map(|other| other.silent_slots.as_mut()) {
            *silent_slots += 1;
        }
    }

    /// Rank of the flow: it is as far as itself or any flow that it depends on. The first packets of those that begin
    /// at once make no difference.
    pub(super) fn rank(&self) -> Rank {
        let furthest = self.others().fold(self.sent, u64::max).min(self.volume);
        let left = self.volume - furthest;
        if furthest < self.volume / 32 { Rank::of_left(left) } else { Rank::in_turn(left) }
    }

    pub(super) fn sent_so_far(&self) -> u64 {
        self.sent
    }

    /// Progress of the flows that it depends on, counted as it counts its own: what it owes depends on nobody, nor do
    /// bytes of other collectives. Where flows are counted from their announcement, those of which nothing came lately
    /// do not count.
    pub(super) fn others(&self) -> impl Iterator<Item = u64> {
        let before = self.before.unwrap_or(0);
        let free = self.owed.saturating_add(self.unrelated.ready);
        let own = move |volume: u64| volume.saturating_add(free).saturating_sub(before);
        let is_recent = |other: &Other| other.silent_slots.is_some_and(|it| it < STALE_AFTER_SLOTS);
        let counts = move |other: &&Other| self.before.is_none() || is_recent(other);
        self.others.iter().filter(counts).map(move |other| own(other.volume))
    }

    /// Takes in how far another flow is; whether that matters here.
    pub(super) fn learn(&mut self, progress: Progress) -> bool {
        let known = self.others.iter_mut().find(|other| other.id == progress.flow);
        known.is_some_and(|other| {
            let is_first = other.silent_slots.replace(0).is_none();
            std::mem::replace(&mut other.volume, progress.volume) != progress.volume || is_first
        })
    }

    /// A table has less than was thought, or has reported nothing in this slot before.
    pub(super) fn narrow(&mut self, refusal: Refusal, now: Slot, horizon_slots: usize) {
        let known = self.feedback.take().filter(|feedback| feedback.is_of(now));
        let mut feedback = known.unwrap_or_else(|| Feedback::new(now, horizon_slots));
        let at = refusal.slot.0.checked_sub(now.0).map(|slots| slots as usize);
        if let Some(free) = at.and_then(|at| feedback.free.volumes_mut().get_mut(at)) {
            *free = (*free).min(refusal.free);
        }
        self.feedback = Some(feedback);
    }

    /// Bytes that it wanted of the link in a slot: a plan for tensors that were not ready does not count.
    pub(super) fn asked_in(&self, slot: Slot) -> u64 {
        let unused = self.left_in(slot).min(self.ready.saturating_sub(self.sent));
        self.sent_in_slot + if self.is_resting { 0 } else { unused }
    }

    /// Bytes that it has still to send in a slot.
    pub(super) fn left_in(&self, slot: Slot) -> u64 {
        self.plan.at(slot).saturating_sub(self.sent_in_slot).min(self.remaining())
    }

    /// Bytes of that on which others may rely: not those that were only expected to get ready.
    pub(super) fn certain_in(&self, slot: Slot) -> u64 {
        match self.covers {
            Covers::Iteration => self.left_in(slot),
            Covers::Ready => self.left_in(slot).min(self.decided_ready.saturating_sub(self.sent)),
        }
    }

    /// Progress at the end of the slot. Before the decision only what it has sent is
    /// certain, and others must be able to rely on it.
    pub(super) fn progress(&self, slot: Slot) -> Progress {
        let is_decided = self.decided_in == Some(slot);
        let planned = if is_decided { self.certain_in(slot) } else { 0 };
        let volume = (self.sent + planned).saturating_sub(self.owed);
        let volume = volume.saturating_add(self.before.unwrap_or(0));
        let volume = volume.saturating_sub(self.unrelated.sent);
        Progress { flow: self.id, iteration: self.counted_iteration(), volume }
    }

    // spec: C-17
    /// Only a part of what is ready can be seen: all that is thought to be left is planned, and what is not used says
    /// nothing.
    pub(super) fn guess(&mut self) {
        (self.covers, self.is_guessed) = (Covers::Iteration, true);
    }

    /// Counts volumes from now on, in all iterations, and no iterations: where those are guessed, hosts number them
    /// differently.
    pub(super) fn count_from_start(&mut self) {
        self.before = Some(0);
    }

    // spec: C-05, C-06
    /// Takes in how much of it has nothing to do with the flows it depends on.
    pub(super) fn set_unrelated(&mut self, unrelated: Unrelated) {
        self.unrelated = unrelated;
    }

    /// The iteration that its progress, and that of those it depends on, is counted in.
    pub(super) fn counted_iteration(&self) -> u64 {
        if self.before.is_some() { 0 } else { self.iteration }
    }
}

impl Other {
    fn new(id: FlowId) -> Other {
        Other { id, volume: 0, silent_slots: None }
    }
}
