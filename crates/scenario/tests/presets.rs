//! The scenarios that come with the project run and show what they say.

use std::fs;
use std::path::{Path, PathBuf};

use thalweg_core::{NodeId, Span};
use thalweg_fabric::DropReason;
use thalweg_scenario::sweep::{Variant, on_all_cores, variants};
use thalweg_scenario::{Ending, LinkUse, Outcome};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

fn read(file: &str) -> Result<String, String> {
    fs::read_to_string(folder().join(file)).map_err(|error| format!("{file}: {error}"))
}

fn expand(file: &str, text: &str) -> Vec<Variant> {
    variants(file, text, None, &|named| read(named)).unwrap_or_else(|error| panic!("{error}"))
}

fn run(variant: &Variant) -> Outcome {
    let outcome = variant.scenario.run(variant.seed).finish();
    assert_eq!(outcome.check, Ok(()), "{}", variant.label);
    outcome
}

/// Runs a preset that is no sweep. All its flows arrive, none faster than it can.
fn complete(file: &str, text: &str) -> Outcome {
    let [variant] = &expand(file, text)[..] else { panic!("{file} is a sweep") };
    let outcome = run(variant);
    assert_eq!((outcome.ending, outcome.unfinished()), (Ending::Complete, 0), "{file}");
    for (flow, ideal) in outcome.flows.iter().zip(&outcome.ideals) {
        assert!(outcome.completion(flow) >= Some(*ideal), "{file}: {flow:?} against {ideal}");
    }
    outcome
}

fn preset(file: &str) -> Outcome {
    complete(file, &read(file).expect("the preset is there"))
}

/// The same with fewer flows: a test has less time than a person.
fn shortened(file: &str, flows: &str, fewer: &str) -> Outcome {
    let text = read(file).expect("the preset is there");
    assert!(text.contains(flows), "{file} no longer has {flows}");
    complete(file, &text.replace(flows, fewer))
}

fn links_between(outcome: &Outcome, a: u32, b: u32) -> impl Iterator<Item = &LinkUse> {
    let ends = [(NodeId(a), NodeId(b)), (NodeId(b), NodeId(a))];
    outcome.links.iter().filter(move |link| ends.contains(&(link.from, link.to)))
}

#[test]
fn every_preset_can_be_read() {
    let files = fs::read_dir(folder()).expect("the folder is there");
    let names = files.map(|file| file.expect("readable").file_name().into_string().expect("text"));
    let mut presets: Vec<String> = names.filter(|name| name.ends_with(".toml")).collect();
    presets.sort();
    for file in &presets {
        assert!(!expand(file, &read(file).expect("readable")).is_empty());
    }
    let tested = [
        "fairness",
        "flows",
        "grayloss",
        "homa",
        "incast",
        "list",
        "ndp",
        "pfabric",
        "qclimb",
        "shared",
        "speed",
        "sweep",
        "three-tier",
        "training",
        "turns-unequal",
        "turns",
        "two-racks",
        "websearch",
    ];
    assert_eq!(presets, tested.map(|name| format!("{name}.toml")), "a preset without a test");
}

#[test]
fn websearch_slows_some_flows_down_much_more_than_most() {
    let outcome = shortened("websearch.toml", "flows = 2000", "flows = 150");
    assert_eq!(outcome.flows.len(), 150);
    let classes = outcome.classes();
    let all = classes.last().expect("the class of all flows");
    assert!(all.slowdown.min >= 1.0, "{all:?}");
    assert!(all.slowdown.p99 > 2.0 * all.slowdown.p50, "{all:?}");
}

#[test]
fn turns_end_sooner_than_side_by_side() {
    let outcome = shortened("turns.toml", "iterations = 8", "iterations = 3");
    // Side by side an iteration takes 235 ms.
    let last = outcome.jobs.iter().filter_map(|job| job.iterations.last());
    assert!(last.clone().count() == 2 && last.clone().all(|span| *span < Span::from_ms(190)));
}

// spec: C-16 simulator
#[test]
fn turns_of_unequal_jobs_slow_neither_down() {
    let outcome = shortened("turns-unequal.toml", "iterations = 8", "iterations = 4");
    // Side by side iterations take 175 and 131 ms.
    let mean_ms = |job: usize| {
        let all = &outcome.jobs[job].iterations;
        all.iter().map(|span| span.as_s_f64() * 1e3).sum::<f64>() / all.len() as f64
    };
    let (one, half) = (mean_ms(0), mean_ms(1));
    assert!(one < 175.0 * 1.03 && half < 0.95 * 131.2, "{one} and {half} ms");
}

// spec: Q-02 simulator
#[test]
fn qclimb_sends_nothing_again_for_nothing() {
    let outcome = shortened("qclimb.toml", "flows = 2000", "flows = 400");
    assert_eq!((outcome.flows.len(), outcome.unfinished()), (400, 0));
    assert_eq!((outcome.tagged.bounded, outcome.arrivals.copies), (400, 0));
    assert!(outcome.arrivals.peak_held_bytes > 0, "packets overtake others");
}

/// Flows take what training would have of one set of queues; of two that take turns it has its half.
// spec: M-15, Q-05 simulator
#[test]
fn shared_queues_starve_training_and_split_ones_do_not() {
    let text = read("shared.toml").expect("the preset is there");
    let variants = expand("shared.toml", &text.replace("\"60ms\"", "\"20ms\""));
    let outcomes = on_all_cores(&variants, 2, run);
    let goodput = |queues: &str| -> Vec<f64> {
        let own = variants.iter().zip(&outcomes).filter(|(variant, outcome)| {
            assert_eq!((outcome.ending, outcome.jobs.len()), (Ending::TimeUp, 1));
            assert_eq!(outcome.jobs[0].failure, None);
            assert!(outcome.tagged.bounded > 2 * outcome.tagged.unseen, "{:?}", outcome.tagged);
            assert!(outcome.tagged.unseen > 0, "some flows go by what they have sent");
            variant.label.contains(queues)
        });
        own.map(|(_, outcome)| 8e-9 * outcome.jobs[0].goodput_bytes_per_s().expect("sums"))
            .collect()
    };
    let (together, split) = (goodput("strict"), goodput("fair"));
    assert_eq!((together.len(), split.len()), (2, 2));
    assert_ne!(outcomes[2].digest, outcomes[3].digest, "layers have priorities");
    // Half of 25 Gbps, of which headers take 8.5%.
    assert!(split.iter().all(|gbps| *gbps > 0.9 * 11.4), "{split:?} Gbps");
    assert!(together.iter().all(|gbps| *gbps < 0.5 * split[0]), "{together:?} Gbps");
}

/// Beside DCTCP the paper's rule leaves a job a few percent of the cable, and a control by delay takes all.
#[test]
fn the_share_beside_a_flow_depends_on_the_control() {
    let text = read("fairness.toml").expect("the preset is there");
    let text = text.replace("\"10ms\"", "\"4ms\"").replace("[1, 2, 3]", "[1]");
    let variants = expand("fairness.toml", &text);
    let gbps = |window: &str| {
        let variant = variants.iter().find(|variant| variant.label.contains(window));
        let outcome = run(variant.expect("a run of every control"));
        assert_eq!((outcome.ending, &outcome.jobs[0].failure), (Ending::TimeUp, &None));
        8e-9 * outcome.jobs[0].goodput_bytes_per_s().expect("sums")
    };
    assert_eq!(variants.len(), 7);
    let (paper, delay) = (gbps("aimd"), gbps("swift"));
    // Half of 100 Gbps, of which headers take 19%.
    assert!(paper > 1.0 && paper < 0.3 * 40.5, "{paper} Gbps");
    assert!(delay > 1.1 * 40.5, "{delay} Gbps");
}

#[test]
fn speed_is_the_same_on_more_hosts() {
    let outcome = shortened("speed.toml", "flows = 4000", "flows = 30");
    assert_eq!(outcome.flows.len(), 30);
}

#[test]
fn incast_overflows_the_port_of_its_receiver_and_no_other() {
    let outcome = preset("incast.toml");
    let dropped = |link: &LinkUse| link.stats.dropped_packets;
    let at_receiver: u64 = links_between(&outcome, 0, 144).map(dropped).sum();
    assert!(at_receiver > 0);
    assert_eq!(at_receiver, outcome.stats.dropped());
    assert!(outcome.resent_packets >= at_receiver);
}

/// As published for NDP: an incast ends within a few percent of the time that the cable of its receiver
/// needs for the packets.
#[test]
fn ndp_loses_nothing_but_payload_and_ends_an_incast_on_time() {
    let outcome = preset("ndp.toml");
    assert_eq!(outcome.stats.dropped(), 0);
    assert!(outcome.trimmed_packets() > 300, "{}", outcome.trimmed_packets());
    let last = outcome.flows.iter().filter_map(|flow| outcome.completion(flow)).max();
    let floor_us = 64.0 * 10.0 * 9_000.0 * 8.0 / 10_000.0;
    let ratio = last.expect("all arrived").as_us_f64() / floor_us;
    assert!((1.0..1.03).contains(&ratio), "{ratio}");
}

/// As published for pFabric, on fewer hosts: flows up to 100 KB take less than 1.3 times as long as
/// alone, on average, and less than 2 times at the 99th percentile.
#[test]
fn pfabric_hardly_slows_short_flows_down() {
    let (mean, p99) = short_slowdowns("pfabric.toml");
    assert!(mean < 1.3 && p99 < 2.0, "mean {mean}, 99th percentile {p99}");
}

/// As published for Homa, on fewer hosts: of short messages 99 of 100 take less than 2.2 times as long as
/// alone.
#[test]
fn homa_hardly_slows_short_flows_down() {
    let (mean, p99) = short_slowdowns("homa.toml");
    assert!(mean < 1.5 && p99 < 2.2, "mean {mean}, 99th percentile {p99}");
}

/// Slowdown of flows up to 100 KB, on fewer hosts: the mean and the 99th percentile.
fn short_slowdowns(file: &str) -> (f64, f64) {
    let mut text = read(file).expect("the preset is there");
    for (full, small) in [
        ("racks = 9", "racks = 2"),
        ("hosts-per-rack = 16", "hosts-per-rack = 8"),
        ("spines = 4", "spines = 2"),
        ("flows = 10000", "flows = 800"),
    ] {
        assert!(text.contains(full), "{file} no longer has {full}");
        text = text.replace(full, small);
    }
    let outcome = complete(file, &text);
    let ratios = outcome.flows.iter().zip(&outcome.ideals).filter_map(|(flow, ideal)| {
        let fct = outcome.completion(flow).filter(|_| flow.spec.bytes.as_u64() <= 100_000)?;
        Some(fct.as_us_f64() / ideal.as_us_f64())
    });
    let mut ratios: Vec<f64> = ratios.collect();
    ratios.sort_by(f64::total_cmp);
    assert!(ratios.len() > 300, "{}", ratios.len());
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    (mean, ratios[ratios.len() * 99 / 100])
}

#[test]
fn grayloss_loses_packets_only_where_it_says() {
    let outcome = preset("grayloss.toml");
    // Hosts 0 to 15, the racks' switches 16 to 19, the spines 20 to 23.
    let lost = |links: &mut dyn Iterator<Item = &LinkUse>| -> (u64, u64) {
        links.fold((0, 0), |(lost, sent), link| {
            (lost + link.stats.lost_packets, sent + link.stats.sent_packets)
        })
    };
    let (gray, crossed) = lost(&mut links_between(&outcome, 16, 20));
    let (dead, _) = lost(&mut links_between(&outcome, 17, 21));
    let (all, _) = lost(&mut outcome.links.iter());
    assert!(gray > 0 && dead > 0);
    assert_eq!(gray + dead, all);
    let share = gray as f64 / crossed as f64;
    assert!((0.004..0.006).contains(&share), "{share}");
}

#[test]
fn three_tier_is_tightest_at_the_cores() {
    let outcome = shortened("three-tier.toml", "flows = 3000", "flows = 1000");
    // 32 hosts, 8 racks' switches, 8 aggregation switches, 4 cores.
    let mean_use = |tier: fn(u32) -> bool| {
        let of_tier = |link: &&LinkUse| tier(link.from.0) || tier(link.to.0);
        let used: Vec<f64> =
            outcome.links.iter().filter(of_tier).map(|link| outcome.utilization(link)).collect();
        used.iter().sum::<f64>() / used.len() as f64
    };
    let (cores, hosts) = (mean_use(|node| node >= 48), mean_use(|node| node < 32));
    assert!(cores > 2.0 * hosts, "cores {cores}, hosts {hosts}");
}

#[test]
fn list_uses_both_ways_and_loses_what_is_in_the_switch_that_goes_down() {
    let outcome = preset("list.toml");
    // near is 5, north 7, south 8.
    for way in [7, 8] {
        assert!(links_between(&outcome, 5, way).all(|link| link.stats.sent_packets > 0), "{way}");
    }
    assert!(outcome.stats.dropped_packets[DropReason::NodeDown as usize] > 0);
    let backups = outcome.flows.iter().filter(|flow| flow.spec.bytes.as_u64() == 10_000_000);
    assert_eq!(backups.count(), 3);
}

#[test]
fn training_waits_for_the_network() {
    let outcome = preset("training.toml");
    let [job] = &outcome.jobs[..] else { panic!("one job") };
    // 32 · 8,178,368,512 / 5·10¹³ s and 32 · 16,120,709,120 / 5·10¹³ s, each rounded.
    assert_eq!(job.compute.as_ps(), 15_551_409_685);
    assert_eq!((job.model.as_str(), job.iterations.len()), ("resnet50", 3));
    assert_eq!(job.summed_bytes, [3 * 4 * 25_557_032; 4]);
    for iteration in &job.iterations {
        // The parts of four workers need 33.6 ms on the server's cable, from when the first is ready.
        let ms = iteration.as_us_f64() / 1e3;
        assert!((5.2 + 33.6..5.2 + 2.0 * 33.6).contains(&ms), "{ms} ms");
    }
}

#[test]
fn two_racks_sum_in_their_switches() {
    let outcome = preset("two-racks.toml");
    let [both, left, right] = &outcome.jobs[..] else { panic!("three jobs") };
    for (job, iterations) in [(both, 2), (left, 3), (right, 20)] {
        assert_eq!((job.iterations.len(), &job.failure), (iterations, &None));
        // Nearly every fragment comes to the server once, as one sum.
        let stats = job.servers[0].stats;
        let per_sum = stats.gradients as f64 / stats.completed as f64;
        assert!((1.0..1.1).contains(&per_sum), "{per_sum}");
    }
    assert!(both.total().queries > 0, "packets are lost on the trunk");
    // The trunk carries one sum of job 0 each way, and little else.
    let trunk: u64 =
        links_between(&outcome, 14, 15).map(|link| link.stats.sent_bytes).max().unwrap();
    let tensors: u64 = 2 * 4 * 25_557_032 / 1_408 * 1_538;
    assert!((1.0..1.15).contains(&(trunk as f64 / tensors as f64)), "{trunk} {tensors}");
}

#[test]
fn flows_are_those_of_the_file() {
    let outcome = preset("flows.toml");
    assert_eq!(outcome.flows.len(), 10);
    let one_byte = outcome.flows.iter().position(|flow| flow.spec.bytes.as_u64() == 1);
    let one_byte = one_byte.expect("a flow of one byte");
    assert_eq!(outcome.flows[one_byte].spec.start.as_ps(), 250_500_000);
    // 12 µs there and 12 back, and hardly anything to send.
    let fct = outcome.completion(&outcome.flows[one_byte]).expect("it arrived");
    assert!((24.0..40.0).contains(&fct.as_us_f64()), "{fct}");
}

#[test]
fn sweep_gets_slower_with_the_load() {
    let variants = expand("sweep.toml", &read("sweep.toml").expect("the preset is there"));
    assert_eq!(variants.len(), 27);
    let outcomes = on_all_cores(&variants, 2, run);
    let slowdown = |outcome: &Outcome| {
        assert_eq!((outcome.ending, outcome.unfinished()), (Ending::Complete, 0));
        outcome.classes().last().expect("the class of all flows").slowdown.mean
    };
    let by_load: Vec<f64> =
        outcomes.chunks(9).map(|runs| runs.iter().map(slowdown).sum()).collect();
    assert!(by_load.is_sorted(), "{by_load:?}");
}
