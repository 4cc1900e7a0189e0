//! The metrics of a switch. They have the number of a job and no `job_name`: packets carry the number alone, and a switch,
//! which has no part in the control channel, never learns names. `thalweg_server_job_info` has both.

use std::net::SocketAddr;

use thalweg_pace::board;

use super::exposition::Kind;
use super::{begin, label, sockets, tables};
use crate::daemon::SwitchSnapshot;

/// Counters that have another name as a metric.
const METRICS: [(&str, &str); 4] = [
    ("marked", "ecn_marked"),
    ("taken", "aggregations_taken"),
    ("added", "aggregations_added"),
    ("completed", "aggregations_completed"),
];

/// Counters of dropped packets.
const DROPS: [&str; 5] = ["forged", "malformed", "other_version", "unknown_server", "queue_full"];

/// Counters of freed aggregators, and the reason.
const FREES: [(&str, &str); 4] = [
    ("freed_by_parameter", "parameter"),
    ("freed_stale", "stale"),
    ("freed_by_watermark", "watermark"),
    ("freed_by_sweep", "sweep"),
];

/// The metrics of a switch, and of the load tables that it may keep.
#[doc(hidden)]
pub fn switch(
    address: SocketAddr,
    snapshot: &SwitchSnapshot,
    board: Option<&board::Stats>,
) -> String {
    let mut out = begin("switch", address);
    let stats = &snapshot.switch;
    sockets::counters(&mut out, "thalweg_switch", &snapshot.net);
    let dropped = stats.named().into_iter().filter(|(name, _)| DROPS.contains(name));
    let drops: Vec<(&str, u64)> = dropped.collect();
    sockets::drops(&mut out, "thalweg_switch", &snapshot.net, &drops);
    let help = "Packets lost on purpose, because of --loss.";
    out.counter("thalweg_switch_lost_on_purpose_total", help, snapshot.lost_on_purpose);
    let other_name = |names: &[(&str, &'static str)], counter: &str| {
        names.iter().find(|(name, _)| *name == counter).map(|(_, other)| *other)
    };
    for (counter, help, count) in stats.described() {
        let name = other_name(&METRICS, counter).unwrap_or(counter);
        if !DROPS.contains(&counter) && other_name(&FREES, counter).is_none() {
            out.counter(&format!("thalweg_switch_{name}_total"), help, count);
        }
    }
    out.family("thalweg_switch_frees_total", Kind::Counter, "Aggregators freed, by reason.");
    for (counter, count) in stats.named() {
        if let Some(reason) = other_name(&FREES, counter) {
            out.sample(&[("reason", reason)], count);
        }
    }
    let help = "Packets that came in, by core.";
    out.family("thalweg_switch_core_packets_received_total", Kind::Counter, help);
    for (core, count) in snapshot.received_by_core.iter().enumerate() {
        out.sample(&[("core", &core.to_string())], *count);
    }
    let total = u64::from(snapshot.aggregators);
    out.gauge("thalweg_switch_aggregators", "How many aggregators there are.", total);
    let help = "The most values of a fragment that is summed.";
    out.gauge("thalweg_switch_fragment_values", help, u64::from(snapshot.values_max));
    let help = "The MTU that it announces, in bytes.";
    out.gauge("thalweg_switch_mtu_bytes", help, u64::from(snapshot.mtu_bytes));
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

    use thalweg_aggregate::switch::Stats;
    use thalweg_core::JobId;

    use super::*;
    use crate::metrics::{assert_reported, parse};

    #[test]
    fn everything_that_is_counted_is_reported() {
        let (mut stats, mut net) = (Stats::default(), thalweg_net::Stats::default());
        (stats.marked, stats.freed_by_sweep, stats.queue_full) = (7, 8, 9);
        net.dropped_short = 5;
        let occupancy = BTreeMap::from([(JobId(0x2a), 3), (JobId(0xff), 4)]);
        let snapshot = SwitchSnapshot {
            net,
            switch: stats,
            lost_on_purpose: 6,
            cores: 2,
            aggregators: 64,
            values_max: 352,
            mtu_bytes: 1_500,
            received_by_core: vec![10, 20],
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
            "thalweg_switch_core_packets_received_total{core=\"1\"} 20",
            "thalweg_switch_aggregators 64",
            "thalweg_switch_fragment_values 352",
            "thalweg_switch_mtu_bytes 1500",
            "thalweg_switch_aggregators_occupied 7",
            "thalweg_aggregators_occupied{job=\"000000000000002a\"} 3",
        ];
        assert_reported(&text, &lines);
        let of_switch = samples.iter().filter(|it| it.name.starts_with("thalweg_switch_"));
        // Sockets have 8 counters and 8 reasons for drops; losses on purpose, aggregators, fragments, the MTU and each core
        // have metrics as well.
        assert_eq!(of_switch.count(), 8 + 8 + stats.named().len() + 5 + 2);
        let families: BTreeSet<_> = samples.iter().map(|sample| sample.name.as_str()).collect();
        assert_eq!(text.matches("# TYPE ").count(), families.len(), "each family stands once");
    }
}
