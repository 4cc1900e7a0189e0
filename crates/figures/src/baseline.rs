//! Whether our baselines are as strong as their own papers say: slowdowns on the networks of those papers.
//!
//! A slowdown is the time of a flow by the time that it takes alone.

use serde::Deserialize;
use thalweg_core::Span;
use thalweg_report::format::{Unit, format_count, format_number};
use thalweg_report::plot::{Axis, Chart, Series};
use thalweg_report::stats::Sample;
use thalweg_report::table::Table as Numbers;
use thalweg_scenario::{FlowRecord, Outcome};
use toml::{Table, Value};

use crate::file::{entries, table};
use crate::frame::figure::Form;
use crate::runs::{self, no_files, run_flows};
use crate::{Claim, Context, FigureError, Findings, Listing, Plot, Point, Rule};

/// What a plan holds: tables of a scenario, and what the paper says.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Setup {
    topology: Table,
    switch: Table,
    transport: Table,
    sizes: String,
    loads: Vec<f64>,
    flows: u32,
    /// Whether a flow ends where it arrives, or where its sender knows that.
    one_way: bool,
    claims: Vec<Said>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Said {
    flows: Flows,
    value: Statistic,
    load: f64,
    paper: String,
    at_most: f64,
}

/// Which flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Flows {
    /// Of up to 100 KB.
    Short,
    ShorterHalf,
    All,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Statistic {
    Mean,
    P99,
}

/// Slowdowns of one run.
struct Slowdowns {
    /// Of short flows, of the shorter half, and of all.
    samples: [Sample; 3],
    resent_packets: u64,
}

impl Flows {
    const EVERY: [Flows; 3] = [Flows::Short, Flows::ShorterHalf, Flows::All];

    fn name(self) -> &'static str {
        match self {
            Flows::Short => "flows up to 100 KB",
            Flows::ShorterHalf => "the shorter half",
            Flows::All => "all flows",
        }
    }
}

impl Statistic {
    fn of(self, sample: &Sample) -> f64 {
        match self {
            Statistic::Mean => sample.mean(),
            Statistic::P99 => sample.percentile(99.0),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Statistic::Mean => "mean slowdown",
            Statistic::P99 => "99th percentile of slowdown",
        }
    }
}

impl Form for Setup {
    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        let label = |load: &f64| format!("load {load}");
        let measured =
            context.each(&self.loads, label, |load, point| self.measure(*load, point))?;
        Ok(Findings {
            claims: self.claims.iter().map(|said| said.claim(self, &measured)).collect(),
            plots: vec![
                self.plot(Statistic::Mean, &measured),
                self.plot(Statistic::P99, &measured),
            ],
            tables: vec![self.table(&measured)],
        })
    }
}

impl Setup {
    fn measure(&self, load: f64, point: &Point<'_>) -> Result<Slowdowns, FigureError> {
        let scenario = runs::scenario(point, self.file(load), &no_files)?;
        let outcome = run_flows(&scenario, point)?;
        let none = || format!("seed {}: there are no short flows", point.context.seed);
        Slowdowns::of(&outcome, self.one_way).ok_or_else(|| point.context.failed(none()))
    }

    fn file(&self, load: f64) -> Table {
        let poisson = table([
            ("sizes", self.sizes.as_str().into()),
            ("load", load.into()),
            ("load-counts", "wire".into()),
            ("flows", self.flows.into()),
        ]);
        entries([
            ("title", "the plan".into()),
            ("topology", self.topology.clone().into()),
            ("switch", self.switch.clone().into()),
            ("transport", self.transport.clone().into()),
            ("traffic", Value::Array(vec![table([("poisson", poisson)])])),
        ])
    }

    fn plot(&self, statistic: Statistic, measured: &[Slowdowns]) -> Plot {
        let loads = self.loads.iter().map(|load| format_number(*load));
        let bars = |flows: Flows| {
            let of = |run: &Slowdowns| statistic.of(&run.samples[flows as usize]);
            Series::bars(flows.name(), measured.iter().map(of))
        };
        let chart = Chart::new(statistic.name())
            .x(Axis::categories("load", loads))
            .y(Axis::linear(statistic.name()).unit(Unit::Ratio))
            .all(Flows::EVERY.map(bars));
        Plot::new(chart, format!("{}, for each load and kind of flows.", statistic.name()))
    }

    fn table(&self, measured: &[Slowdowns]) -> Listing {
        let runs = self.loads.iter().zip(measured);
        let rows = runs.flat_map(|(load, run)| {
            Flows::EVERY.map(|flows| (*load, flows, &run.samples[flows as usize], run))
        });
        let ratio = |value: f64| Unit::Ratio.format(value);
        let table = Numbers::by_column(rows)
            .right("load", |(load, ..)| format_number(*load))
            .left("flows", |(_, flows, ..)| flows.name().to_owned())
            .right("count", |(.., sample, _)| format_count(sample.count() as u64))
            .right("mean", |(.., sample, _)| ratio(sample.mean()))
            .right("median", |(.., sample, _)| ratio(sample.percentile(50.0)))
            .right("99th percentile", |(.., sample, _)| ratio(sample.percentile(99.0)))
            .right("packets sent again", |(.., run)| format_count(run.resent_packets));
        Listing::new(table, "Slowdowns")
    }
}

impl Said {
    fn claim(&self, setup: &Setup, measured: &[Slowdowns]) -> Claim {
        let place = setup.loads.iter().position(|load| *load == self.load);
        let sample = place.map(|place| &measured[place].samples[self.flows as usize]);
        let value = sample.map_or(f64::NAN, |sample| self.value.of(sample));
        let text = format!("load {}: {}, {}", self.load, self.value.name(), self.flows.name());
        let rule = Rule::AtMost(self.at_most);
        Claim::measured(text, self.paper.as_str(), value, Unit::Ratio, rule)
    }
}

/// Flows up to this size are short.
const SHORT_BYTES: u64 = 100_000;

impl Slowdowns {
    /// `None` if there is no flow of some kind.
    fn of(outcome: &Outcome, one_way: bool) -> Option<Slowdowns> {
        let alone = outcome.ideals.iter().zip(&outcome.answers);
        let slowdown = |(flow, (ideal, answer)): (&FlowRecord, (&Span, &Span))| {
            let spent = outcome.completion(flow)?.as_us_f64();
            // An acknowledgement hardly waits for anything; what it waits counts against the flow.
            let back = if one_way { answer.as_us_f64() } else { 0.0 };
            Some((flow.spec.bytes.as_u64(), (spent - back) / (ideal.as_us_f64() - back)))
        };
        let mut sized: Vec<(u64, f64)> =
            outcome.flows.iter().zip(alone).filter_map(slowdown).collect();
        sized.sort_by_key(|(bytes, _)| *bytes);
        let half = sized.len() / 2;
        let short = sized.partition_point(|(bytes, _)| *bytes <= SHORT_BYTES);
        let of = |count: usize| Sample::new(sized[..count].iter().map(|(_, slowdown)| *slowdown));
        Some(Slowdowns {
            samples: [of(short)?, of(half)?, of(sized.len())?],
            resent_packets: outcome.resent_packets,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_about_loads_that_there_are() {
        for figure in ["baseline-homa", "baseline-pfabric"] {
            for quick in [false, true] {
                let setup: Setup = crate::find(figure).unwrap().form(quick);
                for said in &setup.claims {
                    assert!(setup.loads.contains(&said.load), "{figure}: {}", said.load);
                }
            }
        }
    }
}
