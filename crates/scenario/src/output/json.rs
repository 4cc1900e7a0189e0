//! Outcomes for programs.

use serde_json::{Map, Value, json};
use thalweg_fabric::DropReason;
use thalweg_stack::PacingStats;

use super::links::link_groups;
use crate::job::{JobRecord, ServerUse};
use crate::outcome::{Outcome, SizeClass};
use crate::programs::{SwitchStats, SwitchUse};
use crate::run::Ending;
use crate::scenario::Scenario;

/// One run as a JSON object.
pub fn outcome(scenario: &Scenario, outcome: &Outcome) -> Value {
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
        "switches": outcome.switches.iter().map(switch).collect::<Vec<_>>(),
        "links": link_groups(scenario, outcome),
        "order": order(outcome),
        "packets": packets(outcome),
        "pacing": outcome.pacing.as_ref().map(pacing),
    })
}

/// Counters of schedulers.
fn pacing(stats: &PacingStats) -> Value {
    json!({
        "plans": stats.plans,
        "blind_plans": stats.blind,
        "refused_plans": stats.refused,
        "planned_bytes": stats.usage.planned.as_u64(),
        "used_bytes": stats.usage.used.as_u64(),
    })
}

/// Order of flows' packets, and losses.
fn order(outcome: &Outcome) -> Value {
    let arrivals = &outcome.arrivals;
    let ends = || outcome.flows.iter().filter_map(|flow| flow.end);
    json!({
        "bounded_flows": outcome.tagged.bounded,
        "flows_within_bounds": outcome.tagged.within,
        "unseen_flows": outcome.tagged.unseen,
        "forests_learned": outcome.tagged.forests,
        "detected_losses": ends().map(|end| u64::from(end.detections)).sum::<u64>(),
        "flow_timeouts": ends().map(|end| u64::from(end.timeouts)).sum::<u64>(),
        "needless_copies": arrivals.copies,
        "peak_held_bytes": arrivals.peak_held_bytes,
        "mean_held_bytes": arrivals.mean_held_bytes(),
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
    let total = job.total();
    json!({
        "job": number,
        "kind": job.kind.name(),
        "model": job.model,
        "collective": job.collective.name(),
        "workers": job.workers,
        "compute_us": job.compute.as_us_f64(),
        "planned_iterations": job.planned_iterations,
        "iterations_us": job.iterations.iter().map(|span| span.as_us_f64()).collect::<Vec<_>>(),
        "goodput_bytes_per_s": job.goodput_bytes_per_s(),
        "summed_bytes": job.summed_bytes,
        "resent": total.resent,
        "queries": total.queries,
        "repairs": total.repairs,
        "timeouts": total.timeouts,
        "mark_halvings": total.mark_halvings,
        "loss_halvings": total.loss_halvings,
        "lost_bytes": total.lost_bytes,
        "servers": job.servers.iter().map(server).collect::<Vec<_>>(),
        "failure": job.failure,
    })
}

fn server(server: &ServerUse) -> Value {
    let stats = &server.stats;
    json!({
        "host": server.host.0,
        "gradients": stats.gradients,
        "gradient_bytes": stats.gradient_bytes,
        "added": stats.added,
        "completed": stats.completed,
        "collisions": stats.collisions,
        "parameters": stats.parameters,
        "requests": stats.requests,
    })
}

fn switch(switch: &SwitchUse) -> Value {
    match &switch.stats {
        SwitchStats::Aggregate(stats) => json!({
            "switch": switch.switch.0,
            "program": "aggregate",
            "gradients": stats.gradients,
            "added": stats.taken + stats.added,
            "completed": stats.completed,
            "collisions": stats.collisions,
            "passed": stats.passed,
            "duplicates": stats.duplicates,
            "parameters": stats.parameters,
            "stale": stats.freed_stale + stats.freed_by_sweep,
        }),
        SwitchStats::SwitchMl(stats) => json!({
            "switch": switch.switch.0,
            "program": "switchml",
            "added": stats.added_packets,
            "completed": stats.complete_packets,
            "duplicates": stats.known_packets,
            "repeated": stats.repeated_packets,
            "refused": stats.refused_packets,
        }),
    }
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
        "trimmed": outcome.trimmed_packets(),
        "dropped": dropped,
    })
}
