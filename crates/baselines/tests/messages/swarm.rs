//! Random networks that lose, double and reorder packets.

use thalweg_baselines::{homa, ndp, pfabric};
use thalweg_core::{Bytes, Rng, Span, Time};
use thalweg_fabric::topology::{LeafSpine, OneSwitch};
use thalweg_fabric::{
    Buffer, Config, Discipline, Effect, Marking, Place, Rule, Spread, Topology, TrimmingSpec,
};
use thalweg_transport::messages::Payload;

use crate::stage::{CABLE, Sending, Transport, run};

const SEEDS: u64 = 600;

/// Events that were met over all seeds: a swarm that meets nothing proves nothing.
#[derive(Debug, Default)]
struct Coverage {
    trimmed: u64,
    dropped: u64,
    lost: u64,
    doubled: u64,
    resent: u64,
    timeouts: u32,
    most_timeouts_of_one: u32,
}

fn topology(rng: &mut Rng) -> Topology {
    let hosts = 3 + rng.below(4) as u32;
    if rng.chance(0.5) {
        return OneSwitch { hosts, host_cable: CABLE }.build().expect("valid");
    }
    let shape = LeafSpine {
        racks: 2,
        hosts_per_rack: hosts / 2 + 1,
        spines: 1 + rng.below(3) as u32,
        host_cable: CABLE,
        uplink: CABLE,
        uplinks_per_spine: 1,
    };
    shape.build().expect("valid")
}

fn config(rng: &mut Rng) -> Config {
    let mut faults = Vec::new();
    let mut add = |effect| {
        let (place, from, until) = (Place::Everywhere, Time::ZERO, Time::NEVER);
        faults.push(Rule { place, effect, from, until });
    };
    // Some networks are sound.
    if rng.chance(0.8) {
        add(Effect::Loss(rng.uniform() * 0.2));
        add(Effect::Duplicate(rng.uniform() * 0.2));
        let by = Span::from_ns(1 + rng.below(50_000));
        add(Effect::Reorder { probability: rng.uniform() * 0.3, by });
    }
    let disciplines = [
        Discipline::Trimming(TrimmingSpec::default()),
        Discipline::Urgency,
        Discipline::Fifo(Marking::NONE),
        Discipline::strict_per_port(Marking::NONE),
    ];
    let spreads = [Spread::PerFlow, Spread::PerPacket, Spread::Explicit];
    Config {
        discipline: disciplines[rng.below(4) as usize],
        buffer: if rng.chance(0.7) {
            Buffer::PerPort { bytes: 14_000 + rng.below(40_000) }
        } else {
            Buffer::Shared { bytes: 40_000 + rng.below(80_000), alpha: 1.0 }
        },
        spread: spreads[rng.below(3) as usize],
        faults,
        ..Config::default()
    }
}

fn messages(rng: &mut Rng, hosts: u32) -> Vec<Sending> {
    let count = 1 + rng.below(16);
    let is_incast = rng.chance(0.5);
    // All at once, or over a quarter of a millisecond.
    let spread_ps = 1 << rng.below(29);
    let mut draw = |_| {
        let src = 1 + rng.below(u64::from(hosts) - 1) as u32;
        let any = (src + 1 + rng.below(u64::from(hosts) - 1) as u32) % hosts;
        let dst = if is_incast { 0 } else { any };
        let at = Time::from_ps(rng.below(spread_ps));
        // Empty ones, single packets, and some of a hundred packets.
        let most = 1 << rng.below(19);
        let bytes = rng.below(most);
        let mut sending = Sending::new(at, src, dst, bytes);
        if rng.chance(0.3) {
            sending.estimated = Bytes::new(rng.below(most * 2));
        }
        if rng.chance(0.3) {
            let content = (0..bytes).map(|_| rng.bits() as u8).collect();
            sending.payload = Payload::Bytes(content);
        }
        sending
    };
    (0..count).map(&mut draw).collect()
}

// spec: Q-12 simulator
/// Every message arrives once, whatever its size was taken for, its sender hears of it once, and nothing is left.
fn swarm<T: Transport>() -> Coverage {
    let mut coverage = Coverage::default();
    for seed in 0..SEEDS {
        let mut rng = Rng::new(seed).stream("messages");
        let topology = topology(&mut rng);
        let config = config(&mut rng);
        let messages = messages(&mut rng, topology.hosts());
        let (mut fabric, messages) = run::<T>(&topology, &config, seed, messages);
        for sending in &messages {
            assert_eq!(
                (sending.sent.len(), sending.received.len()),
                (1, 1),
                "seed {seed}: {sending:?}"
            );
            assert!(sending.received[0] <= sending.sent[0].finished, "seed {seed}: {sending:?}");
            coverage.resent += u64::from(sending.sent[0].retransmissions);
            coverage.timeouts += sending.sent[0].timeouts;
            let most = coverage.most_timeouts_of_one.max(sending.sent[0].timeouts);
            coverage.most_timeouts_of_one = most;
        }
        for host in 0..topology.hosts() {
            assert_eq!(fabric.machine(thalweg_core::NodeId(host)).left(), 0, "seed {seed}");
        }
        for link in topology.links() {
            let stats = fabric.link_stats(link);
            coverage.trimmed += stats.trimmed_packets;
            // Headers that found no room came back.
            coverage.dropped += stats.dropped_packets + stats.returned_packets;
            coverage.lost += stats.lost_packets;
            coverage.doubled += stats.duplicated_packets;
        }
    }
    coverage
}

fn assert_met(coverage: &Coverage) {
    let Coverage { trimmed, dropped, lost, doubled, resent, timeouts, .. } = *coverage;
    let counts = [trimmed, dropped, lost, doubled, resent, u64::from(timeouts)];
    assert!(counts.iter().all(|&count| count > 100), "{coverage:?}");
}

#[test]
fn ndp_delivers_every_message_exactly_once() {
    assert_met(&swarm::<ndp::Endpoint>());
}

#[test]
fn homa_delivers_every_message_exactly_once() {
    assert_met(&swarm::<homa::Endpoint>());
}

#[test]
fn pfabric_delivers_every_message_exactly_once() {
    let coverage = swarm::<pfabric::Endpoint>();
    assert_met(&coverage);
    let probes_after = pfabric::Config::default().probe_after_timeouts;
    assert!(coverage.most_timeouts_of_one > probes_after, "{coverage:?}");
}
