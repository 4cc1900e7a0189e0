//! Packets that no honest endpoint sends.

use thalweg_core::{
    Bytes, Check, Ecn, HEADER_BYTES, JobId, Machine, Meta, NodeId, Reports, Rng, Span, Time,
};
use thalweg_flow::{Config, Dropped, Endpoint, Event, FlowId, MessageConfig, Payload, Received};
use thalweg_transport::Credentials;
use thalweg_wire::flow::{Ack, Data};
use thalweg_wire::tag::Key;

use crate::network::{Network, Owned, OwnedBody, Read, TestOutbox, random_bytes};

const JOB: JobId = JobId(0x1122_3344_5566_7788);

fn messages() -> MessageConfig {
    let credentials = Credentials { job: JOB, epoch: 3, key: None };
    MessageConfig { credentials, ..MessageConfig::default() }
}

fn limited(messages: MessageConfig) -> Config {
    Config { messages, ..Config::default() }
}

fn config() -> Config {
    limited(messages())
}

/// A number that is small, large or at an edge.
fn odd_number(rng: &mut Rng) -> u64 {
    match rng.below(4) {
        0 => rng.below(100),
        1 => rng.bits() >> rng.below(64),
        2 => 1 << rng.below(64),
        _ => u64::MAX - rng.below(3),
    }
}

fn odd_data(rng: &mut Rng) -> Data {
    Data {
        job: JOB,
        epoch: 3,
        flow: odd_number(rng),
        message_bytes: Bytes::new(odd_number(rng)),
        sent_at: Time::from_ps(odd_number(rng)),
        index: odd_number(rng) as u32,
        transmission: odd_number(rng) as u32,
        segment_bytes: odd_number(rng) as u32,
        priority: rng.bits() as u8,
        wants_ack: rng.chance(0.5),
    }
}

fn odd_ack(rng: &mut Rng) -> Ack {
    Ack {
        job: JOB,
        epoch: 3,
        flow: odd_number(rng),
        sent_at: Time::from_ps(odd_number(rng)),
        sack: odd_number(rng),
        cumulative: odd_number(rng) as u32,
        index: odd_number(rng) as u32,
        transmission: odd_number(rng) as u32,
        congested: rng.chance(0.5),
        resend: rng.chance(0.5),
        class: rng.below(8) as u8,
        run: odd_number(rng) as u16,
    }
}

fn odd_body(rng: &mut Rng, fitting: u64) -> OwnedBody {
    let length = if rng.chance(0.7) { fitting.min(9_000) } else { rng.below(3_000) };
    match rng.chance(0.5) {
        true => OwnedBody::Bytes(vec![0xee; length as usize]),
        false => OwnedBody::Length(length as u32),
    }
}

/// A packet from `src` to `dst` with a strange header, a strange body, or both.
fn odd_packet(rng: &mut Rng, src: u32, dst: u32) -> Owned {
    let mut header = [0; HEADER_BYTES];
    let mut fitting = 0;
    match rng.below(4) {
        0 => header.iter_mut().for_each(|byte| *byte = rng.bits() as u8),
        1 => odd_ack(rng).encode(&mut header),
        _ => {
            let data = odd_data(rng);
            fitting = u64::from(data.payload_bytes());
            data.encode(&mut header);
        }
    }
    if rng.chance(0.1) {
        header[rng.below(64) as usize] ^= 1 << rng.below(8);
    }
    let meta = Meta { src: NodeId(src), dst: NodeId(dst), ecn: Ecn::Capable, ..Meta::default() };
    Owned::made_of(meta, header, odd_body(rng, fitting))
}

fn bodies(network: &Network, dst: u32, src: u32) -> Vec<&Received> {
    let received = network.events.iter().filter_map(|(node, event)| match event {
        Event::Received(end) if *node == NodeId(dst) && end.src == NodeId(src) => Some(end),
        _ => None,
    });
    received.collect()
}

#[test]
fn strangers_can_neither_break_nor_change_a_message() {
    for seed in 0..100 {
        let mut rng = Rng::new(seed).stream("hostile");
        let mut network = Network::new(3, &config(), seed);
        network.faults.loss = 0.05;
        let body = random_bytes(&mut rng, 300_000);
        let flow = network.start(0, 1, Payload::Bytes(body.clone()));
        for _ in 0..500 {
            network.run_until(network.now + Span::from_ns(500));
            let target = rng.below(2) as u32;
            let mut packet = odd_packet(&mut rng, 2, target);
            // Also such as know the name of the message.
            if let Some(data) = packet.data().filter(|_| rng.chance(0.3)) {
                Data { flow: flow.0, ..data }.encode(&mut packet.header);
            }
            if let Some(ack) = packet.ack().filter(|_| rng.chance(0.3)) {
                Ack { flow: flow.0, ..ack }.encode(&mut packet.header);
            }
            network.arrive(packet);
        }
        network.run(Time::ZERO + Span::from_s(60));
        let [received] = bodies(&network, 1, 0)[..] else { panic!("seed {seed}: once") };
        assert_eq!(received.body.as_ref(), Some(&body), "seed {seed}");
        let sent = network.events.iter().filter(|(_, event)| matches!(event, Event::Sent(_)));
        assert_eq!(sent.count(), 1, "seed {seed}");
    }
}

#[test]
fn without_the_key_nobody_speaks_for_a_peer() {
    let credentials = Credentials { key: Some(Key([9; 16])), ..messages().credentials };
    let keyed = limited(MessageConfig { credentials, ..messages() });
    for seed in 0..50 {
        let mut rng = Rng::new(seed).stream("forger");
        let mut network = Network::new(2, &keyed, seed);
        let body = random_bytes(&mut rng, 100_000);
        let flow = network.start(0, 1, Payload::Bytes(body.clone()));
        for index in 0..60 {
            network.run_until(network.now + Span::from_ns(500));
            // The right name, the right place, the wrong bytes.
            let data = Data {
                flow: flow.0,
                message_bytes: Bytes::new(100_000),
                index,
                segment_bytes: 1_460,
                ..odd_data(&mut rng)
            };
            let mut packet = odd_packet(&mut rng, 0, 1);
            data.encode(&mut packet.header);
            packet.body = OwnedBody::Bytes(vec![0xee; 1_460]);
            network.arrive(packet);
            let mut packet = odd_packet(&mut rng, 1, 0);
            Ack { flow: flow.0, cumulative: 69, index: 1, transmission: 1, ..odd_ack(&mut rng) }
                .encode(&mut packet.header);
            network.arrive(packet);
        }
        network.run(Time::ZERO + Span::from_s(60));
        let [received] = bodies(&network, 1, 0)[..] else { panic!("seed {seed}: once") };
        assert_eq!(received.body.as_ref(), Some(&body), "seed {seed}");
        assert_eq!(network.nodes[0].dropped().foreign, 60);
        assert_eq!(network.nodes[1].dropped().foreign, 60);
    }
}

/// Hands one data packet to an endpoint and returns what it now holds of drops.
fn offer(endpoint: &mut Endpoint, now: Time, data: Data, body: OwnedBody) -> Dropped {
    let meta = Meta { src: NodeId(7), ..Meta::default() };
    let mut packet = Owned::made_of(meta, [0; HEADER_BYTES], body);
    data.encode(&mut packet.header);
    endpoint.handle_packet(now, packet.lend());
    endpoint.check();
    endpoint.dropped()
}

fn plain_data(flow: u64, message_bytes: u64, index: u32) -> Data {
    Data {
        job: JOB,
        epoch: 3,
        flow,
        message_bytes: Bytes::new(message_bytes),
        sent_at: Time::ZERO,
        index,
        transmission: index,
        segment_bytes: 1_000,
        priority: 7,
        wants_ack: false,
    }
}

#[test]
fn what_contradicts_itself_is_dropped_and_counted() {
    let mut endpoint = Endpoint::new(config()).expect("the test's settings work");
    let good = plain_data(1, 5_000, 0);
    let kilobyte = || OwnedBody::Length(1_000);
    let cases = [
        (Data { segment_bytes: 0, ..good }, kilobyte()),
        (Data { index: 5, ..good }, kilobyte()),
        (good, OwnedBody::Length(999)),
        (good, OwnedBody::Bytes(vec![0; 1_001])),
        (
            Data { message_bytes: Bytes::new(u64::MAX), segment_bytes: 1, ..good },
            OwnedBody::Length(1),
        ),
    ];
    for (count, (data, body)) in (1..).zip(cases) {
        assert_eq!(offer(&mut endpoint, Time::ZERO, data, body).malformed, count);
    }
    assert_eq!(endpoint.incoming(), 0);
    assert_eq!(offer(&mut endpoint, Time::ZERO, good, kilobyte()).malformed, 5);
    // The message is open now; these are not of it.
    let others = [
        (Data { message_bytes: Bytes::new(6_000), ..good }, kilobyte()),
        (Data { index: 1, ..good }, OwnedBody::Bytes(vec![0; 1_000])),
        (Data { segment_bytes: 500, ..good }, OwnedBody::Length(500)),
    ];
    for (count, (data, body)) in (6..).zip(others) {
        assert_eq!(offer(&mut endpoint, Time::ZERO, data, body).malformed, count);
    }
    let foreign = [Data { epoch: 4, ..good }, Data { job: JobId(1), ..good }];
    for (count, data) in (1..).zip(foreign) {
        assert_eq!(offer(&mut endpoint, Time::ZERO, data, kilobyte()).foreign, count);
    }
    assert_eq!(endpoint.incoming(), 1);
}

#[test]
fn memory_has_limits() {
    let limits = limited(MessageConfig {
        max_incoming: 10,
        max_message_bytes: 4_000,
        max_incoming_bytes: 7_000,
        span_packets: 64,
        max_waiting_acks: 12,
        ..messages()
    });
    let mut endpoint = Endpoint::new(limits).expect("the test's settings work");
    let real = || OwnedBody::Bytes(vec![0; 1_000]);
    let mut no_room = |flow, message_bytes, index, body| {
        offer(&mut endpoint, Time::ZERO, plain_data(flow, message_bytes, index), body).no_room
    };
    assert_eq!(no_room(1, 4_001, 0, real()), 1, "too long");
    assert_eq!(no_room(2, 4_000, 0, real()), 1);
    assert_eq!(no_room(3, 3_001, 0, real()), 2, "too much together");
    assert_eq!(no_room(4, 3_000, 0, real()), 2);
    for flow in 10..18 {
        assert_eq!(no_room(flow, 1 << 30, 0, OwnedBody::Length(1_000)), 2);
    }
    assert_eq!(no_room(18, 1 << 30, 0, OwnedBody::Length(1_000)), 3, "too many");
    assert_eq!(no_room(10, 1 << 30, 65, OwnedBody::Length(1_000)), 4, "too far ahead");
    assert_eq!(no_room(10, 1 << 30, 64, OwnedBody::Length(1_000)), 4);
    assert_eq!(no_room(10, 1 << 30, 63, OwnedBody::Length(1_000)), 4);
    assert_eq!(no_room(10, 1 << 30, 62, OwnedBody::Length(1_000)), 5, "too many answers wait");
    assert_eq!(endpoint.incoming(), 10);
}

#[test]
fn memory_comes_back() {
    let give_up_after = Span::from_s(1);
    let limits = limited(MessageConfig { max_incoming_bytes: 3_000, give_up_after, ..messages() });
    let mut endpoint = Endpoint::new(limits).expect("the test's settings work");
    let real = || OwnedBody::Bytes(vec![0; 1_000]);
    let mut no_room = |ms, flow, message_bytes, index| {
        let now = Time::ZERO + Span::from_ms(ms);
        offer(&mut endpoint, now, plain_data(flow, message_bytes, index), real()).no_room
    };
    for flow in 0..10 {
        assert_eq!(no_room(0, flow, 2_000, 0), 0);
        assert_eq!(no_room(0, flow, 2_000, 1), 0, "complete, and handed out");
    }
    assert_eq!(no_room(0, 20, 3_000, 0), 0);
    assert_eq!(no_room(2_000, 21, 3_000, 0), 1, "half a message is kept");
    assert_eq!(no_room(2_001, 21, 3_000, 0), 1, "until its sender must have given up");
}

#[test]
fn a_second_copy_changes_nothing() {
    let mut endpoint = Endpoint::new(config()).expect("the test's settings work");
    for (index, filling) in [(0, 1), (0, 2), (1, 3)] {
        let body = OwnedBody::Bytes(vec![filling; 1_000]);
        offer(&mut endpoint, Time::ZERO, plain_data(1, 2_000, index), body);
    }
    let Some(Event::Received(received)) = endpoint.poll_event() else { panic!("complete") };
    let body = received.body.expect("real bytes");
    assert_eq!((body[0], body[999], body[1_000]), (1, 1, 3));
}

#[test]
fn half_messages_of_dead_senders_make_room_in_the_end() {
    let give_up_after = Span::from_s(1);
    let limits = limited(MessageConfig { max_incoming: 8, give_up_after, ..messages() });
    let mut endpoint = Endpoint::new(limits).expect("the test's settings work");
    let mut tray = TestOutbox::with_room(NodeId(0), 1_000);
    let kilobyte = || OwnedBody::Length(1_000);
    let at = |ms| Time::ZERO + Span::from_ms(ms);
    for flow in 0..8 {
        offer(&mut endpoint, at(0), plain_data(flow, 5_000, 0), kilobyte());
    }
    // One of them goes on.
    offer(&mut endpoint, at(1_500), plain_data(3, 5_000, 1), kilobyte());
    assert_eq!(offer(&mut endpoint, at(1_999), plain_data(100, 5_000, 0), kilobyte()).no_room, 1);
    for flow in 200..207 {
        let dropped = offer(&mut endpoint, at(2_001), plain_data(flow, 5_000, 0), kilobyte());
        assert_eq!(dropped.no_room, 1, "flow {flow}");
    }
    assert_eq!(endpoint.incoming(), 8);
    endpoint.poll_transmit(at(2_001), &mut tray);
    tray.packets.clear();
    offer(&mut endpoint, at(2_001), plain_data(3, 5_000, 2), kilobyte());
    endpoint.poll_transmit(at(2_001), &mut tray);
    let ack = tray.packets[0].ack().expect("an acknowledgement");
    assert_eq!(ack.cumulative, 3, "the one that went on was kept");
}

#[test]
fn late_copies_of_complete_messages_are_answered_and_not_delivered() {
    let limits = limited(MessageConfig { completed_memory: 2, ..messages() });
    let mut endpoint = Endpoint::new(limits).expect("the test's settings work");
    let mut tray = TestOutbox::with_room(NodeId(0), 1_000);
    let kilobyte = || OwnedBody::Length(1_000);
    for flow in 1..=3 {
        for index in 0..2 {
            offer(&mut endpoint, Time::ZERO, plain_data(flow, 2_000, index), kilobyte());
        }
    }
    let flows = std::iter::from_fn(|| endpoint.poll_event()).map(|event| match event {
        Event::Received(end) => end.flow,
        other => panic!("{other:?}"),
    });
    assert_eq!(flows.collect::<Vec<_>>(), [1, 2, 3].map(FlowId));
    offer(&mut endpoint, Time::ZERO, plain_data(3, 2_000, 0), kilobyte());
    offer(&mut endpoint, Time::ZERO, plain_data(1, 2_000, 1), kilobyte());
    assert_eq!(endpoint.poll_event(), None);
    assert_eq!(endpoint.incoming(), 1, "the first is forgotten and begins again, without an end");
    endpoint.poll_transmit(Time::ZERO, &mut tray);
    let says = |packet: &Owned| packet.ack().map(|ack| (ack.flow, ack.cumulative, ack.sack));
    assert_eq!(says(&tray.packets[6]), Some((3, 2, 0)));
    assert_eq!(says(&tray.packets[7]), Some((1, 0, 1)));
}
