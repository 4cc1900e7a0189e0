//! Why a command did not do what was asked.

use std::fmt::Display;
use std::process::ExitCode;

use thalweg_lab::LabError;
use thiserror::Error;

/// Ends a command. The message is one line and says what to change.
#[derive(Debug, Error)]
pub enum Failure {
    /// A file cannot be read.
    #[error("{path}: {reason}; check the path")]
    Unreadable {
        /// The file.
        path: String,
        /// The system's message.
        reason: String,
    },
    /// A file cannot be written.
    #[error("{path}: {reason}; choose a place that can be written")]
    Unwritable {
        /// The file.
        path: String,
        /// The system's message.
        reason: String,
    },
    /// The command line asks for what cannot be.
    #[error("{0}")]
    Usage(String),
    /// There is no lab, or nothing can run in it.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// It ran, and the result is not one.
    #[error("{0}")]
    Ran(String),
    /// The user pressed Ctrl-C.
    #[error("interrupted")]
    Interrupted,
}

impl Failure {
    /// Returns the failure of a command that ran.
    pub fn ran(why: impl Display) -> Failure {
        Failure::Ran(why.to_string())
    }

    /// Returns the failure of a command that was asked for what cannot be.
    pub fn usage(why: impl Display) -> Failure {
        Failure::Usage(why.to_string())
    }

    /// Returns the exit code of the program: 1 it ran and failed, 2 bad input, 130 interrupted.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Ran(_) => ExitCode::from(1),
            Failure::Lab(error) if !error.is_input() => ExitCode::from(1),
            Failure::Interrupted => ExitCode::from(130),
            _ => ExitCode::from(2),
        }
    }
}
