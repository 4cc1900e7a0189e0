use proptest::prelude::*;
use thalweg_core::{Ecn, Span, Tag, Time};

use super::*;

/// Edges at 0, 3 and 6, as in the paper's example.
fn three() -> Thresholds {
    Thresholds::new(&[Bytes::new(3), Bytes::new(6)]).unwrap()
}

fn qclimb(lower: u64, upper: u64, slack: u64) -> Qclimb {
    let bounds = Bounds { lower: Bytes::new(lower), upper: Bytes::new(upper) };
    Qclimb { thresholds: three(), bounds, slack: Bytes::new(slack) }
}

fn priority(tag: Tag) -> u8 {
    tag.dscp.priority()
}

fn priorities(tagger: &mut dyn Tagger, sent: impl IntoIterator<Item = u64>) -> Vec<u8> {
    sent.into_iter().map(|sent| priority(tagger.tag(Bytes::new(sent)))).collect()
}

// spec: Q-03 machine
#[test]
fn an_edge_belongs_to_the_lower_priority() {
    let expected = [(0, 0), (2, 0), (3, 1), (5, 1), (6, 2), (u64::MAX, 2)];
    for (bytes, priority) in expected {
        assert_eq!(three().priority_of(Bytes::new(bytes)), priority, "{bytes}");
    }
}

/// Every side of every boundary: sent against L, L + S and U, and what is left or sent against edges.
// spec: Q-03 machine
#[test]
fn algorithm_1_by_table() {
    /// (L, U, S), then the priorities of the packets at 0, 1, 2, …
    type Case<'a> = ((u64, u64, u64), &'a [u8]);
    let cases: [Case<'_>; 11] = [
        // Climbing from the lowest: 7 and 6 are left, 5 to 3, 2 and 1; then down by what was sent.
        ((7, 9, 0), &[2, 2, 1, 1, 1, 0, 0, 2, 2, 2, 2]),
        // The slack holds the highest priority from L on, for exactly S.
        ((7, 12, 2), &[2, 2, 1, 1, 1, 0, 0, 0, 0, 2, 2, 2, 2]),
        // Down by what was sent in all three priorities: L = 0 and no slack is PIAS below U.
        ((0, 8, 0), &[0, 0, 0, 1, 1, 1, 2, 2, 2, 2]),
        // The upper bound sends to the lowest at once, wherever the flow is.
        ((0, 4, 0), &[0, 0, 0, 1, 2, 2]),
        ((0, 1, 0), &[0, 2, 2]),
        // U < L + S: the slack is tested before U, and the lowest follows it directly.
        ((1, 2, 4), &[0, 0, 0, 0, 0, 2, 2]),
        // U = L + S.
        ((1, 3, 2), &[0, 0, 0, 2, 2]),
        // U one above L + S: one packet climbs down.
        ((1, 4, 2), &[0, 0, 0, 1, 2]),
        // U = L, with and without slack.
        ((2, 2, 0), &[0, 0, 2, 2]),
        ((2, 2, 1), &[0, 0, 0, 2]),
        // Nothing is known, and nothing is forgiven.
        ((0, 0, 0), &[2, 2, 2]),
    ];
    for ((lower, upper, slack), expected) in cases {
        let mut tagger = qclimb(lower, upper, slack);
        let found = priorities(&mut tagger, 0..expected.len() as u64);
        assert_eq!(found, expected, "L {lower}, U {upper}, S {slack}");
    }
}

// spec: Q-03 machine
#[test]
fn the_second_flow_of_the_papers_example() {
    // Enters Q2 by its lower bound of 3, is in Q1 when 2 are left, and returns to Q2 for its last packet.
    let mut second = qclimb(3, 5, 0);
    assert_eq!(priorities(&mut second, 0..4), [1, 0, 0, 1]);
}

// spec: Q-03 machine
#[test]
fn the_largest_numbers_do_not_overflow() {
    let all = Bytes::new(u64::MAX);
    let tagger = Qclimb { slack: all, ..qclimb(u64::MAX, u64::MAX, 0) };
    assert_eq!(tagger.priority(Bytes::ZERO), 2);
    assert_eq!(tagger.priority(all), 0);
    assert_eq!(Qclimb { slack: all, ..qclimb(1, 2, 0) }.priority(all), 0);
}

// spec: Q-04 machine
#[test]
fn defaults_are_eight_priorities_the_edges_of_pias_and_100_kb() {
    let tagger = Qclimb::new(Bounds { lower: Bytes::ZERO, upper: Bytes::new(10_000_000) });
    assert_eq!(tagger.slack, Bytes::new(100_000));
    assert_eq!(tagger.thresholds.priorities(), 8);
    let edges = tagger.thresholds.demotions();
    assert_eq!(edges[0], Bytes::new(909 * 1_460));
    assert_eq!(edges[6], Bytes::new(2_484 * 1_460));
    assert_eq!(tagger.priority(Bytes::new(99_999)), 0);
    assert_eq!(tagger.priority(Bytes::new(909 * 1_460)), 1);
}

// spec: Q-04 machine
#[test]
fn published_thresholds_have_names() {
    assert_eq!(named("web-search-80"), Some(Thresholds::default()));
    assert_eq!(named("data-mining-80"), published(PublishedWorkload::DataMining, 80));
    let of_mining = named("testbed-data-mining").unwrap();
    assert_eq!(of_mining, of_testbed(PublishedWorkload::DataMining));
    assert_eq!(of_mining.demotions()[6], Bytes::new(133 * 1_024));
    assert_eq!(named("testbed-web-search").unwrap().demotions()[0], Bytes::new(66_560));
    for name in ["web-search", "web-search-55", "mining-80", "testbed-", "testbed-cache", ""] {
        assert_eq!(named(name), None, "{name}");
    }
}

// spec: Q-04 machine
#[test]
fn published_thresholds_are_there_for_their_loads_only() {
    for load in PUBLISHED_LOADS_PERCENT {
        for workload in [PublishedWorkload::WebSearch, PublishedWorkload::DataMining] {
            assert_eq!(published(workload, load).unwrap().priorities(), 8);
        }
    }
    assert_eq!(published(PublishedWorkload::WebSearch, 55), None);
    let mining = published(PublishedWorkload::DataMining, 90).unwrap();
    assert_eq!(mining.demotions()[6], Bytes::new(41_249_380));
}

#[test]
fn thresholds_rise() {
    let of =
        |edges: &[u64]| Thresholds::new(&edges.iter().copied().map(Bytes::new).collect::<Vec<_>>());
    assert_eq!(of(&[]).unwrap().priority_of(Bytes::new(u64::MAX)), 0);
    assert_eq!(of(&[1; 8]).unwrap_err(), ThresholdsError::TooMany(8));
    assert!(matches!(of(&[0]), Err(ThresholdsError::NotRising { .. })));
    assert!(matches!(of(&[5, 5]), Err(ThresholdsError::NotRising { .. })));
    assert_eq!(of(&[5, 6]).unwrap().lowest(), 2);
}

// spec: Q-05 machine
#[test]
fn unknown_flows_are_for_pias() {
    let slack = Bytes::ZERO;
    let mut unknown = of_flow(None, three(), slack);
    assert_eq!(priorities(&mut *unknown, 0..8), [0, 0, 0, 1, 1, 1, 2, 2]);
    let bounds = Bounds { lower: Bytes::new(7), upper: Bytes::new(9) };
    let mut known = of_flow(Some(bounds), three(), slack);
    assert_eq!(priorities(&mut *known, 0..8), [2, 2, 1, 1, 1, 0, 0, 2]);
}

// spec: Q-12 machine
#[test]
fn variants_by_table() {
    let (thresholds, of) = (three(), Bytes::new(7));
    let mut precise = PreciseSizes { thresholds, size: of };
    assert_eq!(priorities(&mut precise, 0..9), [2, 2, 1, 1, 1, 0, 0, 0, 0]);
    let mut fixed = FixedPriority { thresholds, estimate: of };
    assert_eq!(priorities(&mut fixed, 0..9), [2; 9]);
    let mut promoted = Promotion { thresholds, estimate: of };
    assert_eq!(priorities(&mut promoted, 0..9), [2, 2, 1, 1, 1, 0, 0, 2, 2]);
    let mut small = FixedPriority { thresholds, estimate: Bytes::new(2) };
    assert_eq!(priorities(&mut small, [0, 1_000]), [0, 0]);
}

#[test]
fn packets_may_be_marked_and_sorting_queues_agree() {
    let tag = qclimb(7, 9, 0).tag(Bytes::ZERO);
    assert_eq!((tag.ecn, tag.rank, priority(tag)), (Ecn::Capable, 2, 2));
}

/// A rule with edges at 3 and 6 bytes and a pause of 10 ms.
fn packets(slack: u64) -> PacketRule {
    let (slack, idle_after) = (Bytes::new(slack), Span::from_ms(10));
    PacketRule { thresholds: three(), slack, idle_after }
}

fn segment(sequence: u32, payload_bytes: u32) -> Segment {
    Segment { sequence, payload_bytes, opens: false }
}

// spec: machine
#[test]
fn packets_of_a_connection_by_table() {
    let bounds = Bounds { lower: Bytes::new(7), upper: Bytes::new(9) };
    let (rule, mut carried, next) = (packets(0), None, Some(bounds));
    let ms = |ms| Time::ZERO + Span::from_ms(ms);
    let begin = u32::MAX - 2;
    let mut at = |now, segment, next| rule.priority(&mut carried, ms(now), segment, next);
    assert_eq!(at(0, Segment { opens: true, ..segment(begin - 1, 0) }, next), 0);
    assert_eq!(at(1, segment(begin, 2), next), 2, "7 are left");
    assert_eq!(at(2, segment(begin.wrapping_add(2), 3), None), 1, "5 are left");
    assert_eq!(at(3, segment(begin, 2), None), 0, "sent again");
    assert_eq!(at(4, segment(begin.wrapping_add(5), 0), None), 0, "no data");
    assert_eq!(at(5, segment(begin.wrapping_add(5), 3), None), 0, "2 are left");
    assert_eq!(at(12, segment(begin.wrapping_add(9), 1), None), 2, "one byte went another way");
    // After a pause, counted from the last data, the connection carries another flow, here one without bounds.
    assert_eq!(at(21, segment(begin.wrapping_add(10), 1), None), 2);
    assert_eq!(at(31, segment(begin.wrapping_add(11), 4), None), 0);
    assert_eq!(at(32, segment(begin.wrapping_add(15), 4), next), 1);
    // A new connection between the same ports knows nothing of it.
    assert_eq!(at(33, Segment { opens: true, ..segment(70, 0) }, None), 0);
    assert_eq!(at(34, segment(71, 1), next), 2);
}

proptest! {
    // spec: Q-03 machine
    #[test]
    fn a_flow_climbs_then_sinks(
        lower in 0..40u64, more in 0..40u64, slack in 0..30u64, first in 1..10u64, second in 1..30u64,
    ) {
        let upper = lower + more;
        let edges = [Bytes::new(first), Bytes::new(first + second)];
        let thresholds = Thresholds::new(&edges).unwrap();
        let tagger = Qclimb { thresholds, ..qclimb(lower, upper, slack) };
        let at: Vec<u8> = (0..120).map(|sent| tagger.priority(Bytes::new(sent))).collect();
        let (climbed, rest) = at.split_at(lower as usize);
        // Numbers of priorities fall while a flow climbs.
        prop_assert!(climbed.is_sorted_by(|one, next| one >= next));
        let (held, sinking) = rest.split_at(slack as usize);
        prop_assert!(held.iter().all(|&priority| priority == 0));
        prop_assert!(sinking.is_sorted(), "never rises after the slack: {:?}", sinking);
        let end = upper.max(lower + slack) as usize;
        prop_assert!(at[end..].iter().all(|&priority| priority == 2));
    }
}
