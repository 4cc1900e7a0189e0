//! The flows of a training job over every transport: the same arrivals, and what each does with them.

#[path = "common/jobs.rs"]
mod jobs;

use jobs::run;
use thalweg_scenario::{Ending, Outcome};
use thalweg_workload::FlowSpec;

const SELECTIVE: &str = r#"queues = "strict"
ecn-thresholds = ["512KB", "60KB", "70KB", "80KB", "90KB", "100KB", "110KB", "120KB"]
drop-unmarkable = true
routing = "explicit""#;

/// Six workers and two servers in two racks train a small network once.
fn text(switch: &str, transport: &str) -> String {
    format!(
        r#"title = "tensors"
[topology.leaf-spine]
racks = 2
hosts-per-rack = 4
spines = 4
host-cable = {{ rate = "100Gbps", delay = "1us" }}
uplink = {{ rate = "100Gbps", delay = "1us" }}
[switch]
port-buffer = "512KB"
{switch}
[transport]
{transport}
[[traffic]]
[traffic.tensors]
model = "googlenet"
workers = [0, 1, 2, 4, 5, 6]
servers = [3, 7]
iterations = 1
forward = "100us"
backward = "200us"
jitter = "10us"
"#
    )
}

fn complete(switch: &str, transport: &str) -> Outcome {
    let outcome = run(&text(switch, transport));
    assert_eq!((outcome.check.clone(), outcome.ending), (Ok(()), Ending::Complete), "{transport}");
    assert_eq!(outcome.unfinished(), 0, "{transport}");
    outcome
}

fn arrivals(outcome: &Outcome) -> Vec<FlowSpec> {
    outcome.flows.iter().map(|flow| flow.spec).collect()
}

#[test]
fn every_transport_carries_the_same_flows() {
    let bounded = complete(SELECTIVE, "control = \"deliver\"\nloss = 0.1");
    let flows = arrivals(&bounded);
    assert!(flows.len() > 1_000 && flows.iter().all(|flow| flow.layer.is_some()));
    let bytes: u64 = flows.iter().map(|flow| flow.bytes.as_u64()).sum();
    let lost = bounded.lost_of_flows.as_u64();
    assert!(lost > bytes / 20 && lost <= bytes / 10, "{lost} of {bytes}");
    for (switch, transport) in [
        (SELECTIVE, "control = \"deliver\""),
        ("ecn-threshold = \"97.5KB\"", "control = \"dctcp\""),
        ("queues = \"trimming\"\nrouting = \"explicit\"", "control = \"ndp\""),
        ("queues = \"urgency\"\nrouting = \"per-packet\"", "control = \"pfabric\""),
    ] {
        let exact = complete(switch, transport);
        assert_eq!(arrivals(&exact), flows, "{transport}");
        assert_eq!(exact.lost_of_flows.as_u64(), 0, "{transport}");
    }
}

/// Without spraying all packets between two hosts take one path, and some links carry more than others.
// spec: M-02 simulator
#[test]
fn deliveries_without_spraying_keep_to_one_path() {
    let busiest = |spray: &str| {
        let outcome = complete(SELECTIVE, &format!("control = \"deliver\"\n{spray}"));
        // Hosts are nodes 0 to 7.
        let between = outcome.links.iter().filter(|link| link.from.0 > 7 && link.to.0 > 7);
        let sent: Vec<u64> = between.map(|link| link.stats.sent_bytes).collect();
        let most = sent.iter().copied().max().expect("there are links") as f64;
        most * sent.len() as f64 / sent.iter().sum::<u64>() as f64
    };
    let (spread, one_path) = (busiest(""), busiest("spray = false"));
    assert!(spread < 1.5 && one_path > 1.8, "{spread}, {one_path}");
}
