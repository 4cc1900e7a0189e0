//! Behaviour on a network without faults of its own.

use thalweg_core::{Bytes, Dscp, Ecn, Machine, NodeId, Rate, Span, Tag, Tagger, Time};
use thalweg_flow::{
    Config, Endpoint, Event, FlowId, FlowTagger, Message, MessageOrder, Payload, Received, Sent,
    StartError,
};

use crate::network::{Network, Read, TestOutbox, controls, random_bytes};

fn length(bytes: u64) -> Payload {
    Payload::Length(Bytes::new(bytes))
}

fn sent(events: &[(NodeId, Event)]) -> Vec<Sent> {
    let sent = events.iter().filter_map(|(_, event)| match event {
        Event::Sent(sent) => Some(*sent),
        _ => None,
    });
    sent.collect()
}

fn received(events: &[(NodeId, Event)]) -> Vec<&Received> {
    let received = events.iter().filter_map(|(_, event)| match event {
        Event::Received(received) => Some(received),
        _ => None,
    });
    received.collect()
}

#[test]
fn an_idle_network_takes_exactly_as_long_as_it_must() {
    // n packets one after the other, one delay, one acknowledgement, one delay back.
    for packets in [1, 2, 40, 667] {
        let config = Config { initial_window_packets: 1_000, ..Config::default() };
        let mut network = Network::new(2, &config, 0);
        network.rate = Rate::from_gbps(100);
        network.start(0, 1, length(1_460 * packets));
        network.run(Time::ZERO + Span::from_s(1));
        let exact = Span::from_ps(120_000) * packets + Span::from_ps(5_120) + network.delay * 2;
        let end = sent(&network.events)[0];
        assert_eq!(end.finished, Time::ZERO + exact, "{packets} packets");
        assert_eq!((end.retransmissions, end.timeouts), (0, 0));
        assert_eq!(network.sent_packets, 2 * packets);
    }
}

#[test]
fn a_message_can_begin_with_what_the_last_one_learned() {
    let took = |remembers_paths| -> Vec<Span> {
        let config = Config { remembers_paths, ..Config::default() };
        let mut network = Network::new(2, &config, 0);
        network.delay = Span::from_us(200);
        for _ in 0..2 {
            network.start(0, 1, length(500_000));
            network.run(Time::ZERO + Span::from_s(1));
        }
        sent(&network.events).iter().map(|end| end.finished.since(end.started)).collect()
    };
    let (forgetful, mindful) = (took(false), took(true));
    assert_eq!(forgetful[0], forgetful[1]);
    assert_eq!(mindful[0], forgetful[0]);
    assert!(mindful[1] < mindful[0], "no second slow start");
}

#[test]
fn nothing_is_sent_twice_without_need() {
    for control in controls() {
        let config = Config { control, ..Config::default() };
        let mut network = Network::new(2, &config, 0);
        for _ in 0..20 {
            network.start(0, 1, length(500_000));
            network.start(1, 0, length(30_000));
        }
        network.run(Time::ZERO + Span::from_s(1));
        let ends = sent(&network.events);
        assert_eq!(ends.len(), 40);
        assert_eq!(received(&network.events).len(), 40);
        assert!(ends.iter().all(|end| end.retransmissions == 0 && end.timeouts == 0));
        // 343 and 21 packets, each with its acknowledgement.
        assert_eq!(network.sent_packets, 20 * 2 * (343 + 21));
        assert_eq!((network.nodes[0].outgoing(), network.nodes[1].incoming()), (0, 0));
    }
}

#[test]
fn bytes_arrive_as_they_were_even_none_at_all() {
    let mut network = Network::new(2, &Config::default(), 0);
    let mut rng = thalweg_core::Rng::new(1);
    for length in [0, 1, 1_459, 1_460, 1_461, 100_000] {
        let body = random_bytes(&mut rng, length);
        let flow = network.start(0, 1, Payload::Bytes(body.clone()));
        network.run(Time::ZERO + Span::from_s(1));
        let last = received(&network.events).pop().expect("it arrived").clone();
        assert_eq!((last.flow, last.src, last.body), (flow, NodeId(0), Some(body)));
        assert_eq!(last.bytes, Bytes::new(length));
    }
}

/// Starts messages to nodes 1, 2, … and returns what leaves first.
fn first_packets(lengths: &[u64], room: usize) -> TestOutbox {
    let mut endpoint = Endpoint::new(Config::default()).expect("defaults work");
    for (dst, &bytes) in (1..).zip(lengths) {
        let message = Message {
            dst: NodeId(dst),
            body: length(bytes),
            tagger: FlowTagger::default(),
            entropy: 77,
        };
        endpoint.start(Time::ZERO, message).expect("short enough");
    }
    let mut tray = TestOutbox::with_room(NodeId(0), room);
    endpoint.poll_transmit(Time::ZERO, &mut tray);
    tray
}

#[test]
fn messages_take_turns() {
    let tray = first_packets(&[9_000, 2_000, 9_000], 8);
    let order: Vec<u32> = tray.packets.iter().map(|packet| packet.meta.dst.0).collect();
    assert_eq!(order, [1, 2, 3, 1, 2, 3, 1, 3]);
}

#[test]
fn the_initial_window_limits_and_sizes_are_exact() {
    let tray = first_packets(&[100_000], 1_000);
    assert_eq!(tray.packets.len(), 10);
    assert!(tray.packets.iter().all(|packet| packet.meta.wire_bytes == 1_500));
    let tray = first_packets(&[1_461], 1_000);
    let sizes: Vec<u32> = tray.packets.iter().map(|packet| packet.meta.wire_bytes).collect();
    assert_eq!(sizes, [1_500, 41]);
    let data = tray.packets[1].data().expect("a data packet");
    assert_eq!((data.index, data.transmission, data.priority), (1, 1, 7));
}

#[test]
fn answers_go_first_in_the_highest_class_on_the_same_path() {
    let mut endpoint = Endpoint::new(Config::default()).expect("defaults work");
    for mut packet in first_packets(&[9_000], 3).packets {
        packet.meta.src = NodeId(5);
        packet.meta.ecn = Ecn::Congested;
        endpoint.handle_packet(Time::ZERO, packet.lend());
    }
    let message =
        Message { dst: NodeId(1), body: length(9), tagger: FlowTagger::default(), entropy: 1 };
    endpoint.start(Time::ZERO, message).expect("short enough");
    let mut tray = TestOutbox::with_room(NodeId(1), 10);
    endpoint.poll_transmit(Time::ZERO, &mut tray);
    for (packet, index) in tray.packets[..3].iter().zip(0..) {
        let ack = packet.ack().expect("an acknowledgement");
        assert_eq!((ack.index, ack.cumulative, ack.sack), (index, index + 1, 0));
        assert!(ack.congested);
        let meta = packet.meta;
        assert_eq!((meta.dst, meta.wire_bytes, meta.entropy), (NodeId(5), 64, 77));
        assert_eq!((meta.dscp, meta.ecn), (Dscp::of_priority(0), Ecn::NotCapable));
    }
    assert!(tray.packets[3].data().is_some());
    assert_eq!(tray.packets.len(), 4);
}

#[test]
fn marks_shrink_the_window() {
    let mut network = Network::new(2, &Config::default(), 3);
    let time_of = |network: &mut Network| {
        let begin = network.now;
        network.start(0, 1, length(3_000_000));
        network.run(Time::ZERO + Span::from_s(10));
        let end = *sent(&network.events).last().expect("it ended");
        assert_eq!((end.retransmissions, end.timeouts), (0, 0));
        end.finished.since(begin)
    };
    let clean = time_of(&mut network);
    network.faults.mark = 1.0;
    let marked = time_of(&mut network);
    // Two packets a round trip of 11 µs or so: 2,055 packets in about 12 ms.
    assert!(clean < Span::from_ms(3), "{clean}");
    assert!(marked > Span::from_ms(10) && marked < Span::from_ms(15), "{marked}");
}

/// The class falls with every packet.
struct Falling;

impl Tagger for Falling {
    fn tag(&mut self, sent: Bytes) -> Tag {
        let priority = (sent.as_u64() / 1_460) as u8;
        Tag { dscp: Dscp::of_priority(priority), rank: 5, ..Tag::default() }
    }
}

#[test]
fn a_tagger_chooses_the_class_by_the_place_in_the_message() {
    let mut endpoint = Endpoint::new(Config::default()).expect("defaults work");
    let tagger = FlowTagger::Custom(Box::new(Falling));
    let message = Message { dst: NodeId(1), body: length(5_000), tagger, entropy: 1 };
    endpoint.start(Time::ZERO, message).expect("short enough");
    let mut tray = TestOutbox::with_room(NodeId(0), 10);
    endpoint.poll_transmit(Time::ZERO, &mut tray);
    // Nothing comes back: all four are sent again, the first one at once.
    endpoint.handle_timeout(Time::ZERO + Span::from_ms(10));
    endpoint.poll_transmit(Time::ZERO + Span::from_ms(10), &mut tray);
    let classes: Vec<(u8, u8, u32)> = tray
        .packets
        .iter()
        .map(|packet| {
            let priority = packet.data().expect("a data packet").priority;
            (packet.meta.dscp.priority(), priority, packet.meta.rank)
        })
        .collect();
    assert_eq!(classes, [(0, 0, 5), (1, 1, 5), (2, 2, 5), (3, 3, 5), (0, 0, 5)]);
}

#[test]
fn names_grow_and_are_never_used_again() {
    let mut network = Network::new(2, &Config::default(), 0);
    let mut last = None;
    for _ in 0..100 {
        let flow = network.start(0, 1, length(100));
        assert!(Some(flow) > last);
        last = Some(flow);
        network.run(Time::ZERO + Span::from_s(1));
    }
}

#[test]
fn a_receiver_reads_the_number_that_its_sender_chose() {
    let mut network = Network::new(2, &Config::default(), 0);
    let message =
        || Message { dst: NodeId(1), body: length(100), tagger: FlowTagger::default(), entropy: 0 };
    for number in [7, 3, FlowId::NUMBERS - 2] {
        let flow = network.nodes[0].start_numbered(network.now, number, message());
        assert_eq!(flow.map(FlowId::number), Ok(number));
        // The next one takes the same place.
        network.block(0, Span::ZERO);
        network.run(Time::ZERO + Span::from_s(1));
    }
    network.start(0, 1, length(100));
    network.run(Time::ZERO + Span::from_s(1));
    let numbers: Vec<u64> =
        received(&network.events).iter().map(|received| received.flow.number()).collect();
    assert_eq!(numbers, [7, 3, FlowId::NUMBERS - 2, FlowId::NUMBERS - 1]);
}

#[test]
fn a_message_with_too_many_packets_is_refused() {
    let mut endpoint = Endpoint::new(Config::default()).expect("defaults work");
    let too_long = Bytes::new((1 << 28) * 1_460 + 1);
    let message = |bytes| Message {
        dst: NodeId(1),
        body: Payload::Length(bytes),
        tagger: FlowTagger::default(),
        entropy: 0,
    };
    let error = endpoint.start(Time::ZERO, message(too_long));
    assert_eq!(error, Err(StartError::TooLong(too_long)));
    assert_eq!(endpoint.outgoing(), 0);
    assert!(endpoint.start(Time::ZERO, message(Bytes::new((1 << 28) * 1_460))).is_ok());
}

#[test]
fn messages_end_one_after_another_where_they_leave_in_order() {
    let finished = |order| -> Vec<Span> {
        let config = Config { order, initial_window_packets: 200, ..Config::default() };
        let mut network = Network::new(2, &config, 0);
        for _ in 0..4 {
            network.start(0, 1, length(1_460 * 100));
        }
        network.run(Time::ZERO + Span::from_s(1));
        sent(&network.events).iter().map(|end| end.finished.since(end.started)).collect()
    };
    let (in_turn, in_order) = (finished(MessageOrder::InTurn), finished(MessageOrder::Started));
    // 100 packets of 1.2 µs, a round trip of 10 µs, and an acknowledgement.
    let message = Span::from_us(120);
    let round_trip = Span::from_us(11);
    assert!(in_turn[0] > message * 3, "all of them end at the end");
    for (place, end) in (1..).zip(&in_order) {
        let left = message * place;
        assert!((left..left + round_trip).contains(end), "message {place} ended after {end}");
    }
    assert_eq!(in_turn[3], in_order[3], "the last one ends at the same time");
}
