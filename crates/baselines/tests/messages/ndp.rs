//! What NDP is known for.

use thalweg_baselines::ndp::Endpoint;
use thalweg_core::{Bytes, Span, Time};
use thalweg_fabric::topology::{LeafSpine, OneSwitch};
use thalweg_fabric::{Buffer, Config, Discipline, Spread, TrimmingSpec};

use crate::stage::{CABLE, Letter, NDP_SEGMENT, RATE, run};

fn config() -> Config {
    Config {
        discipline: Discipline::Trimming(TrimmingSpec {
            data_bytes: 8 * 9_000,
            ..TrimmingSpec::default()
        }),
        buffer: Buffer::PerPort { bytes: 2 * 8 * 9_000 },
        spread: Spread::Explicit,
        ..Config::default()
    }
}

/// What the packets of a message of so many bytes occupy of a link.
fn wire(bytes: u64) -> Bytes {
    Bytes::new(bytes + 40 * bytes.div_ceil(NDP_SEGMENT.into()))
}

/// As published: an incast of any size ends within a few percent of the time that the receiver's
/// link needs, and nothing waits for a timeout.
#[test]
fn an_incast_ends_when_the_link_has_carried_it() {
    for (senders, packets) in [(1, 50), (8, 50), (60, 10), (100, 1), (100, 10)] {
        // Pulls are paced for full packets.
        let bytes = packets * u64::from(NDP_SEGMENT);
        let topology = OneSwitch { hosts: senders + 1, host_cable: CABLE }.build().expect("valid");
        let letters = (1..=senders).map(|host| Letter::new(Time::ZERO, host, 0, bytes)).collect();
        let (_, letters) = run::<Endpoint>(&topology, &config(), 1, letters);
        let last = letters.iter().map(|letter| letter.received[0]).max().expect("some");
        let all = RATE.serialization(wire(bytes) * u64::from(senders));
        // Beside the packets: a round trip, and the first header.
        let ideal = all + Span::from_us(4);
        let ratio = last.as_us_f64() / ideal.as_us_f64();
        assert!((0.95..1.06).contains(&ratio), "{senders} senders: {ratio}");
        assert!(letters.iter().all(|letter| letter.sent[0].timeouts == 0));
    }
}

/// As published: a permutation over a fabric of full bisection fills at least nine tenths of it,
/// because every packet takes another path.
#[test]
fn a_permutation_fills_the_fabric() {
    let shape = LeafSpine {
        racks: 4,
        hosts_per_rack: 4,
        spines: 4,
        host_cable: CABLE,
        uplink: CABLE,
        uplinks_per_spine: 1,
    };
    let topology = shape.build().expect("valid");
    let bytes = 3_000_000;
    let letters =
        (0..16).map(|host| Letter::new(Time::ZERO, host, (host + 5) % 16, bytes)).collect();
    let (_, letters) = run::<Endpoint>(&topology, &config(), 1, letters);
    let ideal_us = RATE.serialization(wire(bytes)).as_us_f64();
    let uses: Vec<f64> =
        letters.iter().map(|letter| ideal_us / letter.received[0].as_us_f64()).collect();
    let mean = uses.iter().sum::<f64>() / 16.0;
    assert!(mean >= 0.9, "{mean}: {uses:?}");
}
