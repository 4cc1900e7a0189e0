use thalweg_core::{NodeId, Rate, Rng, Span, Time};
use thalweg_transport::Protocol;
use thalweg_transport::messages::FlowId;

use super::pulls::Pulls;
use super::{Config, Pulled};

const GAP: Span = Span::from_ns(100);

fn name(flow: u64) -> (NodeId, FlowId) {
    (NodeId(1), FlowId(flow))
}

fn at(ns: u64) -> Time {
    Time::ZERO + Span::from_ns(ns)
}

/// Lets all pulls leave that may at this moment, and says whose they are.
fn pulled(pulls: &mut Pulls, now: Time) -> Vec<(u64, u32)> {
    let mut names = Vec::new();
    while let Some(((_, flow), transmissions)) = pulls.next(now) {
        pulls.pop(now);
        names.push((flow.0, transmissions));
    }
    names
}

#[test]
fn a_packet_that_came_pulls_another_while_enough_are_missing() {
    // Of four packets two were sent freely. Whether payload came decides what is missing.
    let table: [(&[u32], u32); 5] = [
        // All came whole: two pulls bring the other two.
        (&[3, 2, 1], 2),
        // Both were cut: one pull each, and the rest when those come.
        (&[4, 4], 2),
        // One was cut, everything else came: three pulls.
        (&[4, 3, 2, 1], 3),
        // A copy may pull once too often, which does no harm.
        (&[1, 1, 1], 2),
        (&[3], 1),
    ];
    for (missing, pulls_in_all) in table {
        let mut pulls = Pulls::new(GAP);
        let mut count = 0;
        for (step, &missing) in missing.iter().enumerate() {
            pulls.on_arrival(name(1), missing, 2);
            count += pulled(&mut pulls, at(100 * step as u64)).len() as u32;
        }
        assert_eq!(count, pulls_in_all, "{missing:?}");
    }
}

#[test]
fn flows_take_turns_and_pulls_keep_their_distance() {
    let mut pulls = Pulls::new(GAP);
    for _ in 0..3 {
        pulls.on_arrival(name(1), 100, 3);
    }
    pulls.on_arrival(name(2), 100, 3);
    let mut left = Vec::new();
    for now in (1_000..1_400).step_by(50) {
        left.extend(
            pulled(&mut pulls, at(now)).into_iter().map(|(flow, count)| (now, flow, count)),
        );
    }
    // The first may make up for one gap; the others keep it.
    assert_eq!(left, [(1_000, 1, 1), (1_000, 2, 1), (1_100, 1, 2), (1_200, 1, 3)]);
}

#[test]
fn a_complete_flow_pulls_no_more() {
    let mut pulls = Pulls::new(GAP);
    pulls.on_arrival(name(1), 100, 3);
    pulls.on_arrival(name(2), 100, 3);
    pulls.on_complete(name(1));
    assert_eq!(pulled(&mut pulls, at(5)), [(2, 1)]);
}

#[test]
fn flows_without_senders_are_forgotten() {
    let mut pulls = Pulls::new(GAP);
    for flow in 0..10 {
        pulls.on_arrival(name(flow), 100, 3);
    }
    pulls.retain(|(_, flow)| flow.0 == 7);
    assert_eq!(pulls.flows(), 1);
    assert_eq!(pulled(&mut pulls, at(5)), [(7, 1)]);
}

#[test]
fn nobody_is_woken_for_a_pull_that_only_lacks_room() {
    let mut pulls = Pulls::new(GAP);
    assert_eq!(pulls.next_at(), Time::NEVER);
    pulls.on_arrival(name(1), 100, 3);
    pulls.on_arrival(name(1), 100, 3);
    assert_eq!(pulls.next_at(), Time::NEVER, "it may leave at once");
    assert!(pulls.next(at(10)).is_some());
    pulls.pop(at(10));
    assert_eq!(pulls.next_at(), at(100));
    pulls.handle_timeout(at(100));
    assert_eq!((pulls.next_at(), pulls.are_waiting()), (Time::NEVER, true));
}

#[test]
fn packets_are_dealt_out_evenly_in_changing_order() {
    let rng = Rng::new(1);
    let config = Config { paths: 5, rounds_per_order: 3, rng, ..Config::new(Rate::from_gbps(10)) };
    let mut sender = Pulled::new(config).unwrap();
    let rounds: Vec<Vec<u16>> =
        (0..40).map(|_| (0..5).map(|_| sender.next_path() & 0xff).collect()).collect();
    for round in &rounds {
        let mut sorted = round.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2, 3, 4]);
    }
    assert!(rounds.iter().any(|round| *round != rounds[0]));
}
