//! For spreadsheets.

use std::fmt::Write;

use crate::Report;

/// Every point of every drawing, as the first seed has it.
pub fn csv(report: &Report) -> String {
    let mut text = String::from("chart,series,x,y\n");
    for plot in &report.first().plots {
        let chart = &plot.chart;
        for series in chart.all_series() {
            for (x, y) in series.points() {
                let x = chart.x_axis().category(*x).map_or_else(|| x.to_string(), field);
                let (title, name) = (field(chart.title()), field(series.name()));
                writeln!(text, "{title},{name},{x},{y}").expect("writing to a string cannot fail");
            }
        }
    }
    text
}

/// Quoted where it has to be.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
