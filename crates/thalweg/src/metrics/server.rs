//! The metrics of a server.

use std::net::SocketAddr;

use thalweg_aggregate::server::Stats;
use thalweg_core::JobId;

use super::exposition::{Exposition, Kind};
use super::{begin, label, sockets};
use crate::daemon::ServerSnapshot;

/// Packets that were dropped, of all jobs together.
const DROPS: [&str; 9] = [
    "stale",
    "beyond",
    "foreign",
    "mismatched",
    "differing",
    "forged",
    "unknown",
    "malformed",
    "other_version",
];

/// Counted for all jobs together, and for none.
const OF_NO_JOB: [&str; 3] = ["unknown", "malformed", "other_version"];

/// The metrics of a server.
pub(crate) fn server(address: SocketAddr, snapshot: &ServerSnapshot) -> String {
    let mut out = begin("server", address);
    sockets::counters(&mut out, "thalweg_server", &snapshot.net);
    let dropped = snapshot.server.named().into_iter().filter(|(name, _)| DROPS.contains(name));
    let drops: Vec<(&str, u64)> = dropped.collect();
    sockets::drops(&mut out, "thalweg_server", &snapshot.net, &drops);
    registered(&mut out, snapshot);
    memory(&mut out, snapshot);
    refused(&mut out, snapshot);
    for (at, (name, help, _)) in Stats::default().described().into_iter().enumerate() {
        if OF_NO_JOB.contains(&name) {
            continue;
        }
        out.family(&format!("thalweg_server_{name}_total"), Kind::Counter, help);
        for (job, stats) in &snapshot.jobs {
            out.sample(&labels(snapshot, *job).each(), stats.named()[at].1);
        }
    }
    out.finish()
}

/// Jobs and their ranks.
fn registered(out: &mut Exposition, snapshot: &ServerSnapshot) {
    let jobs = &snapshot.registered;
    out.gauge("thalweg_server_jobs", "Jobs that are registered.", jobs.len() as u64);
    out.family("thalweg_server_job_info", Kind::Gauge, "The name of a job. Always 1.");
    for job in jobs {
        out.sample(&[("job", &label(job.id)), ("name", &job.name)], 1);
    }
    out.family("thalweg_server_job_ranks", Kind::Gauge, "Ranks of a job.");
    for job in jobs {
        out.sample(&labels(snapshot, job.id).each(), u64::from(job.ranks));
    }
    let help = "Ranks of a job that are connected.";
    out.family("thalweg_server_job_ranks_connected", Kind::Gauge, help);
    for job in jobs {
        out.sample(&labels(snapshot, job.id).each(), u64::from(job.connected));
    }
    let help = "Switches that a job is planned without.";
    out.family("thalweg_server_job_switches_left_out", Kind::Gauge, help);
    for job in jobs {
        out.sample(&labels(snapshot, job.id).each(), u64::from(job.switches_left_out));
    }
}

/// Memory of all jobs, its budgets, and the jobs that did not fit.
// spec: E-12
fn memory(out: &mut Exposition, snapshot: &ServerSnapshot) {
    let memory = &snapshot.memory;
    let help = "Bytes that all jobs may take of the server.";
    out.gauge("thalweg_server_memory_budget_bytes", help, memory.budget.total_bytes);
    let help = "Bytes that one job may take of the server.";
    out.gauge("thalweg_server_job_memory_budget_bytes", help, memory.budget.of_job_bytes);
    let help = "Bytes that the jobs of one token may take of the server.";
    out.gauge("thalweg_server_token_memory_budget_bytes", help, memory.budget.token_bytes());
    let help = "Bytes that are reserved for all jobs: the most that they can come to.";
    out.gauge("thalweg_server_memory_reserved_bytes", help, memory.reserved_bytes);
    let help = "Bytes that are reserved for a job.";
    out.family("thalweg_server_job_memory_reserved_bytes", Kind::Gauge, help);
    for (job, bytes) in &memory.reserved_by_job {
        out.sample(&labels(snapshot, *job).each(), *bytes);
    }
    let help = "Bytes that are reserved for the jobs of a token, or of an address without one.";
    out.family("thalweg_server_token_memory_reserved_bytes", Kind::Gauge, help);
    for (token, bytes) in &memory.reserved_by_token {
        out.sample(&[("token", token)], *bytes);
    }
    let help = "Jobs that were refused, by the budget that they did not fit.";
    out.family("thalweg_server_jobs_refused_total", Kind::Counter, help);
    for (reason, count) in memory.refused.named() {
        out.sample(&[("reason", reason)], count);
    }
}

/// Calls and connections that the control channel has refused.
// spec: E-12
fn refused(out: &mut Exposition, snapshot: &ServerSnapshot) {
    let help = "Calls and connections that were refused, by reason.";
    out.family("thalweg_server_refused_total", Kind::Counter, help);
    for (reason, count) in &snapshot.refused {
        out.sample(&[("reason", reason)], *count);
    }
}

/// Labels of a job.
struct JobLabels<'a> {
    id: String,
    /// Empty for a job that is no longer registered.
    name: &'a str,
}

impl JobLabels<'_> {
    fn each(&self) -> [(&str, &str); 2] {
        [("job", &self.id), ("job_name", self.name)]
    }
}

fn labels(snapshot: &ServerSnapshot, job: JobId) -> JobLabels<'_> {
    let found = snapshot.registered.iter().find(|summary| summary.id == job);
    JobLabels { id: label(job), name: found.map_or("", |summary| summary.name.as_str()) }
}

#[cfg(test)]
mod tests {
    use thalweg_aggregate::server::Refusals;

    use super::*;
    use crate::daemon::{JobSummary, MemoryBudget, MemorySnapshot};
    use crate::metrics::assert_reported;

    #[test]
    fn everything_that_is_counted_is_reported() {
        let (mut job, mut all) = (Stats::default(), Stats::default());
        (job.completed, job.forged, all.forged, all.unknown) = (7, 1, 3, 2);
        let mut net = thalweg_net::Stats::default();
        net.received_packets = 9;
        let mut summary = JobSummary::new(JobId(0x2a), "res\"net");
        (summary.ranks, summary.connected, summary.switches_left_out) = (4, 3, 1);
        let mut refused = Refusals::default();
        refused.memory = 2;
        let snapshot = ServerSnapshot {
            net,
            server: all,
            jobs: vec![(JobId(0x2a), job)],
            registered: vec![summary],
            refused: vec![("calls", 5), ("token", 0)],
            memory: MemorySnapshot {
                budget: MemoryBudget::default(),
                reserved_bytes: 12_345,
                reserved_by_job: vec![(JobId(0x2a), 12_345)],
                reserved_by_token: vec![("00000000000000b5".into(), 12_345)],
                refused,
            },
        };
        let text = server(([127, 0, 0, 1], 4_808).into(), &snapshot);
        let lines = [
            "thalweg_server_packets_received_total 9",
            "thalweg_server_drops_total{reason=\"forged\"} 3",
            "thalweg_server_drops_total{reason=\"unknown\"} 2",
            "thalweg_server_jobs 1",
            "thalweg_server_refused_total{reason=\"calls\"} 5",
            "thalweg_server_refused_total{reason=\"token\"} 0",
            "thalweg_server_job_info{job=\"000000000000002a\",name=\"res\\\"net\"} 1",
            "thalweg_server_job_ranks{job=\"000000000000002a\",job_name=\"res\\\"net\"} 4",
            "thalweg_server_job_ranks_connected{job=\"000000000000002a\",job_name=\"res\\\"net\"} 3",
            "thalweg_server_job_switches_left_out{job=\"000000000000002a\",job_name=\"res\\\"net\"} 1",
            "thalweg_server_job_memory_budget_bytes 268435456",
            "thalweg_server_memory_reserved_bytes 12345",
            "thalweg_server_token_memory_reserved_bytes{token=\"00000000000000b5\"} 12345",
            "thalweg_server_job_memory_reserved_bytes{job=\"000000000000002a\",job_name=\"res\\\"net\"} 12345",
            "thalweg_server_jobs_refused_total{reason=\"jobs\"} 0",
            "thalweg_server_jobs_refused_total{reason=\"job_memory\"} 0",
            "thalweg_server_jobs_refused_total{reason=\"memory\"} 2",
            "thalweg_server_jobs_refused_total{reason=\"token_memory\"} 0",
            "thalweg_server_completed_total{job=\"000000000000002a\",job_name=\"res\\\"net\"} 7",
            "thalweg_server_forged_total{job=\"000000000000002a\",job_name=\"res\\\"net\"} 1",
        ];
        assert_reported(&text, &lines);
        assert!(!text.contains("thalweg_server_unknown_total"), "it is counted for no job");
        assert_eq!(text.matches("thalweg_server_drops_total{").count(), 8 + DROPS.len());
    }
}
