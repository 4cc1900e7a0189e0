//! Outcomes for the terminal.

use thalweg_fabric::DropReason;
use thalweg_report::format::{
    format_bytes, format_count, format_percent, format_ratio, format_span_us,
};
use thalweg_report::stats::{Sample, Summary};
use thalweg_report::table::{Column, Style, Table};

use super::links::link_groups;
use crate::outcome::Outcome;
use crate::run::Ending;
use crate::scenario::Scenario;

/// One run: iterations of jobs, completion times by size, links, and what was dropped and marked.
pub fn outcome(scenario: &Scenario, outcome: &Outcome, style: Style) -> String {
    let mut text = format!("{}\n{}\n\n", scenario.title(), headline(outcome));
    if !outcome.jobs.is_empty() {
        text += &jobs(outcome).to_text(style);
        text += "\n";
    }
    text += &classes(outcome).to_text(style);
    text += "\n";
    text += &links(scenario, outcome).to_text(style);
    text += &format!("\n{}\n", packets(outcome));
    text
}

/// Completion times by size class.
pub fn classes(outcome: &Outcome) -> Table {
    let mut table = Table::new([
        Column::left("flow size"),
        Column::right("flows"),
        Column::right("mean"),
        Column::right("p50"),
        Column::right("p99"),
        Column::right("slowdown"),
        Column::right("p99 slowdown"),
    ]);
    for class in outcome.classes() {
        table.push([
            class.name.to_owned(),
            format_count(class.count as u64),
            format_span_us(class.fct_us.mean),
            format_span_us(class.fct_us.p50),
            format_span_us(class.fct_us.p99),
            format_ratio(class.slowdown.mean),
            format_ratio(class.slowdown.p99),
        ]);
    }
    table
}

/// How long the iterations of training jobs took.
pub fn jobs(outcome: &Outcome) -> Table {
    let mut table = Table::new([
        Column::right("job"),
        Column::left("model"),
        Column::right("workers"),
        Column::right("iterations"),
        Column::right("computing"),
        Column::right("mean"),
        Column::right("shortest"),
        Column::right("longest"),
    ]);
    for (number, job) in outcome.jobs.iter().enumerate() {
        let planned = format_count(job.planned_iterations);
        let done = job.iterations.len() as u64;
        let mut row = vec![
            number.to_string(),
            job.model.clone(),
            format_count(job.workers as u64),
            if done == job.planned_iterations {
                planned
            } else {
                format!("{} of {planned}", format_count(done))
            },
            format_span_us(job.compute.as_us_f64()),
        ];
        match Sample::new(job.iterations.iter().map(|span| span.as_us_f64())) {
            Some(sample) => {
                let Summary { mean, min, max, .. } = sample.summary();
                row.extend([mean, min, max].map(format_span_us));
            }
            None => row.extend(["–"; 3].map(str::to_owned)),
        }
        table.push(row);
    }
    table
}

/// How busy the links were.
pub fn links(scenario: &Scenario, outcome: &Outcome) -> Table {
    let mut table = Table::new([
        Column::left("links"),
        Column::right("count"),
        Column::right("mean use"),
        Column::right("busiest"),
        Column::right("peak queue"),
        Column::right("dropped"),
        Column::right("marked"),
    ]);
    for group in link_groups(scenario, outcome) {
        table.push([
            group.name.to_owned(),
            format_count(group.count as u64),
            format_percent(group.mean_use),
            format_percent(group.max_use),
            format_bytes(group.peak_queue_bytes),
            format_count(group.dropped_packets),
            format_count(group.marked_packets),
        ]);
    }
    table
}

/// What became of the packets, in one line.
pub fn packets(outcome: &Outcome) -> String {
    let stats = &outcome.stats;
    let dropped: Vec<String> = DropReason::ALL
        .into_iter()
        .zip(stats.dropped_packets)
        .filter(|(_, count)| *count > 0)
        .map(|(reason, count)| format!("{} {}", format_count(count), reason.name()))
        .collect();
    let dropped = if dropped.is_empty() { "0".to_owned() } else { dropped.join(", ") };
    format!(
        "packets: {} sent, {} hops, {} resent, {} marked, dropped: \
         {dropped}",
        format_count(stats.created_packets),
        format_count(stats.packet_hops),
        format_count(outcome.resent_packets),
        format_count(outcome.marked_packets()),
    )
}

/// How the run went, in one line.
pub fn headline(outcome: &Outcome) -> String {
    let ending = match outcome.ending {
        Ending::Complete => "all flows ended",
        Ending::TimeUp => "stopped at the scenario's time limit",
        Ending::Stuck => "nothing was left to happen",
        Ending::Interrupted => "interrupted",
    };
    let unfinished = match outcome.unfinished() {
        0 => String::new(),
        count => format!(", {} did not arrive whole", format_count(count as u64)),
    };
    format!(
        "{} flows in {} of simulated time, {ending}{unfinished} (seed {}, digest {})",
        format_count(outcome.flows.len() as u64),
        format_span_us(outcome.now.as_us_f64()),
        outcome.seed,
        outcome.digest,
    )
}
