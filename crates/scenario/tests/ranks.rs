//! Transports that rank flows by their sizes, and what they do with sizes that are only believed.

mod common;

use common::scenario_with;
use thalweg_scenario::{Ending, Outcome, Scenario};

/// Error about a transport with these lines.
fn complaint(transport: &str) -> String {
    let no_files = |file: &str| Err(format!("{file}: there are no files"));
    let error = Scenario::parse("bad.toml", &text("strict", transport, ""), &no_files);
    let error = error.expect_err(transport).to_string();
    error.split_once(": ").expect("the file and the line come first").1.to_owned()
}

fn text(queues: &str, transport: &str, hints: &str) -> String {
    format!(
        "title = \"ranks\"\n\
         topology.one-switch = {{ hosts = 8, host-cable = {{ rate = \"10Gbps\", delay = \"1us\" }} }}\n\
         [switch]\nqueues = \"{queues}\"\nrouting = \"per-packet\"\nport-buffer = \"500KB\"\n\
         [transport]\n{transport}\n{hints}\n\
         [[traffic]]\npoisson = {{ sizes = \"web-search\", cap = \"5MB\", load = 0.7, flows = 400 }}\n"
    )
}

/// A run in which every flow arrives.
fn run(queues: &str, transport: &str, hints: &str) -> Outcome {
    let outcome = scenario_with(&text(queues, transport, hints), "").run_bare(3).finish();
    assert_eq!(
        (outcome.ending, outcome.unfinished(), outcome.check.is_ok()),
        (Ending::Complete, 0, true)
    );
    outcome
}

/// The mean time of all flows, in microseconds.
fn mean_us(outcome: &Outcome) -> f64 {
    let spans = outcome.flows.iter().filter_map(|flow| outcome.completion(flow));
    spans.map(|span| span.as_us_f64()).sum::<f64>() / outcome.flows.len() as f64
}

const TRANSPORTS: [(&str, &str); 2] = [("urgency", "pfabric"), ("strict", "homa")];

/// Flows are ranked by what a forest says of them: exactly as by their sizes where it knows those, worse
/// where it does not, and all bytes arrive.
// spec: Q-12 simulator
#[test]
fn believed_sizes_rank_flows() {
    for (queues, control) in TRANSPORTS {
        let control = format!("control = \"{control}\"");
        let hints = |width: f64, unseen: f64| {
            format!(
                "[transport.hints]\nlearned-flows = 5000\nswapped = 0\nwidth = {width}\nunseen = {unseen}"
            )
        };
        let exact = run(queues, &control, "");
        assert_eq!((exact.tagged.bounded, exact.tagged.unseen), (0, 0));
        let vague = run(queues, &control, &hints(3.0, 0.0));
        assert_eq!((vague.tagged.bounded, vague.tagged.unseen), (400, 0));
        let subtracted = format!("{control}\npast-estimate = \"one-packet\"");
        let other = run(queues, &subtracted, &hints(3.0, 0.0));
        assert_ne!(other.digest, vague.digest, "{control}");
        let blind = run(queues, &control, &hints(0.0, 1.0));
        assert_eq!((blind.tagged.bounded, blind.tagged.unseen), (0, 400));
        let [exact, vague, blind] = [exact, vague, blind].map(|outcome| mean_us(&outcome));
        assert!(exact < vague && exact < blind, "{control}: {exact}, {vague}, {blind}");
    }
}

#[test]
fn small_flows_hardly_notice_others_under_homa() {
    let small_us = |outcome: &Outcome| {
        let small = outcome.flows.iter().filter(|flow| flow.spec.bytes.as_u64() <= 100_000);
        let spans: Vec<f64> =
            small.filter_map(|flow| outcome.completion(flow)).map(|it| it.as_us_f64()).collect();
        spans.iter().sum::<f64>() / spans.len() as f64
    };
    let windows = small_us(&run("strict", "", ""));
    let homa = small_us(&run("strict", "control = \"homa\"", ""));
    assert!(homa < 0.3 * windows, "{homa} against {windows}");
}

#[test]
fn cutoffs_are_those_of_the_file() {
    let by_sizes = run("strict", "control = \"homa\"", "");
    let given = run("strict", "control = \"homa\"\nunscheduled-cutoffs = [\"5KB\", \"50KB\"]", "");
    assert_ne!(by_sizes.digest, given.digest);
    // Web search has next to no unscheduled bytes: one priority for them all.
    let one = run("strict", "control = \"homa\"\nunscheduled-cutoffs = []", "");
    assert_eq!(by_sizes.digest, one.digest);
}

#[test]
fn settings_of_homa_make_sense() {
    for (transport, expected) in [
        (
            "control = \"homa\"\nunscheduled-cutoffs = [\"2KB\", \"1KB\"]",
            "transport.unscheduled-cutoffs: cutoff 1000 B does not lie above 2000 B: let them rise",
        ),
        (
            "unscheduled-cutoffs = [\"2KB\"]",
            "transport.unscheduled-cutoffs: only control = \"homa\" has unscheduled packets: write that, \
             or take this away",
        ),
        (
            "control = \"pfabric\"\nunscheduled-cutoffs = [\"2KB\"]",
            "transport.unscheduled-cutoffs: only control = \"homa\" has unscheduled packets: write that, \
             or take this away",
        ),
        (
            "control = \"homa\"\nreordering-packets = 3",
            "transport.reordering-packets: control = \"homa\" has no such setting: take this away",
        ),
        (
            "control = \"homa\"\ntagger = \"pias\"",
            "transport.tagger: control = \"homa\" has its own priorities: take this away",
        ),
        (
            "control = \"homa\"\nslack = \"1KB\"",
            "transport.slack: this is about a tagger: name one, or take this away",
        ),
        (
            "control = \"homa\"\nhints = { width = -1 }",
            "transport.hints.width: -1 is no width: give a number from 0 to 100",
        ),
        (
            "control = \"homa\"\npast-estimate = \"done\"",
            "transport.past-estimate: only control = \"pfabric\" and \"homa\" with hints have such \
             estimates: give those, or take this away",
        ),
        (
            "control = \"ndp\"\nhints = { width = 1 }",
            "transport.hints: this is about a tagger: name one, or take this away",
        ),
    ] {
        assert_eq!(complaint(transport), expected);
    }
}
