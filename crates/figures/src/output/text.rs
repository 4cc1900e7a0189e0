//! For the terminal.

use thalweg_report::table::{Column, Style, Table};

use super::{claims_table, roughly, size, verdict};
use crate::{Figure, FigureError, Findings, Plan, Report};

/// A report: the paper beside ours, what is drawn, what is missing, and the verdict.
pub fn text(report: &Report, style: Style) -> String {
    let first = report.first();
    let heading = &report.heading;
    let mut text = format!("{}\n", heading.title);
    text += &format!("{}, {}\n\n", heading.paper, size(report));
    text += &claims_table(report).to_text(style);
    for listing in &first.tables {
        text += &format!("\n{}\n{}", listing.caption, listing.table.to_text(style));
    }
    text += &items("series", &series(first));
    text += &items("not measured", &heading.not_measured);
    text += &items("notes", &heading.notes);
    text += &format!("\n{}: {}\n", report.name, verdict(report));
    text
}

/// Every figure, what it shows, and how long it takes.
pub fn list_text(figures: &[Figure], style: Style) -> Result<String, FigureError> {
    let mut table = Table::new([
        Column::left("figure"),
        Column::left("source"),
        Column::left("shows"),
        Column::right("full run"),
        Column::right("quick"),
    ]);
    for figure in figures {
        let plan = Plan::of(figure)?;
        let heading = plan.heading();
        table.push([
            figure.name().to_owned(),
            heading.paper.clone(),
            heading.about.clone(),
            roughly(heading.full_run_s),
            roughly(heading.quick_run_s),
        ]);
    }
    Ok(table.to_text(style))
}

fn series(findings: &Findings) -> Vec<String> {
    let charts = findings.plots.iter().map(|plot| &plot.chart);
    charts
        .map(|chart| {
            let names = chart.all_series().iter().map(|series| match series.points().len() {
                1 => format!("{} (1 point)", series.name()),
                points => format!("{} ({points} points)", series.name()),
            });
            format!("{}: {}", chart.title(), names.collect::<Vec<_>>().join(", "))
        })
        .collect()
}

/// A heading and its lines, or nothing where there are none.
fn items(heading: &str, lines: &[String]) -> String {
    match lines {
        [] => String::new(),
        lines => {
            lines.iter().fold(format!("\n{heading}:\n"), |text, line| format!("{text}  - {line}\n"))
        }
    }
}
