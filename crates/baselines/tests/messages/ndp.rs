//! Properties that NDP is known for.

use thalweg_baselines::ndp::{self, Endpoint};
use thalweg_core::{Bytes, NodeId, Rate, Rng, Span, Time};
use thalweg_fabric::topology::{CableSpec, LeafSpine, LinkId, OneSwitch};
use thalweg_fabric::{Buffer, Config, Discipline, Fabric, LinkStats, Spread, TrimmingSpec};

use crate::stage::{CABLE, NDP_SEGMENT, RATE, Sending, run, run_with};

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

/// Bytes of a link that the packets of a message of `bytes` occupy.
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
        let messages = (1..=senders).map(|host| Sending::new(Time::ZERO, host, 0, bytes)).collect();
        let (_, messages) = run::<Endpoint>(&topology, &config(), 1, messages);
        let last = messages.iter().map(|own| own.received[0]).max().expect("some");
        let all = RATE.serialization(wire(bytes) * u64::from(senders));
        // Beside the packets: a round trip, and the first header.
        let ideal = all + Span::from_us(4);
        let ratio = last.as_us_f64() / ideal.as_us_f64();
        assert!((0.95..1.06).contains(&ratio), "{senders} senders: {ratio}");
        assert!(messages.iter().all(|own| own.sent[0].timeouts == 0));
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
    let messages =
        (0..16).map(|host| Sending::new(Time::ZERO, host, (host + 5) % 16, bytes)).collect();
    let (_, messages) = run::<Endpoint>(&topology, &config(), 1, messages);
    let ideal_us = RATE.serialization(wire(bytes)).as_us_f64();
    let uses: Vec<f64> =
        messages.iter().map(|own| ideal_us / own.received[0].as_us_f64()).collect();
    let mean = uses.iter().sum::<f64>() / 16.0;
    assert!(mean >= 0.9, "{mean}: {uses:?}");
}

/// Hosts of 100 Gbps and 400 Gbps to each of four spines.
fn wide() -> LeafSpine {
    let cable = |gbps| CableSpec { rate: Rate::from_gbps(gbps), delay: Span::from_ns(500) };
    LeafSpine {
        racks: 9,
        hosts_per_rack: 16,
        spines: 4,
        host_cable: cable(100),
        uplink: cable(400),
        uplinks_per_spine: 1,
    }
}

/// Hosts with packets of 1,500 B, 1,460 B of them payload.
fn host(window_packets: u32, rounds_per_order: u32) -> impl Fn(NodeId) -> Endpoint {
    move |host| {
        let mut config = ndp::Config::new(Rate::from_gbps(100));
        config.rng = Rng::new(7).substream("paths", host.0.into());
        config.initial_window_packets = window_packets;
        config.paths = 4;
        config.rounds_per_order = rounds_per_order;
        (config.messages.segment_bytes, config.messages.overhead_bytes) = (1_460, 40);
        Endpoint::new(config).expect("valid")
    }
}

/// Ports with eight packets of data, and this much memory for headers.
fn ports(header_bytes: u64, returns_headers: bool) -> Config {
    let spec = TrimmingSpec { returns_headers, ..TrimmingSpec::default() };
    Config {
        discipline: Discipline::Trimming(spec),
        buffer: Buffer::PerPort { bytes: spec.data_bytes + header_bytes },
        spread: Spread::Explicit,
        ..Config::default()
    }
}

fn sum(fabric: &mut Fabric<Endpoint>, count: fn(&LinkStats) -> u64) -> u64 {
    let links: Vec<LinkId> = fabric.topology().links().collect();
    links.into_iter().map(|link| count(&fabric.link_stats(link))).sum()
}

fn last(messages: &[Sending]) -> f64 {
    messages.iter().map(|own| own.received[0]).max().expect("some").as_us_f64()
}

/// An independent implementation takes 181 µs: nearly as long as the links need for data, answers and pulls. Packets on one
/// path keep their distance, so that short queues in front of full links seldom cut any.
#[test]
fn a_permutation_of_144_hosts_is_as_fast_as_elsewhere() {
    let topology = wide().build().expect("valid");
    let to = |host: u32| (host * 7 + 17) % 144;
    for (rounds, most_us) in [(1, 187.0), (32, 182.0)] {
        let messages = (0..144).map(|own| Sending::new(Time::ZERO, own, to(own), 2_000_000));
        let (mut fabric, messages) =
            run_with(&topology, &ports(12_000, true), 1, host(40, rounds), messages.collect());
        let trimmed = sum(&mut fabric, |stats| stats.trimmed_packets);
        println!("an order for {rounds} rounds: {:.1} us, {trimmed} cut", last(&messages));
        assert!(last(&messages) < most_us, "{} us", last(&messages));
    }
}

/// Senders of headers that find no room learn of it at once, and nobody waits for a timer.
#[test]
fn headers_that_find_no_room_come_back() {
    let topology = wide().build().expect("valid");
    for window in [30, 60] {
        let [waits_us, returns_us] = [false, true].map(|returns| {
            let messages = (1..=32).map(|own| Sending::new(Time::ZERO, own + 15, 0, 450_000));
            let network = ports(12_500, returns);
            let (mut fabric, messages) =
                run_with(&topology, &network, 1, host(window, 32), messages.collect());
            let timeouts: u32 = messages.iter().map(|own| own.sent[0].timeouts).sum();
            let returned = sum(&mut fabric, |stats| stats.returned_packets);
            println!(
                "window {window}: {:.0} us, {returned} came back, {timeouts} timeouts",
                last(&messages)
            );
            assert_eq!((returned > 0, timeouts == 0), (returns, returns));
            last(&messages)
        });
        // The receiver's link takes 1,184 µs.
        assert!(waits_us > 3_000.0 && returns_us < 1_220.0, "{waits_us} and {returns_us}");
    }
}
