//! Messages to and from a board.

use thalweg_core::NodeId;
use thiserror::Error;

use crate::ahead::{Ahead, Slot};
use crate::load::{FlowId, Refusal};
use crate::path::{Feedback, Progress};
use crate::rank::Rank;

/// Name of a writer. Drawn at random at every start of an agent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AgentId(pub u64);

/// Question of a flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    /// Name of the flow.
    pub flow: FlowId,
    /// Rank of its job.
    pub rank: Rank,
    /// Receiver of the flow.
    pub to: NodeId,
    /// Flows that it depends on.
    pub others: Vec<FlowId>,
}

/// Answer to a question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Feedback of the link that leads to its receiver, if there is one.
    pub feedback: Option<Feedback>,
    /// Progress of the flows that it depends on, of those where it is known.
    pub progress: Vec<Progress>,
    /// Rank of its job elsewhere, where that is known.
    pub rank: Option<Rank>,
}

/// Message of an agent about its flows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Update {
    /// The agent that writes.
    pub agent: AgentId,
    /// Larger with every message of an agent.
    pub sequence: u64,
    /// The agent's slot.
    pub slot: Slot,
    /// Plans of its flows.
    pub plans: Vec<Plan>,
}

/// Plan of one flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Name of the flow.
    pub flow: FlowId,
    /// Rank of its job.
    pub rank: Rank,
    /// Receiver of the flow.
    pub to: NodeId,
    /// Plan of the flow, from the message's slot on.
    pub plan: Ahead,
    /// Progress of the flow.
    pub progress: Progress,
    /// Bytes that it wanted to send in the slot before.
    pub asked: u64,
    /// Bytes that it sent in the slot before.
    pub carried: u64,
}

/// Outcome of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It stands.
    Taken,
    /// The link is too full. What the flow had before still stands.
    Full(Refusal),
    /// No link of the switch leads there, or it has no room for one more flow.
    NoLink,
    /// Another agent has planned the flow lately.
    Foreign,
}

/// Why a message is refused as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Wrong {
    /// It was made too long ago.
    #[error("the message is of slot {}, and it is slot {} here: set the clocks", sent_in.0, now.0)]
    Old {
        /// When it was made.
        sent_in: Slot,
        /// The slot here.
        now: Slot,
    },
    /// It was made in the future.
    #[error("the message is of slot {}, and it is only slot {} here: set the clocks", sent_in.0, now.0)]
    Early {
        /// When it was made.
        sent_in: Slot,
        /// The slot here.
        now: Slot,
    },
    /// It has come before, or behind a later one.
    #[error("message {last} of the agent has come before: number them upwards")]
    Replayed {
        /// The latest one of the agent.
        last: u64,
    },
    /// More than is taken at once.
    #[error("{given} flows in one place, and {most} are allowed: split the message")]
    Flows {
        /// Number of flows in the message.
        given: usize,
        /// Largest number that is allowed.
        most: usize,
    },
    /// Too many senders.
    #[error("{0} agents are known already: give some of them to another switch")]
    Agents(usize),
    /// A plan that does not fit the tables.
    #[error("a plan has to have {0} slots, from that of its message on")]
    Horizon(usize),
    /// An invalid volume.
    #[error("nothing sends {0} bytes in a slot")]
    Volume(u64),
}

/// Counts of a board.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Questions that were answered.
    pub fetches: u64,
    /// Updates that were taken in.
    pub updates: u64,
    /// Messages that were refused as a whole.
    pub rejected: u64,
    /// Plans that a link had no room for.
    pub refused: u64,
    /// Links that are known now.
    pub links: u64,
    /// Flows that are known now.
    pub flows: u64,
}
