//! What a run leaves behind.

use std::path::Path;
use std::time::Duration;

use thalweg_console::{Failure, files};
use thalweg_report::format::{format_count, format_rate_bps, format_ratio, format_span_us};
use thalweg_report::stats::Sample;
use thalweg_report::table::{Column, Table};
use thalweg_scenario::sweep::Variant;
use thalweg_scenario::{JobRecord, Outcome, output};

/// Writes report, JSON and CSVs of one run into a folder.
pub(crate) fn run(
    folder: &Path,
    variant: &Variant,
    outcome: &Outcome,
    source: &str,
) -> Result<(), Failure> {
    let Variant { scenario, label, .. } = variant;
    let mut json = output::json::outcome(scenario, outcome);
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
    let mut columns = vec![Column::left("variant"), Column::right("seed")];
    if has_jobs {
        columns.extend(["iteration", "goodput"].map(Column::right));
    }
    if has_flows {
        let of_flows = ["flows", "mean", "p99", "slowdown", "p99 slowdown", "unfinished"];
        columns.extend(of_flows.map(Column::right));
    }
    columns.push(Column::right("dropped"));
    let mut table = Table::new(columns);
    for (variant, (outcome, _)) in variants.iter().zip(outcomes) {
        let mut row = vec![variant.label.clone(), variant.seed.to_string()];
        if has_jobs {
            row.extend(job_cells(outcome));
        }
        if has_flows {
            row.extend(flow_cells(outcome));
        }
        row.push(format_count(outcome.stats.dropped()));
        table.push(row);
    }
    table
}

/// The mean iteration, and the mean goodput of a worker, over all jobs.
fn job_cells(outcome: &Outcome) -> [String; 2] {
    let iterations = outcome.jobs.iter().flat_map(|job| &job.iterations);
    let iteration = Sample::new(iterations.map(|span| span.as_us_f64()));
    let goodput = Sample::new(outcome.jobs.iter().filter_map(JobRecord::goodput_bytes_per_s));
    let cell = |sample: Option<Sample>, format: fn(f64) -> String| {
        sample.map_or("–".to_owned(), |sample| format(sample.summary().mean))
    };
    [cell(iteration, format_span_us), cell(goodput, |bytes| format_rate_bps(bytes * 8.0))]
}

fn flow_cells(outcome: &Outcome) -> Vec<String> {
    let mut cells = vec![format_count(outcome.flows.len() as u64)];
    match outcome.classes().last() {
        Some(all) => cells.extend([
            format_span_us(all.fct_us.mean),
            format_span_us(all.fct_us.p99),
            format_ratio(all.slowdown.mean),
            format_ratio(all.slowdown.p99),
        ]),
        None => cells.extend(["–"; 4].map(str::to_owned)),
    }
    cells.push(format_count(outcome.unfinished() as u64));
    cells
}
