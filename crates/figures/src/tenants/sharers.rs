//! Jobs with as many aggregators as fixed shares need for full speed, or with some of them.

use serde::Deserialize;
use thalweg_core::{Rng, Span, Time};
use toml::{Table, Value};

use super::phases::{convergence, with_and_without};
use super::{Merges, Room, Shared, Sharing, Tenants, fewest, steady_rate};
use crate::file::entries;
use crate::study::{Bench, Cell, Measured};
use crate::{Context, FigureError, Point};

/// Time between two reports of progress, where intervals do not matter.
const STEP: Span = Span::from_us(500);
/// Number of intervals that are the beginning.
const FIRST_INTERVALS: usize = 5;

/// Settings of a plan besides the study. Its axes `jobs` and `share` say how many jobs have which share of the
/// aggregators that they need.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Sharers {
    work: Work,
    /// The most aggregators of a job that are tried, and the steps between.
    search_most: u32,
    search_step: u32,
    tenants: Tenants,
}

/// Settings by the choices of a cell.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Choices {
    sharing: Sharing,
    unevenness: Option<String>,
}

/// Work of a job.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Work {
    Training(Training),
    AllReduce(AllReduce),
}

/// A training whose bytes and times are those of a full-size job, divided.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Training {
    model: String,
    divide_by: u32,
    images_a_worker: f64,
    forward_ms: f64,
    backward_ms: f64,
    iterations: u32,
    warm_up: usize,
    interval_ms: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct AllReduce {
    tensor: String,
    rounds: u32,
    warm_up: usize,
    in_flight: u32,
    /// Starts of the jobs are spread over this time.
    spread_us: f64,
}

impl Bench for Sharers {
    /// The fewest aggregators of one job with which it is at full speed.
    type Common = u32;

    const PREPARATION: f64 = 0.1;

    fn prepare(&self, context: &Context<'_>) -> Result<u32, FigureError> {
        fewest(self.search_step, self.search_most, |share| {
            let room = Room { jobs: 1, aggregators: share, most_a_job: share, unevenness: None };
            let label = |_: &()| format!("static, {share} aggregators a job");
            let work = |_: &(), point: &Point<'_>| Ok(self.run(Sharing::Static, &room, point)?.1);
            Ok(context.each(&[()], label, work)?[0])
        })
    }

    fn measure(
        &self,
        share_a_job: &u32,
        cell: &Cell<'_>,
        point: &Point<'_>,
    ) -> Result<Measured, FigureError> {
        let Choices { sharing, unevenness } = cell.settings(point)?;
        let jobs = cell.number("jobs") as u32;
        let aggregators = (f64::from(jobs * share_a_job) * cell.number("share")) as u32;
        let room = Room { jobs, aggregators, most_a_job: *share_a_job, unevenness };
        let (Shared { intervals, .. }, speed) = self.run(sharing, &room, point)?;
        let (first, last) = convergence(&intervals, FIRST_INTERVALS);
        let phases = with_and_without(&intervals);
        let mut measured = Measured::of([
            ("speed", speed),
            ("aggregators", f64::from(aggregators)),
            ("at-server-first", first),
            ("at-server-last", last),
            ("without-another", phases.map_or(f64::NAN, |(with, without)| without / with)),
        ]);
        let curve = |job: usize, of: fn(&Merges) -> u64| {
            let points = intervals.iter().enumerate();
            points.map(|(at, jobs)| (at as f64, of(&jobs[job]) as f64)).collect()
        };
        for job in 0..sharing.jobs_run(jobs) as usize {
            measured = measured
                .trace(format!("at server, job {}", job + 1), curve(job, |it| it.at_server))
                .trace(format!("in switch, job {}", job + 1), curve(job, |it| it.at_switch));
        }
        Ok(measured)
    }
}

impl Sharers {
    /// Returns a run and the speed of its jobs.
    fn run(
        &self,
        sharing: Sharing,
        room: &Room,
        point: &Point<'_>,
    ) -> Result<(Shared, f64), FigureError> {
        let traffic = |job: u32| {
            // Jobs start at random, with every sharing at the same moments.
            let start = Rng::new(point.context.seed).substream("start", job.into()).uniform();
            match &self.work {
                Work::Training(training) => ("training", training.table(start)),
                Work::AllReduce(all_reduce) => ("all-reduce", all_reduce.table(start)),
            }
        };
        let interval = match &self.work {
            Work::Training(job) => Span::from_us_f64(job.divided_us(job.interval_ms)),
            Work::AllReduce(_) => STEP,
        };
        let run = self.tenants.run(sharing, room, traffic, interval, point)?;
        let speed = match &self.work {
            Work::Training(training) => training.images_per_s(&run),
            Work::AllReduce(all_reduce) => all_reduce.bits_per_s(&run),
        };
        let reason = "the jobs did not run side by side after their warm-up";
        Ok((run, speed.ok_or_else(|| point.context.failed(reason))?))
    }
}

impl Training {
    /// Returns a time of the full-size job in the divided one.
    fn divided_us(&self, ms: f64) -> f64 {
        ms * 1e3 / f64::from(self.divide_by)
    }

    /// Returns the traffic of a job, which starts within one iteration.
    fn table(&self, start: f64) -> Table {
        let us = |us: f64| Value::from(format!("{us:.6}us"));
        entries([
            ("json", format!("{}/{}", self.model, self.divide_by).into()),
            ("iterations", self.iterations.into()),
            ("forward", us(self.divided_us(self.forward_ms))),
            ("backward", us(self.divided_us(self.backward_ms))),
            ("start", us(start * self.divided_us(self.forward_ms + self.backward_ms))),
        ])
    }

    /// Returns images a second of each worker, as if nothing had been divided.
    fn images_per_s(&self, run: &Shared) -> Option<f64> {
        let ends = run.jobs.iter().map(|job| {
            let mut end = job.start.as_s_f64();
            let ends = job.iterations.iter().map(|span| {
                end += span.as_s_f64();
                end
            });
            ends.collect()
        });
        // The end of the last iteration of the warm-up is the start of what counts.
        let warm_up = self.warm_up.saturating_sub(1);
        let rate = steady_rate(&ends.collect::<Vec<Vec<f64>>>(), warm_up)?;
        Some(rate * self.images_a_worker / f64::from(self.divide_by))
    }
}

impl AllReduce {
    fn table(&self, start: f64) -> Table {
        entries([
            ("bytes", self.tensor.as_str().into()),
            ("rounds", self.rounds.into()),
            ("in-flight", self.in_flight.into()),
            ("start", format!("{:.6}us", start * self.spread_us).into()),
        ])
    }

    /// Returns bits of sums that each worker gets in a second, averaged over the jobs.
    fn bits_per_s(&self, run: &Shared) -> Option<f64> {
        let seconds = |time: &Time| time.as_s_f64();
        let sums = run.jobs.iter().map(|job| job.sums_at[0].iter().map(seconds).collect());
        let bytes = run.jobs.iter().map(|job| job.summed_bytes[0]).sum::<u64>() as f64
            / (f64::from(self.rounds) * run.jobs.len() as f64);
        let rate = steady_rate(&sums.collect::<Vec<Vec<f64>>>(), self.warm_up)?;
        Some(rate * bytes * 8.0)
    }
}
