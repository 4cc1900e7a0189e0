use thalweg_core::{NodeId, Rate, Span};

use super::*;

const SPEC: CableSpec = CableSpec { rate: Rate::from_gbps(100), delay: Span::from_ns(500) };

fn cable(a: u32, b: u32) -> Cable {
    Cable { a: NodeId(a), b: NodeId(b), rate: SPEC.rate, delay: SPEC.delay }
}

#[test]
fn leaf_spine_counts() {
    let spec = LeafSpine {
        racks: 9,
        hosts_per_rack: 16,
        spines: 4,
        host_cable: SPEC,
        uplink: SPEC,
        uplinks_per_spine: 2,
    };
    let topology = spec.build().expect("valid");
    assert_eq!((topology.hosts(), topology.switches()), (144, 13));
    assert_eq!(topology.cables().len(), 144 + 9 * 4 * 2);
    assert_eq!(topology.edge_of(NodeId(0)), NodeId(144));
    assert_eq!(topology.edge_of(NodeId(143)), NodeId(152));
}

#[test]
fn three_tiers_connect_pods_through_cores() {
    let spec = ThreeTier {
        pods: 4,
        racks_per_pod: 2,
        hosts_per_rack: 2,
        aggregations_per_pod: 2,
        cores: 4,
        host_cable: SPEC,
        aggregation_cable: SPEC,
        core_cable: SPEC,
    };
    let topology = spec.build().expect("a k = 4 fat tree");
    assert_eq!((topology.hosts(), topology.switches()), (16, 8 + 8 + 4));
    assert_eq!(topology.cables().len(), 16 + 16 + 16);
    let uneven = ThreeTier { cores: 3, ..spec };
    assert_eq!(uneven.build(), Err(TopologyError::UnevenCores { cores: 3, aggregations: 2 }));
}

#[test]
fn what_is_wrong_is_named() {
    assert_eq!(Topology::new(1, 0, vec![]), Err(TopologyError::TooFewHosts(1)));
    let unknown = Topology::new(2, 1, vec![cable(0, 2), cable(1, 3)]);
    assert_eq!(unknown, Err(TopologyError::UnknownNode { cable: 1, node: 3, last: 2 }));
    let looped = Topology::new(2, 1, vec![cable(0, 2), cable(1, 1)]);
    assert_eq!(looped, Err(TopologyError::Loop(1)));
    let twice = Topology::new(2, 1, vec![cable(0, 2), cable(0, 2), cable(1, 2)]);
    assert_eq!(twice, Err(TopologyError::HostCables { host: 0, cables: 2 }));
    let apart = Topology::new(2, 2, vec![cable(0, 2), cable(1, 3)]);
    assert_eq!(apart, Err(TopologyError::Disconnected { from: 0, to: 1 }));
    let none = Dumbbell { hosts_per_side: 0, host_cable: SPEC, trunk: SPEC };
    assert_eq!(none.build(), Err(TopologyError::Zero("hosts_per_side")));
}

#[test]
fn absurd_counts_do_not_wrap() {
    let spec = LeafSpine {
        racks: u32::MAX,
        hosts_per_rack: u32::MAX,
        spines: 1,
        host_cable: SPEC,
        uplink: SPEC,
        uplinks_per_spine: 1,
    };
    assert!(matches!(spec.build(), Err(TopologyError::TooLarge(_))));
    let bundles = LeafSpine { racks: 2, hosts_per_rack: 2, uplinks_per_spine: u32::MAX, ..spec };
    assert!(matches!(bundles.build(), Err(TopologyError::TooLarge(_))));
    let one = OneSwitch { hosts: u32::MAX, host_cable: SPEC };
    assert!(matches!(one.build(), Err(TopologyError::TooLarge(_))));
    let two = Dumbbell { hosts_per_side: u32::MAX, host_cable: SPEC, trunk: SPEC };
    assert!(matches!(two.build(), Err(TopologyError::TooLarge(_))));
}

#[test]
fn distances_are_of_shortest_paths() {
    let spec = LeafSpine {
        racks: 2,
        hosts_per_rack: 1,
        spines: 2,
        host_cable: SPEC,
        uplink: SPEC,
        uplinks_per_spine: 1,
    };
    let topology = spec.build().expect("valid");
    // Nodes: two hosts, their leaves 2 and 3, spines 4 and 5.
    assert_eq!(topology.distances(NodeId(0)), [0, 4, 1, 3, 2, 2]);
    assert_eq!(topology.links_out(NodeId(2)), [LinkId(1), LinkId(2), LinkId(4)]);
}

#[test]
fn routes_for_too_many_switches_are_not_even_tried() {
    let spec = LeafSpine {
        racks: 100_000,
        hosts_per_rack: 1,
        spines: 1,
        host_cable: SPEC,
        uplink: SPEC,
        uplinks_per_spine: 1,
    };
    assert_eq!(spec.build(), Err(TopologyError::TooManySwitches(100_001)));
}
