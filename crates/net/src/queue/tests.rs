use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// A kernel that segments as the real one does, and refuses as configured.
struct Kernel {
    cuts: bool,
    /// Number of messages that each of the next calls takes, or the error with which it fails. Then it takes all.
    replies: VecDeque<Result<usize, i32>>,
    /// Datagrams in the order of arrival.
    taken: Vec<(SocketAddr, u8, Vec<u8>)>,
    /// Datagrams of each message.
    batches: Vec<usize>,
}

impl Kernel {
    fn new(replies: &[Result<usize, i32>]) -> Kernel {
        let replies = replies.iter().copied().collect();
        Kernel { cuts: true, replies, taken: Vec::new(), batches: Vec::new() }
    }

    fn bodies(&self) -> Vec<&[u8]> {
        self.taken.iter().map(|(_, _, bytes)| bytes.as_slice()).collect()
    }
}

impl Port for Kernel {
    fn cuts_sends(&self) -> bool {
        self.cuts
    }

    fn stop_cutting(&mut self) {
        self.cuts = false;
    }

    fn send(
        &mut self,
        _path: u8,
        parts: &[IoSlice<'_>],
        messages: &[Message],
    ) -> io::Result<usize> {
        assert!((1..=MESSAGES_PER_CALL).contains(&messages.len()));
        let count = match self.replies.pop_front() {
            Some(Err(code)) => return Err(io::Error::from_raw_os_error(code)),
            Some(Ok(count)) => count.clamp(1, messages.len()),
            None => messages.len(),
        };
        for message in &messages[..count] {
            assert!(self.cuts || message.segment_bytes.is_none());
            let bytes: Vec<u8> =
                parts[message.parts.clone()].iter().flat_map(|part| part.to_vec()).collect();
            assert!((1..=65_507).contains(&bytes.len()));
            let segment_bytes = message.segment_bytes.map_or(bytes.len(), usize::from);
            let datagrams = bytes.chunks(segment_bytes);
            assert!(datagrams.len() <= 64);
            self.batches.push(datagrams.len());
            self.taken.extend(datagrams.map(|bytes| (message.to, message.tos, bytes.to_vec())));
        }
        Ok(count)
    }
}

fn to(node: u32, tos: u8) -> Target {
    Target { node: NodeId(node), address: ([127, 0, 0, 1], node as u16).into(), tos, path: 0 }
}

fn lent(start: usize, bytes: usize) -> Extent {
    Extent { area: Area::Lent, start, bytes }
}

/// Bytes that differ wherever two packets could be mixed up.
fn memory() -> Vec<u8> {
    (0..200_000u32).map(|index| (index / 7 % 251) as u8).collect()
}

fn flush(queue: &mut SendQueue, kernel: &mut Kernel, now_ms: u64) -> Stats {
    let memory = memory();
    let mut stats = Stats::default();
    let now = Time::ZERO + Span::from_ms(now_ms);
    let areas = Areas { received: &memory[100_000..], lent: &memory[..100_000] };
    queue.flush(now, areas, kernel, &mut stats);
    stats
}

fn queue_of(packets: &[(Target, Extent)]) -> SendQueue {
    let mut queue = SendQueue::new(Span::from_ms(100), None);
    for &(target, extent) in packets {
        queue.push(target, extent);
    }
    queue
}

#[test]
fn destinations_that_alternate_make_two_batches() {
    let packets: Vec<_> = (0..20).map(|i| (to(i as u32 % 2, 0), lent(100 * i, 100))).collect();
    let mut queue = queue_of(&packets);
    let mut kernel = Kernel::new(&[]);
    let stats = flush(&mut queue, &mut kernel, 0);
    assert_eq!(kernel.batches, [10, 10]);
    let memory = memory();
    for (index, bytes) in kernel.bodies().into_iter().enumerate() {
        let start = 200 * (index % 10) + 100 * (index / 10);
        assert_eq!(bytes, &memory[start..start + 100]);
    }
    assert_eq!((stats.sent_packets, stats.sent_batches), (20, 2));
    assert!(queue.is_empty());
}

#[test]
fn a_batch_is_of_one_size_and_class_but_for_its_last() {
    let sizes = [(100, 0), (100, 0), (64, 0), (64, 0), (65, 0), (65, 8)];
    let packets: Vec<_> =
        sizes.iter().map(|&(bytes, tos)| (to(1, tos), lent(bytes * 10, bytes))).collect();
    let mut kernel = Kernel::new(&[]);
    flush(&mut queue_of(&packets), &mut kernel, 0);
    assert_eq!(kernel.batches, [3, 1, 1, 1]);
    let arrived: Vec<_> = kernel.taken.iter().map(|(_, tos, b)| (b.len(), *tos)).collect();
    assert_eq!(arrived, sizes, "one destination keeps its order");
}

#[test]
fn a_batch_has_64_packets_and_65507_bytes_at_most() {
    let small: Vec<_> = (0..130).map(|i| (to(1, 0), lent(64 * i, 64))).collect();
    let mut kernel = Kernel::new(&[]);
    flush(&mut queue_of(&small), &mut kernel, 0);
    assert_eq!(kernel.batches, [64, 64, 2]);
    let large: Vec<_> = (0..64).map(|i| (to(1, 0), lent(1_024 * i, 1_024))).collect();
    let mut kernel = Kernel::new(&[]);
    flush(&mut queue_of(&large), &mut kernel, 0);
    assert_eq!(kernel.batches, [63, 1]);
}

#[test]
fn received_and_lent_packets_share_batches() {
    let received = Extent { area: Area::Received, start: 50, bytes: 80 };
    let packets = [(to(1, 0), lent(0, 80)), (to(1, 0), received), (to(1, 0), lent(80, 80))];
    let mut kernel = Kernel::new(&[]);
    flush(&mut queue_of(&packets), &mut kernel, 0);
    assert_eq!(kernel.batches, [3]);
    let memory = memory();
    assert_eq!(kernel.bodies(), [&memory[..80], &memory[100_050..100_130], &memory[80..160]]);
}

#[test]
fn what_the_kernel_has_no_room_for_waits_its_turn() {
    let packets: Vec<_> = (0..5).map(|i| (to(i, 0), lent(100 * i as usize, 100))).collect();
    let mut queue = queue_of(&packets);
    let mut kernel = Kernel::new(&[Ok(2), Err(libc::EAGAIN), Err(libc::ENOBUFS)]);
    let stats = flush(&mut queue, &mut kernel, 0);
    assert_eq!((stats.sent_packets, stats.sends_deferred), (2, 1));
    assert_eq!(queue.obstacle(), Some(Obstacle::FullBuffer));
    assert_eq!(flush(&mut queue, &mut kernel, 99).sends_deferred, 1);
    assert_eq!(queue.obstacle(), Some(Obstacle::NoMemory));
    assert_eq!(flush(&mut queue, &mut kernel, 1_000).sent_packets, 3);
    assert!(queue.is_empty() && !queue.is_deferred());
    let order: Vec<_> = kernel.taken.iter().map(|(to, _, _)| to.port()).collect();
    assert_eq!(order, [0, 1, 2, 3, 4]);
}

#[test]
fn patience_ends() {
    let mut queue = queue_of(&[(to(1, 0), lent(0, 100)), (to(2, 0), lent(0, 100))]);
    let mut kernel = Kernel::new(&[Err(libc::EAGAIN); 4]);
    assert_eq!(flush(&mut queue, &mut kernel, 5).dropped_deferred, 0);
    assert_eq!(flush(&mut queue, &mut kernel, 104).dropped_deferred, 0);
    let stats = flush(&mut queue, &mut kernel, 105);
    assert_eq!((stats.dropped_deferred, stats.sent_packets), (2, 0));
    assert!(queue.is_empty() && !queue.is_deferred());
}

#[test]
fn a_batch_that_the_kernel_cannot_cut_goes_singly() {
    let packets: Vec<_> = (0..6).map(|i| (to(i / 3, 0), lent(100 * i as usize, 100))).collect();
    let mut kernel = Kernel::new(&[Err(libc::EMSGSIZE)]);
    let stats = flush(&mut queue_of(&packets), &mut kernel, 0);
    assert_eq!(kernel.batches, [1, 1, 1, 3]);
    assert_eq!((stats.sent_packets, stats.lost_sends()), (6, 0));
    let mut kernel = Kernel::new(&[Ok(1), Err(libc::EIO)]);
    let stats = flush(&mut queue_of(&packets), &mut kernel, 0);
    assert_eq!(kernel.batches, [3, 1, 1, 1]);
    assert_eq!((stats.sent_packets, stats.lost_sends()), (6, 0));
    assert!(!kernel.cuts);
}

#[test]
fn what_is_refused_for_good_is_dropped_and_reported() {
    let packets = [(to(1, 0), lent(0, 100)), (to(1, 0), lent(0, 100)), (to(2, 0), lent(0, 100))];
    let mut kernel = Kernel::new(&[Err(libc::EINTR), Err(libc::EPERM)]);
    let stats = flush(&mut queue_of(&packets), &mut kernel, 0);
    assert_eq!((stats.dropped_refused, stats.sent_packets), (2, 1));
    assert_eq!(stats.last_refusal, Some(io::ErrorKind::PermissionDenied));
}

/// The kernel refuses the batch, and then each of its packets: all are counted, and those behind them are sent.
// spec: F-01 machine
#[test]
fn packets_that_exceed_the_mtu_of_the_interface_are_counted_once() {
    let packets: Vec<_> = (0..6).map(|i| (to(i / 3, 0), lent(100 * i as usize, 100))).collect();
    let mut kernel = Kernel::new(&[Err(libc::EMSGSIZE); 4]);
    let mut queue = queue_of(&packets);
    let stats = flush(&mut queue, &mut kernel, 0);
    assert_eq!((stats.dropped_oversize, stats.sent_packets), (3, 3));
    assert_eq!((stats.lost_sends(), stats.dropped_refused, stats.last_refusal), (3, 0, None));
    assert_eq!(kernel.batches, [3]);
    assert!(queue.is_empty() && !queue.is_deferred());
}

// spec: F-01 machine
#[test]
fn batches_of_jumbo_packets_fit_a_send() {
    let packets: Vec<_> = (0..11).map(|i| (to(1, 0), lent(8_960 * i, 8_960))).collect();
    let mut kernel = Kernel::new(&[]);
    flush(&mut queue_of(&packets), &mut kernel, 0);
    assert_eq!(kernel.batches, [7, 4]);
}

#[test]
fn a_packet_added_to_a_half_sent_batch_is_sent() {
    let mut queue = queue_of(&[(to(1, 0), lent(0, 100)), (to(1, 0), lent(100, 100))]);
    let mut kernel = Kernel::new(&[Ok(1), Err(libc::EAGAIN)]);
    kernel.cuts = false;
    flush(&mut queue, &mut kernel, 0);
    queue.push(to(1, 0), lent(200, 100));
    assert_eq!(flush(&mut queue, &mut kernel, 1).sent_packets, 2);
    let memory = memory();
    assert_eq!(kernel.bodies().concat(), memory[..300]);
}

proptest! {
    /// However packets come and whatever the kernel says, each is sent once, and those of one
    /// destination in order, unless it is counted as dropped.
    #[test]
    fn nothing_is_lost_silently_or_reordered(
        packets in prop::collection::vec((0..4u32, 0..2u8, 0..3usize, 0..1_000usize), 1..300),
        replies in prop::collection::vec(
            prop_oneof![
                4 => (1..20usize).prop_map(Ok),
                1 => Just(Err(libc::EAGAIN)),
                1 => Just(Err(libc::EINVAL)),
                1 => Just(Err(libc::EINTR)),
            ],
            0..40,
        ),
        flush_every in 1..50usize,
        cuts: bool,
    ) {
        let memory = memory();
        let mut kernel = Kernel::new(&replies);
        kernel.cuts = cuts;
        let mut queue = SendQueue::new(Span::MAX, None);
        let (mut dropped, mut sent) = (0, 0);
        for (index, &(node, tos, size, start)) in packets.iter().enumerate() {
            queue.push(to(node, tos), lent(start * 64, [64, 100, 1_024][size]));
            if index % flush_every == 0 {
                let stats = flush(&mut queue, &mut kernel, index as u64);
                (dropped, sent) = (dropped + stats.dropped_refused, sent + stats.sent_packets);
            }
        }
        while !queue.is_empty() {
            let stats = flush(&mut queue, &mut kernel, 1_000);
            (dropped, sent) = (dropped + stats.dropped_refused, sent + stats.sent_packets);
        }
        prop_assert_eq!(sent as usize, kernel.taken.len());
        prop_assert_eq!((sent + dropped) as usize, packets.len());
        for node in 0..4u32 {
            let address = to(node, 0).address;
            let mut wanted = packets.iter().filter(|packet| packet.0 == node).map(|packet| {
                let &(_, tos, size, start) = packet;
                (tos, &memory[start * 64..start * 64 + [64, 100, 1_024][size]])
            });
            for (_, tos, bytes) in kernel.taken.iter().filter(|(to, _, _)| *to == address) {
                // Dropped packets are missing, so the order is that of a subsequence.
                prop_assert!(wanted.any(|want| want == (*tos, bytes.as_slice())));
            }
        }
    }
}
