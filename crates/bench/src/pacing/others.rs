//! A paced job beside a TCP connection that nobody paces, on the link to one host.

use serde_json::{Value, json};
use thalweg_console::Failure;

use super::jobs::Agents;
use super::rates::Program;
use super::sink::{Sink, slots};
use super::{PacingArguments, enforcer, lab};
use crate::tools::{round, sleep};

pub(super) fn run(arguments: &PacingArguments) -> Result<Value, Failure> {
    eprintln!("others: a job beside a TCP connection of somebody else, 1 Gbps …");
    let lab = lab(3, "1gbit")?;
    let slots_each = (arguments.seconds * 1_000 / 60) as usize;
    let details = arguments.details;
    let mut found = serde_json::Map::new();
    for is_paced in [false, true] {
        let agents = is_paced.then(|| Agents::start(&lab, &[0], "rate", details)).transpose()?;
        let sinks = [Sink::start(lab.host(1))?, Sink::start(lab.host(1))?];
        let socket = agents.as_ref().map(|agents| agents.socket(0));
        let words = enforcer("job", socket.as_ref());
        // It always has something to send, as a job that computes little.
        let job = Program::start(lab.host(0), &words, &sinks[0], 1 << 40, details)?;
        let other = Program::start(lab.host(2), &[], &sinks[1], 1 << 40, details)?;
        sleep(std::time::Duration::from_millis(2_000));
        let counters: Vec<_> = sinks.iter().map(Sink::counter).collect();
        let came = slots(&counters, slots_each).bytes;
        drop((job, other));
        let [own, others] = [0, 1].map(|job| came[job].iter().sum::<u64>() as f64);
        let mbps = |bytes: f64| json!(round(bytes * 8.0 / (slots_each as f64 * 60e-3) / 1e6, 1));
        let name = if is_paced { "paced" } else { "unpaced" };
        found.insert(format!("{name}_job_mbps"), mbps(own));
        found.insert(format!("beside_{name}_other_mbps"), mbps(others));
        // Two of them: half of what the link carries is fair.
        let share = others / ((own + others) / 2.0);
        found.insert(format!("beside_{name}_other_of_fair_share"), json!(round(share, 4)));
        found.insert(format!("{name}_slots"), json!(came));
    }
    Ok(Value::from(found))
}
