//! Files that a run writes.

use std::path::Path;
use std::time::Duration;

use thalweg_console::{Failure, files};
use thalweg_report::format::{format_count, format_rate_bps, format_ratio, format_span_us};
use thalweg_report::stats::Sample;
use thalweg_report::table::Table;
use thalweg_scenario::sweep::Variant;
use thalweg_scenario::{JobRecord, Outcome, SizeClass, output};

use super::SCHEMA;

/// Writes report, JSON and CSVs of one run into a folder.
pub(crate) fn run(
    folder: &Path,
    variant: &Variant,
    outcome: &Outcome,
    source: &str,
) -> Result<(), Failure> {
    let Variant { scenario, label, .. } = variant;
    let mut json = output::json::outcome(scenario, outcome);
    json["schema"] = SCHEMA.into();
    if !label.is_empty() {
        json["variant"] = label.clone().into();
    }
    let page = output::page::outcome(scenario, outcome, source, label);
    files::write(&folder.join("report.html"), &page)?;
    files::write(&folder.join("result.json"), format!("{json:#}\n"))?;
    files::write(&folder.join("flows.csv"), output::csv::flows(outcome))?;
    files::write(&folder.join("jobs.csv"), output::csv::jobs(outcome))
}

/// A row for every run of a sweep.
pub(crate) fn sweep_table(variants: &[Variant], outcomes: &[(Outcome, Duration)]) -> Table {
    let has_flows = outcomes.iter().any(|(outcome, _)| !outcome.flows.is_empty());
    let has_jobs = outcomes.iter().any(|(outcome, _)| !outcome.jobs.is_empty());
    let mean = |values: &mut dyn Iterator<Item = f64>, format: fn(f64) -> String| {
        Sample::new(values).map_or("–".to_owned(), |sample| format(sample.mean()))
    };
    let all = |outcome: &Outcome, cell: fn(&SizeClass) -> String| {
        outcome.classes().last().map_or("–".to_owned(), cell)
    };
    let rows = variants.iter().zip(outcomes).map(|(variant, (outcome, _))| (variant, outcome));
    let mut table = Table::by_column(rows)
        .left("variant", |(variant, _)| variant.label.clone())
        .right("seed", |(variant, _)| variant.seed.to_string());
    if has_jobs {
        let us = |outcome: &Outcome| {
            let iterations = outcome.jobs.iter().flat_map(|job| &job.iterations);
            mean(&mut iterations.map(|span| span.as_us_f64()), format_span_us)
        };
        let goodput = |outcome: &Outcome| {
            let bytes_per_s = outcome.jobs.iter().filter_map(JobRecord::goodput_bytes_per_s);
            mean(&mut bytes_per_s.map(|bytes| bytes * 8.0), format_rate_bps)
        };
        table = table
            .right("iteration", |(_, outcome)| us(outcome))
            .right("goodput", |(_, outcome)| goodput(outcome));
    }
    if has_flows {
        table = table
            .right("flows", |(_, outcome)| format_count(outcome.flows.len() as u64))
            .right("mean", |(_, outcome)| all(outcome, |all| format_span_us(all.fct_us.mean)))
            .right("p99", |(_, outcome)| all(outcome, |all| format_span_us(all.fct_us.p99)))
            .right("slowdown", |(_, outcome)| all(outcome, |all| format_ratio(all.slowdown.mean)))
            .right("p99 slowdown", |(_, it)| all(it, |all| format_ratio(all.slowdown.p99)))
            .right("unfinished", |(_, outcome)| format_count(outcome.unfinished() as u64));
    }
    table.right("dropped", |(_, outcome)| format_count(outcome.stats.dropped())).into()
}
