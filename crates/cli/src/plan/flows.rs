//! Queues for TCP flows with priorities.

use serde_json::{Value, json};
use thalweg_console::{Failure, files};
use thalweg_core::{Bytes, Dscp, PRIORITIES};

use super::{Format, PlanArguments, sonic};

/// Prints the plan.
// spec: Q-14
pub(super) fn plan(mark: Bytes, arguments: &PlanArguments) -> Result<(), Failure> {
    let mark = mark.as_u64();
    if mark == 0 || mark > arguments.buffer.as_u64() {
        let text =
            "--mark is not between one byte and --buffer: a queue cannot hold more than the port";
        return Err(Failure::Usage(text.into()));
    }
    let document = match arguments.format {
        Format::Json => document(mark),
        Format::Sonic => sonic::flows(mark, &arguments.ports),
    };
    files::print(&format!("{document:#}\n"))
}

fn document(mark: u64) -> Value {
    let queue = |priority: u8| {
        json!({
            "priority": priority,
            "dscp": Dscp::of_priority(priority).code(),
            "threshold_bytes": mark,
        })
    };
    let queues: Vec<Value> = (0..PRIORITIES as u8).map(queue).collect();
    json!({ "schema": "thalweg.plan-flows/1", "order": "strict", "queues": queues })
}
