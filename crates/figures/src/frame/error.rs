//! Why a figure has no findings.

use thalweg_scenario::ScenarioError;
use thiserror::Error;

/// Ends the run of a figure.
#[derive(Debug, Error)]
pub enum FigureError {
    /// The watcher of the run asked it to end.
    #[error("stopped before it was done")]
    Stopped,
    /// A plan is part of this crate, so this is our mistake.
    #[error("the plan of {figure} cannot be used: {reason}; correct crates/figures/plans")]
    Plan {
        /// Figure of the plan.
        figure: &'static str,
        /// Mistake in the plan.
        reason: String,
    },
    /// A plan asks for an invalid scenario.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// It ran, and the result is not one: a simulation got stuck, or broke its own laws.
    #[error("{figure} ran and failed: {reason}")]
    Failed {
        /// Name of the figure.
        figure: &'static str,
        /// Reason of the failure.
        reason: String,
    },
}

/// No figure has this name.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("there is no figure {name:?}{}; the figures are: {}", hint(*nearest), names.join(", "))]
pub struct UnknownFigure {
    /// Name as it was given.
    pub name: String,
    /// A figure whose name is close to it.
    pub nearest: Option<&'static str>,
    /// All that there are.
    pub names: Vec<&'static str>,
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!(", did you mean {name}?"))
}
