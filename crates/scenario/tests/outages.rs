//! Hosts that lose their memory.

mod common;

use common::scenario_with;
use thalweg_core::{Span, Time};
use thalweg_scenario::Ending;

const TEXT: &str = r#"
title = "an outage"
[topology.one-switch]
hosts = 3
host-cable = { rate = "10Gbps", delay = "1us" }
[[traffic]]
list = { csv = "flows.csv" }
[[faults]]
"#;

/// Flows that end before, are live, start during and start after an outage from 1 to 2 ms.
const FLOWS: &str = "start_us,src,dst,bytes
0,0,1,15000
900,0,1,1000000
900,1,0,1000000
1500,0,1,15000
1500,1,2,15000
3000,0,1,1000000
";

fn at_us(us: u64) -> Time {
    Time::ZERO + Span::from_us(us)
}

#[test]
fn a_host_that_goes_down_loses_what_it_sends_and_gets_what_it_is_sent() {
    let fault = "node-down = { node = 0, from = \"1ms\", until = \"2ms\" }";
    let outcome = scenario_with(&format!("{TEXT}{fault}"), FLOWS).run(1).finish();
    assert_eq!((outcome.check.clone(), outcome.ending), (Ok(()), Ending::Complete));
    let ends: Vec<_> = outcome.flows.iter().map(|flow| flow.end.expect("all ended")).collect();
    let arrived: Vec<bool> = ends.iter().map(|end| end.arrived).collect();
    assert_eq!(arrived, [true, false, true, false, true, true]);
    assert_eq!((ends[1].at, ends[3].at), (at_us(1_000), at_us(1_500)));
    assert!(ends[2].timeouts > 0 && ends[2].at > at_us(2_000), "{:?}", ends[2]);
}

#[test]
fn a_host_that_stays_down_stops_no_run() {
    let fault = "node-down = { node = 0, from = \"1ms\" }";
    let outcome = scenario_with(&format!("{TEXT}{fault}"), FLOWS).run_bare(1).finish();
    assert_eq!((outcome.check.clone(), outcome.ending), (Ok(()), Ending::Complete));
    let arrived: Vec<bool> =
        outcome.flows.iter().map(|flow| outcome.completion(flow).is_some()).collect();
    assert_eq!(arrived, [true, false, false, false, true, false]);
}
