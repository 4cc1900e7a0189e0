//! The metrics of a server.

use std::net::SocketAddr;

use thalweg::daemon::ServerSnapshot;
use thalweg_aggregate::server::Stats;

use super::exposition::{Exposition, Kind};
use super::{Reason, Row, begin, label, sockets};

/// Counted for each job.
const COUNTERS: &[Row<Stats>] = &[
    ("gradients", "Gradient packets that came in.", |s| s.gradients),
    ("gradient_bytes", "What gradient packets occupied of the link.", |s| s.gradient_bytes),
    ("added", "Gradient packets added to a sum: what the switches left over.", |s| s.added),
    ("replaced", "Gradient packets that took the place of the less that was there.", |s| {
        s.replaced
    }),
    ("overlaps", "Gradient packets dropped because a part of them was there already.", |s| {
        s.overlaps
    }),
    ("late", "Gradient packets for fragments that were complete.", |s| s.late),
    ("collisions", "Gradient packets that had met a collision at a switch.", |s| s.collisions),
    ("completed", "Fragments completed.", |s| s.completed),
    ("left_out", "Contributions that fragments were completed without.", |s| s.left_out),
    ("adopted", "Fragments whose result a worker supplied.", |s| s.adopted),
    ("repeats", "Fragments that overflowed, so that floats were asked for.", |s| s.repeats),
    ("rescaled", "How often the scale of fixed point was lowered.", |s| s.rescaled),
    ("parameters", "Parameter packets sent, with those sent again.", |s| s.parameters),
    ("parameters_again", "Parameter packets sent again.", |s| s.parameters_again),
    ("repeats_sent", "Packets sent that ask for floats.", |s| s.repeats_sent),
    ("queries", "Queries that came in.", |s| s.queries),
    ("requests", "Requests sent for what is missing.", |s| s.requests),
    ("notices", "Notices that came in from switches that did not know the job.", |s| s.notices),
    ("announcements", "Announcements sent to switches.", |s| s.announcements),
    ("stale", "Packets of another epoch, or about a fragment that everyone has.", |s| s.stale),
    ("beyond", "Packets further ahead than any worker may be.", |s| s.beyond),
    ("foreign", "Packets from nobody in the job, or for another server.", |s| s.foreign),
    ("mismatched", "Packets whose numbers, scale or length are not the fragment's.", |s| {
        s.mismatched
    }),
    ("differing", "Gradient packets of another operation than the fragment's.", |s| s.differing),
    ("forged", "Packets whose tag is not the job's.", |s| s.forged),
];

/// Packets that were dropped, of all jobs together.
const DROPS: &[Reason<Stats>] = &[
    ("stale", |s| s.stale),
    ("beyond", |s| s.beyond),
    ("foreign", |s| s.foreign),
    ("mismatched", |s| s.mismatched),
    ("differing", |s| s.differing),
    ("forged", |s| s.forged),
    ("unknown", |s| s.unknown),
    ("malformed", |s| s.malformed),
];

/// What a server tells.
pub(crate) fn server(address: SocketAddr, snapshot: &ServerSnapshot) -> String {
    let mut out = begin("server", address);
    sockets::counters(&mut out, "thalweg_server", &snapshot.net);
    let drops: Vec<_> =
        DROPS.iter().map(|(reason, count)| (*reason, count(&snapshot.server))).collect();
    sockets::drops(&mut out, "thalweg_server", &snapshot.net, &drops);
    registered(&mut out, snapshot);
    for (name, help, count) in COUNTERS {
        out.family(&format!("thalweg_server_{name}_total"), Kind::Counter, help);
        for (job, stats) in &snapshot.jobs {
            out.sample(&[("job", &label(*job))], count(stats));
        }
    }
    out.finish()
}

/// Who is in which job.
fn registered(out: &mut Exposition, snapshot: &ServerSnapshot) {
    let jobs = &snapshot.registered;
    out.gauge("thalweg_server_jobs", "How many jobs are registered.", jobs.len() as u64);
    out.family("thalweg_server_job_info", Kind::Gauge, "The name of a job. Always 1.");
    for job in jobs {
        out.sample(&[("job", &label(job.id)), ("name", &job.name)], 1);
    }
    out.family("thalweg_server_job_ranks", Kind::Gauge, "How many ranks a job has.");
    for job in jobs {
        out.sample(&[("job", &label(job.id))], u64::from(job.ranks));
    }
    let help = "How many ranks of a job are connected.";
    out.family("thalweg_server_job_ranks_connected", Kind::Gauge, help);
    for job in jobs {
        out.sample(&[("job", &label(job.id))], u64::from(job.connected));
    }
}

#[cfg(test)]
mod tests {
    use thalweg::daemon::JobSummary;
    use thalweg_core::JobId;

    use super::*;
    use crate::metrics::assert_told;

    #[test]
    fn everything_that_is_counted_is_told() {
        let job = Stats { completed: 7, forged: 1, ..Stats::default() };
        let all = Stats { forged: 3, unknown: 2, ..Stats::default() };
        let summary =
            JobSummary { id: JobId(0x2a), name: "res\"net".into(), ranks: 4, connected: 3 };
        let snapshot = ServerSnapshot {
            net: thalweg_net::Stats { received_packets: 9, ..Default::default() },
            server: all,
            jobs: vec![(JobId(0x2a), job)],
            registered: vec![summary],
        };
        let text = server(([127, 0, 0, 1], 4_808).into(), &snapshot);
        let lines = [
            "thalweg_server_packets_received_total 9",
            "thalweg_server_drops_total{reason=\"forged\"} 3",
            "thalweg_server_drops_total{reason=\"unknown\"} 2",
            "thalweg_server_jobs 1",
            "thalweg_server_job_info{job=\"000000000000002a\",name=\"res\\\"net\"} 1",
            "thalweg_server_job_ranks{job=\"000000000000002a\"} 4",
            "thalweg_server_job_ranks_connected{job=\"000000000000002a\"} 3",
            "thalweg_server_completed_total{job=\"000000000000002a\"} 7",
            "thalweg_server_forged_total{job=\"000000000000002a\"} 1",
        ];
        assert_told(&text, &lines);
        // Two are counted for all jobs together: unknown and malformed.
        assert_eq!(COUNTERS.len() + 2, job.named().len());
    }
}
