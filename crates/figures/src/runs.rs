//! Runs of scenarios: progress is reported during a run, and what goes wrong in one is an error.

use std::fmt::Display;

use thalweg_core::Span;
use thalweg_fabric::trace::Tracer;
use thalweg_scenario::{Ending, Outcome, Progress, Run, Scenario};

use crate::{FigureError, Point};

/// Events between two looks at whether to stop.
pub(crate) const STEP_EVENTS: u64 = 200_000;

/// The scenario of a file, which `load` reads other files for.
pub(crate) fn scenario(
    point: &Point<'_>,
    file: impl Display,
    load: &dyn Fn(&str) -> Result<String, String>,
) -> Result<Scenario, FigureError> {
    let name = format!("plans/{}.toml", point.context.figure.name());
    Ok(Scenario::parse(&name, &file.to_string(), load)?)
}

/// Reader of the other files of a scenario that has none.
pub(crate) fn no_files(file: &str) -> Result<String, String> {
    Err(format!("{file} is not there"))
}

/// Runs a scenario until `reached` says that it is over. It is shown the progress, and says how far the run is
/// as well.
pub(crate) fn run_until(
    scenario: &Scenario,
    point: &Point<'_>,
    tracer: Option<Box<dyn Tracer>>,
    reached: impl Fn(&Progress) -> (f64, bool),
) -> Result<Outcome, FigureError> {
    let mut run = start(scenario, point, tracer);
    loop {
        let (share, is_over) = reached(&run.advance(STEP_EVENTS));
        point.reached(share)?;
        if is_over {
            return Ok(run.outcome());
        }
    }
}

/// Runs a scenario to its end. A run that does not complete is a failure, and so is a job.
pub(crate) fn run_to_end(
    scenario: &Scenario,
    step: Span,
    point: &Point<'_>,
) -> Result<Outcome, FigureError> {
    run_stepwise(scenario, step, point, None, |_, _| ())
}

/// The same. After every step of simulated time `look` is shown where the run is, and every packet is shown to a
/// tracer.
pub(crate) fn run_stepwise(
    scenario: &Scenario,
    step: Span,
    point: &Point<'_>,
    tracer: Option<Box<dyn Tracer>>,
    mut look: impl FnMut(&mut Run<'_>, &Progress),
) -> Result<Outcome, FigureError> {
    let mut run = start(scenario, point, tracer);
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
    sound(scenario, point, outcome, early)
}

fn start<'a>(
    scenario: &'a Scenario,
    point: &Point<'_>,
    tracer: Option<Box<dyn Tracer>>,
) -> Run<'a> {
    let mut run = scenario.run_bare(point.context.seed);
    if let Some(tracer) = tracer {
        run.trace(tracer);
    }
    run
}

/// An outcome in which nothing went wrong: no job failed, what the fabric checks holds, and the run did not
/// end too `early`, of which the caller judges.
pub(crate) fn sound(
    scenario: &Scenario,
    point: &Point<'_>,
    outcome: Outcome,
    early: Option<String>,
) -> Result<Outcome, FigureError> {
    let failure = outcome.jobs.iter().find_map(|job| job.failure.clone());
    let violation = outcome.check.as_ref().err().map(ToString::to_string);
    match failure.or(violation).or(early) {
        None => Ok(outcome),
        Some(why) => {
            let seed = point.context.seed;
            Err(point.context.failed(format!("{} with seed {seed}: {why}", scenario.title())))
        }
    }
}
