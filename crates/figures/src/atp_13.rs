//! ATP, Figure 13: three training jobs share the aggregators of a switch.
//!
//! The peak throughput aggregators are the fewest with which jobs train at full speed when each has a
//! fixed third of them. Then there are fewer, and jobs with fixed shares are compared with jobs that
//! take what is free.

mod phases;
mod show;

use serde::Deserialize;
use thalweg_core::{Rng, Span};
use thalweg_workload::models;
use toml::{Table, Value};

use crate::shrink::model_json;
use crate::tenants::{Interval, Room, Shared, Sharing, Tenants, fewest, steady_rate};
use crate::{Context, Figure, FigureError, Findings, Point};

pub(crate) struct Atp13;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Setup {
    model: String,
    divide_by: u64,
    jobs: u32,
    images_a_worker: f64,
    forward_ms: f64,
    backward_ms: f64,
    iterations: u32,
    warm_up: usize,
    shares: Vec<f64>,
    interval_ms: f64,
    search_most: u32,
    search_step: u32,
    unevenness: Vec<String>,
    tenants: Tenants,
}

/// One run.
#[derive(Clone, PartialEq, Debug)]
struct Cell {
    share: f64,
    sharing: Sharing,
    unevenness: Option<String>,
}

/// What it gave.
struct Trained {
    images_per_s: f64,
    intervals: Vec<Interval>,
}

/// All runs.
struct Results {
    peak_aggregators: u32,
    cells: Vec<(Cell, Trained)>,
}

/// What all runs of a seed have in common.
struct Bench<'a> {
    setup: &'a Setup,
    model: String,
    seed: u64,
}

impl Figure for Atp13 {
    fn name(&self) -> &'static str {
        NAME
    }

    fn plan(&self) -> &'static str {
        include_str!("../plans/atp-13.toml")
    }

    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        let setup: Setup = context.plan(self)?;
        let model = setup.check()?;
        let bench = Bench { setup: &setup, model, seed: context.seed };
        let share_a_job = bench.search(&context.part(0.0, 0.1))?;
        let peak_aggregators = share_a_job * setup.jobs;
        let cells = setup.cells();
        let label = |cell: &Cell| format!("{}, {:.0}%", cell.sharing.name(), cell.share * 100.0);
        let trained = context.part(0.1, 1.0).each(&cells, label, |cell, point| {
            let aggregators = (f64::from(peak_aggregators) * cell.share) as u32;
            let unevenness = cell.unevenness.clone();
            let room = Room { jobs: setup.jobs, aggregators, most_a_job: share_a_job, unevenness };
            bench.train(cell.sharing, &room, point)
        })?;
        let cells = cells.into_iter().zip(trained).collect();
        Ok(setup.findings(&Results { peak_aggregators, cells }))
    }
}

const NAME: &str = "atp-13";

impl Setup {
    /// The layer table of the divided model, if the plan fits together.
    fn check(&self) -> Result<String, FigureError> {
        let mistake = |reason: &str| FigureError::Plan { figure: NAME, reason: reason.to_owned() };
        let is_falling = self.shares.is_sorted_by(|one, next| one > next);
        if self.shares.len() < 2 || self.shares[0] != 1.0 || !is_falling {
            return Err(mistake("shares must fall from 1, and there must be two"));
        }
        if self.warm_up + 2 > self.iterations as usize || self.divide_by == 0 || self.jobs < 2 {
            return Err(mistake("give two jobs, and more iterations than the warm-up"));
        }
        let model = models::by_name(&self.model).ok_or_else(|| mistake("no such model"))?;
        Ok(model_json(&model, self.divide_by as f64))
    }

    fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for &share in &self.shares {
            let sharings =
                [Sharing::Static, Sharing::SwitchMl, Sharing::Dynamic, Sharing::Selective];
            cells.extend(sharings.map(|sharing| Cell { share, sharing, unevenness: None }));
        }
        for up_to in &self.unevenness {
            for share in [1.0, self.half(), self.least()] {
                let sharings = [Sharing::Static, Sharing::Dynamic, Sharing::Selective];
                let unevenness = Some(up_to.clone());
                cells.extend(sharings.map(|sharing| Cell {
                    share,
                    sharing,
                    unevenness: unevenness.clone(),
                }));
            }
        }
        cells
    }

    /// The share that is nearest to a half.
    fn half(&self) -> f64 {
        let distance = |share: &f64| (share - 0.5).abs();
        let nearest = |one: &f64, other: &f64| distance(one).total_cmp(&distance(other));
        self.shares.iter().copied().min_by(nearest).unwrap_or(1.0)
    }

    fn least(&self) -> f64 {
        self.shares.last().copied().unwrap_or(1.0)
    }

    /// A time of the full-size job in the divided one.
    fn divided_us(&self, ms: f64) -> f64 {
        ms * 1e3 / self.divide_by as f64
    }
}

impl Bench<'_> {
    /// The fewest aggregators of one job with which it trains at full speed.
    fn search(&self, context: &Context<'_>) -> Result<u32, FigureError> {
        let Setup { jobs, search_step, search_most, .. } = *self.setup;
        fewest(search_step, search_most, |share| {
            let aggregators = share * jobs;
            let room = Room { jobs, aggregators, most_a_job: share, unevenness: None };
            let label = |_: &()| format!("static, {share} aggregators a job");
            let work = |_: &(), point: &Point<'_>| self.train(Sharing::Static, &room, point);
            Ok(context.each(&[()], label, work)?[0].images_per_s)
        })
    }

    fn train(
        &self,
        sharing: Sharing,
        room: &Room,
        point: &Point<'_>,
    ) -> Result<Trained, FigureError> {
        let setup = self.setup;
        let starts: Vec<f64> = (0..setup.jobs).map(|job| self.start_us(job)).collect();
        let traffic = |job: u32| ("training", self.training(starts[job as usize]));
        let load = |_: &str| Ok(self.model.clone());
        let scenario = setup.tenants.scenario(NAME, sharing, room, traffic, &load)?;
        let interval = Span::from_us_f64(setup.divided_us(setup.interval_ms));
        let jobs = sharing.jobs_run(room.jobs);
        let run = setup.tenants.run(NAME, (&scenario, jobs), (self.seed, interval), point)?;
        let rate = iterations_per_s(&run, setup.warm_up).ok_or_else(|| FigureError::Failed {
            figure: NAME,
            reason: "the jobs did not run side by side after their warm-up".to_owned(),
        })?;
        let images_per_s = rate * setup.images_a_worker / setup.divide_by as f64;
        Ok(Trained { images_per_s, intervals: run.intervals })
    }

    /// Jobs start at random within one iteration, with every sharing at the same moments.
    fn start_us(&self, job: u32) -> f64 {
        let mut rng = Rng::new(self.seed).substream("start", u64::from(job));
        rng.uniform() * self.setup.divided_us(self.setup.forward_ms + self.setup.backward_ms)
    }

    fn training(&self, start_us: f64) -> Table {
        let setup = self.setup;
        let us = |us: f64| Value::from(format!("{us:.6}us"));
        Table::from_iter([
            ("json".to_owned(), Value::from("divided.json")),
            ("iterations".to_owned(), setup.iterations.into()),
            ("forward".to_owned(), us(setup.divided_us(setup.forward_ms))),
            ("backward".to_owned(), us(setup.divided_us(setup.backward_ms))),
            ("start".to_owned(), us(start_us)),
        ])
    }
}

/// How many iterations a job completes in a second of the divided time.
fn iterations_per_s(run: &Shared, warm_up: usize) -> Option<f64> {
    let ends = run.jobs.iter().map(|job| {
        let mut end = job.start.as_s_f64();
        let ends = job.iterations.iter().map(|span| {
            end += span.as_s_f64();
            end
        });
        ends.collect()
    });
    // The end of the last iteration of the warm-up is the start of what counts.
    steady_rate(&ends.collect::<Vec<Vec<f64>>>(), warm_up.saturating_sub(1))
}

#[cfg(test)]
mod tests;
