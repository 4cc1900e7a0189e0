//! The metrics of load tables.

use std::net::SocketAddr;

use thalweg_pace::board::Stats;

use super::begin;
use super::exposition::Exposition;

/// The metrics of a switch that only keeps load tables.
#[doc(hidden)]
pub fn tables(address: SocketAddr, stats: &Stats) -> String {
    let mut out = begin("switch", address);
    add(&mut out, stats);
    out.finish()
}

/// Adds the metrics of load tables.
pub(super) fn add(out: &mut Exposition, stats: &Stats) {
    let Stats { fetches, updates, rejected, refused, links, flows } = *stats;
    let counters = [
        ("fetches", "Requests for feedback that were answered.", fetches),
        ("updates", "Schedules of agents that were taken in.", updates),
        ("rejected", "Messages that were rejected: old, early, replayed, malformed.", rejected),
        ("refused", "Plans that a link had no room for.", refused),
    ];
    for (name, help, count) in counters {
        out.counter(&format!("thalweg_tables_{name}_total"), help, count);
    }
    out.gauge("thalweg_tables_links", "Links that have a table.", links);
    out.gauge("thalweg_tables_flows", "Flows that have planned lately.", flows);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::assert_told;

    #[test]
    fn everything_that_is_counted_is_told() {
        let stats = Stats { fetches: 1, updates: 2, rejected: 3, refused: 4, links: 5, flows: 6 };
        let text = tables(([127, 0, 0, 1], 4_900).into(), &stats);
        let lines = [
            "thalweg_tables_fetches_total 1",
            "thalweg_tables_updates_total 2",
            "thalweg_tables_rejected_total 3",
            "thalweg_tables_refused_total 4",
            "thalweg_tables_links 5",
            "thalweg_tables_flows 6",
        ];
        assert_told(&text, &lines);
    }
}
