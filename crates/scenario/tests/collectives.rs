//! Every collective over several racks: what it sends where, and that it ends whatever is lost.

#[path = "common/jobs.rs"]
mod jobs;

use jobs::{run, scenario};
use thalweg_core::NodeId;
use thalweg_scenario::{Ending, JobRecord, Outcome, SwitchStats};

/// Tensors one after the other, 1,000 fragments each.
const BENCHMARK: &str = "[traffic.all-reduce]\nbytes = \"1408000B\"\nrounds = 3\n";

/// Three iterations with one gradient of ten fragments. Computing leaves the time to announce the job to
/// the switches.
const TRAINING: &str = "[traffic.training]\njson = \"model.json\"\niterations = 3\n\
    forward = \"20us\"\nbackward = \"30us\"\n";
const TEN_FRAGMENTS: &str = "fragment-values = 375\nindexing = \"linear\"";

/// Three racks of three hosts, nodes 9 to 11 their switches, 12 and 13 the spines. Two workers a rack;
/// the third host of the last one serves.
fn three_racks(work: &str, collective: &str, aggregation: &str) -> String {
    format!(
        r#"
title = "three racks"
[topology.leaf-spine]
racks = 3
hosts-per-rack = 3
spines = 2
host-cable = {{ rate = "100Gbps", delay = "500ns" }}
uplink = {{ rate = "100Gbps", delay = "500ns" }}
[aggregation]
window = "100KB"
{aggregation}
[[traffic]]
{work}
workers = [0, 1, 3, 4, 6, 7]
collective = "{collective}"
server = 8
"#
    )
}

fn complete(text: &str) -> (Outcome, JobRecord) {
    let outcome = run(text);
    assert_eq!((outcome.check.clone(), outcome.ending), (Ok(()), Ending::Complete), "{text}");
    let [job] = &outcome.jobs[..] else { panic!("one job") };
    assert_eq!((job.iterations.len() as u64, &job.failure), (job.planned_iterations, &None));
    let job = job.clone();
    (outcome, job)
}

/// Fragments that each switch with a program summed, and sums that it completed.
fn sums(outcome: &Outcome) -> Vec<(u32, u64, u64)> {
    let sums = outcome.switches.iter().map(|used| match used.stats {
        SwitchStats::Aggregate(stats) => {
            (used.switch.0, stats.taken + stats.added, stats.completed)
        }
        SwitchStats::SwitchMl(stats) => {
            (used.switch.0, stats.added_packets, stats.complete_packets)
        }
    });
    sums.collect()
}

/// The server gets one packet a fragment where its rack sums too, and one from each rack else: three
/// times as much.
// spec: A-53 simulator
#[test]
fn only_racks_sum_and_the_server_does_the_rest() {
    let (outcome, all) = complete(&three_racks(TRAINING, "aggregate", TEN_FRAGMENTS));
    // Two workers in each rack; in the last one also the sums of the other racks.
    assert_eq!(sums(&outcome), [(9, 60, 30), (10, 60, 30), (11, 120, 30)]);
    assert_eq!((all.servers[0].stats.gradients, all.servers[0].stats.completed), (30, 30));
    let (outcome, racks) = complete(&three_racks(TRAINING, "rack-only", TEN_FRAGMENTS));
    assert_eq!(sums(&outcome), [(9, 60, 30), (10, 60, 30), (11, 60, 30)]);
    assert_eq!((racks.servers[0].stats.gradients, racks.servers[0].stats.completed), (90, 30));
    let bytes = |job: &JobRecord| job.servers[0].stats.gradient_bytes;
    assert_eq!(bytes(&racks), 3 * bytes(&all));
}

fn three_levels() -> String {
    format!("levels = 3\n{TEN_FRAGMENTS}")
}

// spec: A-12 simulator
#[test]
fn a_spine_sums_for_all_racks_with_three_levels() {
    let (outcome, job) = complete(&three_racks(TRAINING, "aggregate", &three_levels()));
    let expected = [(9, 60, 30), (10, 60, 30), (11, 90, 30), (12, 60, 30)];
    assert_eq!(sums(&outcome), expected);
    assert_eq!(job.servers[0].stats.gradients, 30);
}

/// Two servers have half of the fragments each, and trees of their own over both spines.
// spec: A-24 simulator
#[test]
fn servers_share_the_fragments() {
    let text = three_racks(TRAINING, "aggregate", &three_levels());
    let text = text.replace("server = 8", "servers = [8, 2]");
    let (outcome, job) = complete(&text);
    let completed: Vec<(u32, u64)> =
        job.servers.iter().map(|used| (used.host.0, used.stats.completed)).collect();
    assert_eq!(completed, [(8, 15), (2, 15)]);
    let switches: Vec<u32> = outcome.switches.iter().map(|used| used.switch.0).collect();
    assert_eq!(switches, [9, 10, 11, 12, 13]);
}

// spec: A-12 simulator
#[test]
fn pods_sum_below_the_cores() {
    let text = r#"
title = "two pods"
[topology.three-tier]
pods = 2
racks-per-pod = 2
hosts-per-rack = 2
aggregations-per-pod = 2
cores = 2
host-cable = { rate = "100Gbps", delay = "500ns" }
aggregation-cable = { rate = "100Gbps", delay = "500ns" }
core-cable = { rate = "100Gbps", delay = "500ns" }
[[traffic]]
WORK
workers = [0, 1, 2, 3, 4, 5, 6]
collective = "aggregate"
server = 7
[aggregation]
"#;
    let (outcome, job) = complete(&(text.replace("WORK", TRAINING) + &three_levels()));
    // Racks 8 to 11, aggregation switches 12 and 13 of the first pod, 14 and 15 of the second.
    let expected =
        [(8, 60, 30), (9, 60, 30), (10, 60, 30), (11, 90, 30), (12, 60, 30), (14, 30, 30)];
    assert_eq!(sums(&outcome), expected);
    assert_eq!(job.servers[0].stats.gradients, 30);
}

#[test]
fn everything_ends_with_one_packet_in_a_hundred_lost() {
    let fault = "[[faults]]\nloss = { probability = 0.01 }\n";
    let one_rack = |text: String| text.replace("[0, 1, 3, 4, 6, 7]", "[0, 1, 2]");
    let no_server = |text: String| text.replace("server = 8", "");
    let selective = three_racks(BENCHMARK, "aggregate", "recovery = \"selective\"");
    let cases = [
        three_racks(BENCHMARK, "aggregate", "recovery = \"paper\""),
        three_racks(BENCHMARK, "aggregate", "levels = 3\nnumeric = \"dynamic\""),
        three_racks(BENCHMARK, "aggregate", "aggregators = 16\nindexing = \"linear\""),
        three_racks(BENCHMARK, "rack-only", ""),
        three_racks(BENCHMARK, "server", ""),
        no_server(three_racks(BENCHMARK, "ring", "")),
        no_server(one_rack(three_racks(BENCHMARK, "switchml", ""))),
        selective.clone(),
    ];
    for text in cases.map(|text| text + fault) {
        let (outcome, job) = complete(&text);
        let lost = job.total();
        assert!(lost.resent + lost.queries > 0, "{text}");
        assert_eq!(job.summed_bytes, vec![3 * 1_408_000; job.workers], "{text}");
        let again = run(&text);
        assert_eq!((outcome.digest, &outcome.jobs), (again.digest, &again.jobs), "{text}");
        assert_ne!(scenario(&text).run(2).finish().digest, outcome.digest, "{text}");
    }
    let (_, job) = complete(&(selective + fault));
    assert!(job.total().queries > 0 && job.total().resent == 0, "{:?}", job.total());
}

/// With a window of few aggregators, jobs collide, and the servers do what the switches cannot.
#[test]
fn jobs_share_what_switches_have() {
    let job = |workers: &str, server: u32| {
        format!(
            "[[traffic]]\n[traffic.all-reduce]\nworkers = {workers}\nserver = {server}\n\
             collective = \"aggregate\"\nbytes = \"1MB\"\nrounds = 2\n"
        )
    };
    let text = three_racks(BENCHMARK, "aggregate", "aggregators = 32")
        + &job("[2, 5]", 8)
        + &job("[5, 8]", 2);
    let outcome = run(&text);
    assert_eq!((outcome.check.clone(), outcome.ending), (Ok(()), Ending::Complete));
    assert!(outcome.jobs.iter().all(|job| job.failure.is_none()));
    let collisions: u64 = outcome.jobs.iter().map(|job| job.servers[0].stats.collisions).sum();
    assert!(collisions > 0);
    assert_eq!(outcome.jobs[2].servers[0].host, NodeId(2));
}
