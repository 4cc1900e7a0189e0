//! ATP, Figure 13: three training jobs share the aggregators of a switch.
//!
//! The peak throughput aggregators are the fewest with which jobs train at full speed when each has a
//! fixed third of them. Then there are fewer, and jobs with fixed shares are compared with jobs that
//! take what is free.

mod phases;
mod show;

use serde::Deserialize;
use thalweg_core::{Rng, Span};
use toml::{Table, Value};

use crate::file::entries;
use crate::frame::figure::Form;
use crate::shrink::{known_model, model_json};
use crate::tenants::{Interval, Room, Shared, Sharing, Tenants, fewest, not_steady, steady_rate};
use crate::{Context, FigureError, Findings, Point};

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Setup {
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
}

impl Form for Setup {
    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        let bench = Bench { setup: self, model: self.check(context)? };
        let share_a_job = bench.search(&context.part(0.0, 0.1))?;
        let peak_aggregators = share_a_job * self.jobs;
        let cells = self.cells();
        let label = |cell: &Cell| format!("{}, {:.0}%", cell.sharing.name(), cell.share * 100.0);
        let trained = context.part(0.1, 1.0).each(&cells, label, |cell, point| {
            let aggregators = (f64::from(peak_aggregators) * cell.share) as u32;
            let unevenness = cell.unevenness.clone();
            let room = Room { jobs: self.jobs, aggregators, most_a_job: share_a_job, unevenness };
            bench.train(cell.sharing, &room, point)
        })?;
        let cells = cells.into_iter().zip(trained).collect();
        Ok(self.findings(&Results { peak_aggregators, cells }))
    }
}

impl Setup {
    /// The layer table of the divided model, if the plan fits together.
    fn check(&self, context: &Context<'_>) -> Result<String, FigureError> {
        let is_falling = self.shares.is_sorted_by(|one, next| one > next);
        if self.shares.len() < 2 || self.shares[0] != 1.0 || !is_falling {
            return Err(context.mistake("shares must fall from 1, and there must be two"));
        }
        if self.warm_up + 2 > self.iterations as usize || self.divide_by == 0 || self.jobs < 2 {
            return Err(context.mistake("give two jobs, and more iterations than the warm-up"));
        }
        Ok(model_json(&known_model(context, &self.model)?, self.divide_by as f64))
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
        let seed = point.context.seed;
        let starts: Vec<f64> = (0..setup.jobs).map(|job| self.start_us(seed, job)).collect();
        let traffic = |job: u32| ("training", self.training(starts[job as usize]));
        let load = |_: &str| Ok(self.model.clone());
        let scenario = setup.tenants.scenario(point, sharing, room, traffic, &load)?;
        let interval = Span::from_us_f64(setup.divided_us(setup.interval_ms));
        let jobs = sharing.jobs_run(room.jobs);
        let run = setup.tenants.run((&scenario, jobs), interval, point)?;
        let rate = iterations_per_s(&run, setup.warm_up).ok_or_else(|| not_steady(point))?;
        let images_per_s = rate * setup.images_a_worker / setup.divide_by as f64;
        Ok(Trained { images_per_s, intervals: run.intervals })
    }

    /// Jobs start at random within one iteration, with every sharing at the same moments.
    fn start_us(&self, seed: u64, job: u32) -> f64 {
        let mut rng = Rng::new(seed).substream("start", u64::from(job));
        rng.uniform() * self.setup.divided_us(self.setup.forward_ms + self.setup.backward_ms)
    }

    fn training(&self, start_us: f64) -> Table {
        let setup = self.setup;
        let us = |us: f64| Value::from(format!("{us:.6}us"));
        entries([
            ("json", "divided.json".into()),
            ("iterations", setup.iterations.into()),
            ("forward", us(setup.divided_us(setup.forward_ms))),
            ("backward", us(setup.divided_us(setup.backward_ms))),
            ("start", us(start_us)),
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
