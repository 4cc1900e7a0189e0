//! Why a command did not do what was asked.

use std::fmt::Display;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

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
    /// A program that was started for the user ended with this exit code.
    #[error("{reason}")]
    Program {
        /// The exit code that is passed on.
        code: u8,
        /// The end of the program, for people.
        reason: String,
    },
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

    /// Returns the failure of a program that was started for the user. A signal that ended it counts as 128 and its number,
    /// as in a shell.
    pub fn program(status: ExitStatus) -> Failure {
        let number = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
        // Linux has exit codes of a byte, and 64 signals.
        let code = number.and_then(|number| u8::try_from(number).ok()).unwrap_or(1);
        Failure::Program { code, reason: format!("the program ended with {status}") }
    }

    /// Returns the exit code of the program: 1 it ran and failed, 2 bad input, 130 interrupted, or that of a program that it
    /// ran.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Ran(_) => ExitCode::from(1),
            Failure::Lab(error) if !error.is_input() => ExitCode::from(1),
            Failure::Interrupted => ExitCode::from(130),
            Failure::Program { code, .. } => ExitCode::from(*code),
            _ => ExitCode::from(2),
        }
    }
}
