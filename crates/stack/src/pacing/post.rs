//! Words that wait to be sent. What they say is decided when they leave.

use std::collections::{BTreeMap, VecDeque};

use thalweg_core::{
    Body, BodySize, Dscp, Ecn, HEADER_BYTES, JobId, NodeId, Outbox, Purpose, TrafficClass,
};
use thalweg_pace::links::Report;
use thalweg_pace::path::Progress;
use thalweg_pace::{Ahead, Enforce, Feedback, FlowId, Host as Scheduler, Slot};
use thalweg_wire::pace::{Direction, OTHERS_MAX, Word};

use super::words::{self, Said};

/// Most answers that wait; others ask again in the next slot.
const ANSWERS_MAX: usize = 4_096;

/// Most flows of others whose progress is remembered.
const HEARD_MAX: usize = 4_096;

/// Where a flow goes, and how.
#[derive(Clone, Copy)]
pub(super) struct Onward {
    pub(super) to: NodeId,
    pub(super) is_summed: bool,
}

/// Words that wait to be sent.
#[derive(Default)]
pub(super) struct Post {
    letters: VecDeque<Letter>,
    answers: usize,
}

struct Letter {
    to: NodeId,
    job: JobId,
    kind: Kind,
}

enum Kind {
    Question { flow: FlowId, has_plan: bool, is_summed: bool },
    Answer { word: Word, said: Box<Said> },
}

impl Post {
    pub(super) fn is_empty(&self) -> bool {
        self.letters.is_empty()
    }

    /// Asks what the path of a flow has.
    pub(super) fn ask(&mut self, flow: FlowId, way: Option<Onward>) {
        self.question(flow, way, false);
    }

    /// Tells the path of a flow what it plans.
    pub(super) fn plan(&mut self, flow: FlowId, way: Option<Onward>) {
        self.question(flow, way, true);
    }

    fn question(&mut self, flow: FlowId, way: Option<Onward>, has_plan: bool) {
        let Some(Onward { to, is_summed }) = way else { return };
        let waits = |letter: &&mut Letter| matches!(letter.kind, Kind::Question { flow: other, .. } if other == flow);
        // What has not left yet says the latest anyway.
        if let Some(Letter { kind: Kind::Question { has_plan: before, .. }, .. }) =
            self.letters.iter_mut().find(waits)
        {
            *before |= has_plan;
            return;
        }
        let kind = Kind::Question { flow, has_plan, is_summed };
        self.letters.push_back(Letter { to, job: flow.job, kind });
    }

    /// Sends a word back.
    pub(super) fn answer(&mut self, to: NodeId, word: Word, said: Said) {
        if self.answers < ANSWERS_MAX {
            self.answers += 1;
            let kind = Kind::Answer { word, said: Box::new(said) };
            self.letters.push_back(Letter { to, job: word.job, kind });
        }
    }

    pub(super) fn forget(&mut self, job: JobId) {
        self.letters.retain(|letter| letter.job != job);
        let is_answer = |letter: &&Letter| matches!(letter.kind, Kind::Answer { .. });
        self.answers = self.letters.iter().filter(is_answer).count();
    }

    /// Sends the word that waits longest. `false` if none waits, or there is no room.
    pub(super) fn send(
        &mut self,
        slot: Slot,
        scheduler: &Scheduler,
        heard: &Heard,
        outbox: &mut dyn Outbox,
    ) -> bool {
        let Some(letter) = self.letters.pop_front() else { return false };
        let written = match &letter.kind {
            Kind::Question { flow, has_plan, is_summed } => {
                question(slot, scheduler, *flow, (*has_plan, *is_summed))
            }
            Kind::Answer { word, said } => Some(answer(scheduler, heard, *word, said)),
        };
        // A flow that is gone has nothing to say.
        let Some((word, said)) = written else { return true };
        let Some(packet) = outbox.lend(BodySize::Bytes(word.body_bytes()), Purpose::Control) else {
            self.letters.push_front(letter);
            return false;
        };
        self.answers -= usize::from(matches!(letter.kind, Kind::Answer { .. }));
        packet.meta.dst = letter.to;
        packet.meta.wire_bytes = word.body_bytes() + HEADER_BYTES as u32;
        packet.meta.entropy = word.flow as u16;
        packet.meta.dscp = Dscp::of_priority(0).in_class(TrafficClass::Training);
        packet.meta.ecn = Ecn::NotCapable;
        word.encode(packet.header);
        if let Body::Bytes(bytes) = packet.body {
            words::write(&said, &word, bytes);
        }
        true
    }
}

fn question(
    slot: Slot,
    scheduler: &Scheduler,
    flow: FlowId,
    kind: (bool, bool),
) -> Option<(Word, Said)> {
    let progress = scheduler.progress_of(flow)?;
    let (asked, carried) = scheduler.last_slot(flow)?;
    let slots = scheduler.settings().horizon_slots;
    let mut plan = Ahead::empty(slot, slots);
    if let Some(planned) = scheduler.plan(flow) {
        let volumes = plan.volumes_mut().iter_mut().enumerate();
        volumes.for_each(|(at, volume)| *volume = planned.at(slot.after(at as u64)));
    }
    let said = Said {
        rank: scheduler.ranked(flow).rank,
        plan,
        feedback: Feedback::new(slot, slots),
        report: Report { asked: asked.as_u64(), carried: carried.as_u64() },
        others: Vec::new(),
    };
    Some((words::question(slot, slots, kind, progress), said))
}

// spec: C-02
/// What came, with how far the flows are that leave here, and those of which others have told here.
fn answer(scheduler: &Scheduler, heard: &Heard, word: Word, said: &Said) -> (Word, Said) {
    let told = heard.of(word.job).filter(|progress| progress.flow.number != word.flow);
    let all = scheduler.progress(word.job).into_iter().chain(told);
    let all = all.filter(|progress| progress.iteration == word.iteration);
    let others: Vec<_> = all.take(OTHERS_MAX.into()).collect();
    let direction = Direction::Answer { others: others.len() as u8 };
    // Of a job with classes both ends say how much they have left.
    let rank = match scheduler.settings().enforce {
        Enforce::Rate => said.rank,
        Enforce::Class => scheduler.ranked(FlowId { job: word.job, number: word.flow }).rank,
    };
    (Word { direction, ..word }, Said { others, rank, ..said.clone() })
}

/// How far flows of others are that end here. Those who send one learn of the others from it.
#[derive(Default)]
pub(super) struct Heard(BTreeMap<FlowId, Progress>);

impl Heard {
    pub(super) fn note(&mut self, progress: Progress) {
        if self.0.len() < HEARD_MAX || self.0.contains_key(&progress.flow) {
            self.0.insert(progress.flow, progress);
        }
    }

    pub(super) fn forget(&mut self, job: JobId) {
        self.0.retain(|flow, _| flow.job != job);
    }

    fn of(&self, job: JobId) -> impl Iterator<Item = Progress> + '_ {
        let flow = |number| FlowId { job, number };
        self.0.range(flow(0)..=flow(u32::MAX)).map(|(_, progress)| *progress)
    }
}
