//! For the terminal.

use thalweg_report::table::{Style, Table};

use super::{claims_table, roughly, size, verdict};
use crate::{Figure, FigureError, Findings, Plan, Report};

/// A report: the paper's values beside the measured ones, drawings, gaps, and the verdict.
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
    let headings = figures.iter().map(|figure| Ok((figure, Plan::of(figure)?.heading().clone())));
    let table: Table = Table::by_column(headings.collect::<Result<Vec<_>, FigureError>>()?)
        .left("figure", |(figure, _)| figure.name().to_owned())
        .left("source", |(_, heading)| heading.paper.clone())
        .left("shows", |(_, heading)| heading.about.clone())
        .right("full run", |(_, heading)| roughly(heading.full_run_s))
        .right("quick", |(_, heading)| roughly(heading.quick_run_s))
        .into();
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
