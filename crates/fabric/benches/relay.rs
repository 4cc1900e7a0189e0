//! Cost of a hop when the machines do next to nothing: relays on 144 hosts pass packets round a permutation that
//! crosses racks.

use std::time::Instant;

use thalweg_core::{BodySize, NodeId, Rate, Relay, Span, Time};
use thalweg_fabric::topology::{CableSpec, LeafSpine};
use thalweg_fabric::{Bystander, Config, Fabric, Limit};

const PACKETS_PER_HOST: u32 = 16;
const SIMULATED: Time = Time::from_ps(2_000_000_000);

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn main() {
    let cable = CableSpec { rate: Rate::from_gbps(100), delay: Span::from_ns(500) };
    let shape = LeafSpine {
        racks: 9,
        hosts_per_rack: 16,
        spines: 4,
        host_cable: cable,
        uplink: cable,
        uplinks_per_spine: 4,
    };
    let topology = shape.build().expect("valid");
    let hosts = topology.hosts();
    for _ in 0..3 {
        let mut fabric = Fabric::new(topology.clone(), &Config::default(), 1, |host| Relay {
            next: NodeId((host.0 + 17) % hosts),
            unsent_packets: PACKETS_PER_HOST,
            body: BodySize::Length(1_000),
            wire_bytes: 1_500,
        });
        let start = Instant::now();
        fabric.run(&mut Bystander, Limit::until(SIMULATED));
        let seconds = start.elapsed().as_secs_f64();
        let stats = fabric.stats();
        fabric.check().expect("packets are conserved");
        println!(
            "{:.2} M packet-hops/s, {:.2} M events/s, {:.1} ns a hop, digest {}",
            stats.packet_hops as f64 / seconds / 1e6,
            stats.events as f64 / seconds / 1e6,
            seconds * 1e9 / stats.packet_hops as f64,
            fabric.digest(),
        );
    }
}
