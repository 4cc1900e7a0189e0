use thalweg_core::{BodySize, Dscp, Ecn, NodeId};

use super::*;
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
    let mut queue = Strict::marking_per_port(Marking::NONE);
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
fn strict_marks_by_queue_or_by_port() {
    let mut pool = Pool::default();
    let mut per_queue = Strict::marking_per_queue([Marking::above(50); STRICT_QUEUES]);
    let mut per_port = Strict::marking_per_port(Marking::above(50));
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
