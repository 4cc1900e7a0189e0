//! Outcomes for programs.

use serde_json::{Map, Value, json};
use thalweg_fabric::DropReason;

use super::links::link_groups;
use crate::outcome::{Outcome, SizeClass};
use crate::run::Ending;
use crate::scenario::Scenario;
use crate::training::JobRecord;

/// One run as a JSON object.
pub fn outcome(scenario: &Scenario, outcome: &Outcome) -> Value {
    let links: Vec<Value> = link_groups(scenario, outcome)
        .iter()
        .map(|group| {
            json!({
                "links": group.name,
                "count": group.count,
                "mean_use": group.mean_use,
                "max_use": group.max_use,
                "peak_queue_bytes": group.peak_queue_bytes,
                "dropped_packets": group.dropped_packets,
                "marked_packets": group.marked_packets,
            })
        })
        .collect();
    json!({
        "scenario": scenario.title(),
        "seed": outcome.seed,
        "digest": outcome.digest.to_string(),
        "ending": match outcome.ending {
            Ending::Complete => "complete",
            Ending::TimeUp => "time up",
            Ending::Stuck => "stuck",
            Ending::Interrupted => "interrupted",
        },
        "simulated_us": outcome.now.as_us_f64(),
        "flows": outcome.flows.len(),
        "unfinished_flows": outcome.unfinished(),
        "classes": outcome.classes().iter().map(class).collect::<Vec<_>>(),
        "jobs": outcome.jobs.iter().enumerate().map(job).collect::<Vec<_>>(),
        "links": links,
        "packets": packets(outcome),
    })
}

fn class(class: &SizeClass) -> Value {
    json!({
        "class": class.name,
        "count": class.count,
        "mean_us": class.fct_us.mean,
        "p50_us": class.fct_us.p50,
        "p99_us": class.fct_us.p99,
        "mean_slowdown": class.slowdown.mean,
        "p99_slowdown": class.slowdown.p99,
    })
}

fn job((number, job): (usize, &JobRecord)) -> Value {
    json!({
        "job": number,
        "model": job.model,
        "workers": job.workers,
        "compute_us": job.compute.as_us_f64(),
        "planned_iterations": job.planned_iterations,
        "iterations_us": job.iterations.iter().map(|span| span.as_us_f64()).collect::<Vec<_>>(),
    })
}

fn packets(outcome: &Outcome) -> Value {
    let stats = &outcome.stats;
    let reasons = DropReason::ALL.into_iter().zip(stats.dropped_packets);
    let dropped: Map<String, Value> =
        reasons.map(|(reason, count)| (reason.name().to_owned(), count.into())).collect();
    json!({
        "sent": stats.created_packets,
        "copied": stats.copied_packets,
        "delivered": stats.consumed_packets,
        "hops": stats.packet_hops,
        "events": stats.events,
        "resent": outcome.resent_packets,
        "marked": outcome.marked_packets(),
        "dropped": dropped,
    })
}
