//! Queues of a lab's links, seen by the packets that arrive. They need root; without it every test is skipped.
#![expect(clippy::disallowed_methods, reason = "real networks take real sockets and real time")]

use std::io::Read;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use thalweg_core::{Dscp, Ecn, PRIORITIES, Rate};
use thalweg_lab::testing::build_or_skip;
use thalweg_lab::{Lab, Queues, Spec};

const PAYLOAD_BYTES: usize = 1_400;
/// A datagram with its UDP, IP and Ethernet headers.
const WIRE_BYTES: u32 = PAYLOAD_BYTES as u32 + 8 + 20 + 14;
/// One packet takes 5.8 ms.
const RATE: Rate = Rate::from_mbps(2);
/// Packets of the first queue that are sent before all others: 11 leave at once, the rest keeps the link busy for a
/// quarter of a second while the others are sent.
const AHEAD: usize = 56;
/// A port on which nobody listens in these tests.
const PORT: u16 = 40_000;

/// A packet as it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Arrival {
    queue: usize,
    is_marked: bool,
}

/// A lab of one host, to which the switch sends packets. All of them wait at one port, so that their order, marks and
/// losses do not depend on the speed of this machine.
struct Port {
    lab: Lab,
    sender: UdpSocket,
    /// Sees whole IP packets.
    receiver: Socket,
}

impl Port {
    fn build_or_skip(queues: Queues) -> Option<Port> {
        let queues = Some(queues);
        let spec = Spec { hosts: 1, rate: RATE, per_packet: true, queues, ..Spec::default() };
        let lab = build_or_skip(&spec)?;
        let open = || Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP));
        let receiver = lab.host(0).run(open).expect("a place").expect("a raw socket");
        receiver.set_read_timeout(Some(Duration::from_secs(1))).expect("a timeout");
        receiver.set_recv_buffer_size(1 << 20).expect("a buffer");
        let rack = lab.rack(0);
        let sender = rack.run(|| UdpSocket::bind((rack.address(), 0))).expect("a place");
        let sender = sender.expect("a socket");
        // All packets of a test wait at once.
        SockRef::from(&sender).set_send_buffer_size(1 << 20).expect("a buffer");
        // Addresses are resolved before anything is counted, without waiting behind packets.
        let port = Port { sender, receiver, lab };
        port.send(0, Ecn::NotCapable, 1);
        assert_eq!(port.arrivals(1).len(), 1);
        Some(port)
    }

    fn send(&self, queue: u8, ecn: Ecn, packets: usize) {
        let tos = Dscp::of_priority(queue).code() << 2 | ecn as u8;
        SockRef::from(&self.sender).set_tos_v4(tos.into()).expect("a type of service");
        let to = SocketAddr::from((self.lab.host(0).address(), PORT));
        for _ in 0..packets {
            self.sender.send_to(&[0; PAYLOAD_BYTES], to).expect("sent");
        }
    }

    /// The next packets, as far as they come.
    fn arrivals(&self, packets: usize) -> Vec<Arrival> {
        let mut bytes = [0; 2_048];
        let mut arrivals = Vec::new();
        while arrivals.len() < packets
            && let Ok(length) = (&self.receiver).read(&mut bytes)
        {
            assert_eq!(length, PAYLOAD_BYTES + 28);
            let tos = bytes[1];
            let queue = usize::from(Dscp::new(tos >> 2).priority());
            arrivals.push(Arrival { queue, is_marked: tos & 0x03 == Ecn::Congested as u8 });
        }
        arrivals
    }
}

/// Sends packets of all queues, the least urgent first, and returns the numbers of those that arrived.
fn order_of_all_queues(port: &Port) -> Vec<usize> {
    port.send(0, Ecn::NotCapable, AHEAD);
    port.send(7, Ecn::NotCapable, 30);
    for queue in (0..7).rev() {
        port.send(queue, Ecn::NotCapable, 4);
    }
    let arrivals = port.arrivals(AHEAD + 30 + 28);
    arrivals.into_iter().map(|arrival| arrival.queue).collect()
}

/// Number of packets of the last queue that arrived before the last one of all others.
fn last_before_others(order: &[usize]) -> usize {
    let others = order.iter().rposition(|queue| *queue != 7).expect("there are others");
    order[..others].iter().filter(|queue| **queue == 7).count()
}

#[test]
fn urgent_queues_leave_first_and_the_last_has_its_share() {
    for (last_share, expected) in [(0.0, 0..=2), (0.2, 6..=22)] {
        let Some(port) = Port::build_or_skip(Queues { last_share, ..Queues::default() }) else {
            return;
        };
        let order = order_of_all_queues(&port);
        assert_eq!(order.len(), AHEAD + 30 + 28, "nothing is lost");
        let others: Vec<usize> = order.iter().copied().filter(|queue| *queue != 7).collect();
        assert!(others.is_sorted(), "{others:?}");
        let last = last_before_others(&order);
        println!("share {last_share}: {last} packets of the last queue before the others had left");
        assert!(expected.contains(&last), "{last} with a share of {last_share}: {order:?}");
    }
}

// spec: M-05 lab
#[test]
fn each_queue_marks_above_a_threshold_of_its_own() {
    let mut thresholds = [1 << 20; PRIORITIES];
    (thresholds[3], thresholds[5]) = (7 * WIRE_BYTES - 700, 14 * WIRE_BYTES - 700);
    let thresholds_bytes = Some(thresholds);
    let queues = Queues { thresholds_bytes, limit_bytes: Some(1 << 20), ..Queues::default() };
    let Some(port) = Port::build_or_skip(queues) else { return };
    port.send(0, Ecn::Capable, AHEAD);
    for queue in [3, 4, 5] {
        port.send(queue, Ecn::Capable, 20);
    }
    port.send(3, Ecn::NotCapable, 1);
    let arrivals = port.arrivals(AHEAD + 61);
    assert_eq!(arrivals.len(), AHEAD + 61);
    // Packets that find more than the threshold waiting: those from the eighth, and from the fifteenth.
    for (queue, unmarked) in [(0, AHEAD), (3, 7), (4, 20), (5, 14)] {
        let marks = arrivals.iter().filter(|arrival| arrival.queue == queue);
        let marks: Vec<bool> =
            marks.map(|arrival| arrival.is_marked).take(AHEAD.min(20.max(unmarked))).collect();
        let expected: Vec<bool> = (0..marks.len()).map(|packet| packet >= unmarked).collect();
        assert_eq!(marks, expected, "queue {queue}");
    }
    let counters = port.lab.host(0).queues_to().expect("counters").expect("queues");
    assert_eq!([3, 4, 5].map(|queue: usize| counters[queue].marked), [13, 0, 6]);
    assert_eq!(counters[3].packets, 21, "what cannot be marked is let in");
    // Empty queues mark nothing again.
    port.send(3, Ecn::Capable, 5);
    assert!(port.arrivals(5).iter().all(|arrival| !arrival.is_marked));
}

// spec: M-05 lab
#[test]
fn selective_queues_drop_what_they_cannot_mark() {
    let mut thresholds = [1 << 20; PRIORITIES];
    (thresholds[1], thresholds[2]) = (5 * WIRE_BYTES - 700, 10 * WIRE_BYTES - 700);
    let limit_bytes = Some(1 << 20);
    let thresholds_bytes = Some(thresholds);
    let queues =
        Queues { thresholds_bytes, limit_bytes, drops_unmarkable: true, ..Queues::default() };
    let Some(port) = Port::build_or_skip(queues) else { return };
    port.send(0, Ecn::NotCapable, AHEAD);
    for queue in [1, 2] {
        for _ in 0..12 {
            port.send(queue, Ecn::NotCapable, 1);
            port.send(queue, Ecn::Capable, 1);
        }
    }
    let arrivals = port.arrivals(usize::MAX);
    // Of each pair both are let in below the threshold; above it, one is marked and the other dropped. One more may
    // pass where a pair meets the threshold in its middle.
    for (queue, below) in [(1, 5), (2, 10)] {
        let arrived: Vec<bool> = arrivals
            .iter()
            .filter(|arrival| arrival.queue == queue)
            .map(|arrival| arrival.is_marked)
            .collect();
        let capable_below = below / 2;
        let not_capable_below = below - capable_below;
        assert_eq!(arrived.len(), 12 + not_capable_below, "queue {queue}: {arrived:?}");
        let marked = arrived.iter().filter(|is_marked| **is_marked).count();
        assert_eq!(marked, 12 - capable_below, "queue {queue}");
        let counters = port.lab.host(0).queues_to().expect("counters").expect("queues")[queue];
        assert_eq!(counters.dropped_unmarkable, 12 - not_capable_below as u64);
        assert_eq!(counters.marked, marked as u64);
    }
}

#[test]
fn each_queue_holds_no_more_than_its_limit() {
    let limit_bytes = Some(AHEAD as u32 * WIRE_BYTES);
    let thresholds_bytes = Some([u32::MAX; PRIORITIES]);
    let queues = Queues { limit_bytes, thresholds_bytes, ..Queues::default() };
    let Some(port) = Port::build_or_skip(queues) else { return };
    port.send(0, Ecn::Capable, AHEAD);
    port.send(4, Ecn::Capable, AHEAD + 9);
    port.send(6, Ecn::NotCapable, AHEAD - 9);
    let arrivals = port.arrivals(usize::MAX);
    let of = |queue| arrivals.iter().filter(|arrival| arrival.queue == queue).count();
    assert_eq!([0, 4, 6].map(of), [AHEAD, AHEAD, AHEAD - 9]);
    let counters = port.lab.host(0).queues_to().expect("counters").expect("queues");
    assert_eq!([0, 4, 6].map(|queue: usize| counters[queue].dropped_full), [0, 9, 0]);
    assert!(arrivals.iter().all(|arrival| !arrival.is_marked));
}

/// Prints packets a second that one link carries, with queues and without. Four sockets send as fast as they can.
#[test]
#[ignore = "it measures, which wants a quiet machine"]
fn measure_what_a_link_carries() {
    for (queues, name) in [(None, "one queue"), (Some(Queues::default()), "eight queues")] {
        let rate = Rate::from_gbps(10);
        let spec = Spec { hosts: 2, rate, per_packet: true, queues, ..Spec::default() };
        let Some(lab) = build_or_skip(&spec) else { return };
        let (from, to) = (lab.host(0), lab.host(1));
        let address = SocketAddr::from((to.address(), PORT));
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for queue in [0, 2, 5, 7] {
                let is_over = &is_over;
                let socket = from.run(|| UdpSocket::bind((from.address(), 0))).expect("a place");
                let socket = socket.expect("a socket");
                let tos = Dscp::of_priority(queue).code() << 2;
                SockRef::from(&socket).set_tos_v4(tos.into()).expect("a type of service");
                scope.spawn(move || {
                    while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        let _ = socket.send_to(&[0; PAYLOAD_BYTES], address);
                    }
                });
            }
            let received = || to.counters().expect("counters").received_packets;
            std::thread::sleep(Duration::from_millis(500));
            let (start, before) = (std::time::Instant::now(), received());
            std::thread::sleep(Duration::from_secs(3));
            let packets = received() - before;
            let per_s = packets as f64 / start.elapsed().as_secs_f64();
            println!(
                "{name}: {per_s:.0} packets a second, {:.2} Gbps",
                per_s * f64::from(WIRE_BYTES) * 8e-9
            );
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }
}
