//! Actions of a switch on gradients and parameter packets, one rule at a time.

use thalweg_core::{Ecn, JobId, Machine, NodeId, Span, Time};
use thalweg_wire::aggregate::{
    Announcement, Branch, Gradient, Identity, Magnitude, Notice, Numbers, Scale, StationBytes,
    SumImportance,
};

use super::harness::{
    Bench, Content, Fate, ME, PARENT, SERVER, Sent, branch_of, gradient, of_three, parameter,
};
use crate::switch::Stats;

/// The sum of both workers below the first of two switches, at the second.
fn whole_rack(rack: u8) -> Gradient {
    let branch = Branch::new([2, 3, 0, 0], [1, rack, 0, 0]).unwrap();
    Gradient { branch, bitmap: 0b11, level: 1, ..gradient(1) }
}

// spec: machine
#[test]
fn the_first_packet_takes_the_aggregator() {
    let mut bench = Bench::knowing();
    assert_eq!(bench.send(&gradient(1), &[3, -4]).0, Fate::Consumed);
    let slot = *bench.switch.array.taken().next().unwrap();
    assert_eq!(slot.bitmap, 0b10);
    assert_eq!(slot.key.fragment().identity, gradient(1).identity);
    assert_eq!((bench.switch.occupied(), bench.switch.occupied_by(JobId(7))), (1, 1));
    assert_eq!(bench.switch.stats().taken, 1);
}

// spec: M-20 machine
#[test]
fn a_sum_has_the_importance_of_its_parts_and_is_not_dropped() {
    use SumImportance as Its;
    for (parts, whole) in [
        ([Its::NONE, Its::NONE, Its::NONE], Its::NONE),
        ([Its::ALL, Its::ALL, Its::ALL], Its::ALL),
        ([Its::ALL, Its::NONE, Its::NONE], Its::PART),
        ([Its::UNKNOWN, Its::UNKNOWN, Its::UNKNOWN], Its::UNKNOWN),
    ] {
        let mut bench = Bench::knowing();
        for (worker, importance) in (0..).zip(parts) {
            let own = Gradient { importance, ..of_three(worker) };
            let mut sent = Sent::gradient(ME, &own, &[3, -4]);
            sent.meta.ecn = Ecn::NotCapable;
            let fate = bench.handle(&mut sent);
            if worker == 2 {
                assert_eq!((fate, sent.meta.ecn), (Fate::Forwarded, Ecn::Capable));
                assert_eq!(sent.read().importance, whole);
            }
        }
    }
}

// spec: A-02 machine
#[test]
fn a_resent_packet_takes_none() {
    let mut bench = Bench::knowing();
    let resent = Gradient { resend: true, ..gradient(1) };
    let (fate, sent) = bench.send(&resent, &[3, -4]);
    assert_eq!((fate, sent.meta.dst), (Fate::Forwarded, PARENT));
    assert_eq!(sent.read(), Gradient { level: 1, ..resent });
    assert_eq!((bench.switch.occupied(), sent.values()), (0, vec![3, -4]));
    let repair = Gradient { repair: true, ..gradient(1) };
    let (fate, sent) = bench.send(&repair, &[3, -4]);
    assert_eq!((fate, sent.meta.dst), (Fate::Forwarded, SERVER));
    assert_eq!(sent.read(), Gradient { level: 2, resend: true, ..repair });
}

// spec: A-03, E-11 machine
#[test]
fn another_identity_is_a_collision() {
    let first = gradient(0);
    let identity = first.identity;
    let wide = Numbers::Fixed(Scale::new(1e7).unwrap());
    let others = [
        Gradient { identity: Identity { job: JobId(8), ..identity }, ..first },
        Gradient { identity: Identity { sequence: 501, ..identity }, ..first },
        Gradient { identity: Identity { attempt: 2, ..identity }, ..first },
        Gradient { identity: Identity { epoch: 2, ..identity }, ..first },
        Gradient { identity: Identity { operation: 71, ..identity }, ..first },
        Gradient { server: NodeId(55), ..first },
        Gradient { numbers: wide, ..first },
        Gradient { numbers: Numbers::Float, ..first },
        Gradient { branch: branch_of(3, 0), ..first },
    ];
    for other in others {
        let mut bench = Bench::knowing();
        bench.send(&first, &[3, -4]);
        let (fate, sent) = bench.send(&other, &[10, 10]);
        assert_eq!((fate, sent.meta.dst), (Fate::Forwarded, other.server), "{other:?}");
        assert_eq!(sent.read(), Gradient { collision: true, resend: true, level: 2, ..other });
        assert_eq!(sent.values(), [10, 10]);
        assert_eq!(bench.switch.stats().collisions, 1);
    }
    let mut bench = Bench::knowing();
    bench.send(&first, &[3, -4]);
    assert!(bench.send(&gradient(1), &[10]).1.read().collision, "another length");
}

#[test]
fn lengths_and_bytes_do_not_meet() {
    let mut bench = Bench::knowing();
    bench.send(&gradient(0), &[3, -4]);
    let mut sent = Sent::new(ME, Content::Length(8));
    gradient(1).encode(&mut sent.header);
    assert_eq!(bench.handle(&mut sent), Fate::Forwarded);
    assert!(sent.read().collision);
}

// spec: machine
#[test]
fn the_last_packet_takes_the_sum_with_it() {
    let mut bench = Bench::knowing();
    bench.send(&gradient(0), &[3, -4]);
    let (fate, sent) = bench.send(&gradient(1), &[10, 20]);
    assert_eq!((fate, sent.meta.dst, sent.values()), (Fate::Forwarded, PARENT, vec![13, 16]));
    assert_eq!(sent.read(), Gradient { bitmap: 0b11, level: 1, ..gradient(1) });
    assert_eq!(bench.switch.occupied(), 1, "until a parameter packet frees it");
    let stats = Stats {
        gradients: 2,
        taken: 1,
        added: 1,
        completed: 1,
        announcements: 1,
        ..Stats::default()
    };
    assert_eq!(*bench.switch.stats(), stats);
}

#[test]
fn one_child_alone_is_a_full_sum() {
    let mut bench = Bench::knowing();
    let branch = branch_of(1, 0);
    let (fate, sent) = bench.send(&Gradient { branch, ..gradient(0) }, &[3, -4]);
    assert_eq!((fate, sent.meta.dst, sent.values()), (Fate::Forwarded, PARENT, vec![3, -4]));
    assert_eq!((sent.read().level, bench.switch.occupied()), (1, 1));
}

// spec: A-04 machine
#[test]
fn a_packet_that_was_seen_leaves_only_its_mark() {
    let mut bench = Bench::knowing();
    bench.send(&of_three(0), &[3, -4]);
    let marked = Gradient { congested: true, overflow: true, ..of_three(0) };
    assert_eq!(bench.send(&marked, &[3, -4]).0, Fate::Consumed);
    bench.send(&of_three(1), &[10, 20]);
    let (fate, sent) = bench.send(&of_three(2), &[100, 200]);
    assert_eq!((fate, sent.values()), (Fate::Forwarded, vec![113, 216]));
    assert_eq!((sent.read().congested, sent.read().overflow), (true, false));
    assert_eq!(bench.switch.stats().duplicates, 1);
    assert_eq!(bench.send(&of_three(0), &[3, -4]).0, Fate::Consumed, "after the last, too");
}

// spec: A-06 machine
#[test]
fn a_parameter_packet_frees_and_reaches_everybody_below() {
    let mut bench = Bench::knowing();
    bench.send(&gradient(0), &[3, -4]);
    let below = Fate::Multicast(vec![NodeId(1), NodeId(2)]);
    let mut other = gradient(0);
    other.identity.attempt = 1;
    assert_eq!(bench.handle(&mut parameter(&other)), below);
    assert_eq!(bench.switch.occupied(), 1, "another attempt is another fragment");
    let mut sent = parameter(&gradient(0));
    let mut header = sent.header;
    // The level it comes from is this one now.
    header[62] = 0;
    assert_eq!((bench.handle(&mut sent), sent.header), (below.clone(), header));
    assert_eq!((bench.switch.occupied(), bench.switch.stats().freed_by_parameter), (0, 1));
    assert_eq!(
        bench.handle(&mut parameter(&gradient(0))),
        below,
        "again, for any child that lost it"
    );
    assert_eq!(bench.handle(&mut sent), Fate::Consumed, "it came from here");
}

#[test]
fn an_unknown_group_is_noticed_once_in_a_while() {
    let mut bench = Bench::new();
    assert_eq!(bench.handle(&mut parameter(&gradient(0))), Fate::Consumed);
    bench.send(&gradient(0), &[3, -4]);
    let (fate, sent) = bench.send(&gradient(1), &[10, 20]);
    assert_eq!((fate, sent.meta.dst, sent.values()), (Fate::Forwarded, SERVER, vec![13, 16]));
    assert_eq!(sent.read(), Gradient { bitmap: 0b11, level: 2, ..gradient(1) });
    let sent = bench.transmit();
    let [notice] = &sent[..] else { panic!("one notice, not {sent:?}") };
    assert_eq!((notice.meta.dst, notice.meta.wire_bytes), (SERVER, 130));
    let meaning = Notice::decode(&notice.header).unwrap();
    assert_eq!((meaning.job, meaning.epoch, meaning.switch), (JobId(7), 3, ME));
    bench.now += Span::from_us(99);
    bench.handle(&mut parameter(&gradient(0)));
    assert_eq!(bench.transmit(), []);
    bench.now += Span::from_us(1);
    bench.handle(&mut parameter(&gradient(0)));
    assert!(bench.switch.has_backlog());
    assert_eq!(bench.transmit().len(), 1);
    assert_eq!((bench.switch.stats().unknown_groups, bench.switch.stats().notices), (4, 2));
}

// spec: A-07 machine
#[test]
fn a_resent_packet_flushes_the_first_level() {
    for (again, values, bitmap) in [(2, vec![103, 196], 0b101), (0, vec![3, -4], 0b001)] {
        let mut bench = Bench::knowing();
        bench.send(&Gradient { congested: true, ..of_three(0) }, &[3, -4]);
        let resent = Gradient { resend: true, ..of_three(again) };
        let body = if again == 0 { [3, -4] } else { [100, 200] };
        let (fate, sent) = bench.send(&resent, &body);
        assert_eq!((fate, sent.meta.dst, sent.values()), (Fate::Forwarded, PARENT, values));
        let expected = Gradient { bitmap, level: 1, congested: true, ..resent };
        assert_eq!(sent.read(), expected);
        assert_eq!((bench.switch.occupied(), bench.switch.stats().flushed), (0, 1));
    }
}

// spec: A-08 machine
#[test]
fn a_resent_packet_clears_the_levels_above_and_goes_on_untouched() {
    let part = Gradient { bitmap: 0b01, ..whole_rack(1) };
    for resent in [whole_rack(0), whole_rack(1), part] {
        let resent = Gradient { resend: true, ..resent };
        let mut bench = Bench::new();
        assert_eq!(bench.send(&whole_rack(0), &[3, -4]).0, Fate::Consumed);
        let (fate, sent) = bench.send(&resent, &[10, 20]);
        assert_eq!((fate, sent.meta.dst, sent.values()), (Fate::Forwarded, SERVER, vec![10, 20]));
        assert_eq!(sent.read(), Gradient { level: 2, ..resent });
        assert_eq!((bench.switch.occupied(), bench.switch.stats().discarded), (0, 1));
    }
}

// spec: A-12 machine
#[test]
fn what_no_station_counts_goes_to_the_server() {
    let part = Gradient { bitmap: 0b01, ..whole_rack(1) };
    let two_up = Branch::new([2, 3, 2, 0], [1, 1, 0, 0]).unwrap();
    let skipped = Gradient { branch: two_up, level: 2, ..whole_rack(1) };
    let result = Gradient { result: true, ..gradient(0) };
    let two_workers = Gradient { bitmap: 0b11, ..gradient(0) };
    let other_worker = Gradient { bitmap: 0b10, ..gradient(0) };
    for odd in [part, skipped, result, two_workers, other_worker] {
        let mut bench = Bench::knowing();
        let (fate, sent) = bench.send(&odd, &[10, 20]);
        assert_eq!((fate, sent.meta.dst), (Fate::Forwarded, SERVER));
        assert_eq!(sent.read(), Gradient { resend: true, level: odd.branch.end(), ..odd });
        assert_eq!((bench.switch.occupied(), bench.switch.stats().passed), (0, 1));
    }
    let last_stretch = Gradient { level: 2, bitmap: 0b11, ..gradient(1) };
    let (fate, sent) = Bench::knowing().send(&last_stretch, &[10, 20]);
    assert_eq!((fate, sent.meta.dst, sent.read()), (Fate::Forwarded, SERVER, last_stretch));
}

// spec: A-12 machine
#[test]
fn racks_and_workers_meet_at_the_second_level() {
    let mut bench = Bench::new();
    let enters = |place: u8| Gradient {
        branch: Branch::new([0, 3, 0, 0], [0, place, 0, 0]).unwrap(),
        bitmap: 1 << place,
        bitmap_level: 1,
        level: 1,
        ..gradient(0)
    };
    bench.send(&whole_rack(0), &[1, 2]);
    bench.send(&enters(2), &[10, 20]);
    let (fate, sent) = bench.send(&whole_rack(1), &[100, 200]);
    assert_eq!((fate, sent.values()), (Fate::Forwarded, vec![111, 222]));
    let expected = Gradient { bitmap: 0b111, bitmap_level: 1, level: 2, ..whole_rack(1) };
    assert_eq!(sent.read(), expected);
}

// spec: A-09 machine
#[test]
fn what_is_over_makes_room() {
    let newer_epoch = |gradient: &mut Gradient| gradient.identity.epoch = 4;
    let beyond = |gradient: &mut Gradient| gradient.identity.sequence = 511;
    let changes: [&dyn Fn(&mut Gradient); 2] = [&newer_epoch, &beyond];
    for change in changes {
        let mut bench = Bench::knowing();
        bench.send(&gradient(0), &[3, -4]);
        let mut next = gradient(0);
        change(&mut next);
        for late in [Gradient { resend: true, ..next }, Gradient { repair: true, ..next }] {
            assert_eq!(bench.send(&late, &[1, 2]).0, Fate::Forwarded);
        }
        assert_eq!(bench.send(&next, &[1, 2]).0, Fate::Consumed);
        let slot = bench.switch.array.taken().next().unwrap();
        assert_eq!(slot.key.fragment().identity, next.identity);
        assert_eq!((bench.switch.occupied(), bench.switch.stats().freed_by_watermark), (1, 1));
    }
    let mut bench = Bench::knowing();
    bench.send(&gradient(0), &[3, -4]);
    let mut at_watermark = gradient(0);
    at_watermark.identity.sequence = 510;
    assert!(bench.send(&at_watermark, &[1, 2]).1.read().collision);
    let mut other_job = Gradient { watermark_distance: 0, ..gradient(0) };
    other_job.identity.job = JobId(8);
    other_job.identity.sequence = 9_000;
    assert!(bench.send(&other_job, &[1, 2]).1.read().collision);
}

// spec: A-09 machine
#[test]
fn stale_aggregators_are_freed_by_any_packet_that_finds_them() {
    let mut other = gradient(0);
    other.identity.sequence = 501;
    let mut bench = Bench::knowing();
    bench.send(&gradient(0), &[3, -4]);
    bench.now += Span::from_ms(99);
    bench.handle(&mut parameter(&other));
    assert_eq!(bench.switch.occupied(), 1);
    bench.now += Span::from_ms(1);
    bench.handle(&mut parameter(&other));
    assert_eq!((bench.switch.occupied(), bench.switch.stats().freed_stale), (0, 1));

    bench.send(&gradient(0), &[3, -4]);
    bench.now += Span::from_ms(100);
    assert_eq!(bench.send(&other, &[1, 2]).0, Fate::Consumed);
    assert_eq!((bench.switch.occupied(), bench.switch.stats().freed_stale), (1, 2));
}

// spec: A-09 machine
#[test]
fn the_sweep_frees_within_twice_the_stale_age_and_then_rests() {
    let mut bench = Bench::with(|config| config.sweep_steps = 3);
    assert_eq!(bench.switch.poll_timeout(), Time::NEVER);
    let mut taken_at = Vec::new();
    for aggregator in 0..16 {
        bench.send(&Gradient { aggregator, ..gradient(0) }, &[3, -4]);
        taken_at.push(bench.now);
        bench.now += Span::from_ms(7);
    }
    let stale_after = Span::from_ms(100);
    while bench.switch.poll_timeout() < Time::NEVER {
        bench.now = bench.switch.poll_timeout().max(bench.now);
        bench.switch.handle_timeout(bench.now);
        let left = bench.switch.occupied() as usize;
        let fresh = taken_at.iter().filter(|&&at| bench.now.since(at) < stale_after).count();
        let due = taken_at.iter().filter(|&&at| bench.now.since(at) >= stale_after * 2).count();
        assert!(left >= fresh && left <= 16 - due, "{left} left at {:?}", bench.now);
    }
    assert_eq!((bench.switch.occupied(), bench.switch.stats().freed_by_sweep), (0, 16));
    bench.send(&gradient(0), &[3, -4]);
    bench.now += Span::from_s(5);
    bench.switch.handle_timeout(bench.now);
    assert_eq!(bench.switch.occupied(), 0, "a late driver makes up for it");
}

// spec: A-10 machine
#[test]
fn a_mark_on_any_packet_reaches_the_sum() {
    for marked in [0, 1] {
        let mut bench = Bench::knowing();
        let mut last = None;
        for worker in [0, 1] {
            let mut sent = Sent::gradient(ME, &gradient(worker), &[1, 2]);
            if worker == marked {
                sent.meta.ecn = Ecn::Congested;
            }
            bench.handle(&mut sent);
            last = Some(sent);
        }
        assert!(last.unwrap().read().congested);
        assert_eq!(bench.switch.stats().marked, 1);
    }
    let mut sent = Sent::gradient(ME, &Gradient { repair: true, ..gradient(0) }, &[1, 2]);
    sent.meta.ecn = Ecn::Congested;
    Bench::knowing().handle(&mut sent);
    assert!(sent.read().congested, "what is passed on keeps it, too");
}

// spec: A-11 machine
#[test]
fn overflow_saturates_and_sticks() {
    let mut bench = Bench::knowing();
    bench.send(&of_three(0), &[i32::MAX, 5]);
    bench.send(&of_three(1), &[1, 5]);
    let (fate, sent) = bench.send(&of_three(2), &[-10, 5]);
    assert_eq!((fate, sent.values()), (Fate::Forwarded, vec![i32::MAX, 10]));
    assert!(sent.read().overflow);
    assert_eq!((sent.read().bitmap, bench.switch.stats().overflowed), (0b111, 1));

    let mut bench = Bench::knowing();
    bench.send(&Gradient { overflow: true, ..gradient(0) }, &[1, 2]);
    let sent = bench.send(&gradient(1), &[10, 20]).1;
    assert!(sent.read().overflow, "a worker can say so itself");
}

// spec: A-36 machine
#[test]
fn sums_carry_the_least_watermark_and_the_largest_magnitude() {
    let part = |worker, watermark_distance, number| Gradient {
        watermark_distance,
        next_magnitude: Magnitude::of(number),
        ..gradient(worker)
    };
    for (first, second) in [((20, 4.0), (10, 1.0)), ((10, 1.0), (20, 4.0))] {
        let mut bench = Bench::knowing();
        bench.send(&part(0, first.0, first.1), &[1, 2]);
        let sum = bench.send(&part(1, second.0, second.1), &[1, 2]).1.read();
        assert_eq!((sum.watermark_distance, sum.next_magnitude), (20, Magnitude::of(4.0)));
    }
}

// spec: T-09 machine
#[test]
fn floats_are_added_as_floats() {
    let float = |worker| Gradient { numbers: Numbers::Float, ..gradient(worker) };
    let bits = |values: [f32; 2]| values.map(|value| value.to_bits().cast_signed());
    let mut bench = Bench::knowing();
    bench.send(&float(0), &bits([1.5e30, f32::INFINITY]));
    let sent = bench.send(&float(1), &bits([0.5e30, 1.0])).1;
    assert_eq!(sent.values(), bits([2.0e30, f32::INFINITY]));
    assert!(!sent.read().overflow);
}

#[test]
fn lengths_are_summed_like_values() {
    let mut bench = Bench::knowing();
    for (worker, fate) in [(0, Fate::Consumed), (1, Fate::Forwarded)] {
        let mut sent = Sent::new(ME, Content::Length(8));
        gradient(worker).encode(&mut sent.header);
        assert_eq!(bench.handle(&mut sent), fate);
        assert_eq!(sent.read().bitmap, if worker == 0 { 0b01 } else { 0b11 });
    }
}

#[test]
fn packets_that_break_a_rule_are_dropped_and_counted() {
    let body = |bytes| Content::Bytes(vec![0; bytes]);
    let good = gradient(0);
    let bad = [
        (good, body(7)),
        (good, body(10)),
        (good, Content::Length(10)),
        (Gradient { server: ME, ..good }, body(8)),
        (Gradient { level: 3, ..good }, body(8)),
    ];
    let mut bench = Bench::knowing();
    for (count, (gradient, body)) in (1..).zip(bad) {
        let mut sent = Sent::new(ME, body);
        gradient.encode(&mut sent.header);
        assert_eq!(bench.handle(&mut sent), Fate::Consumed);
        assert_eq!(bench.switch.stats().malformed, count);
    }
    assert_eq!(bench.handle(&mut Sent::new(ME, body(0))), Fate::Consumed, "no header at all");
    let announcement = Announcement {
        job: JobId(7),
        epoch: 3,
        server: SERVER,
        parent: ME,
        level: 0,
        stations: 1,
        switches: [0; 4],
    };
    let station = StationBytes::new([0; 4], &[NodeId(1)]);
    bench.announce(&announcement, &[station]);
    assert_eq!((bench.switch.stats().malformed, bench.switch.occupied()), (7, 0));
}

// spec: E-05 machine
#[test]
fn packets_of_another_version_are_counted_apart() {
    let mut bench = Bench::knowing();
    let mut sent = Sent::new(ME, Content::Bytes(vec![0; 8]));
    gradient(0).encode(&mut sent.header);
    sent.header[2] = 0x99;
    assert_eq!(bench.handle(&mut sent), Fate::Consumed);
    let stats = bench.switch.stats();
    assert_eq!((stats.other_version, stats.malformed, bench.switch.occupied()), (1, 0, 0));
}

// spec: A-14 machine
#[test]
fn fragments_that_are_too_long_to_be_summed_go_to_the_server() {
    let mut bench = Bench::knowing();
    let (fate, sent) = bench.send(&gradient(0), &[1, 2, 3, 4, 5]);
    assert_eq!((fate, sent.meta.dst, sent.read().level), (Fate::Forwarded, SERVER, 2));
    assert_eq!((bench.switch.occupied(), bench.switch.stats().passed), (0, 1));
}

#[test]
fn packets_for_others_are_left_alone() {
    let mut sent = Sent::gradient(NodeId(1), &gradient(0), &[1, 2]);
    let before = sent.clone();
    let mut bench = Bench::knowing();
    assert_eq!((bench.handle(&mut sent), sent), (Fate::Forwarded, before));
    assert_eq!(bench.switch.stats().gradients, 0);
}
