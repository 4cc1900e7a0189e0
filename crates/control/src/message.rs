//! Messages between ranks and the registrar.

use std::sync::Arc;

use thalweg_aggregate::Setup;
use thalweg_aggregate::join::Process;
use thalweg_core::{Fingerprint, JobId, NodeId, Span};
use thalweg_transport::path::PathReport;
use thalweg_wire::tag::Key;

use crate::proof::Proof;

/// Number of lanes that a job has beside its own: the next ids are theirs.
pub const LANES: usize = 5;

/// Most trees of a job: one for each sending thread of a rank.
// spec: F-04
pub const TREES_MAX: u32 = 32;

/// Number of ids of a tree: its own, and those of its lanes.
const TREE_IDS: u64 = (LANES as u64 + 1).next_power_of_two();

/// The bits of an id that are zero in a job's own and tell its trees and their lanes apart.
const TREE_BITS: u64 = TREE_IDS * (TREES_MAX as u64).next_power_of_two() - 1;

/// The job that has an id: that of one of its trees, of a lane, or its own.
pub(crate) fn job_of(id: JobId) -> JobId {
    JobId(id.0 & !TREE_BITS)
}

/// One tree of a job.
///
/// A job has a tree for every sending thread of its ranks. To packets, switches and servers each of them is a job: it has
/// an id, keys, rounds, epochs and watermarks of its own, so that no thread waits for another. The first tree has the id of
/// the job.
// spec: F-04
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct JobTree {
    /// The job.
    pub job: JobId,
    /// Number of the tree, from 0.
    pub tree: u32,
}

impl JobTree {
    /// The tree that has an id.
    pub fn of(id: JobId) -> JobTree {
        JobTree { job: job_of(id), tree: ((id.0 & TREE_BITS) / TREE_IDS) as u32 }
    }

    /// The id of the tree. A job has at most [`TREES_MAX`] of them.
    pub fn id(self) -> JobId {
        JobId(self.job.0 | ((u64::from(self.tree) * TREE_IDS) & TREE_BITS))
    }
}

/// Most ranks that one message names or that are kept of one: those that are missing, waited for, or at fault.
pub(crate) const NAMED_MAX: usize = 256;

/// Longest reason that a rank can give, in characters.
pub(crate) const REASON_CHARS_MAX: usize = 1_024;

/// Message of a rank. Answers, paths, progress and stalls are about one tree of the job.
#[derive(Clone, PartialEq, Debug)]
pub enum FromRank {
    /// The answer to a report. Only leaders are asked.
    Answer {
        /// The round of the report.
        round: u32,
        /// The leader's index, as in the report.
        seat: u32,
        /// All fragments below are complete there; `None` if its memory is lost.
        watermark: Option<u64>,
    },
    /// The MTU that its paths carry. Sent before the answer of the round.
    // spec: F-01
    Paths {
        /// The round.
        round: u32,
        /// The outcome of its probes.
        report: PathReport,
    },
    /// Progress of the rank. The heartbeat.
    Progress(Progress),
    /// It waits for too long. To be repeated while that lasts, every `stall_after` of the settings; a
    /// stall that is not repeated for three times as long counts as over.
    Stalled(Stall),
    /// It cannot go on, so the job fails.
    Failing(Failure),
    /// The application ends the job for all ranks.
    Aborting {
        /// Reason that the application gives.
        reason: String,
    },
    /// It has called an operation, which is compared with those of the others.
    Operation {
        /// Number of the operation, in the order of the calls.
        number: u64,
        /// The operation.
        fingerprint: Fingerprint,
    },
    /// It is done. Sent by [`Attendance::leave`](crate::Attendance::leave).
    Leave {
        /// Number of operations that the rank has called.
        operations: u64,
    },
}

impl FromRank {
    /// Returns the message without what a service would leave out of it, which reads no longer ones.
    // spec: E-12
    pub(crate) fn shortened(mut self) -> FromRank {
        match &mut self {
            FromRank::Stalled(Stall { waits: Waits::Ranks(ranks), .. }) => {
                ranks.truncate(NAMED_MAX)
            }
            FromRank::Failing(Failure { text, culprits, .. }) => {
                shorten(text);
                culprits.truncate(NAMED_MAX);
            }
            FromRank::Aborting { reason } => shorten(reason),
            _ => {}
        }
        self
    }
}

fn shorten(text: &mut String) {
    if let Some((end, _)) = text.char_indices().nth(REASON_CHARS_MAX) {
        text.truncate(end);
    }
}

/// Request of a rank to enter a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Join {
    /// The job.
    pub job: JobId,
    /// Number of the rank.
    pub rank: u32,
    /// The process: its address, and its life among those of that address.
    pub process: Process,
    /// Ranks that say the same can share memory.
    pub host: String,
    /// The switch of its rack, if there is one.
    pub switch: Option<NodeId>,
    /// Knowledge of each tree of the job, if it has been in it.
    pub resumes: Vec<Resume>,
    /// Ticket of the rank, if it has been taken before.
    pub ticket: Option<RankTicket>,
    /// Nodes of its sending threads after the first one, whose node is the process's. Fewer than [`TREES_MAX`].
    // spec: F-04
    pub more_nodes: Vec<NodeId>,
    /// MTU of its interface. `None` for a rank that does not say it, and does not answer probes.
    pub mtu_bytes: Option<u16>,
}

impl Join {
    /// Nodes of all its sending threads.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        std::iter::once(self.process.node).chain(self.more_nodes.iter().copied())
    }
}

/// Knowledge of a process about a tree of a job, for a registrar that forgot it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Resume {
    /// The latest round that it knows; 0 for none.
    pub round: u32,
    /// All fragments below are complete there; `None` if it remembers nothing.
    pub watermark: Option<u64>,
    /// Values of a fragment, which the job keeps; `None` if it has not been set up.
    pub fragment_values: Option<u16>,
    /// Span in fragments, which the job keeps as well.
    pub span_fragments: Option<u16>,
    /// True if values of 16 bits travel as such, which the job keeps as well.
    pub sends_halves: Option<bool>,
}

/// Progress of a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// The first operation that is not complete there. That of the first tree counts, for all threads together.
    pub operation: u64,
    /// The first fragment that is not complete there.
    pub fragment: u64,
    /// Time since either last changed.
    pub since: Span,
}

/// A wait that takes too long.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stall {
    /// The operation that waits.
    pub operation: u64,
    /// For what.
    pub waits: Waits,
    /// For how long.
    pub since: Span,
}

/// Fragment or ranks that a rank waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Waits {
    /// The result of this fragment.
    Fragment(u64),
    /// These ranks.
    Ranks(Vec<u32>),
}

/// Message to a rank. Reports, probes, set-ups and retirements are about one tree of the job.
#[derive(Clone, PartialEq, Debug)]
pub enum ToRank {
    /// The rank belongs to the process now. The first message of a stream.
    Joined {
        /// Ticket by which the process, or one that takes its place, comes back.
        ticket: RankTicket,
    },
    /// All ranks are there. Comes again when somebody came back as another process: the latest counts.
    Welcome(Arc<Welcome>),
    /// Not all ranks are there.
    Waiting {
        /// The ranks that are missing.
        missing: Arc<[u32]>,
    },
    /// A leader probes its paths to these nodes and to the other leaders.
    // spec: F-01
    ProbePaths {
        /// The round.
        round: u32,
        /// The largest MTU to try.
        mtu_bytes: u16,
        /// The nodes.
        nodes: Vec<NodeId>,
    },
    /// The MTU that all paths of the job carry.
    PathMtu {
        /// The MTU.
        mtu_bytes: u16,
    },
    /// A leader shall pause and say what it remembers.
    Report {
        /// The round.
        round: u32,
        /// The leader's index among the leaders.
        seat: u32,
    },
    /// A leader adopts a set-up.
    Adopt {
        /// The leader's index among the leaders.
        seat: u32,
        /// The key of the set-up's epoch.
        key: Key,
        /// The set-up.
        setup: Arc<Setup>,
    },
    /// A leader has no part in the set-ups before this round any more.
    Retire {
        /// The round.
        round: u32,
    },
    /// Why the job stalls. It goes on.
    Diagnosis(Arc<Diagnosis>),
    /// The server has contributions to different operations: a rank reports its latest ones at once.
    ReportOperations,
    /// A rank has left.
    Left {
        /// The rank.
        rank: u32,
        /// Number of operations that it has called: no later one can end.
        operations: u64,
    },
    /// The job is over, everywhere for the same reason.
    Failed(Arc<Failure>),
}

/// Ranks of a job, and the keys of its members.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Welcome {
    /// Proves membership to a registrar that has forgotten the job.
    pub ticket: Ticket,
    /// By tree, the keys of its lanes from 1 on: the ids after that of the tree, in epoch 1.
    pub lane_keys: Vec<[Key; LANES]>,
    /// By rank.
    pub roster: Vec<Place>,
    /// The rounds that the trees are in.
    pub rounds: Vec<u32>,
    /// True if a rank or the server names a switch. The same at all ranks, so that they choose alike.
    // spec: F-07
    pub has_switch: bool,
    /// True if the MTU of the job's paths follows, which ranks wait for.
    // spec: F-01
    pub probes_paths: bool,
}

/// Proof of a membership. Only the cluster's secret makes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    /// Of this job.
    pub job: JobId,
    /// Signature over it.
    pub proof: Proof,
}

/// Proof that a rank belongs to a process. Another process needs it to take the rank over.
// spec: E-04
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RankTicket {
    /// The job.
    pub job: JobId,
    /// The rank.
    pub rank: u32,
    /// The process that has it.
    pub process: Process,
    /// Signature over all of them.
    pub proof: Proof,
}

/// Place of a rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Address of its first sending thread.
    pub node: NodeId,
    /// Addresses of its further sending threads: one for each tree of the job after the first.
    pub more_nodes: Vec<NodeId>,
    /// Number of its host. Hosts are numbered in the order of their lowest ranks, their *leaders*; the number is
    /// also the leader's index among the leaders.
    pub host: u32,
}

impl Place {
    /// Address of the sending thread of a tree.
    pub fn node_of(&self, tree: u32) -> Option<NodeId> {
        node_of(self.node, &self.more_nodes, tree)
    }
}

/// Node of the sending thread of a tree, given that of the first one and the others.
pub(crate) fn node_of(first: NodeId, more: &[NodeId], tree: u32) -> Option<NodeId> {
    match tree.checked_sub(1) {
        None => Some(first),
        Some(at) => more.get(at as usize).copied(),
    }
}

/// Why a job stalls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnosis {
    /// For people: which rank, which fragment, which link, since when.
    pub text: String,
    /// The ranks at fault, where that is known.
    pub culprits: Vec<u32>,
    /// The fragment that does not come, if it is about one.
    pub fragment: Option<u64>,
    /// For how long.
    pub since: Span,
}

/// Why a job is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// For people.
    pub text: String,
    /// The ranks at fault, where that is known.
    pub culprits: Vec<u32>,
    /// Cause of the failure, for programs.
    pub kind: FailureKind,
    /// Number of the operation that failed, where one did.
    pub operation: Option<u64>,
    /// Time without progress, where that is why the job failed.
    pub since: Option<Span>,
}

/// Cause of a failure.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum FailureKind {
    /// A rank cannot go on, or the job cannot be set up.
    #[default]
    Other,
    /// A rank died, or left while others needed it.
    Peer,
    /// A deadline passed.
    Timeout,
    /// A rank aborted the job.
    Aborted,
    /// Ranks called different operations.
    Agreement,
    /// The job does not fit the budgets of the server.
    Refused,
    /// A path carries shorter packets than those of the job. Its ranks may meet again and go on with shorter ones.
    // spec: F-01
    Path,
}

impl Failure {
    /// A failure of a kind.
    pub fn new(kind: FailureKind, text: impl Into<String>, culprits: Vec<u32>) -> Failure {
        Failure { text: text.into(), culprits, kind, operation: None, since: None }
    }
}

impl Welcome {
    /// Number of trees of the job, and so of sending threads of every rank: as many as all of them can use, and one where
    /// all ranks are on one host.
    // spec: F-04
    pub fn trees(&self) -> u32 {
        self.lane_keys.len() as u32
    }

    /// Returns whether a rank leads its host: it stands for the host in the aggregation.
    pub fn is_leader(&self, rank: u32) -> bool {
        let host_of = |rank: u32| self.roster.get(rank as usize).map(|place| place.host);
        host_of(rank).is_some() && (0..rank).all(|lower| host_of(lower) != host_of(rank))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: F-04 machine
    #[test]
    fn every_tree_and_lane_has_an_id_of_its_own_that_names_its_job() {
        let job = job_of(JobId(u64::MAX));
        assert_eq!(JobTree { job, tree: 0 }.id(), job);
        let mut ids = std::collections::BTreeSet::new();
        for tree in 0..TREES_MAX {
            let own = JobTree { job, tree };
            for lane in 0..=LANES as u64 {
                let id = JobId(own.id().0 + lane);
                assert!(ids.insert(id), "{id:?} is there twice");
                assert_eq!((JobTree::of(id), job_of(id)), (own, job));
            }
        }
    }
}
