//! Sweeps: which runs, in which order, and that it does not matter where they run.

use thalweg_scenario::sweep::{Variant, on_all_cores, variants};

const BASE: &str = r#"
title = "sweep"
[topology.one-switch]
hosts = 4
host-cable = { rate = "10Gbps", delay = "1us" }
[transport]
control = "dctcp"
[[traffic]]
[traffic.poisson]
sizes = { uniform = ["1KB", "100KB"] }
load = 0.5
flows = 30
[[traffic]]
[traffic.incast]
senders = [0, 1]
receiver = 2
bytes-each = "20KB"
"#;

fn expand(sweep: &str, seed: Option<u64>) -> Vec<Variant> {
    let no_files = |file: &str| Err(format!("there is no {file}"));
    let text = format!("{BASE}{sweep}");
    variants("sweep.toml", &text, seed, &no_files).unwrap_or_else(|error| panic!("{error}"))
}

fn labels(variants: &[Variant]) -> Vec<(&str, u64)> {
    variants.iter().map(|variant| (variant.label.as_str(), variant.seed)).collect()
}

#[test]
fn without_a_sweep_there_is_one_run() {
    assert_eq!(labels(&expand("", None)), [("", 1)]);
    assert_eq!(labels(&expand("", Some(9))), [("", 9)]);
    assert_eq!(labels(&expand("[sweep]", None)), [("", 1)]);
}

#[test]
fn seeds_change_fastest_and_the_first_key_slowest() {
    let sweep = r#"
        [sweep]
        seeds = [7, 3]
        [sweep.vary]
        transport.control = ["dctcp", "cubic"]
        "traffic.0.poisson.load" = [0.25, 0.5]
    "#;
    let expected = [
        (r#"transport.control = "dctcp", traffic.0.poisson.load = 0.25"#, 7),
        (r#"transport.control = "dctcp", traffic.0.poisson.load = 0.25"#, 3),
        (r#"transport.control = "dctcp", traffic.0.poisson.load = 0.5"#, 7),
        (r#"transport.control = "dctcp", traffic.0.poisson.load = 0.5"#, 3),
        (r#"transport.control = "cubic", traffic.0.poisson.load = 0.25"#, 7),
        (r#"transport.control = "cubic", traffic.0.poisson.load = 0.25"#, 3),
        (r#"transport.control = "cubic", traffic.0.poisson.load = 0.5"#, 7),
        (r#"transport.control = "cubic", traffic.0.poisson.load = 0.5"#, 3),
    ];
    assert_eq!(labels(&expand(sweep, None)), expected);
    let of_one_seed: Vec<_> = expected.iter().step_by(2).map(|(label, _)| (*label, 5)).collect();
    assert_eq!(labels(&expand(sweep, Some(5))), of_one_seed);
}

#[test]
fn each_value_takes_the_place_of_the_files() {
    let sweep = r#"
        [sweep.vary]
        topology.one-switch.hosts = [4, 6]
        traffic.1.incast.senders = [[0, 1], [1, 3]]
    "#;
    let variants = expand(sweep, None);
    let hosts: Vec<u32> =
        variants.iter().map(|variant| variant.scenario.topology().hosts()).collect();
    assert_eq!(hosts, [4, 4, 6, 6]);
    let senders: Vec<Vec<usize>> = variants
        .iter()
        .map(|variant| {
            let outcome = variant.scenario.run_bare(variant.seed).finish();
            let incast = outcome.flows.iter().filter(|flow| flow.spec.bytes.as_u64() == 20_000);
            incast.map(|flow| flow.spec.src).collect()
        })
        .collect();
    assert_eq!(senders, [[0, 1], [1, 3], [0, 1], [1, 3]]);
}

#[test]
fn seeds_share_their_scenario() {
    let variants = expand("[sweep]\nseeds = [1, 2]\n", None);
    assert!(std::sync::Arc::ptr_eq(&variants[0].scenario, &variants[1].scenario));
}

#[test]
fn a_key_may_be_new_in_its_table() {
    let variants = expand("[sweep.vary]\ntransport.initial-window-packets = [1, 100]\n", None);
    let ends = variants.iter().map(|variant| variant.scenario.run_bare(1).finish().now);
    let [small, large] = ends.collect::<Vec<_>>()[..] else { panic!("two variants") };
    assert!(large < small, "{large:?} is not before {small:?}");
}

// spec: T-04 simulator
#[test]
fn the_number_of_threads_changes_nothing() {
    let sweep = r#"
        [sweep]
        seeds = [1, 2, 3]
        [sweep.vary]
        transport.control = ["dctcp", "cubic", "new-reno"]
    "#;
    let variants = expand(sweep, None);
    let run = |variant: &Variant| {
        let outcome = variant.scenario.run(variant.seed).finish();
        assert_eq!(outcome.check, Ok(()), "{}", variant.label);
        (outcome.seed, outcome.digest, outcome.flows)
    };
    let alone: Vec<_> = variants.iter().map(run).collect();
    for threads in [0, 1, 2, 7, 100] {
        assert!(on_all_cores(&variants, threads, run) == alone, "{threads} threads");
    }
}

#[test]
fn results_come_in_order_and_of_every_item() {
    let items: Vec<u64> = (0..1_000).collect();
    let doubled: Vec<u64> = items.iter().map(|item| item * 2).collect();
    assert_eq!(on_all_cores(&items, 8, |item| item * 2), doubled);
    assert!(on_all_cores(&[], 8, |item: &u64| *item).is_empty());
}
