//! ATP, Figure 8: the training throughput of a single job, by model and by system.

mod system;

use serde::Deserialize;
use thalweg_core::Span;
use thalweg_report::format::{Unit, format_number, format_ratio};
use thalweg_report::plot::{Axis, Chart, Series};
use thalweg_report::table::Table;
use thalweg_scenario::JobRecord;
use thalweg_workload::models;

use crate::file::entries;
use crate::frame::figure::Form;
use crate::runs::run_to_end;
use crate::{Claim, Context, FigureError, Findings, Listing, Plot, Point, Rule, shrink};
use system::{Network, System};

/// By how much another system may be faster before the first one is not the best any more.
const MARGIN: f64 = 0.02;
/// How far the times without computing may be from what the bytes on the busiest link make.
const LIMIT_SHARE: f64 = 0.1;
/// What the largest speed-up has to be, of what the paper has. Its testbed is slower than its links.
const LEAST_SPEEDUP: f64 = 1.05;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Setup {
    workers: u32,
    rate: String,
    delay_ns: f64,
    batch: u32,
    flops_per_s: f64,
    bucket_bytes: f64,
    iterations: u32,
    network_intensive: Vec<String>,
    limit_model: String,
    switch: toml::Table,
    aggregation: toml::Table,
    systems: Vec<System>,
    models: Vec<String>,
    divisor: f64,
}

/// One run: a system that trains a model.
#[derive(Clone, Copy)]
struct Case<'a> {
    system: &'a System,
    model: &'a str,
    computes: bool,
}

/// Times of one model, by system.
struct Row<'a> {
    model: &'a str,
    /// The mean after the first.
    iterations_s: Vec<f64>,
    firsts_s: Vec<f64>,
}

/// How long iterations of one run take.
#[derive(Clone, Copy)]
struct Times {
    first_s: f64,
    later_s: f64,
}

impl Form for Setup {
    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        let (rows, limit) = self.measure(context)?;
        let mut claims = self.claims(&rows);
        claims.extend(self.limit_claims(&limit));
        Ok(Findings {
            claims,
            plots: vec![self.throughput_plot(&rows), self.speedup_plot(&rows)],
            tables: vec![self.throughput_table(&rows), self.limit_table(&limit)],
        })
    }
}

impl Setup {
    /// Every model on every system, and the limit without computing.
    fn measure(&self, context: &Context<'_>) -> Result<(Vec<Row<'_>>, Row<'_>), FigureError> {
        let of_model = |model, computes| {
            self.systems.iter().map(move |system| Case { system, model, computes })
        };
        let trained = self.models.iter().flat_map(|model| of_model(model, true));
        let cases: Vec<Case<'_>> = trained.chain(of_model(&self.limit_model, false)).collect();
        let label = |case: &Case<'_>| format!("{}, {}", case.model, case.system.name);
        let times = context.each(&cases, label, |case, point| self.iteration_s(*case, point))?;
        let names = self.models.iter().chain([&self.limit_model]);
        let row = |(model, times): (_, &[Times])| Row {
            model,
            iterations_s: times.iter().map(|times| times.later_s).collect(),
            firsts_s: times.iter().map(|times| times.first_s).collect(),
        };
        let rows = names.map(String::as_str).zip(times.chunks(self.systems.len())).map(row);
        let mut rows: Vec<Row<'_>> = rows.collect();
        let limit = rows.pop().expect("the limit was measured last");
        Ok((rows, limit))
    }

    /// How long iterations take, at the model's full size.
    fn iteration_s(&self, case: Case<'_>, point: &Point<'_>) -> Result<Times, FigureError> {
        let network = Network {
            workers: self.workers,
            rate: &self.rate,
            delay_ns: self.delay_ns / self.divisor,
            switch: &self.switch,
            aggregation: &self.aggregation,
        };
        let file = network.scenario(case.system, case.model, self.job(case), self.divisor);
        let scenario = shrink::scenario(point, (case.model, self.divisor), &file)?;
        let outcome = run_to_end(&scenario, STEP, point)?;
        let times = outcome.jobs.first().and_then(|job| times(job, self.divisor));
        let few = || format!("{} has fewer than 2 iterations", scenario.title());
        times.ok_or_else(|| point.context.failed(few()))
    }

    fn job(&self, case: Case<'_>) -> toml::Table {
        let mut job = entries([
            ("json", "model.json".into()),
            ("iterations", self.iterations.into()),
            ("bucket", format!("{:.0}B", self.bucket_bytes / self.divisor).into()),
        ]);
        job.extend(if case.computes {
            let flops_per_s = self.flops_per_s * self.divisor;
            entries([("flops-per-s", flops_per_s.into()), ("batch", self.batch.into())])
        } else {
            entries([("forward", "0ns".into()), ("backward", "0ns".into())])
        });
        job
    }

    /// How much faster the first system is than each one.
    fn speedups(row: &Row<'_>) -> Vec<f64> {
        row.iterations_s.iter().map(|time| time / row.iterations_s[0]).collect()
    }

    fn claims(&self, rows: &[Row<'_>]) -> Vec<Claim> {
        let others = rows.iter().flat_map(|row| Setup::speedups(row).into_iter().skip(1));
        let mut claims = vec![Claim::measured(
            format!("{}, beside the best other system, in the worst case", self.systems[0].name),
            "best for all jobs",
            others.fold(f64::INFINITY, f64::min),
            Unit::Ratio,
            Rule::AtLeast(1.0 - MARGIN),
        )];
        let firsts = rows
            .iter()
            .flat_map(|row| row.firsts_s.iter().skip(1).map(|time| time / row.firsts_s[0]));
        claims.push(Claim::measured(
            "the same in the first iteration, with its collisions",
            "best for all jobs",
            firsts.fold(f64::INFINITY, f64::min),
            Unit::Ratio,
            Rule::AtLeast(1.0 - MARGIN),
        ));
        for (index, system) in self.systems.iter().enumerate() {
            let Some(paper) = system.paper_most else { continue };
            claims.push(Claim::measured(
                format!("largest speed-up over {}", system.name),
                paper,
                rows.iter().map(|row| Setup::speedups(row)[index]).fold(0.0, f64::max),
                Unit::Ratio,
                Rule::AtLeast(LEAST_SPEEDUP),
            ));
        }
        // Over all systems, so that no single one decides.
        let gain = |row: &&Row<'_>| {
            let speedups = Setup::speedups(row);
            speedups.iter().sum::<f64>() / speedups.len() as f64
        };
        let is_bound = |row: &&Row<'_>| self.network_intensive.iter().any(|name| name == row.model);
        let least = rows.iter().filter(is_bound).map(|row| gain(&row)).fold(f64::NAN, f64::min);
        let others = rows.iter().filter(|row| !is_bound(row));
        let most = others.map(|row| gain(&row)).fold(f64::NAN, f64::max);
        claims.push(Claim::rising(
            "mean speed-up: largest of a ResNet, then least of AlexNet and VGG",
            "larger for network-intensive models",
            &[most, least],
            Unit::Ratio,
        ));
        claims
    }

    /// Without computing, times are as the bytes on the busiest link.
    fn limit_claims(&self, limit: &Row<'_>) -> Vec<Claim> {
        let first = self.systems[0].link_bytes(self.workers);
        let claim = |(system, speedup): (&System, f64)| {
            let of = system.link_bytes(self.workers) / first;
            Claim::measured(
                format!("without computing: time of {}", system.name),
                system.bytes_in_words(self.workers),
                speedup,
                Unit::Ratio,
                Rule::Within { of, share: LIMIT_SHARE },
            )
        };
        self.systems.iter().zip(Setup::speedups(limit)).skip(1).map(claim).collect()
    }

    fn images_a_second(&self, iteration_s: f64) -> f64 {
        f64::from(self.batch) / iteration_s
    }

    fn throughput_table(&self, rows: &[Row<'_>]) -> Listing {
        let mut table = Table::by_column(rows).left("model", |row| row.model.to_owned());
        for (at, system) in self.systems.iter().enumerate() {
            table = table.right(&*system.name, |row| {
                let images = format_number(self.images_a_second(row.iterations_s[at]));
                format!("{images} ({})", format_ratio(Setup::speedups(row)[at]))
            });
        }
        let caption = format!(
            "Images a second and worker; in brackets how much faster {} is",
            self.systems[0].name
        );
        Listing::new(table, caption)
    }

    fn limit_table(&self, limit: &Row<'_>) -> Listing {
        let model = models::by_name(limit.model);
        let bytes = model.map_or(f64::NAN, |model| model.values() as f64 * 4.0);
        let link_bytes = |system: &System| bytes * system.link_bytes(self.workers);
        let line_us = |system: &System| link_bytes(system) * 8.0 / LINE_RATE_BPS * 1e6;
        let table = Table::by_column(self.systems.iter().zip(&limit.iterations_s))
            .left("system", |(system, _)| system.name.clone())
            .right("bytes on the busiest link", |(it, _)| Unit::Bytes.format(link_bytes(it)))
            .right("as a time at line rate", |(it, _)| Unit::SpanUs.format(line_us(it)))
            .right("iteration", |(_, time_s)| Unit::SpanUs.format(*time_s * 1e6));
        Listing::new(table, format!("{} without computing, at its full size", limit.model))
    }

    fn throughput_plot(&self, rows: &[Row<'_>]) -> Plot {
        let caption = "Images a second and worker; the axis is logarithmic.";
        self.plot("Training throughput", Axis::log10("images/s"), rows, caption, |row, index| {
            self.images_a_second(row.iterations_s[index])
        })
    }

    fn speedup_plot(&self, rows: &[Row<'_>]) -> Plot {
        let caption = "How long an iteration takes, measured in iterations of the first system.";
        let axis = Axis::linear("iteration").unit(Unit::Ratio);
        self.plot("Time of an iteration", axis, rows, caption, |row, index| {
            Setup::speedups(row)[index]
        })
    }

    fn plot(
        &self,
        title: &str,
        axis: Axis,
        rows: &[Row<'_>],
        caption: &str,
        value: impl Fn(&Row<'_>, usize) -> f64,
    ) -> Plot {
        let bars = |(index, system): (usize, &System)| {
            Series::bars(&*system.name, rows.iter().map(|row| value(row, index)))
        };
        let chart = Chart::new(title)
            .x(Axis::categories("model", rows.iter().map(|row| row.model)))
            .y(axis)
            .all(self.systems.iter().enumerate().map(bars));
        Plot::new(chart, caption)
    }
}

/// What the table of times at line rate is computed with.
const LINE_RATE_BPS: f64 = 1e11;

/// How often a run tells how far it is.
const STEP: Span = Span::from_us(500);

/// How long the first iteration took, and the others on average. `None` if there are no others.
fn times(job: &JobRecord, divisor: f64) -> Option<Times> {
    let last = job.sums_at.iter().filter_map(|times| times.last()).max()?;
    let first = *job.iterations.first()?;
    let others = job.iterations.len() - 1;
    let others_s = last.since(job.start + first).as_s_f64();
    (others > 0).then(|| Times {
        first_s: first.as_s_f64() * divisor,
        later_s: others_s / others as f64 * divisor,
    })
}
