//! Speed of the simulator.

use serde_json::json;
use thalweg_console::{Failure, files};
use thalweg_report::format::{format_bytes, format_count};
use thalweg_scenario::{Outcome, Scenario};

use super::{FabricArguments, hold};
use crate::tools::now;

/// The scenario is part of the program, so that everybody measures the same one.
const SCENARIO: &str = include_str!("../../../scenarios/speed.toml");
const SEED: u64 = 1;

pub(super) fn fabric(arguments: &FabricArguments) -> Result<(), Failure> {
    let no_files = |_: &str| Err("the speed scenario names no files".to_owned());
    let scenario = Scenario::parse("speed.toml", SCENARIO, &no_files).map_err(Failure::usage)?;
    let hold_before = hold::ops_per_s();
    let mut best: Option<(f64, Outcome)> = None;
    for run in 1..=arguments.runs {
        let (seconds, outcome) = timed(&scenario);
        let hops_per_s = outcome.stats.packet_hops as f64 / seconds;
        eprintln!("run {run} of {}: {:.2} M packet-hops/s", arguments.runs, hops_per_s / 1e6);
        if best.as_ref().is_none_or(|(fastest, _)| seconds < *fastest) {
            best = Some((seconds, outcome));
        }
    }
    let hold_ops_per_s = hold_before.max(hold::ops_per_s());
    let (seconds, outcome) = best.expect("there is at least one run");
    outcome.check.clone().map_err(Failure::ran)?;
    let hops_per_s = outcome.stats.packet_hops as f64 / seconds;
    let events_per_s = outcome.stats.events as f64 / seconds;
    let peak_rss_bytes = peak_rss_bytes();
    if arguments.json {
        let result = json!({
            "schema": "thalweg.bench-fabric/1",
            "packet_hops_per_s": hops_per_s,
            "events_per_s": events_per_s,
            "hosts": scenario.topology().hosts(),
            "peak_rss_bytes": peak_rss_bytes,
            "hold_ops_per_s": hold_ops_per_s,
            "packet_hops": outcome.stats.packet_hops,
            "runs": arguments.runs,
            "digest": outcome.digest.to_string(),
        });
        return files::print(&format!("{result}\n"));
    }
    files::print(&format!(
        "{}\n  {:.2} M packet-hops/s ({:.0} ns a hop)\n  {:.2} M events/s\n  \
         {} packet-hops, best of {} runs\n  {} of memory at most\n  \
         {:.2} M hold operations/s on a binary heap of 4,096\n",
        scenario.title(),
        hops_per_s / 1e6,
        1e9 / hops_per_s,
        events_per_s / 1e6,
        format_count(outcome.stats.packet_hops),
        arguments.runs,
        peak_rss_bytes.map_or("?".to_owned(), format_bytes),
        hold_ops_per_s / 1e6,
    ))
}

fn timed(scenario: &Scenario) -> (f64, Outcome) {
    let start = now();
    let outcome = scenario.run_bare(SEED).finish();
    (start.elapsed().as_secs_f64(), outcome)
}

/// Returns the peak of resident bytes, where the system tells.
fn peak_rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1_024)
}
