//! Training and other traffic on one link.

mod common;

use common::scenario_with;
use thalweg_scenario::Ending;

/// Two workers send tensors through a trunk that 160 flows of other hosts want for themselves.
const TEXT: &str = r#"title = "beside each other"
[topology.dumbbell]
hosts-per-side = 10
host-cable = { rate = "10Gbps", delay = "1us" }
trunk = { rate = "10Gbps", delay = "1us" }
[switch]
queues = "QUEUES"
port-buffer = "300KB"
ecn-threshold = "60KB"
[[traffic]]
[traffic.all-reduce]
workers = [0, 10]
collective = "ring"
bytes = "4MB"
rounds = 2
in-flight = 1
[[traffic]]
[traffic.list]
csv = "flows.csv"
"#;

/// The time that the rounds of the job take, in ms.
fn rounds_ms(queues: &str) -> f64 {
    let line = |flow: u32| format!("0,{},{},1000000\n", 1 + flow % 8, 11 + flow % 8);
    let lines = (0..160).map(line);
    let csv = format!("start_us,src,dst,bytes\n{}", lines.collect::<String>());
    let outcome = scenario_with(&TEXT.replace("QUEUES", queues), &csv).run(1).finish();
    assert_eq!((outcome.check.clone(), outcome.ending), (Ok(()), Ending::Complete));
    assert_eq!(outcome.unfinished(), 0);
    let [job] = &outcome.jobs[..] else { panic!("one job") };
    job.iterations.iter().map(|span| span.as_us_f64() / 1e3).sum()
}

/// In a ring of two, every worker sends a tensor once in a round: 8 MB in all, 6.6 ms on the trunk
/// alone. A class of its own has half of the trunk, however many the others are.
// spec: M-15 simulator
#[test]
fn training_has_half_of_a_link_beside_any_number_of_flows() {
    let (mixed, divided) = (rounds_ms("strict"), rounds_ms("fair"));
    assert!((2.0 * 6.6..2.8 * 6.6).contains(&divided), "{divided} ms");
    assert!(mixed > 2.0 * divided, "{mixed} against {divided} ms");
}
