//! Ours: what a decision takes, and what it takes to simulate, on clusters of up to 10,000 servers.

use serde::Deserialize;
use thalweg_report::format::{Unit, format_count, format_number, format_span_us};
use thalweg_report::plot::{Axis, Chart, Series};
use thalweg_report::stats::Sample;
use thalweg_report::table::Table;

use crate::fluid::Mix;
use crate::fluid::measure::{Network, Outcome, Setup, Size, Who};
use crate::frame::figure::Form;
use crate::{Claim, Context, FigureError, Findings, Listing, Plot, Rule};

/// What nine decisions of ten take in the paper, with thousands of jobs.
const PAPER_DECISION_US: f64 = 1_500.0;
/// A decision is a server's own business: it must not take longer in a larger cluster.
const GROWTH_MOST: f64 = 2.0;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    network: Network,
    mix: Mix,
    sizes: Vec<Size>,
}

impl Form for Plan {
    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        let Plan { network, mix, sizes } = self;
        // One after the other: what is measured is time.
        let mut alone = *context;
        alone.threads = 1;
        let outcomes = alone.each(sizes, name, |size, point| {
            Setup { network, mix, size: *size }.run(Who::Ours, point)
        })?;
        let runs: Vec<(&Size, Outcome)> = sizes.iter().zip(outcomes).collect();
        Ok(Findings { claims: claims(&runs), plots: vec![plot(&runs)], tables: vec![table(&runs)] })
    }
}

fn name(size: &Size) -> String {
    format!("{} servers", format_count(size.servers()))
}

fn percentile(run: &Outcome, percent: f64) -> f64 {
    let sample = Sample::new(run.decisions_us.iter().copied());
    sample.map_or(f64::NAN, |sample| sample.percentile(percent))
}

fn claims(runs: &[(&Size, Outcome)]) -> Vec<Claim> {
    let (small, large) = (&runs[0], &runs[runs.len() - 1]);
    vec![
        Claim::measured(
            format!("{}: nine decisions of ten take at most", name(large.0)),
            PAPER_DECISION_US,
            percentile(&large.1, 90.0),
            Unit::SpanUs,
            Rule::AtMost(PAPER_DECISION_US),
        ),
        Claim::measured(
            format!("growth of the median decision from {}", name(small.0)),
            "not shown",
            percentile(&large.1, 50.0) / percentile(&small.1, 50.0),
            Unit::Ratio,
            Rule::AtMost(GROWTH_MOST),
        ),
    ]
}

fn plot(runs: &[(&Size, Outcome)]) -> Plot {
    let chart = Chart::new("What a decision takes")
        .x(Axis::log10("time of a decision").unit(Unit::SpanUs))
        .y(Axis::linear("share of decisions").unit(Unit::Percent))
        .all(runs.iter().map(|(size, run)| Series::cdf(name(size), &run.decisions_us)));
    Plot::new(chart, "All flows of a server in one slot, from feedback to rates.")
}

fn table(runs: &[(&Size, Outcome)]) -> Listing {
    let table = Table::by_column(runs)
        .right("servers", |(size, _)| format_count(size.servers()))
        .right("jobs at once", |(_, run)| format_count(run.jobs_most as u64))
        .right("slots", |(_, run)| format_count(run.slots))
        .right("decisions", |(_, run)| format_count(run.decisions_us.len() as u64))
        .right("median", |(_, run)| format_span_us(percentile(run, 50.0)))
        .right("90th percentile", |(_, run)| format_span_us(percentile(run, 90.0)))
        .right("99th percentile", |(_, run)| format_span_us(percentile(run, 99.0)))
        .right("refused", |(_, run)| format_count(run.refusals))
        .right("simulated in", |(_, run)| format_span_us(run.elapsed_s * 1e6))
        .right("ms a slot", |(_, run)| format_number(run.elapsed_s * 1e3 / run.slots as f64));
    Listing::new(table, "Decisions, and what the simulation takes")
}
