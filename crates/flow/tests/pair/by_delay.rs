//! Swift on a link of 10 Gbps that is 100 µs there and back: its share, its queue, and two flows.

use std::cell::Cell;
use std::rc::Rc;

use thalweg_core::{Bytes, Rate, Span, Time};
use thalweg_flow::{Config, Payload};
use thalweg_transport::control::Swift;

use crate::network::{Network, Read};

/// Bytes that the link carries in the time that Swift accepts in queues, in packets of 1,500 bytes.
const TARGET_PACKETS: usize = 42;

/// Hosts of 40 Gbps, so that excess packets wait at the switch.
fn network(nodes: usize) -> Network {
    let control = Swift { base: Some(Span::from_us(102)), ..Swift::default() }.into();
    let mut network = Network::new(nodes, &Config { control, ..Config::default() }, 1);
    network.delay = Span::from_us(25);
    network.rate = Rate::from_gbps(40);
    network.switch = Some(Rate::from_gbps(10));
    network
}

/// Share of the link that each of two senders has from 50 ms on, of which the second begins 10 ms later.
#[test]
fn two_flows_share_a_link_and_keep_its_queue_short() {
    let mut network = network(3);
    let counts = Rc::new(Cell::new([0_u64; 2]));
    let counter = Rc::clone(&counts);
    network.filter = Box::new(move |now, packet| {
        let mut counts = counter.get();
        if now > Time::ZERO + Span::from_ms(50) && packet.data().is_some() {
            counts[packet.meta.src.index()] += 1;
        }
        counter.set(counts);
        true
    });
    let endless = Payload::Length(Bytes::new(2_000_000_000));
    network.start(0, 2, endless.clone());
    network.run_until(Time::ZERO + Span::from_ms(10));
    network.start(1, 2, endless);
    network.run_until(Time::ZERO + Span::from_ms(50));
    let (mut longest, mut end) = (0, network.now);
    while end < Time::ZERO + Span::from_ms(150) {
        end += Span::from_us(20);
        network.run_until(end);
        longest = longest.max(network.queued_packets(2));
    }
    let shares = counts.get().map(|packets| packets as f64 * 12e3 / 10e9 / 0.1);
    assert!(shares.iter().sum::<f64>() > 0.95, "{shares:?}");
    assert!(shares.iter().all(|&share| share > 0.4), "{shares:?}");
    assert!(longest <= TARGET_PACKETS + 5, "{longest} packets waited");
}
