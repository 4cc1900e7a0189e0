//! Controls by delay on a link of 10 Gbps that is 100 µs there and back: the shares of two flows, and their queue.

use std::cell::Cell;
use std::rc::Rc;

use thalweg_core::{Bytes, Rate, Span, Time};
use thalweg_flow::{Config, Payload};
use thalweg_transport::Control;

use crate::network::{Network, Read};

/// Packets of 1,500 bytes that the link carries in the time of 50 µs that Swift accepts in queues, and in the 500 µs
/// above which TIMELY always slows down.
const SWIFT_PACKETS: usize = 42;
const TIMELY_PACKETS: usize = 417;

/// Hosts of 40 Gbps, so that excess packets wait at the switch.
fn network(name: &str) -> Network {
    let control =
        Control::named(name).expect("a name of the kit").with_base_rtt(Span::from_us(102));
    let mut network = Network::new(3, &Config { control, ..Config::default() }, 1);
    network.delay = Span::from_us(25);
    network.rate = Rate::from_gbps(40);
    network.switch = Some(Rate::from_gbps(10));
    network
}

/// Share of the link that each of two senders has from 50 ms on, of which the second begins 10 ms later, and the most
/// packets that waited since.
fn shares(name: &str) -> ([f64; 2], usize) {
    let mut network = network(name);
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
    (counts.get().map(|packets| packets as f64 * 12e3 / 10e9 / 0.1), longest)
}

#[test]
fn two_flows_of_swift_share_a_link_and_keep_its_queue_short() {
    let (shares, longest) = shares("swift");
    assert!(shares.iter().sum::<f64>() > 0.95, "{shares:?}");
    assert!(shares.iter().all(|&share| share > 0.4), "{shares:?}");
    assert!(longest <= SWIFT_PACKETS + 5, "{longest} packets waited");
}

/// TIMELY has no single point of rest, so that shares may differ.
#[test]
fn two_flows_of_timely_fill_a_link_and_bound_its_queue() {
    let (shares, longest) = shares("timely");
    assert!(shares.iter().sum::<f64>() > 0.9, "{shares:?}");
    assert!(shares.iter().all(|&share| share > 0.15), "{shares:?}");
    assert!(longest <= TIMELY_PACKETS, "{longest} packets waited");
}
