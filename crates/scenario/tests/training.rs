//! Jobs on the whole stack, against arithmetic.

#[path = "common/jobs.rs"]
mod jobs;

use jobs::{run, scenario};
use thalweg_core::{NodeId, Span, Time};
use thalweg_scenario::{Ending, JobRecord, Outcome, SwitchStats};

/// Workers around one switch, and a server at the last of `hosts`. Gradients are one tensor of 3,750
/// values: 15,000 B, ten full packets of 1,500. No window holds a flow up.
fn text(hosts: u32, collective: &str) -> String {
    let workers: Vec<u32> = (0..hosts - 1).collect();
    let server = match collective {
        "ring" | "switchml" => String::new(),
        _ => format!("server = {}", hosts - 1),
    };
    format!(
        r#"
title = "training"
[topology.one-switch]
hosts = {hosts}
host-cable = {{ rate = "100Gbps", delay = "500ns" }}
[transport]
segment-bytes = 1500
overhead-bytes = 64
initial-window-packets = 1000
min-rto = "100us"
initial-rto = "100us"
[aggregation]
fragment-values = 375
overhead-bytes = 64
window = "1MB"
[[traffic]]
[traffic.training]
json = "model.json"
collective = "{collective}"
workers = {workers:?}
{server}
iterations = 3
forward = "20us"
backward = "30us"
start = "7us"
"#
    )
}

fn complete(text: &str) -> Outcome {
    let outcome = run(text);
    assert_eq!((outcome.check.clone(), outcome.ending), (Ok(()), Ending::Complete), "{text}");
    outcome
}

fn only(outcome: &Outcome) -> &JobRecord {
    let [job] = &outcome.jobs[..] else { panic!("one job") };
    job
}

/// A full packet on the wire, and a cable.
const PACKET_PS: u64 = 125_120;
const DELAY_PS: u64 = 500_000;

/// Ten packets over two hops arrive after (10 + 1) · 0.12512 + 2 · 0.5 µs. On the path back they leave
/// after the server's last acknowledgement, 0.00512 µs.
#[test]
fn one_worker_and_a_parameter_server_take_the_closed_form() {
    let outcome = complete(&text(2, "server"));
    let there_ps = 11 * PACKET_PS + 2 * DELAY_PS;
    let iteration = Span::from_ps(50_000_000 + there_ps + 5_120 + there_ps);
    let job = only(&outcome);
    assert_eq!((job.model.as_str(), job.workers, job.planned_iterations), ("ten packets", 1, 3));
    assert_eq!(job.compute, Span::from_us(50));
    assert_eq!(job.iterations, [iteration; 3]);
    let ends = [1, 2, 3].map(|count| Time::ZERO + Span::from_us(7) + iteration * count);
    assert_eq!(job.sums_at, [ends]);
    assert_eq!(job.summed_bytes, [45_000]);
}

/// Fragments of 375 values are packets of the same size. Each is answered when its last copy has come:
/// two hops up to the server, and two down.
#[test]
fn aggregation_on_an_idle_switch_takes_the_closed_form() {
    for hosts in [2, 5, 9] {
        let outcome = complete(&text(hosts, "aggregate"));
        let job = only(&outcome);
        // Ten packets one after the other, each stored and forwarded three times more.
        let iteration = Span::from_ps(50_000_000 + 13 * PACKET_PS + 4 * DELAY_PS);
        assert_eq!(job.iterations, [iteration; 3], "{hosts} hosts");
        let SwitchStats::Aggregate(stats) = outcome.switches[0].stats else { panic!("a program") };
        let workers = u64::from(hosts) - 1;
        assert_eq!((stats.taken + stats.added, stats.completed), (30 * workers, 30));
        assert_eq!((stats.collisions, stats.passed), (0, 0));
        let server = &job.servers[0];
        assert_eq!((server.host, server.stats.completed), (NodeId(hosts - 1), 30));
        assert_eq!(server.stats.gradient_bytes, 30 * 1_564);
    }
}

/// The switch answers itself: two hops less.
#[test]
fn switchml_on_an_idle_switch_takes_the_closed_form() {
    let outcome = complete(&text(5, "switchml"));
    let iteration = Span::from_ps(50_000_000 + 11 * PACKET_PS + 2 * DELAY_PS);
    assert_eq!(only(&outcome).iterations, [iteration; 3]);
    let SwitchStats::SwitchMl(stats) = outcome.switches[0].stats else { panic!("a program") };
    assert_eq!((stats.added_packets, stats.complete_packets), (120, 30));
}

/// All parts meet at the server's cable: forty packets, one after the other, and forty back.
#[test]
fn four_workers_share_the_cable_of_the_server() {
    let outcome = complete(&text(5, "server"));
    let there_ps = 41 * PACKET_PS + 2 * DELAY_PS;
    let floor = Span::from_ps(50_000_000 + 2 * there_ps);
    let job = only(&outcome);
    assert_eq!(job.iterations.len(), 3);
    for iteration in &job.iterations {
        // Acknowledgements take a twenty-fifth of the way back.
        assert!((floor..floor + Span::from_ns(600)).contains(iteration), "{iteration} {floor}");
    }
}

/// A ring of four sends six quarters over every cable, one round trip after the other.
#[test]
fn a_ring_keeps_its_bound() {
    let outcome = complete(&text(5, "ring"));
    // A quarter is 3,752 or 3,748 bytes: two full packets and most of a third.
    let quarter_ps = 3 * PACKET_PS + PACKET_PS + 2 * DELAY_PS - 60_000;
    let floor = Span::from_ps(50_000_000 + 6 * quarter_ps);
    for iteration in &only(&outcome).iterations {
        assert!((floor..floor + Span::from_us(3)).contains(iteration), "{iteration} {floor}");
    }
}

/// Ten rounds of 16 MB on four workers: time over the wire is all there is.
fn all_reduce(collective: &str, servers: &str) -> JobRecord {
    let text = format!(
        r#"
title = "all-reduce"
[topology.one-switch]
hosts = 5
host-cable = {{ rate = "100Gbps", delay = "500ns" }}
[switch]
ecn-threshold = "97.5KB"
[[traffic]]
[traffic.all-reduce]
workers = [0, 1, 2, 3]
collective = "{collective}"
{servers}
bytes = "16MB"
rounds = 10
"#
    );
    only(&complete(&text)).clone()
}

fn goodput_gbps(job: &JobRecord) -> f64 {
    job.goodput_bytes_per_s().expect("sums came") * 8.0 / 1e9
}

#[test]
fn aggregation_beats_the_parameter_server_by_the_number_of_workers() {
    let aggregate = all_reduce("aggregate", "server = 4");
    assert_eq!(aggregate.iterations.len(), 10);
    assert_eq!(aggregate.summed_bytes, [160_000_000; 4]);
    assert!(aggregate.sums_at.iter().all(|times| times.len() == 10 && times.is_sorted()));
    // 1,408 of 1,538 bytes are values.
    let bound = 100.0 * 1_408.0 / 1_538.0;
    let reached = goodput_gbps(&aggregate);
    assert!((0.95 * bound..bound).contains(&reached), "{reached} of {bound} Gbps");
    let server = goodput_gbps(&all_reduce("server", "server = 4"));
    let gain = reached / server;
    assert!((3.6..4.4).contains(&gain), "{gain}");
    let switchml = goodput_gbps(&all_reduce("switchml", ""));
    assert!((0.95 * bound..bound).contains(&switchml), "{switchml} of {bound} Gbps");
}

/// A ring and servers on all workers' hosts send 2 (W − 1) / W of the tensor over every cable.
#[test]
fn a_ring_and_servers_on_all_hosts_share_a_bound() {
    let bound = 100.0 * 4.0 / 6.0 * 1_460.0 / 1_500.0;
    let ring = goodput_gbps(&all_reduce("ring", ""));
    assert!((0.9 * bound..bound).contains(&ring), "{ring} of {bound} Gbps");
    let servers = goodput_gbps(&all_reduce("server", "servers = [0, 1, 2, 3]"));
    assert!((0.9 * bound..bound).contains(&servers), "{servers} of {bound} Gbps");
}

#[test]
fn a_host_that_goes_down_ends_its_job_and_no_other() {
    for collective in ["server", "aggregate"] {
        let second = format!(
            r#"
[[traffic]]
[traffic.training]
json = "model.json"
collective = "{collective}"
workers = [1]
server = 2
iterations = 3
forward = "20us"
backward = "30us"
[[faults]]
node-down = {{ node = 0, from = "80us", until = "81us" }}
"#
        );
        let first = text(4, collective).replace("workers = [0, 1, 2]", "workers = [0]");
        let outcome = complete(&(first + &second));
        let done: Vec<usize> = outcome.jobs.iter().map(|job| job.iterations.len()).collect();
        assert_eq!(done, [1, 3]);
        assert_eq!(outcome.jobs[0].failure.as_deref(), Some("host 0 went down"));
        assert_eq!(outcome.jobs[1].failure, None);
    }
}

/// While tensors are in flight, so that machines are left with things to send.
#[test]
fn a_job_may_end_in_the_middle() {
    for collective in ["server", "aggregate", "ring", "switchml"] {
        let fault = "[[faults]]\nnode-down = { node = 0, from = \"57.5us\" }\n";
        let other = "[[traffic]]\npermutation = { bytes-each = \"1MB\", start = \"50us\" }\n";
        let outcome = complete(&format!("{}{other}{fault}", text(4, collective)));
        assert_eq!(outcome.jobs[0].iterations.len(), 0, "{collective}");
        assert!(outcome.jobs[0].failure.is_some());
    }
}

#[test]
fn a_machine_that_fails_ends_the_job() {
    let fault = "[[faults]]\nlink-down = { on = { into = 1 }, from = \"80us\" }\n";
    for (collective, why) in [("server", "node 1 did not answer"), ("aggregate", "no sum came")] {
        let outcome = complete(&format!("{}{fault}", text(2, collective)));
        let job = only(&outcome);
        assert_eq!(job.iterations.len(), 1);
        let failure = job.failure.as_deref().unwrap_or_default();
        assert!(failure.starts_with(why), "{failure}");
    }
}

#[test]
fn a_switch_that_restarts_costs_aggregation_only_time() {
    let fault = "[[faults]]\nnode-down = { node = 5, from = \"58us\", until = \"60us\" }\n";
    let outcome = complete(&format!("{}{fault}", text(5, "aggregate")));
    let job = only(&outcome);
    assert_eq!((job.iterations.len(), job.failure.as_deref()), (3, None));
    assert!(job.iterations[0] > job.iterations[1], "{:?}", job.iterations);
    assert!(job.total().queries > 0);
    let outcome = complete(&format!("{}{fault}", text(5, "switchml")));
    assert_eq!(only(&outcome).failure.as_deref(), Some("switch 5 went down"));
}

#[test]
fn a_job_that_is_cut_short_has_the_iterations_it_completed() {
    let outcome = run(&format!("stop-after = \"100us\"\n{}", text(2, "server")));
    assert_eq!(outcome.ending, Ending::TimeUp);
    assert_eq!(only(&outcome).iterations.len(), 1);
}

#[test]
fn a_run_can_be_stepped_and_read() {
    let scenario = scenario(&text(5, "aggregate"));
    let mut run = scenario.run(1);
    let at = |us: u64| Time::ZERO + Span::from_us(us);
    run.advance_until(at(57));
    assert_eq!((run.now(), run.summed_bytes(0, 0)), (at(57), Some(0)));
    let progress = run.advance_until(at(70));
    assert_eq!((progress.now, progress.finished_sums, progress.expected_sums), (at(70), 4, 12));
    assert_eq!(run.summed_bytes(0, 3), Some(15_000));
    let SwitchStats::Aggregate(switch) = run.switch_stats(NodeId(5)).expect("a program") else {
        panic!("a program of aggregation")
    };
    assert_eq!(switch.completed, 10);
    assert_eq!(run.server_stats(NodeId(4), 0).expect("a server").completed, 10);
    assert_eq!(run.server_stats(NodeId(0), 0), None);
    let worker = run.worker_stats(0, 2).expect("a worker");
    assert_eq!((worker.resent, worker.window_bytes), (0, 1_000_000));
    assert!(run.worker_stats(0, 4).is_none() && run.worker_stats(1, 0).is_none());
    assert!(run.participant(NodeId(2), 0).is_some());
    assert!(run.switch_stats(NodeId(0)).is_none());
}
