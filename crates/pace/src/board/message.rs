//! What a board is told, and says.

use thalweg_core::NodeId;
use thiserror::Error;

use crate::ahead::{Ahead, Slot};
use crate::load::{FlowId, Refusal};
use crate::path::{Feedback, Progress};
use crate::rank::Rank;

/// Who writes. Drawn anew whenever an agent starts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AgentId(pub u64);

/// What a flow wants to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    /// Which flow.
    pub flow: FlowId,
    /// Its rank.
    pub rank: Rank,
    /// Where it goes.
    pub to: NodeId,
    /// Flows that it depends on.
    pub others: Vec<FlowId>,
}

/// What it is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// What the link says that leads to its receiver, if there is one.
    pub feedback: Option<Feedback>,
    /// How far the flows are that it depends on, where that is known.
    pub progress: Vec<Progress>,
    /// Rank of its job elsewhere, where that is known.
    pub rank: Option<Rank>,
}

/// What an agent says of its flows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Update {
    /// Who says it.
    pub agent: AgentId,
    /// Larger with every message of an agent.
    pub sequence: u64,
    /// The agent's slot.
    pub slot: Slot,
    /// Its flows.
    pub plans: Vec<Plan>,
}

/// What one flow plans.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Which flow.
    pub flow: FlowId,
    /// Its rank.
    pub rank: Rank,
    /// Where it goes.
    pub to: NodeId,
    /// What it plans, from the message's slot on.
    pub plan: Ahead,
    /// How far it is.
    pub progress: Progress,
    /// What it wanted to send in the slot before.
    pub asked: u64,
    /// What it did.
    pub carried: u64,
}

/// What becomes of a plan.
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
    #[error("the message is of slot {}, and it is slot {} here: set the clocks", said.0, now.0)]
    Old {
        /// When it was made.
        said: Slot,
        /// The slot here.
        now: Slot,
    },
    /// It was made in the future.
    #[error("the message is of slot {}, and it is only slot {} here: set the clocks", said.0, now.0)]
    Early {
        /// When it was made.
        said: Slot,
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
        /// How many there are.
        given: usize,
        /// How many there may be.
        most: usize,
    },
    /// Too many senders.
    #[error("{0} agents are known already: give some of them to another switch")]
    Agents(usize),
    /// A plan that does not fit the tables.
    #[error("a plan has to have {0} slots, from that of its message on")]
    Horizon(usize),
    /// A volume that cannot be.
    #[error("nothing sends {0} bytes in a slot")]
    Volume(u64),
}

/// What a board counts.
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
