//! To look at.

use thalweg_report::page::{Card, Page, Section, Tone};

use super::{claims_table, size, verdict};
use crate::Report;

/// A self-contained page.
pub fn page(report: &Report) -> String {
    let heading = &report.heading;
    let Report { name, plan, .. } = report;
    let quick = if report.quick { " --quick" } else { "" };
    let seeds = match report.runs.len() {
        1 => String::new(),
        seeds => format!(" --seeds {seeds}"),
    };
    Page::new(&heading.title)
        .subtitle(format!("{}: {}", heading.paper, heading.about))
        .section(comparison(report))
        .section(drawings(report))
        .section(remarks(report))
        .section(
            Section::new("Plan")
                .paragraph("What this was run with, for the record.")
                .details("plan", *plan),
        )
        .footer(format!(
            "{}. Run it again: thalweg figure {name}{quick} --seed {}{seeds}",
            size(report),
            report.seed()
        ))
        .to_html()
}

fn comparison(report: &Report) -> Section {
    let verdicts = report.verdicts();
    let held = verdicts.iter().filter(|claim| claim.holds()).count();
    let (label, tone) = match report.holds() {
        true => ("holds", Tone::Good),
        false => ("does NOT hold", Tone::Bad),
    };
    let card = Card::new(label, format!("{held} of {}", verdicts.len()))
        .note("claims agree with the paper")
        .tone(tone);
    Section::new("The paper's values and the measured ones")
        .cards([card])
        .paragraph(verdict(report))
        .table(claims_table(report), "")
}

fn drawings(report: &Report) -> Section {
    let first = report.first();
    let mut section = Section::new("Measured");
    for plot in &first.plots {
        section = section.plot(plot.chart.clone(), &plot.caption);
    }
    for listing in &first.tables {
        section = section.table(listing.table.clone(), &listing.caption);
    }
    if report.runs.len() > 1 {
        section = section.paragraph(format!("Drawn from seed {}.", report.seed()));
    }
    section
}

fn remarks(report: &Report) -> Section {
    let mut section = Section::new("What to know");
    for line in &report.heading.not_measured {
        section = section.paragraph(format!("Not measured: {line}"));
    }
    for note in &report.heading.notes {
        section = section.paragraph(note);
    }
    section
}
