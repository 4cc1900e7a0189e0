//! The whole stack, scenario to fabric to flow, against arithmetic.

mod common;

use common::scenario_with;
use proptest::prelude::*;
use thalweg_core::Span;
use thalweg_scenario::{Ending, LinkUse, Outcome};

/// A row of nodes with a host at each end, and one flow from the first to the last.
#[derive(Debug)]
struct Row {
    /// Rate in Gbps and delay in nanoseconds of each cable.
    cables: Vec<(u64, u64)>,
    segment_bytes: u64,
    overhead_bytes: u64,
    ack_bytes: u64,
    flow_bytes: u64,
}

impl Row {
    fn of(hops: usize, packets: u64) -> Row {
        Row {
            cables: vec![(100, 500); hops],
            segment_bytes: 1_500,
            overhead_bytes: 64,
            ack_bytes: 64,
            flow_bytes: packets * 1_500,
        }
    }

    /// The window never holds the flow up and no queue overflows.
    fn text(&self) -> String {
        let last = self.cables.len();
        let switches: Vec<String> = (1..last).map(|switch| format!("\"{switch}\"")).collect();
        let mut text = format!(
            "title = \"a flow alone\"\n[topology.list]\nhosts = [\"0\", \"{last}\"]\n\
             switches = [{}]\ncables = [\n",
            switches.join(", ")
        );
        for (index, (gbps, ns)) in self.cables.iter().enumerate() {
            let ends = format!("\"{index}\", \"{}\"", index + 1);
            text += &format!("{{ ends = [{ends}], rate = \"{gbps}Gbps\", delay = \"{ns}ns\" }},\n");
        }
        text += &format!(
            "]\n[switch]\nport-buffer = \"1GB\"\n[transport]\nsegment-bytes = {}\n\
             overhead-bytes = {}\nack-bytes = {}\ninitial-window-packets = {}\nmin-rto = \"1s\"\n\
             initial-rto = \"1s\"\n[[traffic]]\n[traffic.incast]\nsenders = [0]\nreceiver = 1\n\
             bytes-each = \"{}B\"\n",
            self.segment_bytes,
            self.overhead_bytes,
            self.ack_bytes,
            self.flow_bytes.div_ceil(self.segment_bytes).max(1),
            self.flow_bytes
        );
        text
    }
}

/// Runs a scenario. The simulator keeps its own laws, whatever it runs.
fn run(text: &str) -> Outcome {
    let outcome = scenario_with(text, "").run_bare(1).finish();
    assert_eq!(outcome.check, Ok(()), "{text}");
    outcome
}

/// The time of the only flow, and the ideal one.
fn only_flow(text: &str) -> (Span, Span) {
    let outcome = run(text);
    assert_eq!(outcome.ending, Ending::Complete);
    let [flow] = outcome.flows.as_slice() else { panic!("more than one flow\n{text}") };
    let [ideal] = outcome.ideals.as_slice() else { panic!("more than one ideal time\n{text}") };
    (outcome.completion(flow).expect("it arrived"), *ideal)
}

#[test]
fn a_flow_alone_takes_the_published_time() {
    for (hops, packets, expected_ps) in
        [(2, 1, 2_260_480), (2, 667, 85_590_400), (4, 40, 9_400_640), (4, 667, 87_850_880)]
    {
        let (fct, ideal) = only_flow(&Row::of(hops, packets).text());
        assert_eq!(fct, Span::from_ps(expected_ps), "{hops} hops, {packets} packets");
        assert_eq!(ideal, fct);
    }
}

// spec: F-06 simulator
#[test]
fn a_flow_alone_takes_as_long_with_one_acknowledgement_for_a_batch() {
    let sent_back = |outcome: &Outcome| -> u64 {
        let is_back = |link: &&LinkUse| link.from.0 == 1;
        outcome.links.iter().filter(is_back).map(|link| link.stats.sent_packets).sum()
    };
    let single = Row::of(2, 667).text();
    let batched = single.replace("[transport]", "[transport]\nack-batch-packets = 32");
    assert_eq!(only_flow(&batched), only_flow(&single), "the last packet is answered at once");
    assert_eq!([&single, &batched].map(|text| sent_back(&run(text))), [667, 21]);
}

/// (n + h − 1) · 0.12512 + h · 0.5 + h · 0.50512 µs.
#[test]
fn a_flow_alone_follows_the_closed_form() {
    for hops in 1..=6 {
        for packets in [1, 2, 3, 10, 65, 1_000] {
            let (fct, _) = only_flow(&Row::of(hops, packets).text());
            let hops = hops as u64;
            let expected_ps = (packets + hops - 1) * 125_120 + hops * 500_000 + hops * 505_120;
            assert_eq!(fct, Span::from_ps(expected_ps), "{hops} hops, {packets} packets");
        }
    }
}

const CABLE: &str = "{ rate = \"100Gbps\", delay = \"500ns\" }";

/// In the shapes that have names, a flow between the hosts farthest apart, whatever path its
/// entropy picks.
#[test]
fn a_flow_alone_takes_the_ideal_time_in_every_shape() {
    let fast = "{ rate = \"400Gbps\", delay = \"700ns\" }";
    for (shape, last_host, expected_ps) in [
        (format!("one-switch]\nhosts = 3\nhost-cable = {CABLE}"), 2, 14_272_000),
        (
            format!("dumbbell]\nhosts-per-side = 2\nhost-cable = {CABLE}\ntrunk = {fast}"),
            3,
            15_704_560,
        ),
        (
            format!(
                "leaf-spine]\nracks = 3\nhosts-per-rack = 2\nspines = 4\nuplinks-per-spine = 2\n\
                 host-cable = {CABLE}\nuplink = {fast}"
            ),
            5,
            17_137_120,
        ),
        (
            format!(
                "three-tier]\npods = 2\nracks-per-pod = 2\nhosts-per-rack = 1\ncores = 4\n\
                 aggregations-per-pod = 2\nhost-cable = {CABLE}\naggregation-cable = {fast}\n\
                 core-cable = {fast}"
            ),
            3,
            20_002_240,
        ),
    ] {
        let text = format!(
            "title = \"shape\"\n[topology.{shape}\n[transport]\nsegment-bytes = 1500\n\
             overhead-bytes = 64\ninitial-window-packets = 97\n[[traffic]]\n\
             [traffic.incast]\nsenders = [0]\nreceiver = {last_host}\nbytes-each = \"145500B\"\n"
        );
        let (fct, ideal) = only_flow(&text);
        assert_eq!(fct, ideal, "{text}");
        assert_eq!(fct, Span::from_ps(expected_ps), "{text}");
    }
}

fn any_row() -> impl Strategy<Value = Row> {
    let gbps = prop::sample::select(vec![1u64, 10, 25, 40, 50, 100, 200, 400, 800]);
    let cable = (gbps, prop::sample::select(vec![0u64, 1, 500, 650, 5_000]));
    let segment = prop::sample::select(vec![256u64, 1_000, 1_460, 1_500, 8_960]);
    (prop::collection::vec(cable, 1..=6), segment, 0u64..100, 1u64..256, 1u64..400_000).prop_map(
        |(cables, segment_bytes, overhead_bytes, ack_bytes, flow_bytes)| Row {
            cables,
            segment_bytes,
            overhead_bytes,
            ack_bytes,
            flow_bytes,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn a_flow_alone_takes_the_ideal_time_over_any_cables(row in any_row()) {
        let text = row.text();
        let (fct, ideal) = only_flow(&text);
        prop_assert_eq!(fct, ideal, "{}", text);
    }
}

/// Each host of the left side sends without end to one of the right side, over a trunk of
/// 10 Gbps that all share. A packet is there and back in 30 µs plus queueing: 37.5 KB.
fn shared_trunk(senders: u32, switch: &str, control: &str, stop_after: &str) -> (Outcome, f64) {
    let [host_cable, trunk] =
        ["40Gbps", "10Gbps"].map(|rate| format!("{{ rate = \"{rate}\", delay = \"5us\" }}"));
    let mut text = format!(
        "title = \"shared trunk\"\nstop-after = \"{stop_after}\"\n[topology.dumbbell]\n\
         hosts-per-side = {senders}\nhost-cable = {host_cable}\ntrunk = {trunk}\n[switch]\n{switch}\n\
         [transport]\ncontrol = \"{control}\"\n"
    );
    for sender in 0..senders {
        let receiver = senders + sender;
        text += &format!(
            "[[traffic]]\n[traffic.incast]\nsenders = [{sender}]\nreceiver = {receiver}\n\
             bytes-each = \"10GB\"\njitter = \"100us\"\n"
        );
    }
    let outcome = run(&text);
    assert_eq!(outcome.ending, Ending::TimeUp);
    let is_trunk = |link: &&LinkUse| link.from.0 == 2 * senders && link.to.0 == 2 * senders + 1;
    let trunk = outcome.links.iter().find(is_trunk).expect("the trunk");
    let used = outcome.utilization(trunk);
    (outcome, used)
}

/// Bytes that each sender has put on its own cable.
fn sent_by_each(outcome: &Outcome, senders: u32) -> Vec<f64> {
    let of_sender = |link: &&LinkUse| link.from.0 < senders;
    outcome.links.iter().filter(of_sender).map(|link| link.stats.sent_bytes as f64).collect()
}

#[test]
fn long_dctcp_flows_share_a_link_fairly_and_fill_it() {
    for senders in [8, 32] {
        let switch = "ecn-threshold = \"97.5KB\"";
        let (outcome, used) = shared_trunk(senders, switch, "dctcp", "200ms");
        let sent = sent_by_each(&outcome, senders);
        assert_eq!(sent.len(), senders as usize);
        let fairness = jain_index(&sent);
        assert!(fairness >= 0.98, "{senders} senders: {fairness}");
        assert!((0.95..=1.0).contains(&used), "{senders} senders: {used}");
    }
}

/// Jain's fairness index `(Σx)² / (n Σx²)`: 1 when all shares are equal, `1/n` when one has all.
fn jain_index(shares: &[f64]) -> f64 {
    let (sum, squares) = (shares.iter().sum::<f64>(), shares.iter().map(|x| x * x).sum::<f64>());
    sum * sum / (shares.len() as f64 * squares)
}

#[test]
fn bbr_fills_a_link_without_filling_a_buffer() {
    for senders in [1, 4] {
        let (outcome, used) = shared_trunk(senders, "port-buffer = \"1MB\"", "bbr", "200ms");
        assert!((0.95..=1.0).contains(&used), "{senders} senders: {used}");
        assert_eq!(outcome.stats.dropped(), 0, "{senders} senders");
    }
}

#[test]
fn loss_based_controls_fill_a_link_with_a_buffer_of_one_round_trip() {
    for control in ["cubic", "new-reno"] {
        for senders in [1, 4] {
            let (outcome, used) = shared_trunk(senders, "port-buffer = \"39KB\"", control, "200ms");
            assert!((0.9..=1.0).contains(&used), "{control}, {senders} senders: {used}");
            assert!(outcome.stats.dropped() > 0, "{control} never met the end of the queue");
        }
    }
}
