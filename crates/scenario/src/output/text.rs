//! Outcomes for the terminal.

use thalweg_fabric::DropReason;
use thalweg_report::format::{
    format_bytes, format_count, format_percent, format_rate_bps, format_ratio, format_span_us,
};
use thalweg_report::stats::{Sample, Summary};
use thalweg_report::table::{Column, Style, Table};
use thalweg_stack::PacingStats;

use super::links::link_groups;
use crate::job::WorkerStats;
use crate::outcome::Outcome;
use crate::programs::SwitchStats;
use crate::run::Ending;
use crate::scenario::Scenario;

/// One run: iterations of jobs, what switches did for them, completion times by size, links, and what
/// was dropped and marked.
pub fn outcome(scenario: &Scenario, outcome: &Outcome, style: Style) -> String {
    let mut text = format!("{}\n{}\n\n", scenario.title(), headline(outcome));
    let mut tables = Vec::new();
    if !outcome.jobs.is_empty() {
        tables.push(jobs(outcome));
    }
    if !outcome.switches.is_empty() {
        tables.push(switches(scenario, outcome));
    }
    if outcome.jobs.iter().any(|job| !job.servers.is_empty()) {
        tables.push(servers(scenario, outcome));
    }
    if !outcome.flows.is_empty() {
        tables.push(classes(outcome));
    }
    tables.push(links(scenario, outcome));
    let tables: Vec<String> = tables.iter().map(|table| table.to_text(style)).collect();
    text += &tables.join("\n");
    text += &format!("\n{}\n", packets(outcome));
    if let Some(stats) = &outcome.pacing {
        text += &format!("{}\n", pacing(stats));
    }
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

/// How long the iterations of jobs took, and what it cost.
pub fn jobs(outcome: &Outcome) -> Table {
    let mut table = Table::new([
        Column::right("job"),
        Column::left("model"),
        Column::left("collective"),
        Column::right("workers"),
        Column::right("iterations"),
        Column::right("computing"),
        Column::right("mean"),
        Column::right("shortest"),
        Column::right("longest"),
        Column::right("goodput"),
        Column::right("resent"),
        Column::right("queries"),
        Column::right("halvings"),
    ]);
    for (number, job) in outcome.jobs.iter().enumerate() {
        let planned = format_count(job.planned_iterations);
        let done = job.iterations.len() as u64;
        let mut row = vec![
            number.to_string(),
            job.model.clone(),
            job.collective.name().to_owned(),
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
        let goodput = job.goodput_bytes_per_s().map(|bytes| format_rate_bps(bytes * 8.0));
        row.push(goodput.unwrap_or_else(|| "–".to_owned()));
        let WorkerStats { resent, queries, mark_halvings, loss_halvings, .. } = job.total();
        row.extend([resent, queries, mark_halvings + loss_halvings].map(format_count));
        table.push(row);
    }
    table
}

/// What the programs of switches did.
pub fn switches(scenario: &Scenario, outcome: &Outcome) -> Table {
    let mut table = Table::new([
        Column::left("switch"),
        Column::left("program"),
        Column::right("packets summed"),
        Column::right("sums"),
        Column::right("collisions"),
        Column::right("passed on"),
        Column::right("doubles"),
    ]);
    for switch in &outcome.switches {
        let (program, counts) = match &switch.stats {
            SwitchStats::Aggregate(stats) => {
                let summed = stats.taken + stats.added;
                let [collisions, passed] = [stats.collisions, stats.passed];
                ("aggregate", [summed, stats.completed, collisions, passed, stats.duplicates])
            }
            SwitchStats::SwitchMl(stats) => {
                let [summed, sums] = [stats.added_packets, stats.complete_packets];
                ("switchml", [summed, sums, 0, 0, stats.known_packets])
            }
        };
        let mut row = vec![scenario.node_name(switch.switch).to_owned(), program.to_owned()];
        row.extend(counts.map(format_count));
        table.push(row);
    }
    table
}

/// What the servers of in-network aggregation did.
pub fn servers(scenario: &Scenario, outcome: &Outcome) -> Table {
    let mut table = Table::new([
        Column::left("server"),
        Column::right("job"),
        Column::right("gradients in"),
        Column::right("packets summed"),
        Column::right("sums"),
        Column::right("collisions"),
    ]);
    for (number, job) in outcome.jobs.iter().enumerate() {
        for server in &job.servers {
            let stats = &server.stats;
            table.push([
                scenario.node_name(server.host).to_owned(),
                number.to_string(),
                format_bytes(stats.gradient_bytes),
                format_count(stats.added),
                format_count(stats.completed),
                format_count(stats.collisions),
            ]);
        }
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

/// What schedulers did, in one line.
fn pacing(stats: &PacingStats) -> String {
    format!(
        "plans: {} made, {} without an answer, {} refused; {} of what was planned for a slot left in it",
        format_count(stats.plans),
        format_count(stats.blind),
        format_count(stats.refused),
        stats.used_part().map_or("nothing".to_owned(), format_percent),
    )
}

/// How the run went, in one line.
pub fn headline(outcome: &Outcome) -> String {
    let what = match (outcome.jobs.len(), outcome.flows.len()) {
        (0, flows) => many(flows, "flow"),
        (jobs, 0) => many(jobs, "job"),
        (jobs, flows) => format!("{} and {}", many(jobs, "job"), many(flows, "flow")),
    };
    let ending = match (outcome.ending, outcome.jobs.is_empty()) {
        (Ending::Complete, true) => "all flows ended",
        (Ending::Complete, false) => "all ended",
        (Ending::TimeUp, _) => "stopped at the scenario's time limit",
        (Ending::Stuck, _) => "nothing was left to happen",
        (Ending::Interrupted, _) => "interrupted",
    };
    let unfinished = match outcome.unfinished() {
        0 => String::new(),
        count => format!(", {} did not arrive whole", format_count(count as u64)),
    };
    let failed = outcome.jobs.iter().enumerate().filter_map(|(number, job)| {
        Some(format!(", job {number} ended early: {}", job.failure.as_ref()?))
    });
    format!(
        "{what} in {} of simulated time, {ending}{unfinished}{} (seed {}, digest {})",
        format_span_us(outcome.now.as_us_f64()),
        failed.collect::<String>(),
        outcome.seed,
        outcome.digest,
    )
}

fn many(count: usize, name: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {name}{plural}", format_count(count as u64))
}
