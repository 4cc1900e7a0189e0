//! Completion times and counters of a run.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use thalweg_core::PRIORITIES;
use thalweg_prioritize::evaluate::Class;
use thalweg_report::table::{Column, Style, Table};
use thalweg_tagging::PriorityStats;

use super::replay::Ended;
use crate::tools::{percentile, round};

/// Means and 99th percentiles of small, medium and large flows, and of all.
pub(super) fn document(flows: &[Ended], unfinished: usize) -> Value {
    let mut document = Map::new();
    document.insert("unfinished".to_owned(), json!(unfinished));
    let classes = Class::ALL.into_iter().map(Some).chain([None]);
    for class in classes {
        let is_meant = |flow: &&Ended| class.is_none_or(|class| Class::of(flow.bytes) == class);
        let ms = flows.iter().filter(is_meant).map(|flow| flow.took.as_secs_f64() * 1e3);
        let ms: Vec<f64> = ms.collect();
        let mean = ms.iter().sum::<f64>() / ms.len().max(1) as f64;
        let found = json!({
            "flows": ms.len(),
            "mean_ms": round(mean, 2),
            "p99_ms": round(percentile(&ms, 99.0), 2),
        });
        document.insert(class.map_or("all", Class::name).to_owned(), found);
    }
    Value::Object(document)
}

/// Processor seconds of the agents' threads since `before`, by name.
pub(super) fn processor_times(
    before: &[(String, f64)],
    after: &[(String, f64)],
) -> BTreeMap<String, f64> {
    let sum = |times: &[(String, f64)]| {
        let mut sums: BTreeMap<String, f64> = BTreeMap::new();
        for (name, seconds) in times.iter().filter(|(name, _)| name.starts_with("thalweg-")) {
            *sums.entry(name.clone()).or_default() += seconds;
        }
        sums
    };
    let before = sum(before);
    let since = |(name, seconds): (String, f64)| {
        let earlier = before.get(&name).copied().unwrap_or_default();
        (name, round((seconds - earlier).max(0.0), 3))
    };
    sum(after).into_iter().map(since).collect()
}

/// Sums over the agents of all hosts.
pub(super) fn agents(stats: &[PriorityStats], cpu: &BTreeMap<String, f64>) -> Value {
    let sum = |of: &dyn Fn(&PriorityStats) -> u64| stats.iter().map(of).sum::<u64>();
    let (within, below, above) = (
        sum(&|own| own.observed.within),
        sum(&|own| own.observed.below),
        sum(&|own| own.observed.above),
    );
    let first: Vec<u64> = stats.iter().filter_map(|own| own.first_forest_ms).collect();
    let mut packets = [0; PRIORITIES];
    let tags = || stats.iter().filter_map(|own| own.tags);
    for own in tags() {
        packets.iter_mut().zip(own.packets).for_each(|(sum, own)| *sum += own);
    }
    let (runs, nanos) = tags().fold((0, 0), |(a, b), own| (a + own.runs, b + own.nanos));
    let bounded = within + below + above;
    json!({
        "flows_observed": sum(&|own| own.observed.flows),
        "flows_with_bounds": bounded,
        "share_within": round(within as f64 / bounded.max(1) as f64, 4),
        "below": below,
        "above": above,
        "forests": sum(&|own| own.observed.forests),
        "first_forest_ms": first,
        "lists": sum(&|own| own.lists),
        "lost_reports": sum(&|own| own.lost_reports),
        "evicted": sum(&|own| own.observed.evicted_connections + own.observed.evicted_services),
        "processor_s": cpu,
        "tag_ns_per_packet": round(nanos as f64 / runs.max(1) as f64, 1),
        "tag_processor_s": round(nanos as f64 / 1e9, 3),
        "packets_by_priority": packets,
    })
}

/// One run in a line of JSON, so that a run that was cut off is not lost.
pub(super) fn lines(run: &Value) -> String {
    format!("{run}\n")
}

/// All runs in a table.
pub(super) fn table(runs: &[Value]) -> String {
    let columns = ["small", "medium", "large", "all"];
    let numbers =
        columns.iter().flat_map(|column| [format!("{column}: mean ms"), "p99".to_owned()]);
    let headers = numbers.chain(["unfinished".to_owned()]).map(Column::right);
    let mut table = Table::new([Column::left("arm")].into_iter().chain(headers));
    for run in runs {
        let mut cells = vec![run["arm"].as_str().unwrap_or_default().to_owned()];
        for column in columns {
            for field in ["mean_ms", "p99_ms"] {
                cells.push(run[column][field].as_f64().unwrap_or_default().to_string());
            }
        }
        cells.push(run["unfinished"].to_string());
        table.push(cells);
    }
    table.to_text(Style::Plain)
}
