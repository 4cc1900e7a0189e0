//! ATP, Figure 14: does hashing spread jobs over aggregators as well as shares of their own would?
//!
//! Jobs that do nothing but sum tensors, as many aggregators as they need together, and three ways to
//! come by them: a fixed share, a hash that is changed on collisions, and one index after the other.

use serde::Deserialize;
use thalweg_core::{Rng, Span};
use thalweg_report::format::{Unit, format_count, format_number, format_rate_bps, format_ratio};
use thalweg_report::plot::{Axis, Chart, Series};
use thalweg_report::table::Table as Numbers;
use toml::Table;

use crate::file::entries;
use crate::frame::figure::Form;
use crate::runs::no_files;
use crate::tenants::{Room, Sharing, Tenants, fewest, not_steady, seconds, steady_rate};
use crate::{Claim, Context, FigureError, Findings, Listing, Plot, Point, Rule};

/// How close to fixed shares hashing has to come.
const AS_GOOD: f64 = 0.9;
/// How far above linear indices it has to be with the most jobs.
const CLEARLY_AHEAD: f64 = 1.3;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Setup {
    jobs: Vec<u32>,
    tensor: String,
    rounds: u32,
    warm_up: usize,
    in_flight: u32,
    spread_us: f64,
    search_most: u32,
    search_step: u32,
    unevenness: Vec<String>,
    tenants: Tenants,
}

/// One run.
#[derive(Clone, PartialEq, Debug)]
struct Cell {
    jobs: u32,
    sharing: Sharing,
    unevenness: Option<String>,
}

/// What all runs gave, in bit/s of sums at each worker.
struct Results {
    share_a_job: u32,
    cells: Vec<(Cell, f64)>,
}

impl Form for Setup {
    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        if self.jobs.is_empty() || self.jobs.contains(&0) {
            return Err(context.mistake("jobs must be numbers above 0"));
        }
        let share_a_job = self.search(&context.part(0.0, 0.1))?;
        let cells = self.cells();
        let label = |cell: &Cell| format!("{} jobs, {}", cell.jobs, cell.sharing.name());
        let goodputs = context.part(0.1, 1.0).each(&cells, label, |cell, point| {
            let aggregators = cell.jobs * share_a_job;
            let unevenness = cell.unevenness.clone();
            let room = Room { jobs: cell.jobs, aggregators, most_a_job: share_a_job, unevenness };
            self.goodput(cell.sharing, &room, point)
        })?;
        let cells = cells.into_iter().zip(goodputs).collect();
        Ok(self.findings(&Results { share_a_job, cells }))
    }
}

/// How often a run tells how far it is.
const STEP: Span = Span::from_us(500);

impl Setup {
    fn cells(&self) -> Vec<Cell> {
        let most = self.most();
        let mut cells = vec![Cell { jobs: most, sharing: Sharing::Static, unevenness: None }];
        for &jobs in &self.jobs {
            let sharings = [Sharing::Dynamic, Sharing::Linear];
            cells.extend(sharings.map(|sharing| Cell { jobs, sharing, unevenness: None }));
        }
        for up_to in &self.unevenness {
            cells.extend(OUT_OF_STEP.map(|sharing| Cell {
                jobs: most,
                sharing,
                unevenness: Some(up_to.clone()),
            }));
        }
        cells
    }

    fn most(&self) -> u32 {
        self.jobs.iter().copied().max().unwrap_or(1)
    }

    /// The fewest aggregators of one job with which it is at full speed.
    fn search(&self, context: &Context<'_>) -> Result<u32, FigureError> {
        fewest(self.search_step, self.search_most, |share| {
            let room = Room { jobs: 1, aggregators: share, most_a_job: share, unevenness: None };
            let label = |_: &()| format!("static, {share} aggregators a job");
            let work = |_: &(), point: &Point<'_>| self.goodput(Sharing::Static, &room, point);
            Ok(context.each(&[()], label, work)?[0])
        })
    }

    /// Bits of sums that each worker gets in a second, averaged over the jobs.
    fn goodput(
        &self,
        sharing: Sharing,
        room: &Room,
        point: &Point<'_>,
    ) -> Result<f64, FigureError> {
        let traffic = |job: u32| ("all-reduce", self.all_reduce(point.context.seed, job));
        let scenario = self.tenants.scenario(point, sharing, room, traffic, &no_files)?;
        let jobs = sharing.jobs_run(room.jobs);
        let run = self.tenants.run((&scenario, jobs), STEP, point)?;
        let sums: Vec<Vec<f64>> = run.jobs.iter().map(|job| seconds(&job.sums_at[0])).collect();
        let bytes = run.jobs.iter().map(|job| job.summed_bytes[0]).sum::<u64>() as f64
            / (f64::from(self.rounds) * run.jobs.len() as f64);
        let rate = steady_rate(&sums, self.warm_up).ok_or_else(|| not_steady(point))?;
        Ok(rate * bytes * 8.0)
    }

    fn all_reduce(&self, seed: u64, job: u32) -> Table {
        let mut rng = Rng::new(seed).substream("start", u64::from(job));
        entries([
            ("bytes", self.tensor.as_str().into()),
            ("rounds", self.rounds.into()),
            ("in-flight", self.in_flight.into()),
            ("start", format!("{:.6}us", rng.uniform() * self.spread_us).into()),
        ])
    }

    fn findings(&self, results: &Results) -> Findings {
        let mut tables = vec![self.goodputs(results)];
        if !self.unevenness.is_empty() {
            tables.push(self.out_of_step(results));
        }
        Findings { claims: self.claims(results), plots: vec![self.plot(results)], tables }
    }

    fn claims(&self, results: &Results) -> Vec<Claim> {
        let most = self.most();
        let of_static =
            |sharing, jobs| results.at(sharing, jobs) / results.at(Sharing::Static, most);
        let hashed = self.jobs.iter().map(|&jobs| of_static(Sharing::Dynamic, jobs));
        let linear = of_static(Sharing::Linear, most);
        let mut claims = vec![
            Claim::measured(
                "hashed over static, for the worst number of jobs",
                "matches",
                hashed.fold(f64::INFINITY, f64::min),
                Unit::Ratio,
                Rule::AtLeast(AS_GOOD),
            ),
            Claim::measured(
                format!("{most} jobs: hashed over linear"),
                "far above",
                of_static(Sharing::Dynamic, most) / linear,
                Unit::Ratio,
                Rule::AtLeast(CLEARLY_AHEAD),
            ),
        ];
        if let Some(up_to) = self.unevenness.first() {
            let uneven = |sharing| {
                let goodput =
                    |sharing| results.find(sharing, most, Some(up_to)).unwrap_or(f64::NAN);
                let text = format!("{most} jobs, out of step by {up_to}: {}", name(sharing));
                let gain = goodput(sharing) / goodput(Sharing::Static);
                let text = format!("{text} over static");
                Claim::measured(text, "matches", gain, Unit::Ratio, Rule::AtLeast(AS_GOOD))
            };
            claims.extend([Sharing::Dynamic, Sharing::Selective].map(uneven));
        }
        claims
    }

    fn plot(&self, results: &Results) -> Plot {
        let line = |sharing: Sharing| {
            let points = self.jobs.iter().map(|&jobs| {
                let run = if sharing == Sharing::Static { self.most() } else { jobs };
                (f64::from(jobs), results.at(sharing, run))
            });
            Series::line(name(sharing), points.collect())
        };
        let chart = Chart::new("Aggregation throughput of a job")
            .x(Axis::linear("jobs"))
            .y(Axis::linear("sums at each worker").unit(Unit::BitsPerSecond))
            .all(IN_STEP.map(line));
        Plot::new(chart, "Hashing comes close to fixed shares; linear indices collide.")
    }

    fn goodputs(&self, results: &Results) -> Listing {
        let fixed = results.at(Sharing::Static, self.most());
        let over_fixed = |sharing, jobs| format_ratio(results.at(sharing, jobs) / fixed);
        let table = Numbers::by_column(self.jobs.iter().copied())
            .right("jobs", u32::to_string)
            .right("aggregators", |jobs| format_count((jobs * results.share_a_job).into()))
            .right(name(Sharing::Static), |_| format_rate_bps(fixed))
            .right(name(Sharing::Dynamic), |&jobs| {
                format_rate_bps(results.at(Sharing::Dynamic, jobs))
            })
            .right(name(Sharing::Linear), |&jobs| {
                format_rate_bps(results.at(Sharing::Linear, jobs))
            })
            .right("hashed over static", |&jobs| over_fixed(Sharing::Dynamic, jobs))
            .right("linear over static", |&jobs| over_fixed(Sharing::Linear, jobs));
        Listing::new(table, "Sums at each worker of a job, workers in step")
    }

    fn out_of_step(&self, results: &Results) -> Listing {
        let mut table =
            Numbers::by_column(&self.unevenness).right("out of step by", |up_to| (*up_to).clone());
        for sharing in OUT_OF_STEP {
            table = table.right(name(sharing), |up_to| {
                let goodput = results.find(sharing, self.most(), Some(up_to));
                goodput.map_or_else(|| format_number(f64::NAN), format_rate_bps)
            });
        }
        Listing::new(table, format!("The same out of step, {} jobs", self.most()))
    }
}

const IN_STEP: [Sharing; 3] = [Sharing::Static, Sharing::Dynamic, Sharing::Linear];
const OUT_OF_STEP: [Sharing; 4] =
    [Sharing::Static, Sharing::Dynamic, Sharing::Selective, Sharing::Linear];

fn name(sharing: Sharing) -> &'static str {
    match sharing {
        Sharing::Dynamic => "hashed",
        Sharing::Selective => "hashed, selective repair",
        Sharing::Linear => "linear",
        other => other.name(),
    }
}

impl Results {
    fn find(&self, sharing: Sharing, jobs: u32, unevenness: Option<&str>) -> Option<f64> {
        let wanted = Cell { jobs, sharing, unevenness: unevenness.map(str::to_owned) };
        self.cells.iter().find(|(cell, _)| *cell == wanted).map(|(_, goodput)| *goodput)
    }

    /// With workers in step.
    fn at(&self, sharing: Sharing, jobs: u32) -> f64 {
        self.find(sharing, jobs, None).unwrap_or(f64::NAN)
    }
}
