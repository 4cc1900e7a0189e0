//! Errors of the agent and of programs that it paces.

use std::io;

use thiserror::Error;

/// Reason why an agent or a paced program did not start, or why it ended early.
#[derive(Clone, Debug, Error)]
pub enum AgentError {
    /// A setting is wrong. The caller is at fault.
    #[error("{0}")]
    Config(String),
    /// The operating system refused something.
    #[error("{what}: {why}")]
    System {
        /// The attempt that failed.
        what: &'static str,
        /// The system's own message.
        why: String,
    },
}

impl AgentError {
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> AgentError {
        move |error| AgentError::System { what, why: error.to_string() }
    }
}
