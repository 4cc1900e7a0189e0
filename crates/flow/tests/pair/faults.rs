//! Lost, repeated, reordered and late packets.

use thalweg_core::{Bytes, Check, HEADER_BYTES, JobId, Machine, Meta, NodeId, Rng, Span, Time};
use thalweg_flow::{
    Config, Endpoint, Event, FlowId, FlowTagger, Message, MessageConfig, MessageOrder, Payload,
    Sent,
};
use thalweg_transport::control::NewReno;
use thalweg_transport::{Control, Credentials};
use thalweg_wire::flow::Ack;
use thalweg_wire::tag::Key;

use crate::network::{
    Faults, Network, Owned, OwnedBody, Read, TestOutbox, random_bytes, random_control,
};

const SEEDS: u64 = 3_000;

/// A message that was started: where, its name, and what it consists of.
pub struct Started {
    pub src: usize,
    pub dst: usize,
    pub flow: FlowId,
    pub body: Payload,
}

pub fn random_config(rng: &mut Rng) -> Config {
    let keyed = rng.chance(0.3);
    let segment_bytes = 1 + rng.below(1_460) as u32;
    let config = Config {
        initial_window_packets: 1 + rng.below(40) as u32,
        control: random_control(rng),
        remembers_paths: rng.chance(0.5),
        min_rto: Span::from_us(50 + rng.below(500)),
        initial_rto: Span::from_us(200),
        max_rto: Span::from_ms(5),
        reordering_packets: 1 + rng.below(8) as u32,
        probes_first: rng.chance(0.5),
        order: if rng.chance(0.5) { MessageOrder::InTurn } else { MessageOrder::Started },
        ..Config::default()
    };
    let messages = MessageConfig {
        segment_bytes,
        span_packets: 1 + rng.below(200) as u32,
        credentials: Credentials {
            job: JobId(rng.bits()),
            epoch: rng.below(9) as u32,
            key: keyed.then_some(Key([7; 16])),
        },
        ack_batch_packets: if rng.chance(0.5) { 1 } else { 2 + rng.below(64) as u32 },
        ack_delay: Span::from_us(1 + rng.below(40)),
        ..MessageConfig::default()
    };
    Config { messages, ..config }
}

fn random_faults(rng: &mut Rng) -> Faults {
    Faults {
        loss: rng.uniform() * 0.3,
        duplication: rng.uniform() * 0.2,
        reordering: rng.uniform() * 0.3,
        mark: rng.uniform() * 0.3,
    }
}

fn start_some(rng: &mut Rng, network: &mut Network, segment_bytes: u32) -> Vec<Started> {
    let mut all = Vec::new();
    for _ in 0..1 + rng.below(6) {
        let src = rng.below(3) as usize;
        let dst = (src + 1 + rng.below(2) as usize) % 3;
        let length = rng.below(1 + 200 * u64::from(segment_bytes));
        let real = rng.chance(0.6);
        let body = match real {
            true => Payload::Bytes(random_bytes(rng, length)),
            false => Payload::Length(Bytes::new(length)),
        };
        let flow = network.start(src, dst, body.clone());
        all.push(Started { src, dst, flow, body });
        network.run_until(network.now + Span::from_us(rng.below(100)));
    }
    all
}

/// Every message ended once at its sender, and once, unchanged, at its receiver.
pub fn check_delivery(all: &[Started], events: &[(NodeId, Event)]) {
    for started in all {
        let (src, dst) = (NodeId(started.src as u32), NodeId(started.dst as u32));
        let ends: Vec<&(NodeId, Event)> = events
            .iter()
            .filter(|(node, event)| match event {
                Event::Sent(end) | Event::Failed(end) => *node == src && end.flow == started.flow,
                Event::Received(end) => end.src == src && end.flow == started.flow,
            })
            .collect();
        let [(at, Event::Received(received)), (_, Event::Sent(sent))] = ends[..] else {
            panic!("received once and sent once, in this order, not {ends:?}");
        };
        assert_eq!((*at, sent.dst), (dst, dst));
        assert_eq!((received.bytes, sent.bytes), (started.body.bytes(), started.body.bytes()));
        let expected = match &started.body {
            Payload::Bytes(bytes) => Some(bytes),
            Payload::Length(_) => None,
        };
        assert_eq!(received.body.as_ref(), expected);
    }
    assert_eq!(events.len(), 2 * all.len());
}

fn run_seed(seed: u64) -> (Vec<(NodeId, Event)>, Time) {
    let mut rng = Rng::new(seed).stream("scenario");
    let config = random_config(&mut rng);
    let mut network = Network::new(3, &config, seed);
    network.faults = random_faults(&mut rng);
    let all = start_some(&mut rng, &mut network, config.messages.segment_bytes);
    network.run(Time::ZERO + Span::from_s(60));
    check_delivery(&all, &network.events);
    for node in &network.nodes {
        assert_eq!((node.outgoing(), node.incoming()), (0, 0));
        assert_eq!(node.dropped().foreign + node.dropped().malformed, 0);
    }
    let resent: u64 = network.nodes.iter().map(|node| node.retransmissions()).sum();
    let resent_by_message = network.events.iter().map(|(_, event)| match event {
        Event::Sent(end) => u64::from(end.retransmissions),
        _ => 0,
    });
    assert_eq!(resent, resent_by_message.sum());
    (network.events, network.now)
}

#[test]
fn whatever_the_network_does_every_message_arrives_once_and_whole() {
    for seed in 0..SEEDS {
        let outcome = std::panic::catch_unwind(|| run_seed(seed));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for seed in 0..20 {
        assert_eq!(run_seed(seed), run_seed(seed));
    }
}

fn only_end(network: &Network) -> Sent {
    let ends: Vec<Sent> = network
        .events
        .iter()
        .filter_map(|(_, event)| match event {
            Event::Sent(end) => Some(*end),
            _ => None,
        })
        .collect();
    assert_eq!(ends.len(), 1);
    ends[0]
}

fn packets(count: u64) -> Payload {
    Payload::Length(Bytes::new(1_460 * count))
}

#[test]
fn a_packet_lost_twice_is_repaired_without_a_timeout() {
    let mut network = Network::new(2, &Config::default(), 0);
    let mut losses = 0;
    network.filter = Box::new(move |_, packet| {
        let lost = losses < 2 && packet.data().is_some_and(|data| data.index == 5);
        losses += u32::from(lost);
        !lost
    });
    network.start(0, 1, packets(400));
    network.run(Time::ZERO + Span::from_s(1));
    let end = only_end(&network);
    assert_eq!((end.retransmissions, end.timeouts), (2, 0));
}

#[test]
fn a_lost_tail_takes_one_timeout() {
    let mut network = Network::new(2, &Config::default(), 0);
    network.filter = Box::new(|_, packet| {
        packet.data().is_none_or(|data| data.index < 9 || data.transmission > 9)
    });
    network.start(0, 1, packets(10));
    network.run(Time::ZERO + Span::from_s(1));
    let end = only_end(&network);
    assert_eq!((end.retransmissions, end.timeouts), (1, 1));
    // The round trip is far below the least timeout, which runs from the last answer.
    let last = Span::from_ns(1_200) * 9 + Span::from_us(10) + Span::from_ps(51_200);
    let resent = last + Span::from_ms(1);
    let rest = Span::from_ns(1_200) + Span::from_us(10) + Span::from_ps(51_200);
    assert_eq!(end.finished, Time::ZERO + resent + rest);
}

#[test]
fn lost_answers_cost_timeouts_but_nothing_arrives_twice() {
    let mut network = Network::new(2, &Config::default(), 0);
    let silence_end = Time::ZERO + Span::from_ms(100);
    network.filter = Box::new(move |now, packet| packet.ack().is_none() || now > silence_end);
    network.start(0, 1, packets(10));
    network.run(Time::ZERO + Span::from_s(1));
    let end = only_end(&network);
    // After 10, 20 and 40 ms, each twice as long as the one before, and then 80 ms.
    assert_eq!(end.timeouts, 4);
    assert_eq!(end.retransmissions, 4, "one packet for each: the window is one");
    assert_eq!(network.events.len(), 2);
}

#[test]
fn retransmissions_are_counted_while_a_message_is_sent_and_after_it() {
    let mut network = Network::new(2, &Config::default(), 0);
    network.filter = Box::new(|_, packet| packet.ack().is_none());
    network.start(0, 1, packets(10));
    // Timeouts after 10 and 20 ms, with one packet each.
    network.run_until(Time::ZERO + Span::from_ms(35));
    let counts = |network: &Network| {
        [&network.nodes[0], &network.nodes[1]].map(|node| (node.retransmissions(), node.outgoing()))
    };
    assert_eq!(counts(&network), [(2, 1), (0, 0)]);
    network.filter = Box::new(|_, _| true);
    network.run(Time::ZERO + Span::from_s(1));
    assert_eq!(only_end(&network).retransmissions, 3);
    assert_eq!(counts(&network), [(3, 0), (0, 0)]);
    network.start(0, 1, packets(10));
    network.run(Time::ZERO + Span::from_s(2));
    assert_eq!(counts(&network), [(3, 0), (0, 0)], "the next message lost nothing");
}

#[test]
fn answers_that_got_lost_are_made_up_for_by_later_ones() {
    let mut network = Network::new(2, &Config::default(), 0);
    let mut count = 0;
    network.filter = Box::new(move |_, packet| {
        count += u32::from(packet.ack().is_some());
        packet.ack().is_none() || count % 4 == 0
    });
    network.start(0, 1, packets(400));
    network.run(Time::ZERO + Span::from_s(1));
    let end = only_end(&network);
    assert_eq!((end.retransmissions, end.timeouts), (0, 0));
}

#[test]
fn a_dead_peer_is_given_up() {
    let mut config = Config::default();
    config.messages.give_up_after = Span::from_ms(300);
    let mut network = Network::new(2, &config, 0);
    network.filter = Box::new(|_, packet| packet.meta.dst != NodeId(1));
    let flow = network.start(0, 1, packets(10));
    network.run(Time::ZERO + Span::from_s(2));
    let [(NodeId(0), Event::Failed(end))] = network.events[..] else {
        panic!("{:?}", network.events);
    };
    assert_eq!(end.flow, flow);
    // Timeouts after 10, 20, 40, 80 and 160 ms end at 310 ms; the last one gives up.
    assert_eq!((end.timeouts, end.finished), (4, Time::ZERO + Span::from_ms(310)));
    assert_eq!(network.nodes[0].outgoing(), 0);
}

#[test]
fn an_outage_in_the_middle_is_survived() {
    let mut network = Network::new(2, &Config::default(), 0);
    let outage = Time::ZERO + Span::from_us(100)..Time::ZERO + Span::from_s(5);
    network.filter = Box::new(move |now, _| !outage.contains(&now));
    network.start(0, 1, Payload::Bytes(random_bytes(&mut Rng::new(5), 2_000_000)));
    network.run(Time::ZERO + Span::from_s(30));
    let end = only_end(&network);
    assert!(end.timeouts >= 5, "{end:?}");
    assert!(end.finished < Time::ZERO + Span::from_s(8), "{end:?}");
}

#[test]
fn time_before_the_first_packet_is_not_silence() {
    let mut config = Config::default();
    config.messages.give_up_after = Span::from_ms(300);
    let mut network = Network::new(2, &config, 0);
    // The interface is busy for so long with one packet of somebody else.
    network.block(0, Span::from_s(1));
    let mut losses = 0;
    network.filter = Box::new(move |_, packet| {
        losses += u32::from(packet.data().is_some());
        losses > 10
    });
    network.start(0, 1, packets(10));
    network.run(Time::ZERO + Span::from_s(2));
    assert_eq!(only_end(&network).timeouts, 1);
}

#[test]
fn a_burst_of_losses_halves_the_window_once() {
    let control = Control::from(NewReno);
    let config = Config { control, initial_window_packets: 20, ..Config::default() };
    let mut endpoint = Endpoint::new(config).expect("the test's settings work");
    let message =
        Message { dst: NodeId(1), body: packets(1_000), tagger: FlowTagger::default(), entropy: 0 };
    let flow = endpoint.start(Time::ZERO, message).expect("short enough");
    let mut tray = TestOutbox::with_room(NodeId(0), 1_000);
    endpoint.poll_transmit(Time::ZERO, &mut tray);
    assert_eq!(tray.packets.len(), 20);
    // The first five are lost. Each answer from 5 to 7 shows it of one more.
    for index in 5..20 {
        let mut ack = ack_of(flow, index);
        ack.sack = (1 << (index - 1)) - (1 << 4);
        deliver(&mut endpoint, ack);
    }
    // One packet more for the answer that came before the loss was known, then half of 21, and no
    // growth while what was sent before is answered.
    tray.packets.clear();
    endpoint.poll_transmit(Time::ZERO, &mut tray);
    let indices: Vec<u32> = tray.packets.iter().filter_map(Read::data).map(|d| d.index).collect();
    assert_eq!(indices, [0, 1, 2, 3, 4, 20, 21, 22, 23, 24]);
}

fn ack_of(flow: FlowId, index: u32) -> Ack {
    Ack {
        job: JobId::default(),
        epoch: 0,
        flow: flow.0,
        sent_at: Time::ZERO,
        sack: 0,
        cumulative: 0,
        index,
        transmission: index,
        congested: false,
        resend: false,
        class: 0,
        run: 0,
    }
}

fn deliver(endpoint: &mut Endpoint, ack: Ack) {
    let meta = Meta { src: NodeId(1), ..Meta::default() };
    let mut packet = Owned::made_of(meta, [0; HEADER_BYTES], OwnedBody::Length(0));
    ack.encode(&mut packet.header);
    endpoint.handle_packet(Time::ZERO, packet.lend());
    endpoint.check();
}

#[test]
fn an_answer_ends_the_doubling() {
    let mut network = Network::new(2, &Config::default(), 0);
    // Nothing gets through for 25 ms, and later the last packet is lost once.
    let mut losses = 0;
    let outage_end = Time::ZERO + Span::from_ms(25);
    network.filter = Box::new(move |now, packet| {
        let tail = losses == 0 && packet.data().is_some_and(|data| data.index == 19);
        losses += u32::from(tail);
        now > outage_end && !tail
    });
    network.start(0, 1, packets(20));
    network.run(Time::ZERO + Span::from_s(1));
    let end = only_end(&network);
    // Timeouts at 10 and 30 ms, and one of the least length for the tail.
    assert_eq!(end.timeouts, 3);
    assert!(end.finished < Time::ZERO + Span::from_us(31_200), "{:?}", end.finished);
}
