//! Why a figure has no findings.

use thalweg_scenario::ScenarioError;
use thiserror::Error;

/// Ends the run of a figure.
#[derive(Debug, Error)]
pub enum FigureError {
    /// Whoever watches the run asked it to end.
    #[error("stopped before it was done")]
    Stopped,
    /// A plan is part of this crate, so this is our mistake.
    #[error("the plan of {figure} cannot be used: {reason}; correct crates/figures/plans")]
    Plan {
        /// Whose plan it is.
        figure: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A plan asks for a scenario that cannot be.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// It ran, and the result is not one: a simulation got stuck, or broke its own laws.
    #[error("{figure} ran and failed: {reason}")]
    Failed {
        /// Which figure.
        figure: &'static str,
        /// What happened.
        reason: String,
    },
}

/// No figure has this name.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("there is no figure {name:?}{}; the figures are: {}", hint(*nearest), names.join(", "))]
pub struct UnknownFigure {
    /// What was asked for.
    pub name: String,
    /// A figure whose name is close to it.
    pub nearest: Option<&'static str>,
    /// All that there are.
    pub names: Vec<&'static str>,
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!(", did you mean {name}?"))
}
