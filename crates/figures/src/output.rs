//! A report as text, JSON, CSV, SVG and a page. Nothing here does I/O.

mod csv;
mod json;
mod page;
mod text;

use thalweg_report::format::MISSING;
use thalweg_report::table::Table;

use crate::Report;

pub use csv::csv;
pub use json::{json, list_json};
pub(crate) use json::{unit_name, unit_named};
pub use page::page;
pub use text::{list_text, text};

/// The drawings as files: `NAME.svg` is the figure, `NAME-2.svg` and so on are the others.
pub fn svgs(report: &Report) -> Vec<(String, String)> {
    let plots = report.first().plots.iter().enumerate();
    plots
        .map(|(index, plot)| {
            let name = match index {
                0 => format!("{}.svg", report.name),
                _ => format!("{}-{}.svg", report.name, index + 1),
            };
            (name, plot.chart.to_svg())
        })
        .collect()
}

/// Verdict on the figure, in one line; if it does not hold, the line names what fails.
pub fn verdict(report: &Report) -> String {
    let verdicts = report.verdicts();
    let seeds = match report.runs.len() {
        1 => String::new(),
        seeds => format!(" over {seeds} seeds"),
    };
    let failed: Vec<&str> =
        verdicts.iter().filter(|claim| !claim.holds()).map(|claim| claim.text.as_str()).collect();
    match failed.len() {
        0 if verdicts.len() == 1 => format!("holds: the one claim{seeds}"),
        0 => format!("holds: all {} claims{seeds}", verdicts.len()),
        count => format!(
            "does NOT hold: {count} of {} claims{seeds}: {}",
            verdicts.len(),
            failed.join("; ")
        ),
    }
}

/// Table of the paper's values beside the measured ones.
fn claims_table(report: &Report) -> Table {
    Table::by_column(report.verdicts())
        .left("claim", |claim| claim.text.clone())
        .right("paper", |claim| claim.paper.format(claim.unit))
        .right("ours", |claim| claim.ours.format(claim.unit))
        .left("rule", |claim| claim.rule.clone())
        .left("holds", |claim| match (claim.holds(), claim.values.len()) {
            (true, 1) => "yes".to_owned(),
            (false, 1) => "NO".to_owned(),
            (true, seeds) => format!("yes, {seeds} of {seeds} seeds"),
            (false, seeds) => format!("NO, {} of {seeds} seeds", claim.held),
        })
        .into()
}

/// Size and seeds of the run, in one line.
fn size(report: &Report) -> String {
    let size = match report.quick {
        true => "quick size, for a look: the full size is what counts",
        false => "full size",
    };
    let seeds = match report.runs.last() {
        Some((last, _)) if report.runs.len() > 1 => format!("seeds {} to {last}", report.seed()),
        _ => format!("seed {}", report.seed()),
    };
    let seconds = report.seconds.map(|seconds| format!(", {seconds:.1} s")).unwrap_or_default();
    format!("{seeds}, {size}{seconds}")
}

/// A duration that nobody needs to the millisecond.
fn roughly(seconds: f64) -> String {
    match seconds {
        s if !s.is_finite() => MISSING.to_owned(),
        s if s < 0.95 => "under 1 s".to_owned(),
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5_400.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3_600.0),
    }
}

#[cfg(test)]
mod tests;
