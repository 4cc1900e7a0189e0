//! Properties that Homa is known for.

use thalweg_baselines::homa::Endpoint;
use thalweg_core::{Span, Time};
use thalweg_fabric::topology::OneSwitch;
use thalweg_fabric::{Buffer, Config, Discipline, Marking, Spread};

use crate::ranks;
use crate::stage::{CABLE, Sending, run};

/// Eight priorities, and room for whatever comes: Homa needs little, but counts on it.
fn config() -> Config {
    Config {
        discipline: Discipline::strict_per_port(Marking::NONE),
        buffer: Buffer::PerPort { bytes: 2_000_000 },
        spread: Spread::PerPacket,
        ..Config::default()
    }
}

/// Microseconds of a link that messages of `bytes` occupy.
fn wire_us(bytes: u64) -> f64 {
    bytes as f64 * 1_500.0 / 1_460.0 * 8.0 / 10_000.0
}

/// An incast ends when the receiver's link has carried it, and nothing is lost in flight or sent twice.
#[test]
fn an_incast_ends_when_the_link_has_carried_it() {
    for (senders, packets) in [(1, 50), (8, 50), (60, 10), (100, 1), (100, 20)] {
        let bytes = packets * 1_460;
        let topology = OneSwitch { hosts: senders + 1, host_cable: CABLE }.build().expect("valid");
        let messages = (1..=senders).map(|host| Sending::new(Time::ZERO, host, 0, bytes)).collect();
        let (_, messages) = run::<Endpoint>(&topology, &config(), 1, messages);
        let last = messages.iter().map(|sending| sending.received[0]).max().expect("some");
        // Beside the packets: the path to the switch, and from it.
        let ratio = last.as_us_f64() / (wire_us(bytes * u64::from(senders)) + 2.2);
        assert!((0.99..1.02).contains(&ratio), "{senders} senders: {ratio}");
        let sent = || messages.iter().map(|sending| sending.sent[0]);
        assert!(sent().all(|sent| (sent.timeouts, sent.retransmissions) == (0, 0)));
    }
}

/// Only unscheduled packets of its own priority, and the packet that is being sent, delay it.
#[test]
fn a_short_message_does_not_notice_long_ones() {
    ranks::a_short_message_does_not_notice_long_ones::<Endpoint>(&config(), 5 * 1_460);
}

/// Every message that comes is shorter than those before it, and passes them: each ends as if it had
/// waited for the shorter ones alone.
#[test]
fn messages_end_in_the_order_of_their_sizes() {
    let topology = OneSwitch { hosts: 5, host_cable: CABLE }.build().expect("valid");
    let sizes = [800_000u64, 400_000, 200_000, 100_000];
    let start = |host: u32| Time::ZERO + Span::from_us(20) * u64::from(host);
    let messages =
        (1..).zip(sizes).map(|(host, bytes)| Sending::new(start(host), host, 0, bytes)).collect();
    let (_, mut messages) = run::<Endpoint>(&topology, &config(), 1, messages);
    messages.sort_by_key(|sending| sending.payload.bytes());
    let mut before_bytes = 0;
    for sending in &messages {
        before_bytes += sending.payload.bytes().as_u64();
        let us = sending.received[0].since(sending.at).as_us_f64();
        // Beside the packets: the path, and the packets of the others on it.
        let most_us = wire_us(before_bytes) + 30.0;
        assert!(us <= most_us, "{us} against {most_us}");
    }
}

/// The message with the least left comes from a sender that soon has a shorter one for somebody else. The
/// receiver's link carries the other message meanwhile, because that one is also granted.
#[test]
fn overcommitment_keeps_the_link_busy() {
    let topology = OneSwitch { hosts: 4, host_cable: CABLE }.build().expect("valid");
    let messages = vec![
        Sending::new(Time::ZERO + Span::from_us(20), 1, 3, 400_000),
        Sending::new(Time::ZERO, 1, 0, 500_000),
        Sending::new(Time::ZERO, 2, 0, 600_000),
    ];
    let (_, messages) = run::<Endpoint>(&topology, &config(), 1, messages);
    let to_0 = messages.iter().filter(|sending| sending.dst == 0);
    let last = to_0.map(|sending| sending.received[0]).max().expect("some");
    // If only the shorter one were granted, the link would be idle until its sender is free: for 330 us.
    let ratio = last.as_us_f64() / wire_us(1_100_000);
    assert!((1.0..1.05).contains(&ratio), "{ratio}");
}

// spec: Q-12 simulator
#[test]
fn the_estimated_size_decides() {
    ranks::the_estimated_size_decides::<Endpoint>(&config());
}
