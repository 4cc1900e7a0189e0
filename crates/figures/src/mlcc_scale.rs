//! Ours: what a decision takes, and what it takes to simulate, on clusters of up to 10,000 servers.

use serde::Deserialize;
use thalweg_report::format::{Unit, format_count, format_number, format_span_us};
use thalweg_report::plot::{Axis, Chart, Series};
use thalweg_report::stats::Sample;
use thalweg_report::table::{Column, Table};

use crate::fluid::Mix;
use crate::fluid::measure::{Network, Outcome, Setup, Size, Who};
use crate::{Claim, Context, Figure, FigureError, Findings, Listing, Plot, Rule};

/// The figure.
pub(crate) struct MlccScale;

/// What nine decisions of ten take in the paper, with thousands of jobs.
const PAPER_DECISION_US: f64 = 1_500.0;
/// A decision is a server's own business: it must not take longer in a larger cluster.
const GROWTH_MOST: f64 = 2.0;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Plan {
    network: Network,
    mix: Mix,
    sizes: Vec<Size>,
}

impl Figure for MlccScale {
    fn name(&self) -> &'static str {
        "mlcc-scale"
    }

    fn plan(&self) -> &'static str {
        include_str!("../plans/mlcc-scale.toml")
    }

    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        let Plan { network, mix, sizes } = context.plan(self)?;
        // One after the other: what is measured is time.
        let mut alone = *context;
        alone.threads = 1;
        let label = |size: &Size| format!("{} servers", format_count(size.servers()));
        let run = |size: &Size, point: &crate::Point<'_>| {
            let setup = Setup { figure: self.name(), network: &network, mix: &mix, size: *size };
            setup.run(Who::Ours, context.seed, point)
        };
        let outcomes = alone.each(&sizes, label, run)?;
        let runs: Vec<(&Size, Outcome)> = sizes.iter().zip(outcomes).collect();
        Ok(Findings {
            claims: claims(&runs),
            plots: vec![plot(&runs)],
            tables: vec![table(&runs)],
            not_measured: Vec::new(),
            notes: NOTES.map(str::to_owned).into(),
        })
    }
}

const NOTES: [&str; 2] = [
    "Everything here is time read from a clock, and differs from run to run and from machine to machine. A \
     machine that is busy otherwise makes the last percent of decisions long.",
    "The number of servers grows with the number of jobs, so that a server has as much to do in every size.",
];

fn percentile(run: &Outcome, percent: f64) -> f64 {
    let sample = Sample::new(run.decisions_us.iter().copied());
    sample.map_or(f64::NAN, |sample| sample.percentile(percent))
}

fn claims(runs: &[(&Size, Outcome)]) -> Vec<Claim> {
    let (small, large) = (&runs[0], &runs[runs.len() - 1]);
    let name = format_count(large.0.servers());
    vec![
        Claim::measured(
            format!("{name} servers: nine decisions of ten take at most"),
            PAPER_DECISION_US,
            percentile(&large.1, 90.0),
            Unit::SpanUs,
            Rule::AtMost(PAPER_DECISION_US),
        ),
        Claim::measured(
            format!(
                "growth of the median decision from {} servers",
                format_count(small.0.servers())
            ),
            "not shown",
            percentile(&large.1, 50.0) / percentile(&small.1, 50.0),
            Unit::Ratio,
            Rule::AtMost(GROWTH_MOST),
        ),
    ]
}

fn plot(runs: &[(&Size, Outcome)]) -> Plot {
    let mut chart = Chart::new("What a decision takes")
        .x(Axis::log10("time of a decision").unit(Unit::SpanUs))
        .y(Axis::linear("share of decisions").unit(Unit::Percent));
    for (size, run) in runs {
        let name = format!("{} servers", format_count(size.servers()));
        chart = chart.series(Series::cdf(name, &run.decisions_us));
    }
    Plot { chart, caption: "All flows of a server in one slot, from feedback to rates.".to_owned() }
}

fn table(runs: &[(&Size, Outcome)]) -> Listing {
    let mut table = Table::new([
        Column::right("servers"),
        Column::right("jobs at once"),
        Column::right("slots"),
        Column::right("decisions"),
        Column::right("median"),
        Column::right("90th percentile"),
        Column::right("99th percentile"),
        Column::right("refused"),
        Column::right("simulated in"),
        Column::right("ms a slot"),
    ]);
    for (size, run) in runs {
        table.push([
            format_count(size.servers()),
            format_count(run.jobs_most as u64),
            format_count(run.slots),
            format_count(run.decisions_us.len() as u64),
            format_span_us(percentile(run, 50.0)),
            format_span_us(percentile(run, 90.0)),
            format_span_us(percentile(run, 99.0)),
            format_count(run.refusals),
            format_span_us(run.elapsed_s * 1e6),
            format_number(run.elapsed_s * 1e3 / run.slots as f64),
        ]);
    }
    Listing { table, caption: "Decisions, and what the simulation takes".to_owned() }
}
