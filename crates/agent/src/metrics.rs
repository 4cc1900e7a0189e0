//! The metrics of an agent.

use std::net::Ipv4Addr;

use thalweg::metrics::{Exposition, Kind, begin};
use thalweg_tagging::PriorityStats;

use crate::stats::{AgentStats, JobStats};

/// The metrics of the agent of a host.
pub(crate) fn agent(
    address: Ipv4Addr,
    stats: &AgentStats,
    of_flows: Option<&PriorityStats>,
) -> String {
    let mut out = begin("agent", address);
    let AgentStats { joins, refusals, rates, fetches, updates, plans_refused, .. } = *stats;
    let counters = [
        ("joins", "Processes of jobs that joined.", joins),
        (
            "refusals",
            "Processes that were disconnected: invalid message, or not reading.",
            refusals,
        ),
        ("rates", "Rates that were sent to processes.", rates),
        ("fetches", "Requests for feedback that were sent to load tables.", fetches),
        ("updates", "Schedules that were sent to load tables.", updates),
        ("plans_refused", "Plans that a link of a load table had no room for.", plans_refused),
    ];
    for (name, help, count) in counters {
        out.counter(&format!("thalweg_agent_{name}_total"), help, count);
    }
    jobs(&mut out, stats);
    switches(&mut out, stats);
    of_flows.into_iter().for_each(|stats| priorities(&mut out, stats));
    out.finish()
}

fn priorities(out: &mut Exposition, stats: &PriorityStats) {
    let observed = &stats.observed;
    let counters = [
        ("flows", "TCP flows that were observed until their end.", observed.flows),
        ("flow_bytes", "Bytes of observed flows.", observed.bytes),
        ("flows_within", "Observed flows that were within their bounds.", observed.within),
        ("flows_below", "Observed flows that were below their lower bound.", observed.below),
        ("flows_above", "Observed flows that were above their upper bound.", observed.above),
        ("forests", "Forests that were trained.", observed.forests),
        (
            "evicted_connections",
            "Connections whose entry another one took before they ended.",
            observed.evicted_connections,
        ),
        (
            "evicted_services",
            "Services whose history made room for another one.",
            observed.evicted_services,
        ),
        ("lost_reports", "Times that reports of closed connections were lost.", stats.lost_reports),
    ];
    for (name, help, count) in counters {
        out.counter(&format!("thalweg_agent_{name}_total"), help, count);
    }
    out.gauge("thalweg_agent_connections", "TCP connections that are followed.", stats.connections);
    let help = "1 if packets of all programs get priorities, otherwise 0.";
    out.gauge("thalweg_agent_tagging", help, u64::from(stats.tags.is_some()));
    let Some(tags) = &stats.tags else { return };
    let help = "Packets by the priority that they were given, 0 the highest.";
    out.family("thalweg_agent_tagged_packets_total", Kind::Counter, help);
    for (priority, packets) in tags.packets.iter().enumerate() {
        out.sample(&[("priority", &priority.to_string())], *packets);
    }
    let help = "Packets of TCP that had a code point and kept it.";
    out.counter("thalweg_agent_kept_packets_total", help, tags.left_alone);
    let help = "Flows that began, with bounds and without.";
    out.family("thalweg_agent_begun_flows_total", Kind::Counter, help);
    out.sample(&[("bounds", "yes")], tags.bounded);
    out.sample(&[("bounds", "no")], tags.unbounded);
}

/// A number of each job.
type OfJob = fn(&JobStats) -> u64;

fn jobs(out: &mut Exposition, stats: &AgentStats) {
    out.gauge("thalweg_agent_jobs", "Jobs that are connected.", stats.jobs.len() as u64);
    let families: [(&str, Kind, &str, OfJob); 4] = [
        ("processes", Kind::Gauge, "Processes of a job that are connected.", |job| job.processes),
        ("flows", Kind::Gauge, "Flows of a job to other hosts.", |job| job.flows),
        (
            "asked_bytes_total",
            Kind::Counter,
            "Bytes that flows of a job had to send, slot by slot.",
            |job| job.asked_bytes,
        ),
        ("carried_bytes_total", Kind::Counter, "Bytes that flows of a job sent.", |job| {
            job.carried_bytes
        }),
    ];
    for (name, kind, help, number) in families {
        out.family(&format!("thalweg_agent_job_{name}"), kind, help);
        for (job_name, job) in &stats.jobs {
            out.sample(&[("job_name", job_name)], number(job));
        }
    }
}

fn switches(out: &mut Exposition, stats: &AgentStats) {
    let help = "1 while the load tables of a switch answer, otherwise 0.";
    out.family("thalweg_agent_tables_connected", Kind::Gauge, help);
    for (switch, tables) in &stats.switches {
        out.sample(&[("switch", switch)], u8::from(tables.is_connected));
    }
    let help = "Times that the load tables of a switch stopped answering.";
    out.family("thalweg_agent_tables_losses_total", Kind::Counter, help);
    for (switch, tables) in &stats.switches {
        out.sample(&[("switch", switch)], tables.losses);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use thalweg::metrics::parse;

    use thalweg_prioritize::observer::ObserverCounts;
    use thalweg_tagging::TagCounts;

    use super::*;
    use crate::stats::TablesStats;

    /// Priorities of flows, with counts from 12 to 32.
    fn counted_flows() -> PriorityStats {
        let observed = ObserverCounts {
            flows: 12,
            later_flows: 0,
            bytes: 13,
            within: 14,
            below: 15,
            above: 16,
            evicted_connections: 17,
            evicted_services: 18,
            forests: 19,
        };
        let packets = [20, 21, 22, 23, 24, 25, 26, 27];
        let (left_alone, bounded, unbounded) = (28, 29, 30);
        let tags = TagCounts { packets, left_alone, bounded, unbounded, ..TagCounts::default() };
        PriorityStats {
            observed,
            connections: 31,
            lost_reports: 32,
            tags: Some(tags),
            ..PriorityStats::default()
        }
    }

    #[test]
    fn everything_that_is_counted_is_reported() {
        let job = JobStats { processes: 7, flows: 8, asked_bytes: 9, carried_bytes: 10 };
        let tables = TablesStats { is_connected: true, losses: 11 };
        let stats = AgentStats {
            joins: 1,
            refusals: 2,
            rates: 3,
            fetches: 4,
            updates: 5,
            plans_refused: 6,
            jobs: [("v\"gg".to_owned(), job)].into(),
            switches: [("10.0.3.1:4900".to_owned(), tables)].into(),
        };
        let text = agent(Ipv4Addr::new(10, 0, 3, 7), &stats, Some(&counted_flows()));
        let lines = [
            "thalweg_build_info{role=\"agent\",address=\"10.0.3.7\",version=\"0.1.0\"} 1",
            "thalweg_agent_joins_total 1",
            "thalweg_agent_refusals_total 2",
            "thalweg_agent_rates_total 3",
            "thalweg_agent_fetches_total 4",
            "thalweg_agent_updates_total 5",
            "thalweg_agent_plans_refused_total 6",
            "thalweg_agent_jobs 1",
            "thalweg_agent_job_processes{job_name=\"v\\\"gg\"} 7",
            "thalweg_agent_job_flows{job_name=\"v\\\"gg\"} 8",
            "thalweg_agent_job_asked_bytes_total{job_name=\"v\\\"gg\"} 9",
            "thalweg_agent_job_carried_bytes_total{job_name=\"v\\\"gg\"} 10",
            "thalweg_agent_tables_connected{switch=\"10.0.3.1:4900\"} 1",
            "thalweg_agent_tables_losses_total{switch=\"10.0.3.1:4900\"} 11",
            "thalweg_agent_flows_total 12",
            "thalweg_agent_flow_bytes_total 13",
            "thalweg_agent_flows_within_total 14",
            "thalweg_agent_flows_below_total 15",
            "thalweg_agent_flows_above_total 16",
            "thalweg_agent_evicted_connections_total 17",
            "thalweg_agent_evicted_services_total 18",
            "thalweg_agent_forests_total 19",
            "thalweg_agent_tagged_packets_total{priority=\"0\"} 20",
            "thalweg_agent_tagged_packets_total{priority=\"7\"} 27",
            "thalweg_agent_kept_packets_total 28",
            "thalweg_agent_begun_flows_total{bounds=\"yes\"} 29",
            "thalweg_agent_begun_flows_total{bounds=\"no\"} 30",
            "thalweg_agent_connections 31",
            "thalweg_agent_lost_reports_total 32",
            "thalweg_agent_tagging 1",
        ];
        for line in lines {
            assert!(text.lines().any(|found| found == line), "{line} is missing in:\n{text}");
        }
        let samples = parse(&text);
        // Priorities 1 to 6 are not listed.
        assert_eq!(samples.len(), lines.len() + 6);
        let families: BTreeSet<_> = samples.iter().map(|sample| sample.name.as_str()).collect();
        assert_eq!(text.matches("# TYPE ").count(), families.len(), "each family stands once");
    }
}
