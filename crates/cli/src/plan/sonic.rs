//! The plan as tables of a SONiC switch's configuration database.
//!
//! Tables and fields are those of SONiC's published YANG models (sonic-dscp-tc-map, sonic-tc-queue-map,
//! sonic-scheduler, sonic-wred-profile, sonic-queue, sonic-port-qos-map). All values are strings, as in its
//! own files. Larger queue numbers are more urgent there, so priority p waits in queue 7 − p. Queue 0 is for other
//! traffic where that has a queue. Schedulers have no hierarchy, so that queues cannot be strict among each other and
//! share a port with another.

use serde_json::{Map, Value, json};
use thalweg_deliver::plan::Plan;
use thalweg_deliver::policy::CONTROL_PRIORITY;

use super::{Classes, code};

/// Name of maps, profiles and the scheduler.
const NAME: &str = "thalweg";

/// The scheduler of the queues that share a port with other traffic, and the queue of that.
const SHARED: &str = "thalweg_shared";
const OTHER: &str = "thalweg_other";

/// Weight of a queue of gradients that shares a port. SONiC has weights of 1 to 100.
const WEIGHT: usize = 10;

const QUEUES: u8 = 8;

pub(super) fn document(plan: &Plan, classes: Classes, ports: &[String]) -> Value {
    json!({
        "DSCP_TO_TC_MAP": { NAME: dscp_map(plan) },
        "TC_TO_QUEUE_MAP": { NAME: tc_map() },
        "SCHEDULER": schedulers(plan, classes),
        "WRED_PROFILE": profiles(plan),
        "QUEUE": queues(plan, classes, ports),
        "PORT_QOS_MAP": port_maps(ports),
    })
}

/// Queues for flows: the upper three bits of a code point choose the queue, and all queues mark above the same threshold.
pub(super) fn flows(mark: u64, ports: &[String]) -> Value {
    let map: Map<String, Value> =
        (0..64_u8).map(|code| (code.to_string(), (code >> 3).to_string().into())).collect();
    let mut own = Map::new();
    for port in ports {
        for queue in 0..QUEUES {
            let fields = json!({ "scheduler": NAME, "wred_profile": NAME });
            own.insert(format!("{port}|{queue}"), fields);
        }
    }
    json!({
        "DSCP_TO_TC_MAP": { NAME: map },
        "TC_TO_QUEUE_MAP": { NAME: tc_map() },
        "SCHEDULER": { NAME: { "type": "STRICT" } },
        "WRED_PROFILE": { NAME: marking(mark) },
        "QUEUE": own,
        "PORT_QOS_MAP": port_maps(ports),
    })
}

/// The queue of a priority.
fn queue(priority: u8) -> u8 {
    QUEUES - 1 - priority.min(QUEUES - 1)
}

fn profile(priority: u8) -> String {
    format!("{NAME}_{priority}")
}

/// Control is served first. Where other traffic has a queue, it and those of the gradients are served in turn, by
/// weights: that of other traffic is as much as all of theirs.
// spec: M-15
fn schedulers(plan: &Plan, classes: Classes) -> Value {
    let strict = json!({ "type": "STRICT" });
    let weighted = |weight: usize| json!({ "type": "DWRR", "weight": weight.to_string() });
    match classes {
        Classes::Strict { .. } => json!({ NAME: strict }),
        Classes::Fair { .. } => {
            let shared = weighted(WEIGHT);
            json!({ NAME: strict, SHARED: shared, OTHER: weighted(WEIGHT * plan.queues.len()) })
        }
    }
}

/// Every code point: those of training go to the queues of their priorities, all others to the least urgent. Priorities
/// beyond the plan's go to the last queue of training.
fn dscp_map(plan: &Plan) -> Map<String, Value> {
    let last = plan.queues.last().map_or(CONTROL_PRIORITY, |own| own.priority);
    let codes: Vec<(u8, u8)> =
        (0..QUEUES).map(|priority| (code(priority), queue(priority.min(last)))).collect();
    let class =
        |code: u8| codes.iter().find(|(own, _)| *own == code).map_or(0, |(_, class)| *class);
    (0..64).map(|code| (code.to_string(), class(code).to_string().into())).collect()
}

fn tc_map() -> Map<String, Value> {
    (0..QUEUES).map(|class| (class.to_string(), class.to_string().into())).collect()
}

/// Between its two thresholds RED drops at random; they are the same, so that it drops all above.
fn profiles(plan: &Plan) -> Map<String, Value> {
    let profile = |own: &thalweg_deliver::plan::QueuePlan| {
        (profile(own.priority), marking(own.threshold_bytes))
    };
    plan.queues.iter().map(profile).collect()
}

fn marking(threshold_bytes: u64) -> Value {
    let threshold = threshold_bytes.to_string();
    json!({
        "wred_green_enable": "true",
        "green_min_threshold": threshold,
        "green_max_threshold": threshold,
        "green_drop_probability": "100",
        "ecn": "ecn_green",
    })
}

/// Control has no profile: nothing of it is dropped before the buffer is full.
fn queues(plan: &Plan, classes: Classes, ports: &[String]) -> Map<String, Value> {
    let scheduler = match classes {
        Classes::Strict { .. } => NAME,
        Classes::Fair { .. } => SHARED,
    };
    let mut queues = Map::new();
    for port in ports {
        let control = json!({ "scheduler": NAME });
        queues.insert(format!("{port}|{}", queue(CONTROL_PRIORITY)), control);
        for own in &plan.queues {
            let fields = json!({ "scheduler": scheduler, "wred_profile": profile(own.priority) });
            queues.insert(format!("{port}|{}", queue(own.priority)), fields);
        }
        if let Classes::Fair { .. } = classes {
            queues.insert(format!("{port}|0"), json!({ "scheduler": OTHER }));
        }
    }
    queues
}

fn port_maps(ports: &[String]) -> Map<String, Value> {
    let maps = json!({ "dscp_to_tc_map": NAME, "tc_to_queue_map": NAME });
    ports.iter().map(|port| (port.clone(), maps.clone())).collect()
}
