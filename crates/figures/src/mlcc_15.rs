//! MLCC, Figure 15: completion times of jobs on a cluster of a thousand servers, and what decisions take.

use serde::Deserialize;
use thalweg_report::format::{Unit, format_count, format_number};
use thalweg_report::plot::{Axis, Chart, Series};
use thalweg_report::stats::Sample;
use thalweg_report::table::Table;

use crate::fluid::Mix;
use crate::fluid::measure::{Network, Outcome, Setup, Size, Who};
use crate::frame::figure::Form;
use crate::{Claim, Context, FigureError, Findings, Listing, Plot, Rule};

/// By how much the paper's jobs end sooner than with MCS and with CCML.
const PAPER_GAINS: [(Who, f64); 2] = [(Who::Mcs, 0.336), (Who::Ccml, 0.233)];
/// Nine decisions of ten take no longer in the paper.
const PAPER_DECISION_US: f64 = 1_500.0;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    network: Network,
    mix: Mix,
    size: Size,
}

impl Plan {
    fn setup(&self) -> Setup<'_> {
        let Plan { network, mix, size } = self;
        Setup { network, mix, size: *size }
    }
}

impl Form for Plan {
    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        let label = |who: &Who| who.name().to_owned();
        let outcomes =
            context.each(&Who::ALL, label, |who, point| self.setup().run(*who, point))?;
        let runs: Vec<(Who, Outcome)> = Who::ALL.into_iter().zip(outcomes).collect();
        Ok(Findings { claims: claims(&runs), plots: plots(&runs), tables: vec![table(&runs)] })
    }
}

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
    let all = Chart::new("Completion times of jobs")
        .x(Axis::linear("seconds"))
        .y(Axis::linear("share of jobs").unit(Unit::Percent))
        .all(runs.iter().map(|(who, run)| Series::cdf(who.name(), &run.completions_s)));
    let decisions = Chart::new("What a decision takes")
        .x(Axis::log10("time of a decision").unit(Unit::SpanUs))
        .y(Axis::linear("share of decisions").unit(Unit::Percent))
        .series(Series::cdf("ours", &runs[0].1.decisions_us));
    vec![
        Plot::new(means, "From arrival to the end of the last iteration."),
        Plot::new(all, "The same, of every job."),
        Plot::new(decisions, "All flows of a server in one slot, from feedback to rates."),
    ]
}

fn table(runs: &[(Who, Outcome)]) -> Listing {
    let rows = runs
        .iter()
        .filter_map(|(who, run)| Some((who, run, Sample::new(run.completions_s.iter().copied())?)));
    let table = Table::by_column(rows)
        .left("policy", |(who, ..)| who.name().to_owned())
        .right("average, s", |(.., sample)| format_number(sample.mean()))
        .right("median, s", |(.., sample)| format_number(sample.percentile(50.0)))
        .right("95th percentile, s", |(.., sample)| format_number(sample.percentile(95.0)))
        .right("last job, slot", |(_, run, _)| format_count(run.slots))
        .right("jobs at once, at most", |(_, run, _)| format_count(run.jobs_most as u64));
    Listing::new(table, "Completion times of all jobs")
}

#[cfg(test)]
mod tests;
