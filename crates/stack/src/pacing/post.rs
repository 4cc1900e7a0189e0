//! Words that wait to be sent. What they say is decided when they leave.

use std::collections::VecDeque;

use thalweg_core::{
    Body, BodySize, Dscp, Ecn, HEADER_BYTES, JobId, NodeId, Outbox, Purpose, Time, TrafficClass,
};
use thalweg_pace::agent::Agent;
use thalweg_pace::board::Plan;
use thalweg_pace::links::Report;
use thalweg_pace::{Enforce, Feedback, FlowId, Relation};
use thalweg_wire::pace::{Direction, OTHERS_MAX, Word};

use super::words::{self, Contents};

/// Most answers that wait; others ask again in the next slot.
const ANSWERS_MAX: usize = 4_096;

/// Words that wait to be sent.
#[derive(Default)]
pub(super) struct Post {
    messages: VecDeque<Waiting>,
    answers: usize,
}

enum Waiting {
    Question { flow: FlowId, has_plan: bool },
    Answer { to: NodeId, word: Word, contents: Box<Contents> },
}

impl Waiting {
    fn job(&self) -> JobId {
        match self {
            Waiting::Question { flow, .. } => flow.job,
            Waiting::Answer { word, .. } => word.job,
        }
    }
}

impl Post {
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Asks what the path of a flow has, and tells it the plan, if that is new.
    pub(super) fn ask(&mut self, flow: FlowId, has_plan: bool) {
        // What has not left yet says the latest anyway.
        for message in &mut self.messages {
            if let Waiting::Question { flow: other, has_plan: before } = message
                && *other == flow
            {
                *before |= has_plan;
                return;
            }
        }
        self.messages.push_back(Waiting::Question { flow, has_plan });
    }

    /// Sends a word back.
    pub(super) fn answer(&mut self, to: NodeId, word: Word, contents: Contents) {
        if self.answers < ANSWERS_MAX {
            self.answers += 1;
            self.messages.push_back(Waiting::Answer { to, word, contents: Box::new(contents) });
        }
    }

    pub(super) fn forget(&mut self, job: JobId) {
        self.messages.retain(|message| message.job() != job);
        let is_answer = |message: &&Waiting| matches!(message, Waiting::Answer { .. });
        self.answers = self.messages.iter().filter(is_answer).count();
    }

    /// Sends the word that waits longest. `false` if none waits, or there is no room.
    pub(super) fn send(&mut self, now: Time, agent: &Agent, outbox: &mut dyn Outbox) -> bool {
        let Some(message) = self.messages.pop_front() else { return false };
        let written = match &message {
            Waiting::Question { flow, has_plan } => question(now, agent, *flow, *has_plan),
            Waiting::Answer { to, word, contents } => {
                let (word, contents) = answer(agent, *word, contents);
                Some((*to, word, contents))
            }
        };
        // A flow that is gone has nothing to say.
        let Some((to, word, contents)) = written else { return true };
        let Some(packet) = outbox.lend(BodySize::Bytes(word.body_bytes()), Purpose::Control) else {
            self.messages.push_front(message);
            return false;
        };
        self.answers -= usize::from(matches!(message, Waiting::Answer { .. }));
        packet.meta.dst = to;
        packet.meta.wire_bytes = word.body_bytes() + HEADER_BYTES as u32;
        packet.meta.entropy = word.flow as u16;
        packet.meta.dscp = Dscp::of_priority(0).in_class(TrafficClass::Training);
        packet.meta.ecn = Ecn::NotCapable;
        word.encode(packet.header);
        if let Body::Bytes(bytes) = packet.body {
            words::write(&contents, &word, bytes);
        }
        true
    }
}

fn question(
    now: Time,
    agent: &Agent,
    flow: FlowId,
    has_plan: bool,
) -> Option<(NodeId, Word, Contents)> {
    let (to, relation) = agent.route(flow)?;
    let slot = agent.settings().slot_at(now);
    let slots = agent.settings().horizon_slots;
    let Plan { rank, plan, progress, asked, carried, .. } = agent.plan(flow, slot)?;
    let contents = Contents {
        rank,
        plan,
        feedback: Feedback::new(slot, slots),
        report: Report { asked, carried },
        others: Vec::new(),
    };
    let is_summed = matches!(relation, Relation::Summed { .. });
    Some((to, words::question(slot, slots, (has_plan, is_summed), progress), contents))
}

// spec: C-02
/// Answer to a question, with the progress of the flows that leave here and of those that others have reported here.
fn answer(agent: &Agent, word: Word, contents: &Contents) -> (Word, Contents) {
    let flow = FlowId { job: word.job, number: word.flow };
    let all = agent.progress_beside(flow);
    let all = all.filter(|progress| progress.iteration == word.iteration);
    let others: Vec<_> = all.take(OTHERS_MAX.into()).collect();
    let direction = Direction::Answer { others: others.len() as u8 };
    // Of a job with classes both ends say how much they have left.
    let rank = match agent.settings().enforce {
        Enforce::Rate => contents.rank,
        Enforce::Class => agent.host().ranked(flow).rank,
    };
    (Word { direction, ..word }, Contents { others, rank, ..contents.clone() })
}
