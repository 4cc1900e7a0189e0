//! Scenarios in steps of simulated time.

use thalweg_core::Span;
use thalweg_fabric::trace::Tracer;
use thalweg_scenario::{Ending, Outcome, Progress, Run, Scenario};

use crate::{FigureError, Point};

/// Runs a scenario to its end. After every step of simulated time `look` is shown where it
/// is. A run that does not complete is a failure, and so is a job.
pub(crate) fn run_stepwise(
    figure: &'static str,
    scenario: &Scenario,
    (seed, step): (u64, Span),
    point: &Point<'_>,
    look: impl FnMut(&mut Run<'_>, &Progress),
) -> Result<Outcome, FigureError> {
    run_traced(figure, scenario, (seed, step), point, None, look)
}

/// The same, and every packet is shown to a tracer.
pub(crate) fn run_traced(
    figure: &'static str,
    scenario: &Scenario,
    (seed, step): (u64, Span),
    point: &Point<'_>,
    tracer: Option<Box<dyn Tracer>>,
    mut look: impl FnMut(&mut Run<'_>, &Progress),
) -> Result<Outcome, FigureError> {
    let mut run = scenario.run_bare(seed);
    if let Some(tracer) = tracer {
        run.trace(tracer);
    }
    let mut progress = run.progress();
    while progress.ended.is_none() {
        progress = run.advance_until(progress.now + step);
        look(&mut run, &progress);
        let expected = progress.expected_sums + progress.expected_flows.unwrap_or(0);
        let done = progress.finished_sums + progress.ended_flows;
        point.reached(done as f64 / expected.max(1) as f64)?;
    }
    let outcome = run.outcome();
    let failure = outcome.jobs.iter().find_map(|job| job.failure.clone());
    let violation = outcome.check.as_ref().err().map(ToString::to_string);
    let early = (outcome.ending != Ending::Complete).then(|| format!("{:?}", outcome.ending));
    match failure.or(violation).or(early) {
        None => Ok(outcome),
        Some(why) => {
            let reason = format!("{} with seed {seed}: {why}", scenario.title());
            Err(FigureError::Failed { figure, reason })
        }
    }
}
