//! Why the registry says no.

use std::net::SocketAddrV4;

use thalweg_aggregate::join::JOBS_MAX;
use thalweg_core::Span;
use thiserror::Error;

use super::{NAME_BYTES_MAX, RANKS_MAX};
use crate::settings::SettingsError;

/// Why a request was refused. It changed nothing.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum Refusal {
    /// A name that cannot be one.
    #[error("{what} is empty, longer than {NAME_BYTES_MAX} bytes, or has control characters")]
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
        /// What is not the same.
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
        /// How many there are.
        workers: u32,
    },
    /// Another process is there, and well.
    #[error("rank {rank} is taken by {address}, heard {} ago: give every rank once", seconds(*heard))]
    Taken {
        /// The rank.
        rank: u32,
        /// Who has it.
        address: SocketAddrV4,
        /// How long ago that was heard.
        heard: Span,
    },
    /// Two ranks in one place.
    #[error("{address} is rank {rank}: give every rank a port of its own")]
    SameNode {
        /// The place.
        address: SocketAddrV4,
        /// Who is there.
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
        /// Where it was.
        before: String,
    },
    /// Ranks have left, so nobody new can come.
    #[error("the job of this name is ending: wait until all of its ranks have left")]
    Ending,
}

/// Whether a string can be shown to people and kept.
pub(super) fn check_name(what: &'static str, name: &str) -> Result<(), Refusal> {
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len());
    if fits && !name.contains(char::is_control) { Ok(()) } else { Err(Refusal::Name { what }) }
}

/// A span for people.
pub(super) fn seconds(span: Span) -> String {
    format!("{:.1} s", span.as_s_f64())
}
