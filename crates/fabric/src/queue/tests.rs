mod fair;
mod trimming;
mod urgency;

use proptest::prelude::*;
use thalweg_core::{BodySize, Dscp, Ecn, NodeId, PRIORITIES, Rng, TrafficClass};

use super::*;
use crate::config::Discipline;
use crate::pool::Pool;

fn packet(pool: &mut Pool, priority: u8, ecn: Ecn) -> (PacketRef, Meta) {
    let packet = pool.take(NodeId(0), BodySize::Length(0));
    let meta = Meta { wire_bytes: 100, dscp: Dscp::of_priority(priority), ecn, ..Meta::default() };
    (packet, meta)
}

#[test]
fn fifo_keeps_order_and_its_limit() {
    let mut pool = Pool::default();
    let mut queue = Fifo::new(Marking::NONE);
    let (first, mut meta) = packet(&mut pool, 7, Ecn::Capable);
    assert_eq!(queue.enqueue(first, &mut meta, 250), Admission::Queued);
    let (second, mut meta) = packet(&mut pool, 0, Ecn::Capable);
    assert_eq!(queue.enqueue(second, &mut meta, 250), Admission::Queued);
    let (third, mut meta) = packet(&mut pool, 7, Ecn::Capable);
    assert_eq!(queue.enqueue(third, &mut meta, 250), Admission::Full);
    assert_eq!((queue.bytes(), queue.packets()), (200, 2));
    assert_eq!(queue.dequeue(), Some((first, 100)));
    assert_eq!(queue.dequeue(), Some((second, 100)));
    assert_eq!(queue.dequeue(), None);
}

#[test]
fn a_packet_is_marked_when_more_than_the_threshold_waits() {
    let mut pool = Pool::default();
    let mut queue = Fifo::new(Marking::above(100));
    for expected in [Ecn::Capable, Ecn::Capable, Ecn::Congested] {
        let (packet, mut meta) = packet(&mut pool, 7, Ecn::Capable);
        queue.enqueue(packet, &mut meta, 1_000);
        assert_eq!(meta.ecn, expected);
    }
}

#[test]
fn unmarkable_packets_pass_or_drop_as_set() {
    let mut pool = Pool::default();
    for (drop_unmarkable, expected) in [(false, Admission::Queued), (true, Admission::Unmarkable)] {
        let mut queue = Fifo::new(Marking { threshold_bytes: 50, drop_unmarkable });
        let (first, mut meta) = packet(&mut pool, 7, Ecn::NotCapable);
        assert_eq!(queue.enqueue(first, &mut meta, 1_000), Admission::Queued);
        let (second, mut meta) = packet(&mut pool, 7, Ecn::NotCapable);
        assert_eq!(queue.enqueue(second, &mut meta, 1_000), expected);
        assert_eq!(meta.ecn, Ecn::NotCapable);
    }
}

#[test]
fn strict_serves_the_most_urgent_first() {
    let mut pool = Pool::default();
    let mut queue =
        Strict::new(StrictMarking::PerPort([Marking::NONE; PRIORITIES]), QueueLimit::NONE);
    let mut expected = Vec::new();
    for priority in [7, 3, 0, 3] {
        let (packet, mut meta) = packet(&mut pool, priority, Ecn::Capable);
        queue.enqueue(packet, &mut meta, 1_000);
        expected.push((priority, packet));
    }
    expected.sort_by_key(|(priority, _)| *priority);
    let left: Vec<_> = std::iter::from_fn(|| queue.dequeue()).map(|(packet, _)| packet).collect();
    assert_eq!(left, expected.into_iter().map(|(_, packet)| packet).collect::<Vec<_>>());
    assert_eq!((queue.bytes(), queue.packets()), (0, 0));
}

#[test]
fn a_strict_queue_that_has_its_part_of_the_memory_leaves_others_theirs() {
    let mut pool = Pool::default();
    let unmarked = StrictMarking::PerPort([Marking::NONE; PRIORITIES]);
    let mut queue = Strict::new(unmarked, QueueLimit::Bytes(250));
    let mut admit = |priority: u8| {
        let (packet, mut meta) = packet(&mut pool, priority, Ecn::Capable);
        assert_eq!(meta.wire_bytes, 100);
        queue.enqueue(packet, &mut meta, 450)
    };
    assert_eq!([7, 7, 7].map(&mut admit), [Admission::Queued, Admission::Queued, Admission::Full]);
    // The port has room for two more, whose queue is not full.
    assert_eq!([0, 1, 2].map(&mut admit), [Admission::Queued, Admission::Queued, Admission::Full]);
}

#[test]
fn a_strict_queue_holds_as_much_as_is_free_of_the_port() {
    let mut pool = Pool::default();
    let unmarked = StrictMarking::PerPort([Marking::NONE; PRIORITIES]);
    // Packets of 100 bytes in 900: with half of what is free, 300 of 600, then 200 of 400, and 100 of 300.
    for (alpha, admitted) in [(0.5, [3, 2, 1]), (1.0, [5, 2, 1]), (8.0, [8, 1, 0])] {
        let mut queue = Strict::new(unmarked, QueueLimit::OfFree(alpha));
        let mut admit = |priority: u8| {
            let admit = |_| {
                let (packet, mut meta) = packet(&mut pool, priority, Ecn::Capable);
                queue.enqueue(packet, &mut meta, 900) == Admission::Queued
            };
            (0..20).map(admit).filter(|&is_queued| is_queued).count()
        };
        assert_eq!([7, 3, 0].map(&mut admit), admitted, "{alpha}");
    }
}

#[test]
fn strict_marks_by_queue_or_by_port() {
    let mut pool = Pool::default();
    let mut per_queue =
        Strict::new(StrictMarking::PerQueue([Marking::above(50); PRIORITIES]), QueueLimit::NONE);
    let mut per_port =
        Strict::new(StrictMarking::PerPort([Marking::above(50); PRIORITIES]), QueueLimit::NONE);
    for (queue, second_mark) in [(&mut per_queue, Ecn::Capable), (&mut per_port, Ecn::Congested)] {
        let (first, mut meta) = packet(&mut pool, 1, Ecn::Capable);
        queue.enqueue(first, &mut meta, 1_000);
        let (second, mut meta) = packet(&mut pool, 2, Ecn::Capable);
        queue.enqueue(second, &mut meta, 1_000);
        assert_eq!(meta.ecn, second_mark);
        let (third, mut meta) = packet(&mut pool, 2, Ecn::Capable);
        queue.enqueue(third, &mut meta, 1_000);
        assert_eq!(meta.ecn, Ecn::Congested);
    }
}

/// A packet in the pool as it will be found there.
fn pooled(pool: &mut Pool, meta: Meta) -> PacketRef {
    let packet = pool.take(NodeId(0), BodySize::Length(meta.wire_bytes));
    *pool.meta_mut(packet) = meta;
    packet
}

/// Does to the pool and the queue what a network does, and says who was dropped.
fn offer(queue: &mut dyn Queue, pool: &mut Pool, packet: PacketRef, limit: u64) -> Vec<PacketRef> {
    let mut dropped = Vec::new();
    loop {
        let mut meta = *pool.meta(packet);
        let admission = queue.enqueue(packet, &mut meta, limit);
        *pool.meta_mut(packet) = meta;
        match admission {
            Admission::Queued => return dropped,
            Admission::Trimmed { packet, header_bytes } => {
                pool.trim(packet, header_bytes);
                return dropped;
            }
            Admission::Displaced(victim) => dropped.push(victim),
            Admission::Full | Admission::Unmarkable | Admission::Returned { .. } => {
                dropped.push(packet);
                return dropped;
            }
        }
    }
}

/// Everything that waits, in the order in which it leaves.
fn drain(queue: &mut dyn Queue) -> Vec<PacketRef> {
    std::iter::from_fn(|| queue.dequeue()).map(|(packet, _)| packet).collect()
}

/// One step of a queue's life.
#[derive(Clone, Copy, Debug)]
enum Step {
    Offer { meta: Meta },
    Leave,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let offered = (64..=1_500u32, 0..6u32, 0..3u32, 0..8u8, any::<bool>());
    let offer = offered.prop_map(|(wire_bytes, rank, src, priority, trains)| {
        let class = if trains { TrafficClass::Training } else { TrafficClass::Ordinary };
        let dscp = Dscp::of_priority(priority).in_class(class);
        Step::Offer { meta: Meta { src: NodeId(src), wire_bytes, rank, dscp, ..Meta::default() } }
    });
    prop::collection::vec(prop_oneof![3 => offer, 2 => Just(Step::Leave)], 1..120)
}

/// Laws of every discipline: nothing vanishes, nothing comes twice, sizes and counts agree with what waits, and the
/// limit is kept.
fn keeps_the_books(queue: &mut dyn Queue, steps: &[Step], limit: u64) {
    let mut pool = Pool::default();
    let mut held: Vec<PacketRef> = Vec::new();
    for step in steps {
        match *step {
            Step::Offer { meta } => {
                let packet = pooled(&mut pool, meta);
                held.push(packet);
                for dropped in offer(queue, &mut pool, packet, limit) {
                    let place = held.iter().position(|own| *own == dropped);
                    held.remove(place.expect("only what waits is dropped"));
                }
            }
            Step::Leave => match queue.dequeue() {
                Some((packet, bytes)) => {
                    assert_eq!(bytes, pool.meta(packet).wire_bytes);
                    let place = held.iter().position(|own| *own == packet);
                    held.remove(place.expect("only what waits leaves"));
                }
                None => assert!(held.is_empty(), "a queue that has packets sends them"),
            },
        }
        let bytes: u64 = held.iter().map(|own| u64::from(pool.meta(*own).wire_bytes)).sum();
        assert_eq!((queue.packets(), queue.bytes()), (held.len(), bytes));
        assert!(bytes <= limit, "{bytes} wait where {limit} may");
    }
}

proptest! {
    #[test]
    fn every_discipline_keeps_the_books(steps in steps(), limit in 3_000..20_000u64) {
        let coin = Rng::new(limit);
        for discipline in [
            Discipline::Fifo(Marking::NONE),
            Discipline::strict_per_port(Marking::NONE),
            Discipline::Strict {
                last_per_mille: 0,
                marking: StrictMarking::PerPort([Marking::NONE; PRIORITIES]),
                queue_limit: QueueLimit::OfFree(1.0),
            },
            Discipline::Trimming(TrimmingSpec { data_bytes: 2_000, ..TrimmingSpec::default() }),
            Discipline::Urgency,
            Discipline::Fair {
                last_per_mille: 0,
                weights: [1, 2],
                markings: [StrictMarking::PerPort([Marking::NONE; PRIORITIES]); 2],
            },
        ] {
            keeps_the_books(&mut *discipline.queue(&coin), &steps, limit);
        }
    }
}

// spec: C-16 simulator
#[test]
fn the_last_priority_has_its_share_and_no_more() {
    let mut pool = Pool::default();
    let unmarked = StrictMarking::PerPort([Marking::NONE; PRIORITIES]);
    for (per_mille, expected) in [(0, 0), (50, 50), (250, 250)] {
        let mut queue = Strict::new(unmarked, QueueLimit::NONE).with_last_share(per_mille);
        let mut fill = |queue: &mut Strict, priority| {
            let (packet, mut meta) = packet(&mut pool, priority, Ecn::Capable);
            assert_eq!(queue.enqueue(packet, &mut meta, u64::MAX), Admission::Queued);
            packet
        };
        let low: Vec<PacketRef> = (0..1_000).map(|_| fill(&mut queue, 7)).collect();
        let mut left = 0;
        for _ in 0..1_000 {
            fill(&mut queue, 3);
            let next_bytes = queue.next_bytes();
            let (packet, bytes) = queue.dequeue().expect("packets wait");
            assert_eq!(next_bytes, Some(bytes));
            left += usize::from(low.contains(&packet));
        }
        assert!(left.abs_diff(expected) <= 1, "{left} of 1,000 at {per_mille}");
    }
    // Nothing is saved up while nobody waits there.
    let mut queue = Strict::new(unmarked, QueueLimit::NONE).with_last_share(50);
    let mut fill = |queue: &mut Strict, priority| {
        let (packet, mut meta) = packet(&mut pool, priority, Ecn::Capable);
        queue.enqueue(packet, &mut meta, u64::MAX);
        packet
    };
    (0..1_000).for_each(|_| assert!([fill(&mut queue, 0)].contains(&queue.dequeue().unwrap().0)));
    fill(&mut queue, 7);
    let urgent = fill(&mut queue, 0);
    assert_eq!(queue.dequeue(), Some((urgent, 100)));
}
