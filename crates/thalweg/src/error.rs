//! What can go wrong.

use std::net::SocketAddr;
use std::sync::Arc;

use thalweg_shared::TeamError;
use thiserror::Error;

use crate::policy::Collective;

/// Why an operation, or a session, failed. It can be cloned, because it fails many at once.
#[derive(Clone, Debug, Error)]
pub enum Error {
    /// A setting is wrong. The caller is at fault.
    #[error("{0}")]
    Config(String),
    /// Sockets or threads could not be had.
    #[error("{what}: {why}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system says.
        why: String,
    },
    /// The server's network is not this host's.
    #[error(
        "{own} and {server} are not in one network: nodes of a cluster share the first 16 bits of \
         their IPv4 address (the first 112 of an IPv6 one); bind to another address"
    )]
    Network {
        /// This node.
        own: SocketAddr,
        /// The server.
        server: SocketAddr,
    },
    /// The job is over, for all ranks alike.
    #[error("{0}")]
    Job(Arc<Failure>),
    /// Ranks of one host could not work together.
    #[error("on this host: {0}")]
    Team(Arc<TeamError>),
    /// An operation that makes no sense. The caller is at fault.
    #[error("{0}")]
    Call(String),
    /// A mean with a loss bound, of a sum whose coverage did not fit its messages: of thousands of ranks.
    #[error(
        "Collective::{0:?} could not report which values the sum lacks, so that a mean would divide by \
         ranks that are not in it: sum by switches (name a switch and choose Collective::Aggregate), ask \
         for Reduce::Sum and accept that its coverage is unreported, or ask for Reliability::Exact"
    )]
    UnreportedMean(Collective),
    /// A sum by the session's policy, which has a loss bound, without its coverage. The caller is at
    /// fault.
    #[error(
        "the session's policy has a loss bound, and all_reduce returns no coverage: call \
         all_reduce_with, with this policy or with Reliability::Exact"
    )]
    NoCoverage,
    /// The session has been left.
    #[error("the session is over")]
    Closed,
}

/// Why a job is over.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{text}")]
pub struct Failure {
    /// For people: which rank, which operation, since when.
    pub text: String,
    /// The ranks at fault, where that is known.
    pub culprits: Vec<u32>,
}

impl Error {
    pub(crate) fn system(what: &'static str) -> impl FnOnce(std::io::Error) -> Error {
        move |error| Error::System { what, why: error.to_string() }
    }

    /// The end of a job, as the registrar reports it.
    pub(crate) fn failed(failure: thalweg_control::Failure) -> Error {
        Error::job(failure.text, failure.culprits)
    }

    /// The end of a job whose server is out of reach, or refuses the rank.
    pub(crate) fn without_server(text: String, is_refused: bool) -> Error {
        if is_refused { Error::Config(text) } else { Error::job(text, Vec::new()) }
    }

    pub(crate) fn job(text: impl Into<String>, culprits: Vec<u32>) -> Error {
        Error::Job(Arc::new(Failure { text: text.into(), culprits }))
    }
}

impl From<TeamError> for Error {
    fn from(error: TeamError) -> Error {
        Error::Team(Arc::new(error))
    }
}
