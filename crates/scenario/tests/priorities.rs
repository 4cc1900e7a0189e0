//! Flows with priorities, on a fabric with queues for them.

mod common;

use common::scenario_with;
use thalweg_scenario::Outcome;

/// Eight hosts at one switch, flows of a web search, and these lines in the transport's table.
fn run(transport: &str, hints: &str) -> Outcome {
    let text = format!(
        "title = \"priorities\"\n\
         topology.one-switch = {{ hosts = 8, host-cable = {{ rate = \"10Gbps\", delay = \"1us\" }} }}\n\
         [switch]\nqueues = \"strict\"\necn-threshold = \"30KB\"\necn-counts = \"port\"\n\
         [transport]\n{transport}\n{hints}\n\
         [[traffic]]\npoisson = {{ sizes = \"web-search\", cap = \"5MB\", load = 0.7, flows = 600 }}\n"
    );
    scenario_with(&text, "").run_bare(3).finish()
}

/// The mean time of flows up to 100 KB, in microseconds.
fn small_flows_us(outcome: &Outcome) -> f64 {
    let small = outcome.flows.iter().filter(|flow| flow.spec.bytes.as_u64() <= 100_000);
    let spans: Vec<f64> =
        small.map(|flow| outcome.completion(flow).expect("it arrived").as_us_f64()).collect();
    spans.iter().sum::<f64>() / spans.len() as f64
}

// spec: Q-03 simulator
#[test]
fn small_flows_overtake_large_ones() {
    let plain = small_flows_us(&run("", ""));
    for tagger in ["pias", "precise-sizes", "qclimb", "fixed-priority", "promotion"] {
        let transport = format!("tagger = \"{tagger}\"\nthresholds = [\"100KB\", \"1MB\"]");
        let tagged = small_flows_us(&run(&transport, ""));
        assert!(tagged < 0.8 * plain, "{tagged} with {tagger}, {plain} without");
    }
}

// spec: Q-05 simulator
#[test]
fn what_nobody_has_seen_goes_as_by_pias() {
    let edges = "thresholds = [\"100KB\", \"1MB\"]";
    let pias = run(&format!("tagger = \"pias\"\n{edges}"), "");
    assert_eq!((pias.tagged.bounded, pias.tagged.unseen), (0, 0));
    let hints = |unseen: f64| format!("[transport.hints]\nlearned-flows = 500\nunseen = {unseen}");
    for tagger in ["qclimb", "fixed-priority", "promotion"] {
        let transport = format!("tagger = \"{tagger}\"\n{edges}");
        let strangers = run(&transport, &hints(1.0));
        assert_eq!((strangers.tagged.bounded, strangers.tagged.unseen), (0, 600));
        assert_eq!(strangers.digest, pias.digest, "{tagger}");
        let mixed = run(&transport, &hints(0.3));
        assert_eq!(mixed.tagged.bounded + mixed.tagged.unseen, 600);
        assert!((120..240).contains(&mixed.tagged.unseen), "{:?}", mixed.tagged);
        assert_ne!(mixed.digest, pias.digest, "{tagger}");
    }
}

/// A small flow that follows a large one pays for it, if what counts is the connection.
#[test]
fn pias_may_count_what_a_connection_sent() {
    let edges = "thresholds = [\"100KB\", \"1MB\"]";
    let counts = |word: &str| run(&format!("tagger = \"pias\"\n{edges}\ncounts = \"{word}\""), "");
    let (plain, by_flow) = (run(&format!("tagger = \"pias\"\n{edges}"), ""), counts("flow"));
    assert_eq!(plain.digest, by_flow.digest);
    let by_connection = counts("connection");
    let (one, other) = (small_flows_us(&by_flow), small_flows_us(&by_connection));
    assert!(other > 1.2 * one, "{other} against {one} us");
}

/// With room for every packet and a long timer.
fn run_without_loss(loss_detection: &str) -> Outcome {
    let text = format!(
        "title = \"no loss\"\n\
         topology.leaf-spine = {{ racks = 3, hosts-per-rack = 3, spines = 2, \
         host-cable = {{ rate = \"10Gbps\", delay = \"1us\" }}, \
         uplink = {{ rate = \"20Gbps\", delay = \"1us\" }} }}\n\
         [switch]\nqueues = \"strict\"\nport-buffer = \"1GB\"\n\
         [transport]\ntagger = \"qclimb\"\nslack = \"20KB\"\nthresholds = [\"50KB\", \"200KB\", \"1MB\"]\n\
         loss-detection = \"{loss_detection}\"\nmin-rto = \"1s\"\ninitial-rto = \"1s\"\n\
         hints = {{ learned-flows = 2000 }}\n\
         [[traffic]]\npoisson = {{ sizes = \"web-search\", cap = \"5MB\", load = 0.7, flows = 400 }}\n"
    );
    scenario_with(&text, "").run_bare(5).finish()
}

// spec: simulator
#[test]
fn receivers_find_no_loss_without_loss() {
    let by_priority = run_without_loss("by-priority");
    assert_eq!((by_priority.resent_packets, by_priority.arrivals.copies), (0, 0));
    assert!(by_priority.arrivals.peak_held_bytes > 100_000, "{:?}", by_priority.arrivals);
    assert_eq!(by_priority.unfinished(), 0);
    // The order of packets says otherwise.
    let by_order = run_without_loss("by-order");
    assert!(by_order.arrivals.copies > 100, "{:?}", by_order.arrivals);
}

/// Messages of types, of which the forest has seen few before the run.
fn run_messages(hints: &str, traffic: &str) -> Outcome {
    let text = format!(
        "title = \"messages\"\n\
         topology.one-switch = {{ hosts = 8, host-cable = {{ rate = \"10Gbps\", delay = \"1us\" }} }}\n\
         [switch]\nqueues = \"strict\"\n\
         [transport]\ntagger = \"qclimb\"\nthresholds = \"data-mining-80\"\n\
         [transport.hints]\n{hints}\n\
         [traffic.poisson]\nsizes = \"web-search\"\ncap = \"5MB\"\nload = 0.5\n{traffic}\n\
         [traffic.poisson.messages]\ntypes = 40\n"
    );
    let text = text.replace("[traffic.poisson]", "[[traffic]]\n[traffic.poisson]");
    scenario_with(&text, "").run_bare(4).finish()
}

// spec: simulator
#[test]
fn messages_of_types_are_bounded_by_what_others_of_their_type_were() {
    let outcome = run_messages("learned-flows = 4000", "flows = 500");
    let tagged = outcome.tagged;
    assert_eq!((tagged.bounded, tagged.unseen), (500, 0));
    assert!(tagged.within >= 495, "{tagged:?}");
    // Sizes repeat: 40 types with three sizes each, and a stranger or two.
    let sizes: std::collections::BTreeSet<u64> =
        outcome.flows.iter().map(|flow| flow.spec.bytes.as_u64()).collect();
    assert!(sizes.len() < 120, "{}", sizes.len());
    assert!(outcome.flows.iter().all(|flow| flow.spec.kind.is_some()));
}

// spec: Q-11 simulator
#[test]
fn bounds_get_better_while_flows_end() {
    let before = run_messages("learned-flows = 60", "flows = 1500").tagged;
    let learning =
        run_messages("learned-flows = 60\nlearns-again-after = 60", "flows = 1500").tagged;
    assert_eq!((before.forests, learning.forests), (0, 25));
    assert!(before.within + 50 < learning.within, "{before:?}, {learning:?}");
}
