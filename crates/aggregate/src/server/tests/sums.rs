//! From contributions to parameter packets.

use thalweg_core::{Dscp, TrafficClass};

use super::*;

// spec: machine
#[test]
fn parts_of_all_levels_add_up_and_go_down_the_tree() {
    let mut bench = Bench::new(setup(&racks()));
    let below = |watermark_distance, gradient| Gradient { watermark_distance, ..gradient };
    bench.give(below(1, bench.sum(0, 5, 0, 0b11)), &fixed(&[10, -1]));
    bench.give(below(3, bench.sum(1, 5, 0, 0b011)), &fixed(&[200, 2]));
    bench.give(below(2, bench.own(5, 5)), &fixed(&[3_000, 5]));
    assert!(bench.drain().is_empty(), "one is missing");
    bench.give(below(0, bench.own(2, 5)), &fixed(&[40_000, i32::MIN]));
    let sent = bench.drain();
    assert_eq!(destinations(&sent), [102]);
    assert_eq!(sent[0].body, fixed(&[43_210, i32::MIN + 6]));
    assert_eq!((sent[0].meta.wire_bytes, sent[0].meta.ecn), (108, Ecn::Capable));
    let numbers = Numbers::Fixed(scale(1_000.0));
    let sum = Parameter::sum(bench.identity(5, 0), 77, numbers, SERVER, 2);
    // It came in four packets: no switch has what pays for copies.
    let expected = Parameter { job_watermark_distance: 3, paid: true, ..sum };
    assert_eq!(sent[0].parameter(), expected);
    let Stats { gradients, gradient_bytes, added, completed, parameters, .. } = bench.stats();
    assert_eq!((gradients, gradient_bytes, added), (4, 432, 4));
    assert_eq!((completed, parameters), (1, 1));
}

/// The most urgent class in which a contribution came is that of the result.
// spec: M-03, C-16 machine
#[test]
fn results_travel_in_the_class_of_their_contributions() {
    for (priorities, expected) in [([3; 5], 3), ([6, 2, 6, 6, 4], 2)] {
        let mut bench = Bench::new(setup(&side_by_side()));
        for (rank, priority) in (0..).zip(priorities) {
            let dscp = Dscp::of_priority(priority).in_class(TrafficClass::Training);
            let (meta, mut body) = (Meta { dscp, ..Meta::default() }, fixed(&[1]));
            let header = bench.own(rank, 0).to_header();
            bench.hand_in_with(meta, header, Body::Bytes(&mut body));
        }
        let mut sent = bench.drain();
        bench.wait_us(60);
        bench.ask(bench.query(1, 0, false));
        sent.append(&mut bench.drain());
        assert_eq!(sent.len(), 4, "to all, and to who asked");
        let dscp = Dscp::of_priority(expected).in_class(TrafficClass::Training);
        assert!(sent.iter().all(|sent| sent.meta.dscp == dscp), "{sent:?}");
    }
}

#[test]
fn one_sum_of_all_is_complete_at_once() {
    let mut bench = Bench::new(setup(&racks()));
    bench.give(bench.sum(0, 0, 1, 0b111), &fixed(&[9]));
    let sent = bench.drain();
    assert_eq!(sent[0].body, fixed(&[9]));
    // Contributions stayed with switches, and pay for copies there.
    // spec: E-13 machine
    assert!(!sent[0].parameter().paid);
    bench.wait_us(60);
    bench.ask(Query { awaited: true, ..bench.query(0, 0, false) });
    assert!(bench.drain()[0].parameter().paid, "the server pays for what it repeats");
}

#[test]
fn every_top_gets_a_copy_even_if_there_is_little_room() {
    let mut bench = Bench::new(setup(&side_by_side()));
    bench.give_all(0, &fixed(&[1]));
    bench.give_all(1, &fixed(&[2]));
    let mut sent = Vec::new();
    while bench.server.has_backlog() {
        sent.extend(bench.drain_some(1));
    }
    assert_eq!(destinations(&sent), [100, 101, 4, 100, 101, 4]);
    assert_eq!((&sent[0].body, &sent[5].body), (&fixed(&[5]), &fixed(&[10])));
}

#[test]
fn lengths_are_summed_like_values() {
    let mut bench = Bench::new(setup(&side_by_side()));
    for rank in 0..5 {
        bench.hand_in(bench.own(rank, 0).to_header(), Body::Length(12), Ecn::Capable);
    }
    let sent = bench.drain();
    assert_eq!((sent.len(), sent[0].size), (3, BodySize::Length(12)));
    assert_eq!(sent[0].meta.wire_bytes, 112);
}

// spec: A-20 machine
#[test]
fn overlaps_are_dropped_whole() {
    for recovery in [Recovery::Paper, Recovery::Selective] {
        let mut bench =
            Bench::new(setup(&racks()).with(|parameters| parameters.recovery = recovery));
        bench.give(bench.sum(1, 0, 0, 0b011), &fixed(&[3]));
        bench.give(bench.sum(1, 0, 0, 0b110), &fixed(&[100]));
        bench.give(bench.own(1, 0), &fixed(&[100]));
        bench.give(bench.sum(1, 0, 0, 0b011), &fixed(&[100]));
        assert_eq!((bench.stats().overlaps, bench.stats().added), (3, 1));
        bench.give_from(&[0, 2, 3, 5], 0, &fixed(&[1]));
        assert_eq!(bench.drain()[0].body, fixed(&[7]), "{recovery:?}");
    }
}

// spec: A-20, T-10 machine
#[test]
fn more_of_the_same_replaces_it_where_repair_is_selective() {
    for (recovery, replaced) in [(Recovery::Paper, 0), (Recovery::Selective, 1)] {
        let mut bench =
            Bench::new(setup(&racks()).with(|parameters| parameters.recovery = recovery));
        bench.give(bench.own(1, 0), &fixed(&[1]));
        bench.give(bench.sum(1, 0, 0, 0b111), &fixed(&[3]));
        let stats = bench.stats();
        assert_eq!((stats.replaced, stats.overlaps), (replaced, 1 - replaced));
        bench.give_from(&[0, 2, 3, 4, 5], 0, &fixed(&[1]));
        assert_eq!(bench.drain()[0].body, fixed(&[6]), "{recovery:?}");
    }
}

// spec: A-10 machine
#[test]
fn marks_of_any_packet_reach_the_workers() {
    let marked = |change: fn(Gradient) -> Gradient, ecn: Ecn, rank: u32| {
        let mut bench = Bench::new(setup(&racks()));
        bench.give_marked(change(bench.own(rank, 0)), &fixed(&[1]), ecn);
        bench.give_all(0, &fixed(&[1]));
        bench.drain()[0].parameter().congested
    };
    let congested = |gradient| Gradient { congested: true, ..gradient };
    for rank in 0..6 {
        assert!(marked(congested, Ecn::Capable, rank));
        assert!(marked(|gradient| gradient, Ecn::Congested, rank));
        assert!(!marked(|gradient| gradient, Ecn::Capable, rank));
    }
    let mut bench = Bench::new(setup(&racks()));
    bench.give(bench.own(0, 0), &fixed(&[1]));
    bench.give_marked(bench.own(0, 0), &fixed(&[1]), Ecn::Congested);
    bench.give_all(0, &fixed(&[1]));
    assert!(bench.drain()[0].parameter().congested, "a packet that is dropped counts too");
}

// spec: A-22 machine
#[test]
fn collisions_move_later_fragments_of_the_slot() {
    let collided = |indexing| {
        let mut bench =
            Bench::new(setup(&racks()).with(|parameters| parameters.indexing = indexing));
        let gradient = Gradient { collision: true, resend: true, ..bench.own(4, 3) };
        bench.give(gradient, &fixed(&[1]));
        bench.give_all(3, &fixed(&[1]));
        assert_eq!(bench.stats().collisions, 1);
        bench.drain()[0].parameter()
    };
    let moved = collided(Indexing::Hashed);
    assert_eq!(moved.next_aggregator, Some(crate::index::next(JOB, 77, 1_000)));
    assert_eq!(moved.next_from(), 3 + u64::from(SPAN));
    assert_eq!(collided(Indexing::Linear).next_aggregator, None);
}

/// A worker that has the result may be past the fragment from which a change would hold.
// spec: A-22 machine
#[test]
fn a_collision_that_comes_late_moves_nothing() {
    let mut bench = Bench::new(setup(&racks()));
    bench.give_all(0, &fixed(&[1]));
    let first = bench.drain();
    bench.wait_us(60);
    bench.give(Gradient { collision: true, ..bench.own(0, 0) }, &fixed(&[1]));
    bench.ask(bench.query(0, 0, false));
    assert_eq!(bench.drain()[0].meaning(), first[0].meaning());
}

// spec: A-23, T-09 machine
#[test]
fn overflow_asks_for_floats_and_sums_them() {
    let mut bench = Bench::new(setup(&racks()));
    let nan = Gradient { overflow: true, ..bench.own(4, 2) };
    bench.give(nan, &fixed(&[0, 0]));
    bench.give_all(2, &fixed(&[1, 1]));
    let sent = bench.drain();
    assert_eq!(destinations(&sent), [102]);
    let repeat = sent[0].parameter();
    assert!(repeat.repeat && sent[0].size == BodySize::Length(0));
    assert_eq!(repeat.identity, bench.identity(2, 0), "it frees what was sent in fixed point");
    assert_eq!(sent[0].meta.wire_bytes, 100);
    for rank in 0..6 {
        let value = if rank == 4 { f32::NAN } else { 0.5 };
        let gradient = in_floats(bench.own(rank, 2));
        bench.give(gradient, &floats(&[value, 1e30]));
    }
    let sent = bench.drain();
    let result = sent[0].parameter();
    assert_eq!((result.identity.attempt, result.numbers), (1, Numbers::Float));
    let values: Vec<f32> =
        sent[0].body.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    assert!(values[0].is_nan() && (values[1] / 6e30 - 1.0).abs() < 1e-6, "{values:?}");
    let stats = bench.stats();
    assert_eq!((stats.repeats, stats.repeats_sent, stats.completed), (1, 1, 1));
}

// spec: A-23 machine
#[test]
fn a_sum_that_leaves_the_range_here_overflows() {
    let mut bench = Bench::new(setup(&racks()));
    bench.give_from(&[0, 1], 0, &fixed(&[i32::MAX]));
    // It comes back into the range, but nobody can tell in which order others saturated.
    bench.give_from(&[2, 3], 0, &fixed(&[i32::MIN]));
    bench.give_from(&[4, 5], 0, &fixed(&[0]));
    assert!(bench.drain()[0].parameter().repeat);
}

// spec: A-23 machine
#[test]
fn what_comes_late_in_fixed_point_is_answered_and_never_added() {
    let mut bench = Bench::new(setup(&racks()));
    bench.give(Gradient { overflow: true, ..bench.sum(0, 0, 1, 0b111) }, &fixed(&[7]));
    bench.drain();
    bench.give(bench.own(1, 0), &fixed(&[7]));
    assert!(bench.drain().is_empty(), "it crossed the repeat");
    bench.wait_us(60);
    bench.give(bench.own(1, 0), &fixed(&[7]));
    bench.give(bench.own(1, 0), &fixed(&[7]));
    let sent = bench.drain();
    assert_eq!(destinations(&sent), [102], "nobody has sent floats");
    assert!(sent[0].parameter().repeat);
    bench.give_floats_from(&[0, 2, 3, 4], 0, &floats(&[1.0]));
    bench.wait_us(60);
    bench.give(bench.own(1, 0), &fixed(&[7]));
    let sent = bench.drain();
    assert_eq!(destinations(&sent), [1, 5], "those that are missing");
    assert!(sent.iter().all(|sent| sent.parameter().repeat));
    bench.give_floats_from(&[1, 5], 0, &floats(&[1.0]));
    assert_eq!(bench.drain()[0].body, floats(&[6.0]));
}

/// The server has forgotten the repeat, and not all workers have received it.
// spec: A-23, T-12 machine
#[test]
fn floats_take_the_place_of_a_sum_that_has_begun_in_fixed_point() {
    let mut bench = Bench::new(setup(&racks()));
    bench.give_from(&[0, 3], 0, &fixed(&[7]));
    bench.give_floats_from(&[1, 0, 2, 3, 4, 5], 0, &floats(&[1.0]));
    assert_eq!(bench.drain()[0].body, floats(&[6.0]));
}

// spec: A-23 machine
#[test]
fn a_repeat_that_is_still_queued_gives_precedence_to_the_result() {
    let mut bench = Bench::new(setup(&side_by_side()));
    let nan = Gradient { overflow: true, ..bench.own(0, 0) };
    bench.give(nan, &fixed(&[0]));
    bench.give_all(0, &fixed(&[0]));
    assert_eq!(destinations(&bench.drain_some(1)), [100], "the others have to wait");
    for rank in 0..5 {
        bench.give(in_floats(bench.own(rank, 0)), &floats(&[2.0]));
    }
    let sent = bench.drain();
    assert_eq!(destinations(&sent), [100, 101, 4]);
    assert!(sent.iter().all(|sent| !sent.parameter().repeat && sent.body == floats(&[10.0])));
}

// spec: T-09 machine
#[test]
fn a_job_in_floats_overflows_nowhere() {
    let mut bench =
        Bench::new(setup(&racks()).with(|parameters| parameters.numeric = Numeric::Float));
    bench.give_all(0, &floats(&[f32::INFINITY, 3e38]));
    assert_eq!(bench.drain()[0].body, floats(&[f32::INFINITY, f32::INFINITY]));
    assert_eq!(bench.stats().repeats, 0);
}

// spec: A-36 machine
#[test]
fn frequent_overflow_lowers_the_scale_from_a_stated_fragment_on() {
    let numeric = Numeric::Fixed { scale: scale(1e8), dynamic: true };
    let mut bench = Bench::new(setup(&racks()).with(|parameters| {
        parameters.numeric = numeric;
        parameters.span_fragments = 64;
    }));
    let next_magnitude = Magnitude::of(100.0);
    let mut results = Vec::new();
    for sequence in 0..10 {
        let sum = Gradient { overflow: true, next_magnitude, ..bench.sum(0, sequence, 1, 0b111) };
        bench.give(sum, &fixed(&[0]));
        bench.give(in_floats(bench.sum(0, sequence, 1, 0b111)), &floats(&[1.0]));
        results.extend(bench.drain().iter().map(Sent::parameter).filter(|sent| !sent.repeat));
    }
    let changes: Vec<(u64, u64, Option<Scale>)> = results
        .iter()
        .filter(|parameter| parameter.next_scale.is_some())
        .map(|parameter| (parameter.identity.sequence, parameter.next_from(), parameter.next_scale))
        .collect();
    // Six numbers below 128: (2^31 - 6) / 768 is above 2^21.
    let expected = scale(2_097_152.0);
    assert_eq!(changes, [(4, 68, Some(expected))], "once");
    let event = Event::Rescaled { job: JOB, from: 68, scale: expected };
    assert_eq!((bench.server.poll_event(), bench.server.poll_event()), (Some(event), None));
    let rescaled = Gradient {
        identity: bench.identity(20, 2),
        numbers: Numbers::Fixed(expected),
        ..bench.sum(0, 20, 1, 0b111)
    };
    bench.give(rescaled, &fixed(&[5]));
    assert_eq!(bench.drain()[0].parameter().numbers, Numbers::Fixed(expected));
}

// spec: A-36 machine
#[test]
fn values_of_different_scales_never_meet() {
    let mut bench = Bench::new(setup(&racks()));
    bench.give(bench.own(0, 0), &fixed(&[1]));
    let other = Gradient { numbers: Numbers::Fixed(scale(2.0)), ..bench.own(1, 0) };
    bench.give(other, &fixed(&[1]));
    bench.give(Gradient { identity: bench.identity(0, 2), ..other }, &fixed(&[1]));
    assert_eq!((bench.stats().mismatched, bench.stats().added), (2, 1));
}

#[test]
fn what_does_not_fit_is_dropped_and_counted() {
    let mut bench = Bench::new(setup(&racks()));
    bench.give(bench.own(0, 0), &fixed(&[1, 2]));
    bench.give(bench.own(1, 0), &fixed(&[1]));
    bench.give(bench.own(1, 0), &fixed(&[1, 2, 3, 4, 5]));
    bench.give(Gradient { numbers: Numbers::Float, ..bench.own(1, 0) }, &floats(&[1.0, 2.0]));
    let header = bench.own(1, 0).to_header();
    bench.hand_in(header, Body::Length(8), Ecn::Capable);
    bench.hand_in(header, Body::Bytes(&mut [0; 7]), Ecn::Capable);
    assert_eq!((bench.stats().mismatched, bench.stats().added), (5, 1));
    bench.give(Gradient { server: NodeId(901), ..bench.own(1, 0) }, &fixed(&[1, 2]));
    let branch = thalweg_wire::aggregate::Branch::new([4, 3, 0, 0], [0; 4]).unwrap();
    bench.give(Gradient { branch, ..bench.own(0, 0) }, &fixed(&[1, 2]));
    assert_eq!((bench.stats().foreign, bench.stats().added), (2, 1));
}
