//! The metrics of a switch.

use std::net::SocketAddr;

use thalweg::daemon::SwitchSnapshot;
use thalweg_aggregate::switch::Stats;
use thalweg_pace::board;

use super::exposition::Kind;
use super::{Reason, Row, begin, counters, label, sockets, tables};

const COUNTERS: &[Row<Stats>] = &[
    ("gradients", "Gradients that could be read.", |s| s.gradients),
    ("parameters", "Parameter packets that could be read.", |s| s.parameters),
    ("queries", "Queries that could be read.", |s| s.queries),
    ("requests", "Requests that could be read.", |s| s.requests),
    ("announcements", "Announcements that could be read.", |s| s.announcements),
    ("ecn_marked", "Gradients that a queue on the way had marked for congestion.", |s| s.marked),
    ("aggregations_taken", "Gradients that began a sum.", |s| s.taken),
    ("aggregations_added", "Gradients that were added to a sum.", |s| s.added),
    ("aggregations_completed", "Sums that became full and were sent on.", |s| s.completed),
    ("collisions", "Gradients that found their aggregator taken by another fragment.", |s| {
        s.collisions
    }),
    ("held_to_share", "Gradients not summed here because their job had its share.", |s| {
        s.held_to_share
    }),
    ("passed", "Gradients sent on without being summed, collisions included.", |s| s.passed),
    ("duplicates", "Gradients that were in the sum already.", |s| s.duplicates),
    ("sent_again", "Full sums sent on once more.", |s| s.sent_again),
    ("parts_sent", "Sums sent to the server as they were, since they need not be exact.", |s| {
        s.parts_sent
    }),
    ("flushed", "Sums sent on as they were because a resent gradient came.", |s| s.flushed),
    ("discarded", "Sums forgotten because a resent gradient came.", |s| s.discarded),
    ("overflowed", "Sums that left the range of fixed point here.", |s| s.overflowed),
    ("asked", "Times that children were asked for what is missing.", |s| s.asked),
    ("asks_held", "Times that they were not, having been asked just before.", |s| s.asks_held),
    ("unknown_groups", "Packets of a tree that the switch did not know.", |s| s.unknown_groups),
    ("notices", "Notices sent for packets of unknown trees.", |s| s.notices),
];

const FREES: &[Reason<Stats>] = &[
    ("parameter", |s| s.freed_by_parameter),
    ("stale", |s| s.freed_stale),
    ("watermark", |s| s.freed_by_watermark),
    ("sweep", |s| s.freed_by_sweep),
];

/// What a switch tells; of load tables, if it keeps some.
pub(crate) fn switch(
    address: SocketAddr,
    snapshot: &SwitchSnapshot,
    board: Option<&board::Stats>,
) -> String {
    let mut out = begin("switch", address);
    let stats = &snapshot.switch;
    sockets::counters(&mut out, "thalweg_switch", &snapshot.net);
    let drops = [
        ("forged", stats.forged),
        ("malformed", stats.malformed),
        ("queue_full", stats.queue_full),
    ];
    sockets::drops(&mut out, "thalweg_switch", &snapshot.net, &drops);
    let help = "Packets lost on purpose, because of --loss.";
    out.counter("thalweg_switch_lost_on_purpose_total", help, snapshot.lost_on_purpose);
    counters(&mut out, "thalweg_switch", COUNTERS, stats);
    out.family("thalweg_switch_frees_total", Kind::Counter, "Aggregators freed, by reason.");
    for (reason, count) in FREES {
        out.sample(&[("reason", reason)], count(stats));
    }
    let total = u64::from(snapshot.aggregators);
    out.gauge("thalweg_switch_aggregators", "How many aggregators there are.", total);
    let occupied = snapshot.occupancy.values().map(|held| u64::from(*held)).sum();
    let help = "How many aggregators are taken.";
    out.gauge("thalweg_switch_aggregators_occupied", help, occupied);
    let help = "How many aggregators of this switch a job holds.";
    out.family("thalweg_aggregators_occupied", Kind::Gauge, help);
    for (job, held) in &snapshot.occupancy {
        out.sample(&[("job", &label(*job))], u64::from(*held));
    }
    if let Some(board) = board {
        tables::add(&mut out, board);
    }
    out.finish()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use thalweg_core::JobId;

    use super::*;
    use crate::metrics::{assert_told, parse};

    #[test]
    fn everything_that_is_counted_is_told() {
        let stats = Stats { marked: 7, freed_by_sweep: 8, queue_full: 9, ..Stats::default() };
        let occupancy = BTreeMap::from([(JobId(0x2a), 3), (JobId(0xff), 4)]);
        let snapshot = SwitchSnapshot {
            net: thalweg_net::Stats { dropped_short: 5, ..Default::default() },
            switch: stats,
            lost_on_purpose: 6,
            aggregators: 64,
            occupancy,
        };
        let text = switch(([127, 0, 0, 1], 4_800).into(), &snapshot, None);
        let samples = parse(&text);
        let lines = [
            "thalweg_build_info{role=\"switch\",address=\"127.0.0.1:4800\",version=\"0.1.0\"} 1",
            "thalweg_switch_drops_total{reason=\"short\"} 5",
            "thalweg_switch_drops_total{reason=\"queue_full\"} 9",
            "thalweg_switch_lost_on_purpose_total 6",
            "thalweg_switch_ecn_marked_total 7",
            "thalweg_switch_frees_total{reason=\"sweep\"} 8",
            "thalweg_switch_aggregators 64",
            "thalweg_switch_aggregators_occupied 7",
            "thalweg_aggregators_occupied{job=\"000000000000002a\"} 3",
        ];
        assert_told(&text, &lines);
        // The counters that are told as drops: forged, malformed, queue_full.
        assert_eq!(COUNTERS.len() + FREES.len() + 3, stats.named().len());
        let families: BTreeSet<_> = samples.iter().map(|sample| sample.name.as_str()).collect();
        assert_eq!(text.matches("# TYPE ").count(), families.len(), "each family stands once");
    }
}
