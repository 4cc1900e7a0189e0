//! Connections between nodes.

mod shapes;
#[cfg(test)]
mod tests;

pub use shapes::{Dumbbell, LeafSpine, OneSwitch, ThreeTier};

use std::collections::VecDeque;

use thalweg_core::{NodeId, Rate, Span};

use crate::agenda::Agenda;

/// Most switches of a topology.
const MAX_SWITCHES: u32 = 4_096;

/// A full-duplex cable between two nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cable {
    /// One end.
    pub a: NodeId,
    /// The other end.
    pub b: NodeId,
    /// Rate in each direction.
    pub rate: Rate,
    /// Propagation delay, the same in both directions.
    pub delay: Span,
}

/// One direction of a cable. Cable i has the links 2i (from its first end) and 2i + 1 (from its
/// second).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub u32);

impl LinkId {
    /// The index for tables that are dense in links.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The other direction of the same cable.
    pub const fn reverse(self) -> LinkId {
        LinkId(self.0 ^ 1)
    }
}

/// Rate and delay of a cable, for shapes that have many like it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, rename_all = "kebab-case"))]
pub struct CableSpec {
    /// Rate in each direction.
    pub rate: Rate,
    /// Propagation delay.
    pub delay: Span,
}

/// Nodes and cables. Hosts are numbered first, from 0; switches follow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topology {
    hosts: u32,
    switches: u32,
    cables: Vec<Cable>,
    /// The links out of every node, in order of the cables.
    links_out: Vec<Vec<LinkId>>,
}

/// Why a list of nodes and cables is not a topology.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TopologyError {
    /// There is nobody to send to.
    #[error("a topology needs at least two hosts, this one has {0}")]
    TooFewHosts(u32),
    /// More than one event loop can keep in order.
    #[error("{0} links and nodes are more than the simulator can hold ({max})", max = Agenda::MAX_SOURCES)]
    TooLarge(u64),
    /// Routes are a table of every switch to every other.
    #[error("{0} switches are more than the simulator can route between ({MAX_SWITCHES})")]
    TooManySwitches(u32),
    /// A cable ends nowhere.
    #[error("cable {cable} names node {node}, but nodes go from 0 to {last}")]
    UnknownNode {
        /// Position in the list.
        cable: usize,
        /// The node it names.
        node: u32,
        /// The last node there is.
        last: u32,
    },
    /// A cable has both ends at one node.
    #[error("cable {0} connects a node to itself")]
    Loop(usize),
    /// A host is to have one interface.
    #[error(
        "host {host} has {cables} cables; give every host exactly one, to a switch or to the only other host"
    )]
    HostCables {
        /// The host.
        host: u32,
        /// Number of its cables.
        cables: usize,
    },
    /// Two hosts cannot reach each other.
    #[error("there is no path from host {from} to host {to}; add a cable")]
    Disconnected {
        /// One host.
        from: u32,
        /// The other.
        to: u32,
    },
    /// A shape was asked for with a count of zero.
    #[error("{0} must be at least 1")]
    Zero(&'static str),
    /// Cores are dealt out evenly to the aggregation switches of a pod.
    #[error(
        "{cores} core switches cannot be dealt out evenly to {aggregations} aggregation switches a pod; make the first a multiple of the second"
    )]
    UnevenCores {
        /// Core switches.
        cores: u32,
        /// Aggregation switches in a pod.
        aggregations: u32,
    },
}

impl Topology {
    /// Checks a list of cables between `hosts` hosts (numbered from 0) and `switches` switches
    /// (numbered on from there).
    pub fn new(hosts: u32, switches: u32, cables: Vec<Cable>) -> Result<Topology, TopologyError> {
        let mut topology = Topology { hosts, switches, cables, links_out: Vec::new() };
        topology.check_size()?;
        topology.check_cables()?;
        topology.links_out = topology.list_links_out();
        topology.check_paths()?;
        Ok(topology)
    }

    /// Number of hosts: they are nodes 0 to this, less one.
    pub fn hosts(&self) -> u32 {
        self.hosts
    }

    /// Number of switches.
    pub fn switches(&self) -> u32 {
        self.switches
    }

    /// Number of nodes.
    pub fn nodes(&self) -> u32 {
        self.hosts + self.switches
    }

    /// True if a node is a host.
    pub fn is_host(&self, node: NodeId) -> bool {
        node.0 < self.hosts
    }

    /// All cables, in the order they were given.
    pub fn cables(&self) -> &[Cable] {
        &self.cables
    }

    /// All links: both directions of every cable.
    pub fn links(&self) -> impl Iterator<Item = LinkId> + use<> {
        (0..2 * self.cables.len() as u32).map(LinkId)
    }

    /// Nodes at the two ends of a link: sender and receiver.
    pub fn link_ends(&self, link: LinkId) -> (NodeId, NodeId) {
        let cable = &self.cables[link.index() / 2];
        if link.0.is_multiple_of(2) { (cable.a, cable.b) } else { (cable.b, cable.a) }
    }

    /// The links out of a node, in order of the cables.
    pub fn links_out(&self, node: NodeId) -> &[LinkId] {
        &self.links_out[node.index()]
    }

    /// The cable of a host.
    pub fn host_cable(&self, host: NodeId) -> &Cable {
        &self.cables[self.host_link(host).index() / 2]
    }

    /// The node at the other end of a host's cable: its rack's switch.
    pub fn edge_of(&self, host: NodeId) -> NodeId {
        self.link_ends(self.host_link(host)).1
    }

    /// Links of the shortest path from one node to each other; `u32::MAX` without a path.
    pub fn distances(&self, from: NodeId) -> Vec<u32> {
        let mut distances = vec![u32::MAX; self.nodes() as usize];
        let mut frontier = VecDeque::from([from]);
        distances[from.index()] = 0;
        while let Some(node) = frontier.pop_front() {
            for &link in self.links_out(node) {
                let next = self.link_ends(link).1;
                if distances[next.index()] == u32::MAX {
                    distances[next.index()] = distances[node.index()] + 1;
                    frontier.push_back(next);
                }
            }
        }
        distances
    }

    /// The link out of a host.
    fn host_link(&self, host: NodeId) -> LinkId {
        self.links_out(host)[0]
    }

    fn check_size(&self) -> Result<(), TopologyError> {
        if self.hosts < 2 {
            return Err(TopologyError::TooFewHosts(self.hosts));
        }
        if self.switches > MAX_SWITCHES {
            return Err(TopologyError::TooManySwitches(self.switches));
        }
        let sources =
            2 * self.cables.len() as u64 + u64::from(self.hosts) + u64::from(self.switches) + 2;
        if sources > Agenda::MAX_SOURCES as u64 {
            return Err(TopologyError::TooLarge(sources));
        }
        Ok(())
    }

    fn check_cables(&self) -> Result<(), TopologyError> {
        let mut degree = vec![0usize; self.nodes() as usize];
        for (index, cable) in self.cables.iter().enumerate() {
            for node in [cable.a, cable.b] {
                let last = self.nodes() - 1;
                let known = degree.get_mut(node.index());
                *known.ok_or(TopologyError::UnknownNode { cable: index, node: node.0, last })? += 1;
            }
            if cable.a == cable.b {
                return Err(TopologyError::Loop(index));
            }
        }
        let hosts = degree.iter().take(self.hosts as usize);
        match hosts.enumerate().find(|(_, cables)| **cables != 1) {
            Some((host, &cables)) => Err(TopologyError::HostCables { host: host as u32, cables }),
            None => Ok(()),
        }
    }

    fn check_paths(&self) -> Result<(), TopologyError> {
        let distances = self.distances(NodeId(0));
        match distances.iter().take(self.hosts as usize).position(|&distance| distance == u32::MAX)
        {
            Some(host) => Err(TopologyError::Disconnected { from: 0, to: host as u32 }),
            None => Ok(()),
        }
    }

    fn list_links_out(&self) -> Vec<Vec<LinkId>> {
        let mut links = vec![Vec::new(); self.nodes() as usize];
        for link in self.links() {
            links[self.link_ends(link).0.index()].push(link);
        }
        links
    }
}
