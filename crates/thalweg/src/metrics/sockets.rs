//! Counters of sockets.

use thalweg_net::Stats;

use super::exposition::{Exposition, Kind};

/// Name, help, count.
type Row = (&'static str, &'static str, fn(&Stats) -> u64);

const COUNTERS: &[Row] = &[
    ("packets_received", "Packets that came in.", |net| net.received_packets),
    ("packets_sent", "Packets that the kernel took.", |net| net.sent_packets),
    ("packets_forwarded", "Packets passed on, each copy of a multicast.", |net| {
        net.forwarded_packets
    }),
    ("packets_lent", "Packets that the daemon made itself.", |net| net.lent_packets),
    ("batches_received", "Receives, each of one or more packets.", |net| net.received_batches),
    ("batches_sent", "Sends, each of one or more packets.", |net| net.sent_batches),
    ("sends_deferred", "Times that the kernel had no room, and packets waited.", |net| {
        net.sends_deferred
    }),
    ("receive_errors", "Errors that the kernel reported instead of a packet.", |net| {
        net.receive_errors
    }),
];

/// Adds the counters of a socket, with names that begin with `prefix`.
pub(super) fn counters(out: &mut Exposition, prefix: &str, net: &Stats) {
    counters_of(out, prefix, &[(&[], net)]);
}

/// Adds the counters of several sockets, which labels tell apart.
pub(super) fn counters_of(
    out: &mut Exposition,
    prefix: &str,
    sockets: &[(&[(&str, &str)], &Stats)],
) {
    for (name, help, count) in COUNTERS {
        out.family(&format!("{prefix}_{name}_total"), Kind::Counter, help);
        for (labels, net) in sockets {
            out.sample(labels, count(net));
        }
    }
}

/// Adds what was dropped, by the sockets and for the reasons given.
pub(super) fn drops(
    out: &mut Exposition,
    prefix: &str,
    net: &Stats,
    others: &[(&'static str, u64)],
) {
    let sockets = [
        ("strangers", net.dropped_strangers),
        ("short", net.dropped_short),
        ("bad_segment", net.dropped_bad_segment),
        ("truncated", net.dropped_truncated),
        ("deferred", net.dropped_deferred),
        ("unroutable", net.dropped_unroutable),
        ("oversize", net.dropped_oversize),
        ("refused", net.dropped_refused),
    ];
    out.family(&format!("{prefix}_drops_total"), Kind::Counter, "Packets dropped, by reason.");
    for (reason, count) in sockets.iter().chain(others) {
        out.sample(&[("reason", reason)], *count);
    }
}
