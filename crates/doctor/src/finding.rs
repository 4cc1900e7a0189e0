//! Findings: a check, a result, and what to do.

use serde::Serialize;

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// As it should be.
    Good,
    /// Works, and would be better otherwise.
    Note,
    /// Jobs fail or are slow.
    Problem,
    /// Not measured; the text says why.
    Unknown,
}

impl State {
    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            State::Good => "good",
            State::Note => "note",
            State::Problem => "PROBLEM",
            State::Unknown => "unknown",
        }
    }
}

/// One line of a diagnosis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The host or the peer that it is about.
    pub subject: String,
    /// Name of the check.
    pub check: &'static str,
    /// Result of the check.
    pub state: State,
    /// Observation in a few words.
    pub found: String,
    /// Instruction for who wants it otherwise.
    pub advice: Option<String>,
}

impl Finding {
    /// A check without anything to do.
    pub fn new(subject: &str, check: &'static str, state: State, found: String) -> Finding {
        Finding { subject: subject.to_owned(), check, state, found, advice: None }
    }

    /// The same with an instruction.
    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Finding {
        self.advice = Some(advice.into());
        self
    }

    /// True if jobs fail or are slow because of it.
    pub fn is_problem(&self) -> bool {
        self.state == State::Problem
    }
}
