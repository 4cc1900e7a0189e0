//! Words that wait to be sent. What they say is decided when they leave.

use std::collections::VecDeque;

use thalweg_core::{Body, BodySize, Dscp, Ecn, HEADER_BYTES, JobId, NodeId, Outbox, TrafficClass};
use thalweg_pace::links::Report;
use thalweg_pace::{Ahead, Feedback, FlowId, Host as Scheduler, Slot};
use thalweg_wire::pace::{Direction, OTHERS_MAX, Word};

use super::words::{self, Said};

/// Most answers that wait; others ask again in the next slot.
const ANSWERS_MAX: usize = 4_096;

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
    Question { flow: FlowId, has_plan: bool },
    Answer { word: Word, said: Box<Said> },
}

impl Post {
    pub(super) fn is_empty(&self) -> bool {
        self.letters.is_empty()
    }

    /// Asks what the path of a flow has.
    pub(super) fn ask(&mut self, flow: FlowId, to: Option<NodeId>) {
        self.question(flow, to, false);
    }

    /// Tells the path of a flow what it plans.
    pub(super) fn plan(&mut self, flow: FlowId, to: Option<NodeId>) {
        self.question(flow, to, true);
    }

    fn question(&mut self, flow: FlowId, to: Option<NodeId>, has_plan: bool) {
        let Some(to) = to else { return };
        let waits = |letter: &&mut Letter| matches!(letter.kind, Kind::Question { flow: other, .. } if other == flow);
        // What has not left yet says the latest anyway.
        if let Some(Letter { kind: Kind::Question { has_plan: before, .. }, .. }) =
            self.letters.iter_mut().find(waits)
        {
            *before |= has_plan;
            return;
        }
        let kind = Kind::Question { flow, has_plan };
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
        outbox: &mut dyn Outbox,
    ) -> bool {
        let Some(letter) = self.letters.pop_front() else { return false };
        let written = match &letter.kind {
            Kind::Question { flow, has_plan } => question(slot, scheduler, *flow, *has_plan),
            Kind::Answer { word, said } => Some(answer(scheduler, *word, said)),
        };
        // A flow that is gone has nothing to say.
        let Some((word, said)) = written else { return true };
        let Some(packet) = outbox.lend(BodySize::Bytes(word.body_bytes())) else {
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
        if let Body::Bytes(bytes) = packet.body
            && let Some(parts) = word.parts(bytes)
        {
            words::write(&said, parts);
        }
        true
    }
}

fn question(
    slot: Slot,
    scheduler: &Scheduler,
    flow: FlowId,
    has_plan: bool,
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
        plan,
        feedback: Feedback::new(slot, slots),
        report: Report { asked: asked.as_u64(), carried: carried.as_u64() },
        others: Vec::new(),
    };
    Some((words::question(flow.job, slot, slots, has_plan, progress), said))
}

// spec: C-02
/// What came, with how far the flows are that leave here.
fn answer(scheduler: &Scheduler, word: Word, said: &Said) -> (Word, Said) {
    let own = scheduler.progress(word.job).into_iter();
    let own = own.filter(|progress| progress.iteration == word.iteration);
    let others: Vec<_> = own.take(OTHERS_MAX.into()).collect();
    let direction = Direction::Answer { others: others.len() as u8 };
    (Word { direction, ..word }, Said { others, ..said.clone() })
}
