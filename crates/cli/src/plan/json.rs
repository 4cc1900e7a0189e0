//! The plan as JSON.

use serde_json::{Value, json};
use thalweg_deliver::plan::{Plan, QueuePlan};
use thalweg_deliver::policy::CONTROL_PRIORITY;
use thalweg_workload::Model;

use super::code;

pub(super) fn document(model: &Model, plan: &Plan) -> Value {
    let queues: Vec<Value> = plan.queues.iter().map(|own| queue(model, own)).collect();
    json!({
        "model": model.name(),
        "control": {
            "priority": CONTROL_PRIORITY,
            "dscp": code(CONTROL_PRIORITY),
        },
        "queues": queues,
        "cost_rounds": plan.cost,
    })
}

fn queue(model: &Model, queue: &QueuePlan) -> Value {
    let layers: Vec<&str> =
        model.layers()[queue.layers.clone()].iter().map(|layer| layer.name.as_str()).collect();
    json!({
        "priority": queue.priority,
        "dscp": code(queue.priority),
        "layers": layers,
        "load": queue.load,
        "threshold_bytes": queue.threshold_bytes,
        "limit_bytes": queue.limit_bytes,
        "lost_small": queue.lost_small,
        "lost_large": queue.lost_large,
    })
}
