//! Listed flows: the paths they ask for, and the load they are rescaled to.

mod common;

use common::scenario_with;
use thalweg_core::NodeId;
use thalweg_scenario::Outcome;

/// Two racks of two hosts under three spines: hosts 0 to 3, racks 4 and 5, spines 6 to 8.
const TEXT: &str = r#"
title = "listed"
[topology.leaf-spine]
racks = 2
hosts-per-rack = 2
spines = 3
host-cable = { rate = "10Gbps", delay = "1us" }
uplink = { rate = "10Gbps", delay = "1us" }
[switch]
routing = "explicit"
[[traffic]]
[traffic.list]
csv = "flows.csv"
"#;

fn run(text: &str, csv: &str) -> Outcome {
    let outcome = scenario_with(text, csv).run_bare(1).finish();
    assert_eq!((outcome.check.clone(), outcome.unfinished()), (Ok(()), 0));
    outcome
}

/// Packets from rack 4 to each spine.
fn up(outcome: &Outcome) -> Vec<u64> {
    let links = outcome.links.iter().filter(|link| link.from == NodeId(4) && link.to.0 >= 6);
    links.map(|link| link.stats.sent_packets).collect()
}

#[test]
fn a_flow_takes_the_path_that_it_names() {
    // 14,600 B are ten packets. The low byte, modulo three, is the spine.
    let header = "start_us,src,dst,bytes,path";
    for (path, expected) in [(0, [10, 0, 0]), (1, [0, 10, 0]), (5, [0, 0, 10]), (256, [10, 0, 0])] {
        let outcome = run(TEXT, &format!("{header}\n0,0,2,14600,{path}\n"));
        assert_eq!(up(&outcome), expected, "{path}");
    }
}

#[test]
fn flows_without_a_path_take_the_same_one_whatever_others_name() {
    let flows = |path: &str| format!("start_us,src,dst,bytes,path\n0,2,1,1,{path}\n9,0,2,14600,\n");
    let taken = up(&run(TEXT, &flows("")));
    assert_eq!(taken.iter().sum::<u64>() / 10, 1);
    // The answer to the first flow takes the path of the flow.
    let one_more = |outcome: &Outcome| up(outcome).iter().filter(|&&count| count >= 10).count();
    for path in ["0", "1", "2"] {
        let outcome = run(TEXT, &flows(path));
        assert_eq!(one_more(&outcome), 1);
        let busiest = |counts: &[u64]| counts.iter().position(|&count| count >= 10);
        assert_eq!(busiest(&up(&outcome)), busiest(&taken), "{path}");
    }
}

#[test]
fn a_list_is_rescaled_to_its_load() {
    let csv = "start_us,src,dst,bytes\n0,0,2,5000\n1,1,3,10000\n4,2,0,10000\n";
    let starts_us = |outcome: &Outcome| -> Vec<f64> {
        outcome.flows.iter().map(|flow| flow.spec.start.as_us_f64()).collect()
    };
    // 25,000 B · 8 / (0.5 · 40 Gbps) = 10 µs.
    assert_eq!(starts_us(&run(&format!("{TEXT}load = 0.5\n"), csv)), [0.0, 2.5, 10.0]);
    let wire =
        format!("{TEXT}load = 0.5\nload-counts = \"wire\"\n[transport]\nsegment-bytes = 160\n");
    // 40 B beside 160 B are a quarter more.
    assert_eq!(starts_us(&run(&wire, csv)), [0.0, 3.125, 12.5]);
    assert_eq!(starts_us(&run(TEXT, csv)), [0.0, 1.0, 4.0]);
}
