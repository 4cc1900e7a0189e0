//! Why the registry says no.

use std::net::SocketAddrV4;

use thalweg_aggregate::join::JOBS_MAX;
use thalweg_core::Span;
use thalweg_net::PORTS_PER_NODE;
use thiserror::Error;

use super::{NAME_BYTES_MAX, RANKS_MAX};
use crate::budget::Reason;
use crate::settings::SettingsError;
use thalweg_core::text::is_harmful;

/// Why a request was refused. It changed nothing.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum Refusal {
    /// An invalid name.
    #[error(
        "{what} is empty, longer than {NAME_BYTES_MAX} bytes, or has control or invisible characters"
    )]
    Name {
        /// Of what.
        what: &'static str,
    },
    /// Settings that cannot work.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The ranks of a job disagree.
    #[error("job {name:?} is registered with other settings: {}", differences.join("; "))]
    Differs {
        /// The job.
        name: String,
        /// Settings that are not the same.
        differences: Vec<String>,
    },
    /// Another job has the name, and its ranks are there.
    #[error("the name {name:?} belongs to another job by now: end that, or take another name")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// A claim to a job without its ticket.
    #[error("the ticket is not of this cluster: was the server started with another secret?")]
    Ticket,
    /// The token is not for this job.
    #[error("the token does not cover job {name:?}: make one with `thalweg token new --job`")]
    NotCovered {
        /// The job.
        name: String,
    },
    /// The token is not for a job of this size.
    #[error(
        "the job has {workers} ranks, and the token allows {limit}: make one with more `--ranks`"
    )]
    RanksOfToken {
        /// Ranks of the job.
        workers: u32,
        /// Most ranks.
        limit: u32,
    },
    /// A claim to a job that has ended.
    #[error("the job of this ticket has ended: start all ranks again")]
    Ended,
    /// The jobs of a token are used up.
    #[error("the budget of jobs of this token is used up: {limit} are registered")]
    JobsOfToken {
        /// Most jobs.
        limit: usize,
    },
    /// The jobs of a token that nobody has joined are used up.
    #[error(
        "the budget of registrations of this token is used up: no rank has joined {limit} of its jobs"
    )]
    Unattended {
        /// Most of them.
        limit: usize,
    },
    /// The ranks of a token are used up.
    #[error("the budget of ranks of this token is used up: {limit} have joined its jobs")]
    RanksInJobs {
        /// Most ranks.
        limit: usize,
    },
    /// No room for a job.
    #[error("{JOBS_MAX} jobs are registered, there is no room for another: end one")]
    TooManyJobs,
    /// No room for a rank.
    #[error("{RANKS_MAX} ranks are there, there is no room for another: end a job")]
    TooManyRanks,
    /// Never registered, or over.
    #[error("the job is not registered, or it is over: register it")]
    UnknownJob,
    /// No such rank.
    #[error("there is no rank {rank}: the job has {workers}")]
    UnknownRank {
        /// The rank.
        rank: u32,
        /// Number of ranks.
        workers: u32,
    },
    /// Another process is there, and well.
    #[error("rank {rank} is taken by {address}, heard {} ago: give every rank once", seconds(*heard))]
    Taken {
        /// The rank.
        rank: u32,
        /// Rank that has it.
        address: SocketAddrV4,
        /// Time since it last sent something.
        heard: Span,
    },
    /// A process that is gone has the rank, and this one does not have its ticket.
    #[error(
        "rank {rank} belongs to another process{}: only its ticket replaces it while the job lives",
        gone(*since)
    )]
    NotYours {
        /// The rank.
        rank: u32,
        /// Time since its connection broke, where that is known.
        since: Option<Span>,
    },
    /// A number that no node has.
    #[error(
        "{address} is no address of a {what}: the port has to be a multiple of {PORTS_PER_NODE}, and not 0"
    )]
    Node {
        /// Of what.
        what: &'static str,
        /// The place.
        address: SocketAddrV4,
    },
    /// A rank in the place of a switch.
    #[error("{address} is a switch: give every rank a port of its own")]
    SwitchsNode {
        /// The place.
        address: SocketAddrV4,
    },
    /// Two ranks in one place.
    #[error("{address} is rank {rank}: give every rank a port of its own")]
    SameNode {
        /// The place.
        address: SocketAddrV4,
        /// The rank that is there.
        rank: u32,
    },
    /// A rank in the server's place.
    #[error("{address} is the server: give every rank a port of its own")]
    ServersNode {
        /// The place.
        address: SocketAddrV4,
    },
    /// A rank that shared memory with others comes back where it cannot.
    #[error("rank {rank} was on host {before:?} with others: it can only come back there")]
    Moved {
        /// The rank.
        rank: u32,
        /// Host that it was on.
        before: String,
    },
    /// A process with fewer sending threads than the job has trees takes a rank.
    #[error(
        "rank {rank} offers {offered} sending threads, and the ranks of the job have {trees}: offer as many, or start all \
         ranks again"
    )]
    Threads {
        /// The rank.
        rank: u32,
        /// Sending threads that it offers.
        offered: usize,
        /// Trees of the job.
        trees: usize,
    },
    /// Ranks have left, so nobody new can come.
    #[error("the job of this name is ending: wait until all of its ranks have left")]
    Ending,
}

/// Checks that a string can be shown to people and kept.
pub(super) fn check_name(what: &'static str, name: &str) -> Result<(), Refusal> {
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len());
    if fits && !name.contains(is_harmful) { Ok(()) } else { Err(Refusal::Name { what }) }
}

impl Refusal {
    /// The reason that it is counted under, if it is.
    pub(crate) fn reason(&self) -> Option<Reason> {
        Some(match self {
            Refusal::NotCovered { .. } | Refusal::RanksOfToken { .. } => Reason::Rights,
            Refusal::Ticket | Refusal::Ended => Reason::Ticket,
            Refusal::NotYours { .. } | Refusal::Taken { .. } => Reason::Rank,
            Refusal::JobsOfToken { .. } | Refusal::TooManyJobs => Reason::Jobs,
            Refusal::Unattended { .. } => Reason::Unattended,
            Refusal::RanksInJobs { .. } | Refusal::TooManyRanks => Reason::Ranks,
            _ => return None,
        })
    }
}

fn gone(since: Option<Span>) -> String {
    since.map_or(String::new(), |since| format!(", whose connection broke {} ago", seconds(since)))
}

/// A span for people.
pub(super) fn seconds(span: Span) -> String {
    format!("{:.1} s", span.as_s_f64())
}
