//! MLCC, Figure 15: completion times of jobs on a cluster of a thousand servers, and what decisions take.

use serde::Deserialize;
use thalweg_report::format::{Unit, format_count, format_number};
use thalweg_report::plot::{Axis, Chart, Series};
use thalweg_report::stats::Sample;
use thalweg_report::table::{Column, Table};

use crate::fluid::Mix;
use crate::fluid::measure::{Network, Outcome, Setup, Size, Who};
use crate::{Claim, Context, Figure, FigureError, Findings, Listing, Plot, Rule};

/// The figure.
pub(crate) struct Mlcc15;

/// By how much the paper's jobs end sooner than with MCS and with CCML.
const PAPER_GAINS: [(Who, f64); 2] = [(Who::Mcs, 0.336), (Who::Ccml, 0.233)];
/// Nine decisions of ten take no longer in the paper.
const PAPER_DECISION_US: f64 = 1_500.0;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Plan {
    network: Network,
    mix: Mix,
    size: Size,
}

impl Plan {
    fn setup(&self) -> Setup<'_> {
        let Plan { network, mix, size } = self;
        Setup { figure: Mlcc15.name(), network, mix, size: *size }
    }
}

impl Figure for Mlcc15 {
    fn name(&self) -> &'static str {
        "mlcc-15"
    }

    fn plan(&self) -> &'static str {
        include_str!("../plans/mlcc-15.toml")
    }

    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        let plan: Plan = context.plan(self)?;
        let label = |who: &Who| who.name().to_owned();
        let run = |who: &Who, point: &crate::Point<'_>| plan.setup().run(*who, context.seed, point);
        let outcomes = context.each(&Who::ALL, label, run)?;
        let runs: Vec<(Who, Outcome)> = Who::ALL.into_iter().zip(outcomes).collect();
        Ok(Findings {
            claims: claims(&runs),
            plots: plots(&runs),
            tables: vec![table(&runs)],
            not_measured: NOT_MEASURED.map(str::to_owned).into(),
            notes: NOTES.map(str::to_owned).into(),
        })
    }
}

const NOT_MEASURED: [&str; 1] = [
    "the paper's own jobs: it states neither their models in the simulation nor their numbers of workers \
     and iterations, and takes arrivals from a trace. Ours are drawn, and arrive as a Poisson process",
];

const NOTES: [&str; 5] = [
    "All policies have the same jobs, placed by the same rule, and the same slots of 60 ms, on whose \
     boundaries phases of sending begin and end.",
    "MCS serves the job first that has least left to send, and lets a broadcast start after the \
     aggregation has ended. Rings are pipelined as they are for everybody. What it leaves of a link goes to \
     whoever may send.",
    "CCML turns new jobs against those on their servers and lets who began to send first go first at \
     servers' links, at once; the published one gets there by unfair shares, over several iterations.",
    "Fair sharing is exact max-min fairness with pipelined broadcasts: better than any transport.",
    "Ours are the machines that run on a network, with messages that take no time, as everybody decides at \
     once here. Feedback is from the beginning of the slot, hosts decide one after the other, and tables \
     refuse. Times of decisions are read from a clock and differ from run to run, unlike everything else.",
];

fn mean(runs: &[(Who, Outcome)], who: Who) -> f64 {
    let run = runs.iter().find(|(of, _)| *of == who);
    let sample = run.and_then(|(_, run)| Sample::new(run.completions_s.iter().copied()));
    sample.map_or(f64::NAN, |sample| sample.mean())
}

fn claims(runs: &[(Who, Outcome)]) -> Vec<Claim> {
    let gain = |who| 1.0 - mean(runs, Who::Ours) / mean(runs, who);
    let mut claims: Vec<Claim> = PAPER_GAINS
        .into_iter()
        .map(|(who, paper)| {
            let text = format!("average completion time below that of {} by", who.name());
            Claim::measured(text, paper, gain(who), Unit::Percent, Rule::AtLeast(0.0))
        })
        .collect();
    claims.push(Claim::measured(
        "average completion time below that of fair sharing by",
        "not in this figure",
        gain(Who::Fair),
        Unit::Percent,
        Rule::AtLeast(0.0),
    ));
    let decisions = Sample::new(runs[0].1.decisions_us.iter().copied());
    claims.push(Claim::measured(
        "nine decisions of ten take at most",
        PAPER_DECISION_US,
        decisions.map_or(f64::NAN, |sample| sample.percentile(90.0)),
        Unit::SpanUs,
        Rule::AtMost(PAPER_DECISION_US),
    ));
    claims
}

fn plots(runs: &[(Who, Outcome)]) -> Vec<Plot> {
    let names = Who::ALL.map(Who::name);
    let means = Chart::new("Average completion time of jobs")
        .x(Axis::categories("", names))
        .y(Axis::linear("seconds"))
        .series(Series::bars("average", Who::ALL.map(|who| mean(runs, who))));
    let mut all = Chart::new("Completion times of jobs")
        .x(Axis::linear("seconds"))
        .y(Axis::linear("share of jobs").unit(Unit::Percent));
    for (who, run) in runs {
        all = all.series(Series::cdf(who.name(), &run.completions_s));
    }
    let decisions = Chart::new("What a decision takes")
        .x(Axis::log10("time of a decision").unit(Unit::SpanUs))
        .y(Axis::linear("share of decisions").unit(Unit::Percent))
        .series(Series::cdf("ours", &runs[0].1.decisions_us));
    let with = |chart, caption: &str| Plot { chart, caption: caption.to_owned() };
    vec![
        with(means, "From arrival to the end of the last iteration."),
        with(all, "The same, of every job."),
        with(decisions, "All flows of a server in one slot, from feedback to rates."),
    ]
}

fn table(runs: &[(Who, Outcome)]) -> Listing {
    let mut table = Table::new([
        Column::left("policy"),
        Column::right("average, s"),
        Column::right("median, s"),
        Column::right("95th percentile, s"),
        Column::right("last job, slot"),
        Column::right("jobs at once, at most"),
    ]);
    for (who, run) in runs {
        let Some(sample) = Sample::new(run.completions_s.iter().copied()) else { continue };
        table.push([
            who.name().to_owned(),
            format_number(sample.mean()),
            format_number(sample.percentile(50.0)),
            format_number(sample.percentile(95.0)),
            format_count(run.slots),
            format_count(run.jobs_most as u64),
        ]);
    }
    Listing { table, caption: "Completion times of all jobs".to_owned() }
}

#[cfg(test)]
mod tests;
