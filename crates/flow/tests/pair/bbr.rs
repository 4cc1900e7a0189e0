//! BBR on a link of 10 Gbps that is 100 µs there and back: what it carries and how long its queue is.

use std::cell::Cell;
use std::rc::Rc;

use thalweg_core::{Bytes, Rate, Span, Time};
use thalweg_flow::{Config, Payload};
use thalweg_transport::Control;
use thalweg_transport::control::{Bbr, Cubic};

use crate::network::{Faults, Network, Read};

/// Packets of 1,500 bytes that the link holds in a round trip.
const PRODUCT_PACKETS: usize = 83;

/// The network gives every node a seed of its own.
const BBR: Control = Control::Bbr(Bbr);

/// Hosts of 40 Gbps, so that what is too much waits at the switch.
fn network(nodes: usize, control: Control) -> Network {
    let config = Config { control, ..Config::default() };
    let mut network = Network::new(nodes, &config, 1);
    network.delay = Span::from_us(25);
    network.rate = Rate::from_gbps(40);
    network.switch = Some(Rate::from_gbps(10));
    network
}

/// The share of the link, with headers, that messages had until they were sent.
fn share(network: &Network, bytes: u64) -> f64 {
    let wire_bits = bytes as f64 / 1_460.0 * 1_500.0 * 8.0;
    wire_bits / network.now.since(Time::ZERO).as_s_f64() / 10e9
}

/// The share of the link that one message of 50 MB has at a rate of loss.
fn lossy_share(control: Control, loss: f64) -> f64 {
    let mut network = network(2, control);
    network.faults = Faults { loss, ..Faults::default() };
    network.start(0, 1, Payload::Length(Bytes::new(50_000_000)));
    network.run(Time::ZERO + Span::from_s(10));
    share(&network, 50_000_000)
}

// spec: C-14 machine
#[test]
fn it_fills_a_link_and_keeps_the_queue_short() {
    let mut network = network(2, BBR);
    let bytes = 125_000_000;
    network.start(0, 1, Payload::Length(Bytes::new(bytes)));
    let (mut longest, mut end) = (0, Time::ZERO + Span::from_ms(5));
    network.run_until(end);
    while network.nodes[0].outgoing() > 0 {
        end += Span::from_us(20);
        network.run_until(end);
        longest = longest.max(network.queued_packets(1));
    }
    let share = share(&network, bytes);
    assert!(share > 0.95, "{share}");
    assert!(longest < PRODUCT_PACKETS, "{longest} packets waited");
    assert!(longest > PRODUCT_PACKETS / 8, "{longest}: it tries for more");
}

#[test]
fn losses_by_chance_cost_little() {
    let clean = lossy_share(BBR, 0.0);
    let lossy = lossy_share(BBR, 0.01);
    assert!(lossy > 0.9 * clean, "{lossy} of {clean}");
    let cubic = lossy_share(Control::Cubic(Cubic), 0.01);
    assert!(cubic < 0.4 * lossy, "CUBIC: {cubic}, BBR: {lossy}");
}

/// A flow that begins later takes the queue of the first for a part of the path, and too large a share with it, until
/// both see the uncongested path together: as published. A hundred times slower than the other tests here, so
/// that those ten seconds are not many packets.
#[test]
fn two_flows_share_a_link_once_both_have_seen_it_empty() {
    let mut network = network(3, BBR);
    network.delay = Span::from_us(2_500);
    network.rate = Rate::from_mbps(400);
    network.switch = Some(Rate::from_mbps(100));
    let (count_from, count_until) = (Span::from_s(40), Span::from_s(60));
    let counts = Rc::new(Cell::new([0_u64; 2]));
    let counter = Rc::clone(&counts);
    network.filter = Box::new(move |now, packet| {
        let mut counts = counter.get();
        if now > Time::ZERO + count_from && packet.data().is_some() {
            counts[packet.meta.src.index()] += 1;
        }
        counter.set(counts);
        true
    });
    let endless = Payload::Length(Bytes::new(2_000_000_000));
    network.start(0, 2, endless.clone());
    network.run_until(Time::ZERO + Span::from_ms(70));
    network.start(1, 2, endless);
    network.run_until(Time::ZERO + count_until);
    let counted_s = (count_until - count_from).as_s_f64();
    let shares = counts.get().map(|packets| packets as f64 * 12e3 / 100e6 / counted_s);
    assert!(shares.iter().sum::<f64>() > 0.93, "{shares:?}");
    assert!(shares.iter().all(|&share| share > 0.4), "{shares:?}");
}

#[test]
fn what_one_message_has_learned_the_next_begins_with() {
    let config = Config { control: BBR, remembers_paths: true, ..Config::default() };
    let mut network = Network::new(2, &config, 1);
    network.delay = Span::from_us(50);
    let times: Vec<f64> = (0..2)
        .map(|_| {
            let start = network.now;
            network.start(0, 1, Payload::Length(Bytes::new(1_000_000)));
            network.run(start + Span::from_s(1));
            network.now.since(start).as_us_f64()
        })
        .collect();
    // 685 packets need 822 µs and a round trip; the first message has to find that out.
    assert!(times[1] < 1_250.0, "{times:?}");
    assert!(times[1] < 0.85 * times[0], "{times:?}");
}
