//! Runs of scenarios whose flows all have to arrive.

use thalweg_scenario::{Ending, Outcome, Scenario};

use crate::{FigureError, Point};

/// Events between two looks at whether to stop.
const STEP_EVENTS: u64 = 200_000;

/// Runs a scenario to its end, at which every flow has arrived.
pub(crate) fn complete(
    figure: &'static str,
    scenario: &Scenario,
    seed: u64,
    point: &Point<'_>,
) -> Result<Outcome, FigureError> {
    let mut run = scenario.run_bare(seed);
    loop {
        let progress = run.advance(STEP_EVENTS);
        let expected = progress.expected_flows.unwrap_or(1).max(1);
        point.reached(progress.ended_flows as f64 / expected as f64)?;
        if progress.ended.is_some() {
            break;
        }
    }
    let outcome = run.outcome();
    let violation = outcome.check.as_ref().err().map(ToString::to_string);
    let early = (outcome.ending != Ending::Complete || outcome.unfinished() > 0)
        .then(|| format!("{:?}, {} flows failed", outcome.ending, outcome.unfinished()));
    match violation.or(early) {
        None => Ok(outcome),
        Some(why) => Err(FigureError::Failed { figure, reason: format!("seed {seed}: {why}") }),
    }
}
