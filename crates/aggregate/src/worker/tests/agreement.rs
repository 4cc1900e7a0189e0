//! Workers that hear the same in different orders do the same.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::index;
use crate::setup::Attempt;

const FRAGMENTS: u64 = 40;

/// Changes that the sum of one fragment carries: the next aggregator, and the next scale.
type Change = (Option<u32>, Option<u8>);

fn scale(power: u8) -> Scale {
    Scale::new(f32::from(power) + 1.0).unwrap()
}

fn dynamic_setup(aggregators: u32) -> Setup {
    setup().with(|parameters| {
        parameters.numeric = fixed(1e8, true);
        parameters.aggregators = aggregators;
    })
}

/// Answers fragments in an order drawn from `picks`. Returns how each was sent.
fn run(aggregators: u32, changes: &[Change], picks: &[usize]) -> BTreeMap<u64, (u32, u8, Numbers)> {
    let mut bench = Bench::new(dynamic_setup(aggregators));
    bench.submit_length(4 * FRAGMENTS);
    let mut terms = BTreeMap::new();
    let mut unanswered = Vec::new();
    for step in 0.. {
        for packet in bench.sent() {
            // Queries for what was overtaken do not matter here.
            if packet.kind() == Kind::AggregateGradient {
                let gradient = packet.gradient();
                let sequence = gradient.identity.sequence;
                let attempt = gradient.identity.attempt;
                terms.insert(sequence, (gradient.aggregator, attempt, gradient.numbers));
                unanswered.push(sequence);
            }
        }
        if unanswered.is_empty() {
            break;
        }
        let sequence = unanswered.swap_remove(picks[step % picks.len()] % unanswered.len());
        let (next_aggregator, next_scale) = changes[sequence as usize];
        bench.answer_with(Parameter {
            next_aggregator,
            next_scale: next_scale.map(scale),
            next_distance: bench.setup.parameters.span_fragments,
            ..bench.parameter(sequence)
        });
    }
    terms
}

/// The same from the rule: what the last fragment at least a span below carried.
fn expected(aggregators: u32, changes: &[Change], sequence: u64) -> (u32, u8, Numbers) {
    let period = u64::from(aggregators.min(8));
    let before = &changes[..(sequence + 1).saturating_sub(8) as usize];
    let of_slot =
        (0..).zip(before).filter(|(from, _): &(u64, _)| from % period == sequence % period);
    let moved = of_slot.filter_map(|(_, change)| change.0).last();
    let first = index::first(JOB, (sequence % period) as u32, aggregators);
    let scales: Vec<u8> = before.iter().filter_map(|change| change.1).collect();
    let initial = Scale::new(1e8).unwrap();
    // Servers do not know of each other's changes: the smallest holds.
    let smallest = scales.iter().map(|&power| scale(power)).fold(initial, Scale::min);
    let numbers = Numbers::Fixed(smallest);
    (moved.unwrap_or(first), Attempt::of_generation(scales.len() as u8).0, numbers)
}

proptest! {
    // spec: machine
    #[test]
    fn all_workers_change_together(
        aggregators in 1..12_u32,
        changes in prop::collection::vec(
            (prop::option::weighted(0.4, 0..12_u32), prop::option::weighted(0.2, any::<u8>())),
            FRAGMENTS as usize,
        ),
        picks in prop::array::uniform2(prop::collection::vec(any::<usize>(), 1..60)),
    ) {
        let [one, other] = picks.map(|picks| run(aggregators, &changes, &picks));
        prop_assert_eq!(&one, &other);
        prop_assert_eq!(one.len() as u64, FRAGMENTS);
        for (sequence, terms) in one {
            prop_assert_eq!(terms, expected(aggregators, &changes, sequence), "fragment {}", sequence);
        }
    }
}

#[test]
fn changes_that_some_could_be_past_are_not_followed() {
    let sent = |distance: u16| {
        let mut bench = Bench::new(dynamic_setup(1_000));
        bench.submit_length(4 * FRAGMENTS);
        bench.sent();
        bench.answer_with(Parameter {
            next_aggregator: Some(1_234),
            next_scale: Some(scale(0)),
            next_distance: distance,
            ..bench.parameter(0)
        });
        bench.sent()[0].gradient()
    };
    assert_eq!((sent(8).aggregator, sent(8).identity.attempt), (1_234, 2));
    for distance in [7, 9, u16::MAX] {
        assert_ne!(sent(distance).aggregator, 1_234);
        assert_eq!(sent(distance).identity.attempt, 0);
    }
}
