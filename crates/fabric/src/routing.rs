//! The next link of a packet.
//!
//! A host has one cable, so a route is a route to the destination's edge switch: tables are as
//! large as the number of switches squared, not hosts.

use thalweg_core::{Meta, NodeId, Rng, fibonacci};

use crate::topology::{LinkId, Topology};

/// Choice of a switch among equally short paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum Spread {
    /// By a hash of source, destination and entropy: a flow keeps its path.
    #[default]
    PerFlow,
    /// At random for every packet.
    PerPacket,
    /// As the sender says: the low byte of the entropy at the first switch, the high byte after it,
    /// each modulo the number of choices.
    Explicit,
}

/// Next hops of every switch.
#[derive(Debug)]
pub struct Routes {
    /// Of each host: its edge (a switch, or the other host of a pair), and the link from it.
    hosts: Vec<(NodeId, LinkId)>,
    first_switch: u32,
    switches: usize,
    /// Start and count in `choices`, by switch and destination switch.
    spans: Vec<(u32, u32)>,
    choices: Vec<LinkId>,
    /// Makes the hash of each switch its own, or flows that met once would meet everywhere.
    salts: Vec<u64>,
    spread: Spread,
    spray: Rng,
}

impl Routes {
    /// Shortest paths over a topology.
    pub fn new(topology: &Topology, spread: Spread, rng: &Rng) -> Routes {
        let switches = topology.switches() as usize;
        let mut salts = rng.stream("route salts");
        let mut routes = Routes {
            hosts: host_edges(topology),
            first_switch: topology.hosts(),
            switches,
            spans: vec![(0, 0); switches * switches],
            choices: Vec::new(),
            salts: (0..switches).map(|_| salts.bits()).collect(),
            spread,
            spray: rng.stream("spray"),
        };
        for destination in 0..switches {
            routes.add_paths_to(destination, topology);
        }
        routes
    }

    /// The link that leads to a host from its edge.
    pub fn last_link(&self, host: NodeId) -> LinkId {
        self.hosts[host.index()].1
    }

    /// The next link from a switch. `usable` says whether a link and the node behind it are up: a
    /// switch knows that of its own ports and takes another choice if there is one. `None`: there is no way.
    #[inline]
    pub fn next(
        &mut self,
        at: NodeId,
        meta: &Meta,
        first_hop: bool,
        usable: impl Fn(LinkId) -> bool,
    ) -> Option<LinkId> {
        let target = match self.hosts.get(meta.dst.index()) {
            Some(&(edge, link)) if edge == at => return Some(link),
            Some(&(edge, _)) => edge,
            None => meta.dst,
        };
        let switch = (at.0 - self.first_switch) as usize;
        let target = target.0.checked_sub(self.first_switch)? as usize;
        let &(start, count) = self.spans.get(switch * self.switches + target)?;
        if target >= self.switches || count == 0 {
            return None;
        }
        let pick = if count == 1 { 0 } else { self.pick(switch, meta, first_hop, count) };
        let links = &self.choices[start as usize..(start + count) as usize];
        let chosen = links[pick as usize];
        if usable(chosen) {
            return Some(chosen);
        }
        let others = links.iter().cycle().skip(pick as usize + 1).take(count as usize - 1);
        Some(others.copied().find(|&link| usable(link)).unwrap_or(chosen))
    }

    #[inline]
    fn pick(&mut self, switch: usize, meta: &Meta, first_hop: bool, count: u32) -> u32 {
        match self.spread {
            Spread::PerFlow => {
                let ends = u64::from(meta.src.0) << 32 | u64::from(meta.dst.0);
                let hash = spread_bits(ends ^ self.salts[switch], u64::from(meta.entropy));
                (((hash >> 32) * u64::from(count)) >> 32) as u32
            }
            Spread::PerPacket => self.spray.below(count.into()) as u32,
            Spread::Explicit => {
                let [low, high] = meta.entropy.to_le_bytes();
                u32::from(if first_hop { low } else { high }) % count
            }
        }
    }

    fn add_paths_to(&mut self, destination: usize, topology: &Topology) {
        let node = |switch: usize| NodeId(self.first_switch + switch as u32);
        let distances = topology.distances(node(destination));
        for switch in 0..self.switches {
            let start = self.choices.len() as u32;
            let is_nearer = |link: &&LinkId| {
                let next = topology.link_ends(**link).1;
                distances[next.index()] < distances[node(switch).index()]
            };
            self.choices.extend(topology.links_out(node(switch)).iter().filter(is_nearer));
            let count = self.choices.len() as u32 - start;
            self.spans[switch * self.switches + destination] = (start, count);
        }
    }
}

/// Two multiplications mix the ends and the entropy well enough for the high bits to pick a path.
#[inline]
fn spread_bits(ends: u64, entropy: u64) -> u64 {
    let mixed = (ends ^ fibonacci(entropy)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

fn host_edges(topology: &Topology) -> Vec<(NodeId, LinkId)> {
    let edge = |host: u32| {
        let link = topology.links_out(NodeId(host))[0];
        (topology.link_ends(link).1, link.reverse())
    };
    (0..topology.hosts()).map(edge).collect()
}

#[cfg(test)]
mod tests {
    use thalweg_core::{Rate, Span};

    use super::*;
    use crate::topology::{CableSpec, LeafSpine};

    fn routes(spread: Spread) -> Routes {
        let spec = CableSpec { rate: Rate::from_gbps(100), delay: Span::from_ns(500) };
        let topology = LeafSpine {
            racks: 2,
            hosts_per_rack: 2,
            spines: 4,
            host_cable: spec,
            uplink: spec,
            uplinks_per_spine: 1,
        };
        Routes::new(&topology.build().expect("valid"), spread, &Rng::new(1))
    }

    fn meta(dst: u32, entropy: u16) -> Meta {
        Meta { dst: NodeId(dst), entropy, ..Meta::default() }
    }

    #[test]
    fn a_flow_keeps_its_path_and_flows_spread() {
        let mut routes = routes(Spread::PerFlow);
        let mut used = [0u32; 4];
        for entropy in 0..4_000 {
            let first = routes.next(NodeId(4), &meta(2, entropy), true, |_| true);
            let again = routes.next(NodeId(4), &meta(2, entropy), true, |_| true);
            assert_eq!(first, again);
            // Leaf 4 has cables 2 to 5 (after its two hosts) to the spines.
            used[(first.expect("a path").0 / 2 - 2) as usize] += 1;
        }
        assert!(used.iter().all(|&count| (800..1_200).contains(&count)), "{used:?}");
    }

    #[test]
    fn down_the_tree_there_is_one_way() {
        let mut routes = routes(Spread::PerPacket);
        let at_spine = routes.next(NodeId(6), &meta(3, 0), false, |_| true).expect("a path");
        for _ in 0..50 {
            assert_eq!(routes.next(NodeId(6), &meta(3, 9), false, |_| true), Some(at_spine));
        }
        assert_eq!(
            routes.next(NodeId(5), &meta(3, 0), false, |_| true),
            Some(routes.last_link(NodeId(3)))
        );
    }

    #[test]
    fn an_explicit_path_is_taken() {
        let mut routes = routes(Spread::Explicit);
        let links: Vec<u32> = (0..4)
            .filter_map(|path| routes.next(NodeId(4), &meta(2, path), true, |_| true))
            .map(|link| link.0)
            .collect();
        assert_eq!(links, [4, 6, 8, 10]);
    }

    #[test]
    fn a_dead_link_is_avoided_where_there_is_another() {
        let mut routes = routes(Spread::Explicit);
        let dead = LinkId(6);
        let taken = routes.next(NodeId(4), &meta(2, 1), true, |link| link != dead);
        assert_eq!(taken, Some(LinkId(8)));
        let last = routes.last_link(NodeId(2));
        assert_eq!(routes.next(NodeId(5), &meta(2, 0), true, |_| false), Some(last));
    }

    #[test]
    fn nobody_is_reached_beyond_the_topology() {
        let mut routes = routes(Spread::PerFlow);
        assert_eq!(routes.next(NodeId(4), &meta(99, 0), true, |_| true), None);
    }
}
