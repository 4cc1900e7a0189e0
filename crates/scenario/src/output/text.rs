//! Outcomes for the terminal.

use thalweg_fabric::DropReason;
use thalweg_report::format::{
    format_bytes, format_count, format_percent, format_rate_bps, format_ratio, format_span_us,
};
use thalweg_report::stats::Sample;
use thalweg_report::table::{Style, Table};
use thalweg_stack::PacingStats;

use super::links::link_groups;
use crate::job::{JobRecord, WorkerStats};
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
    Table::by_column(outcome.classes())
        .left("flow size", |class| class.name.to_owned())
        .right("flows", |class| format_count(class.count as u64))
        .right("mean", |class| format_span_us(class.fct_us.mean))
        .right("p50", |class| format_span_us(class.fct_us.p50))
        .right("p99", |class| format_span_us(class.fct_us.p99))
        .right("slowdown", |class| format_ratio(class.slowdown.mean))
        .right("p99 slowdown", |class| format_ratio(class.slowdown.p99))
        .into()
}

/// Table of the iterations of jobs: duration and cost.
pub fn jobs(outcome: &Outcome) -> Table {
    let none = || "–".to_owned();
    let span = |job: &JobRecord, of: fn(&Sample) -> f64| {
        let sample = Sample::new(job.iterations.iter().map(|span| span.as_us_f64()));
        sample.map_or_else(none, |sample| format_span_us(of(&sample)))
    };
    let goodput = |job: &JobRecord| {
        let bytes_per_s = job.goodput_bytes_per_s();
        bytes_per_s.map_or_else(none, |bytes| format_rate_bps(bytes * 8.0))
    };
    let halvings = |total: WorkerStats| total.mark_halvings + total.loss_halvings;
    Table::by_column(outcome.jobs.iter().enumerate())
        .right("job", |(number, _)| number.to_string())
        .left("model", |(_, job)| job.model.clone())
        .left("collective", |(_, job)| job.collective.name().to_owned())
        .right("workers", |(_, job)| format_count(job.workers as u64))
        .right("iterations", |(_, job)| iterations(job))
        .right("computing", |(_, job)| format_span_us(job.compute.as_us_f64()))
        .right("mean", |(_, job)| span(job, Sample::mean))
        .right("shortest", |(_, job)| span(job, Sample::min))
        .right("longest", |(_, job)| span(job, Sample::max))
        .right("goodput", |(_, job)| goodput(job))
        .right("resent", |(_, job)| format_count(job.total().resent))
        .right("queries", |(_, job)| format_count(job.total().queries))
        .right("halvings", |(_, job)| format_count(halvings(job.total())))
        .into()
}

/// Iterations that a job has done, of those that were planned.
fn iterations(job: &JobRecord) -> String {
    let planned = format_count(job.planned_iterations);
    match job.iterations.len() as u64 {
        done if done == job.planned_iterations => planned,
        done => format!("{} of {planned}", format_count(done)),
    }
}

/// Table of the counters of switches' programs.
pub fn switches(scenario: &Scenario, outcome: &Outcome) -> Table {
    let counted = outcome.switches.iter().map(|switch| {
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
        (scenario.node_name(switch.switch), program, counts)
    });
    let mut table = Table::by_column(counted)
        .left("switch", |(name, ..)| (*name).to_owned())
        .left("program", |(_, program, _)| (*program).to_owned());
    let counts = ["packets summed", "sums", "collisions", "passed on", "doubles"];
    for (at, header) in counts.into_iter().enumerate() {
        table = table.right(header, |(.., counts)| format_count(counts[at]));
    }
    table.into()
}

/// Table of the counters of servers of in-network aggregation.
pub fn servers(scenario: &Scenario, outcome: &Outcome) -> Table {
    let servers = outcome.jobs.iter().enumerate().flat_map(|(number, job)| {
        job.servers.iter().map(move |server| (number, server.host, &server.stats))
    });
    Table::by_column(servers)
        .left("server", |(_, host, _)| scenario.node_name(*host).to_owned())
        .right("job", |(number, ..)| number.to_string())
        .right("gradients in", |(.., stats)| format_bytes(stats.gradient_bytes))
        .right("packets summed", |(.., stats)| format_count(stats.added))
        .right("sums", |(.., stats)| format_count(stats.completed))
        .right("collisions", |(.., stats)| format_count(stats.collisions))
        .into()
}

/// Table of the use of links.
pub fn links(scenario: &Scenario, outcome: &Outcome) -> Table {
    Table::by_column(link_groups(scenario, outcome))
        .left("links", |group| group.name.to_owned())
        .right("count", |group| format_count(group.count as u64))
        .right("mean use", |group| format_percent(group.mean_use))
        .right("busiest", |group| format_percent(group.max_use))
        .right("peak queue", |group| format_bytes(group.peak_queue_bytes))
        .right("dropped", |group| format_count(group.dropped_packets))
        .right("marked", |group| format_count(group.marked_packets))
        .into()
}

/// Packets that were sent, delivered and dropped, in one line.
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

/// Counters of schedulers, in one line.
fn pacing(stats: &PacingStats) -> String {
    format!(
        "plans: {} made, {} without an answer, {} refused; {} of what was planned for a slot left in it",
        format_count(stats.plans),
        format_count(stats.blind),
        format_count(stats.refused),
        stats.used_part().map_or("nothing".to_owned(), format_percent),
    )
}

/// End of the run and its totals, in one line.
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
