//! Runs of scenarios: how far they are is told on the way, and what goes wrong in one is an error.

use thalweg_core::Span;
use thalweg_fabric::trace::Tracer;
use thalweg_scenario::{Ending, Outcome, Progress, Run, Scenario};

use crate::{FigureError, Point};

/// Events between two looks at whether to stop.
pub(crate) const STEP_EVENTS: u64 = 200_000;

/// Runs a scenario to its end, at which every flow has arrived.
pub(crate) fn run_flows(
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
    let early = (outcome.ending != Ending::Complete || outcome.unfinished() > 0)
        .then(|| format!("{:?}, {} flows failed", outcome.ending, outcome.unfinished()));
    sound(figure, (scenario, seed), outcome, early)
}

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
    let early = (outcome.ending != Ending::Complete).then(|| format!("{:?}", outcome.ending));
    sound(figure, (scenario, seed), outcome, early)
}

/// An outcome in which nothing went wrong: no job failed, what the fabric checks holds, and the run did not
/// end too `early`, of which the caller judges.
pub(crate) fn sound(
    figure: &'static str,
    (scenario, seed): (&Scenario, u64),
    outcome: Outcome,
    early: Option<String>,
) -> Result<Outcome, FigureError> {
    let failure = outcome.jobs.iter().find_map(|job| job.failure.clone());
    let violation = outcome.check.as_ref().err().map(ToString::to_string);
    match failure.or(violation).or(early) {
        None => Ok(outcome),
        Some(why) => {
            let reason = format!("{} with seed {seed}: {why}", scenario.title());
            Err(FigureError::Failed { figure, reason })
        }
    }
}
