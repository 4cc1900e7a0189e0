//! Properties that pFabric is known for.

use thalweg_baselines::pfabric::Endpoint;
use thalweg_core::Time;
use thalweg_fabric::topology::OneSwitch;
use thalweg_fabric::{Buffer, Config, Discipline, Spread};

use crate::ranks;
use crate::stage::{CABLE, Sending, run};

/// The published buffer: 24 packets.
fn config() -> Config {
    Config {
        discipline: Discipline::Urgency,
        buffer: Buffer::PerPort { bytes: 36_000 },
        spread: Spread::PerPacket,
        ..Config::default()
    }
}

#[test]
fn a_short_flow_does_not_notice_long_ones() {
    ranks::a_short_message_does_not_notice_long_ones::<Endpoint>(&config(), 14_600);
}

/// Of flows that start together the shortest ends first, as if each had waited for the shorter ones.
#[test]
fn flows_end_in_the_order_of_their_sizes() {
    let topology = OneSwitch { hosts: 5, host_cable: CABLE }.build().expect("valid");
    let sizes = [800_000u64, 200_000, 400_000, 100_000];
    let messages =
        (1..).zip(sizes).map(|(host, bytes)| Sending::new(Time::ZERO, host, 0, bytes)).collect();
    let (_, mut messages) = run::<Endpoint>(&topology, &config(), 1, messages);
    messages.sort_by_key(|sending| sending.payload.bytes());
    let mut before_bytes = 0;
    for sending in &messages {
        before_bytes += sending.payload.bytes().as_u64();
        let ideal_us = before_bytes as f64 * 1_500.0 / 1_460.0 * 8.0 / 10_000.0;
        let us = sending.received[0].as_us_f64();
        assert!((ideal_us..1.15 * ideal_us + 10.0).contains(&us), "{us} against {ideal_us}");
    }
}

// spec: Q-12 simulator
#[test]
fn the_estimated_size_decides() {
    ranks::the_estimated_size_decides::<Endpoint>(&config());
}
