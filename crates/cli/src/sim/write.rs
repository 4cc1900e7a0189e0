//! What a run leaves behind.

use std::path::Path;
use std::time::Duration;

use thalweg_report::format::{format_count, format_ratio, format_span_us};
use thalweg_report::table::{Column, Table};
use thalweg_scenario::sweep::Variant;
use thalweg_scenario::{Outcome, output};

use crate::failure::Failure;
use crate::files;

/// Writes report, JSON and CSV of one run into a folder.
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
    files::write(&folder.join("result.json"), &format!("{json:#}\n"))?;
    files::write(&folder.join("flows.csv"), &output::csv::flows(outcome))?;
    files::write(&folder.join("jobs.csv"), &output::csv::jobs(outcome))
}

/// A row for every run of a sweep.
pub(crate) fn sweep_table(variants: &[Variant], outcomes: &[(Outcome, Duration)]) -> Table {
    let mut table = Table::new([
        Column::left("variant"),
        Column::right("seed"),
        Column::right("flows"),
        Column::right("mean"),
        Column::right("p99"),
        Column::right("slowdown"),
        Column::right("p99 slowdown"),
        Column::right("dropped"),
        Column::right("unfinished"),
    ]);
    for (variant, (outcome, _)) in variants.iter().zip(outcomes) {
        let mut row = vec![variant.label.clone(), variant.seed.to_string()];
        row.push(format_count(outcome.flows.len() as u64));
        match outcome.classes().last() {
            Some(all) => row.extend([
                format_span_us(all.fct_us.mean),
                format_span_us(all.fct_us.p99),
                format_ratio(all.slowdown.mean),
                format_ratio(all.slowdown.p99),
            ]),
            None => row.extend(["–"; 4].map(str::to_owned)),
        }
        row.push(format_count(outcome.stats.dropped()));
        row.push(format_count(outcome.unfinished() as u64));
        table.push(row);
    }
    table
}
