//! Packets that links lose, under every way to find losses, of flows that overtake themselves.

mod common;

use common::scenario_with;
use thalweg_core::Bytes;
use thalweg_scenario::{FlowEnd, FlowRecord, Outcome};

/// Eight hosts at one switch, messages of types, and links that lose one packet of a thousand.
fn run(detection: &str, transport: &str, seed: u64) -> Outcome {
    let text = format!(
        "title = \"losses\"\n\
         topology.one-switch = {{ hosts = 8, host-cable = {{ rate = \"10Gbps\", delay = \"2us\" }} }}\n\
         [switch]\nqueues = \"strict\"\necn-threshold = \"97500B\"\necn-counts = \"port\"\n\
         [transport]\ntagger = \"qclimb\"\nthresholds = [\"50KB\", \"200KB\", \"1MB\"]\n\
         slack = \"20KB\"\nmin-rto = \"10ms\"\nloss-detection = \"{detection}\"\n{transport}\n\
         hints = {{ learned-flows = 2000 }}\n\
         [[traffic]]\n[traffic.poisson]\n\
         sizes = \"web-search\"\ncap = \"5MB\"\nload = 0.6\nflows = 300\nmessages = {{ types = 40 }}\n\
         [[faults]]\nloss = {{ probability = 0.001 }}\n"
    );
    scenario_with(&text, "").run_bare(seed).finish()
}

fn ends(outcome: &Outcome) -> impl Iterator<Item = FlowEnd> + '_ {
    outcome.flows.iter().filter_map(|flow| flow.end)
}

fn timeouts(outcome: &Outcome) -> u32 {
    ends(outcome).map(|end| end.timeouts).sum()
}

fn detections(outcome: &Outcome) -> u32 {
    ends(outcome).map(|end| end.detections).sum()
}

fn mean_us(outcome: &Outcome, is_counted: impl Fn(&FlowRecord) -> bool) -> f64 {
    let flows = outcome.flows.iter().filter(|flow| is_counted(flow));
    let spans: Vec<f64> =
        flows.map(|flow| outcome.completion(flow).expect("it arrived").as_us_f64()).collect();
    spans.iter().sum::<f64>() / spans.len() as f64
}

/// The receiver finds losses, and so does the sender, which leaves fewer of them to the timer.
// spec: simulator
#[test]
fn what_links_lose_is_found_and_all_arrives() {
    let [by_receiver, by_sender] =
        ["by-priority", "by-sender"].map(|detection| run(detection, "", 1));
    for outcome in [&by_receiver, &by_sender] {
        assert_eq!((outcome.unfinished(), outcome.check.clone()), (0, Ok(())));
        assert!(detections(outcome) > 50, "{} losses found", detections(outcome));
    }
    let (published, probed) = (timeouts(&by_receiver), timeouts(&by_sender));
    assert!(probed * 4 < published, "{probed} timeouts against {published}");
    let all = |outcome: &Outcome| mean_us(outcome, |_| true);
    assert!(all(&by_sender) < all(&by_receiver), "{} us", all(&by_sender));
}

/// Any control can be underneath, with losses found by the receiver or by the sender.
// spec: Q-10 simulator
#[test]
fn any_control_goes_beneath_tagged_flows() {
    for control in ["new-reno", "cubic", "bbr"] {
        for detection in ["by-priority", "by-sender"] {
            let outcome = run(detection, &format!("control = \"{control}\""), 2);
            assert_eq!(outcome.unfinished(), 0, "{control}, {detection}");
            assert!(detections(&outcome) > 20, "{control}, {detection}");
        }
    }
}

#[test]
#[ignore = "prints a table: timeouts, copies, bytes held and times under every detection"]
fn every_detection_side_by_side() {
    for detection in ["by-order", "by-adaptive-order", "by-priority", "by-sender"] {
        for seed in 1..=5 {
            let outcome = run(detection, "", seed);
            let small = mean_us(&outcome, |flow| flow.spec.bytes <= Bytes::new(100_000));
            println!(
                "{detection:18} seed {seed}: {:4} found {:4} timeouts {:5} sent again {:5} for nothing {:9.0} held \
                 {small:7.1} us small {:8.1} us all",
                detections(&outcome),
                timeouts(&outcome),
                outcome.resent_packets,
                outcome.arrivals.copies,
                outcome.arrivals.mean_held_bytes(),
                mean_us(&outcome, |_| true),
            );
        }
    }
}
