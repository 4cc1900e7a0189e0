//! The same scenario as other simulators ran.

mod common;

use common::scenario_with;
use thalweg_scenario::Ending;

/// 32 hosts of two other racks send 450,000 B each to one host. 14.8 MB of packets need 1,185 µs on
/// its cable; ns-3 has the last of them acknowledged after 1,195.
#[test]
fn an_incast_ends_within_three_percent_of_its_floor() {
    let text = include_str!("../../../scenarios/incast.toml");
    let outcome = scenario_with(text, "").run(1).finish();
    assert_eq!((outcome.check.clone(), outcome.ending), (Ok(()), Ending::Complete));
    assert_eq!(outcome.flows.len(), 32);
    assert_eq!(outcome.unfinished(), 0);
    let times_us =
        outcome.flows.iter().map(|flow| outcome.completion(flow).expect("all arrived").as_us_f64());
    let last_us = times_us.fold(0.0, f64::max);
    assert!((1_185.0..=1_220.0).contains(&last_us), "{last_us} µs");
}
