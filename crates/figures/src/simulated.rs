//! Cells as scenarios: the scenario of the plan, changed by the choices of a cell.

mod drops;
pub(crate) mod files;
mod numbers;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Deserialize;
use thalweg_core::{Span, Time};
use thalweg_scenario::{Ending, Progress};
use toml::{Table, Value};

use crate::file::merge;
use crate::runs::{self, STEP_EVENTS, sound};
use crate::study::grid::At;
use crate::study::{Bench, Cell, Measured};
use crate::{FigureError, Point};
use numbers::Ran;

/// Settings of a plan besides the study.
///
/// In its scenario `traffic` and `faults` are tables of tables, so that choices can change one of them; they come
/// in the order of their names. Hosts may be given as ranges: `"0..8"`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Simulated {
    scenario: Table,
    /// Changes of some cells, besides those of their choices.
    #[serde(default)]
    changes: Vec<Change>,
    #[serde(default)]
    ends: Ends,
    /// Inputs of numbers besides the run.
    #[serde(default)]
    options: BTreeMap<String, f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    at: At,
    scenario: Table,
}

/// When a run is over.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Ends {
    /// All flows have arrived and all jobs have ended.
    #[default]
    Complete,
    /// The simulated time is over.
    TimeUp,
}

impl Bench for Simulated {
    type Common = ();

    fn measure(
        &self,
        (): &(),
        cell: &Cell<'_>,
        point: &Point<'_>,
    ) -> Result<Measured, FigureError> {
        let mistake = |reason: String| point.context.mistake(reason);
        let file = self.file(cell).map_err(mistake)?;
        let stop: Option<Span> =
            file.get("stop-after").and_then(Value::as_str).and_then(|text| text.parse().ok());
        let scenario = runs::scenario(point, file, &files::load)?;
        let mut run = scenario.run_bare(point.context.seed);
        let wanted = cell.study.wanted();
        let dropped = drops::Counted::default();
        if wanted.iter().any(|name| drops::NAMES.contains(&name.as_str())) {
            run.trace(Box::new(dropped.clone()));
        }
        loop {
            let progress = run.advance(STEP_EVENTS);
            point.reached(share_of(&progress, stop))?;
            if progress.ended.is_some() {
                break;
            }
        }
        let drops = dropped.shares(&run, scenario.topology().hosts());
        let outcome = run.outcome();
        let is_early = match self.ends {
            Ends::Complete => outcome.ending != Ending::Complete || outcome.unfinished() > 0,
            Ends::TimeUp => outcome.ending == Ending::Stuck,
        };
        let early = is_early
            .then(|| format!("{:?}, {} flows failed", outcome.ending, outcome.unfinished()));
        let outcome = sound(&scenario, point, outcome, early)?;
        let ran = Ran { scenario: &scenario, outcome: &outcome, options: &self.options, drops };
        let number = |name: String| {
            let number = ran.number(&name).ok_or_else(|| mistake(format!("{name} is no number")));
            Ok((name, number?))
        };
        Ok(Measured::of(wanted.into_iter().map(number).collect::<Result<Vec<_>, FigureError>>()?))
    }
}

impl Simulated {
    /// The scenario of a cell. An error is a mistake in the plan.
    pub(crate) fn file(&self, cell: &Cell<'_>) -> Result<Table, String> {
        let mut file = self.scenario.clone();
        for choice in cell.choices() {
            merge(&mut file, &choice.scenario);
        }
        for change in &self.changes {
            if cell.is_at(&change.at)? {
                merge(&mut file, &change.scenario);
            }
        }
        file.insert("title".to_owned(), cell.label().into());
        files::complete(file)
    }
}

#[cfg(test)]
impl Simulated {
    /// Checks that the scenario of a cell can be read.
    pub(crate) fn check(&self, cell: &Cell<'_>) -> Result<(), String> {
        let text = self.file(cell)?.to_string();
        let scenario = thalweg_scenario::Scenario::parse("plan", &text, &files::load);
        scenario.map(|_| ()).map_err(|error| error.to_string())
    }
}

/// Progress of a run, from 0 to 1.
fn share_of(progress: &Progress, stop: Option<Span>) -> f64 {
    let expected = progress.expected_sums + progress.expected_flows.unwrap_or(0);
    let done = progress.finished_sums + progress.ended_flows;
    let share = done as f64 / expected.max(1) as f64;
    let of_time = |stop: Span| progress.now.since(Time::ZERO).as_s_f64() / stop.as_s_f64();
    share.max(stop.map_or(0.0, of_time)).min(1.0)
}
