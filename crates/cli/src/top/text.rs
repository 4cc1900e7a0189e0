//! The picture as tables and as JSON.

use std::time::Duration;

use serde_json::json;
use thalweg_report::format::{format_count, format_number, format_percent};
use thalweg_report::table::{Column, Table};

use super::picture::{DaemonRow, JobRow, Picture};

/// Text for a value that is not known.
pub(super) const UNKNOWN: &str = "–";

/// Headers of the table of daemons that answer.
const DAEMON_HEADERS: [&str; 8] = [
    "role",
    "address",
    "packets/s",
    "aggregations/s",
    "collisions/s",
    "drops/s",
    "memory",
    "aggregators",
];

/// Headers of the table of jobs.
const JOB_HEADERS: [&str; 9] = [
    "job",
    "name",
    "ranks",
    "aggregators",
    "share",
    "gradients/s",
    "completed/s",
    "collisions/s",
    "resent/s",
];

/// Tables for people.
pub(super) fn tables(picture: &Picture) -> String {
    let mut text = table(&DAEMON_HEADERS, 2, picture.daemons.iter().map(daemon_cells)).to_string();
    if !picture.jobs.is_empty() {
        text += &format!("\n{}", table(&JOB_HEADERS, 2, picture.jobs.iter().map(job_cells)));
    }
    text
}

/// One document for programs.
pub(super) fn json(picture: &Picture, interval: Duration) -> String {
    let Picture { daemons, jobs } = picture;
    let interval_s = interval.as_secs_f64();
    let document = json!({
        "schema": "thalweg.top/1",
        "interval_s": interval_s,
        "daemons": daemons,
        "jobs": jobs,
    });
    format!("{document}\n")
}

/// One cell a header.
pub(super) fn daemon_cells(row: &DaemonRow) -> [String; 8] {
    let role = row.role.clone().unwrap_or_else(|| UNKNOWN.into());
    let address = row.address.clone().unwrap_or_else(|| row.metrics.clone());
    if let Some(trouble) = trouble(row) {
        let nothing = || UNKNOWN.to_owned();
        return [role, address, nothing(), nothing(), nothing(), nothing(), nothing(), trouble];
    }
    let aggregators = match (row.aggregators_occupied, row.aggregators) {
        (Some(held), Some(all)) => format!("{} of {}", format_count(held), format_count(all)),
        _ => UNKNOWN.into(),
    };
    let memory = match (row.memory_reserved_bytes, row.memory_budget_bytes) {
        (Some(held), Some(all)) if all > 0 => format_percent(held as f64 / all as f64),
        _ => UNKNOWN.into(),
    };
    let rates = [row.packets_per_s, row.aggregations_per_s, row.collisions_per_s, row.drops_per_s];
    let [packets, aggregations, collisions, drops] = rates.map(rate);
    [role, address, packets, aggregations, collisions, drops, memory, aggregators]
}

/// One cell a header.
pub(super) fn job_cells(row: &JobRow) -> [String; 9] {
    let ranks = match (row.ranks_connected, row.ranks) {
        (Some(connected), Some(all)) => format!("{connected}/{all}"),
        _ => UNKNOWN.into(),
    };
    let rates = [
        row.gradients_per_s,
        row.completed_per_s,
        row.collisions_per_s,
        row.parameters_again_per_s,
    ];
    let [gradients, completed, collisions, resent] = rates.map(rate);
    [
        row.job.clone(),
        row.name.clone().unwrap_or_else(|| UNKNOWN.into()),
        ranks,
        format_count(row.aggregators),
        format_percent(row.share),
        gradients,
        completed,
        collisions,
        resent,
    ]
}

/// Since when a daemon does not answer, and why.
fn trouble(row: &DaemonRow) -> Option<String> {
    let (since, error) = row.silent_since.as_ref().zip(row.error.as_ref())?;
    Some(format!("no answer since {since}: {error}"))
}

fn table<const N: usize>(
    headers: &[&str; N],
    words: usize,
    rows: impl Iterator<Item = [String; N]>,
) -> Table {
    let column = |(number, header): (usize, &&str)| {
        if number < words { Column::left(*header) } else { Column::right(*header) }
    };
    let mut table = Table::new(headers.iter().enumerate().map(column));
    rows.for_each(|row| table.push(row));
    table
}

fn rate(rate: Option<f64>) -> String {
    rate.map_or_else(|| UNKNOWN.into(), format_number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::picture::tests::{server_text, switch_text, watched};

    fn picture() -> Picture {
        Picture::of(&[
            watched("a:1", [Some(switch_text(1_000)), Some(switch_text(3_000))]),
            watched("b:1", [Some(server_text(10)), Some(server_text(60))]),
            watched("c:1", [None, None]),
        ])
    }

    #[test]
    fn tables_say_who_does_what() {
        let text = tables(&picture());
        let cells = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let lines: Vec<Vec<String>> = text.lines().map(cells).collect();
        let has = |wanted: &str| lines.iter().any(|line| line.join(" ") == wanted);
        assert!(has("switch 10.0.3.1:4800 4,000 2,400 0 40 – 4 of 16"), "{text}");
        assert!(has("server 10.0.3.2:4808 100 0 0 0 0.475% –"), "{text}");
        let silent = "– c:1 – – – – – no answer since 1970-01-01T00:00:00Z: refused";
        assert!(has(silent), "{text}");
        assert!(has("0a resnet 3/4 3 18.8% 0 100 0 0"), "{text}");
        assert!(has("0b – – 1 6.25% 0 0 0 0"), "{text}");
    }

    #[test]
    fn json_is_one_document() {
        let text = json(&picture(), Duration::from_millis(500));
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(json["interval_s"], 0.5);
        assert_eq!(json["daemons"][0]["packets_received"], 3_000);
        assert_eq!(json["daemons"][2]["role"], serde_json::Value::Null);
        assert_eq!(json["daemons"][2]["silent_since"], "1970-01-01T00:00:00Z");
        assert_eq!(json["jobs"][0]["share"], 0.1875);
    }
}
