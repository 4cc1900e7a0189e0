//! Failures of calls, as status codes and lines of NCCL's log.

use std::io;

use thalweg::{Error, ErrorKind};

use crate::abi::{Status, status};

/// Why a call failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Status code.
    pub status: Status,
    /// Reason, one line. `None` if it was logged already.
    pub text: Option<String>,
}

impl Failure {
    /// A failure with a reason.
    pub fn new(status: Status, text: impl Into<String>) -> Failure {
        Failure { status, text: Some(text.into()) }
    }

    /// A failure that was logged already.
    pub fn logged(status: Status) -> Failure {
        Failure { status, text: None }
    }

    /// An invalid argument of NCCL's.
    pub fn argument(text: impl Into<String>) -> Failure {
        Failure::new(status::INVALID_ARGUMENT, text)
    }

    /// A refusal of the system, while this was tried.
    pub fn system(what: &str) -> impl FnOnce(io::Error) -> Failure {
        let what = what.to_owned();
        move |error| Failure::new(status::SYSTEM, format!("{what}: {error}"))
    }
}

impl From<&Error> for Failure {
    // spec: N-06
    fn from(error: &Error) -> Failure {
        let code = match error.kind() {
            ErrorKind::Call => status::INVALID_ARGUMENT,
            ErrorKind::Config | ErrorKind::Disagreement => status::INVALID_USAGE,
            ErrorKind::System => status::SYSTEM,
            ErrorKind::Peer
            | ErrorKind::Network
            | ErrorKind::Path
            | ErrorKind::Timeout
            | ErrorKind::Aborted
            | ErrorKind::Closed => status::REMOTE,
            _ => status::INTERNAL,
        };
        Failure::new(code, error.to_string())
    }
}
