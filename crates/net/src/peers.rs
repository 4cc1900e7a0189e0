//! Addresses of nodes.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::BuildHasherDefault;
use std::net::SocketAddr;

use thalweg_core::NodeId;
use thiserror::Error;

use crate::network::Network;

/// The node that packets of unknown senders come from, where such packets are admitted. It has no
/// address: nothing can be sent to it.
pub const STRANGER: NodeId = NodeId(u32::MAX);

/// Nodes are numbered below this, since the table of addresses is dense.
pub const MAX_NODES: u32 = 1 << 16;

/// The table of nodes and addresses, both ways.
#[derive(Clone, Debug, Default)]
pub struct Peers {
    addresses: Vec<Option<SocketAddr>>,
    /// Without random keys, so that runs are alike. Senders cannot add to it, so they cannot make it
    /// slow either.
    nodes: HashMap<SocketAddr, NodeId, BuildHasherDefault<DefaultHasher>>,
    admits_strangers: bool,
    /// Network in which the numbers of all other nodes say their addresses, if there is one.
    network: Option<Network>,
}

/// Why a peer could not be added.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum PeerError {
    /// The node's number is not one of a table.
    #[error("node {node} is not below {MAX_NODES}; number the nodes from 0")]
    NumberTooLarge {
        /// The node.
        node: NodeId,
    },
    /// Two nodes cannot share an address: it would not say which one sent a packet.
    #[error("{address} is the address of node {holder} already; give every node its own port")]
    AddressTaken {
        /// The address.
        address: SocketAddr,
        /// The node that has it.
        holder: NodeId,
    },
}

impl Peers {
    /// A table that drops packets of senders that are not in it.
    pub fn new() -> Peers {
        Peers::default()
    }

    /// The same table, but packets of unknown senders come from [`STRANGER`]. For nodes that learn
    /// their peers from the packets that these send.
    pub fn admitting_strangers(mut self) -> Peers {
        self.admits_strangers = true;
        self
    }

    /// A table in which nodes are named by where they are. Others can be added.
    pub fn in_network(network: Network) -> Peers {
        Peers { network: Some(network), ..Peers::default() }
    }

    /// Adds a node, or moves it to another address.
    pub fn insert(&mut self, node: NodeId, address: SocketAddr) -> Result<(), PeerError> {
        if node.0 >= MAX_NODES {
            return Err(PeerError::NumberTooLarge { node });
        }
        let address = without_flow(address);
        if let Some(&holder) = self.nodes.get(&address)
            && holder != node
        {
            return Err(PeerError::AddressTaken { address, holder });
        }
        if self.addresses.len() <= node.index() {
            self.addresses.resize(node.index() + 1, None);
        }
        if let Some(old) = self.addresses[node.index()].replace(address) {
            self.nodes.remove(&old);
        }
        self.nodes.insert(address, node);
        Ok(())
    }

    /// Address of a node.
    #[inline]
    pub fn address(&self, node: NodeId) -> Option<SocketAddr> {
        let listed = self.addresses.get(node.index()).copied().flatten();
        listed.or_else(|| self.network?.address(node))
    }

    /// Node that sends from an address: for an unknown one [`STRANGER`] or nobody.
    pub fn node(&self, address: SocketAddr) -> Option<NodeId> {
        let listed = if self.nodes.is_empty() {
            None
        } else {
            self.nodes.get(&without_flow(address)).copied()
        };
        let known = listed.or_else(|| self.network?.node(address));
        known.or(self.admits_strangers.then_some(STRANGER))
    }

    /// All addresses, in the order of nodes.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.addresses.iter().flatten().copied()
    }
}

/// A flow label does not tell senders apart.
fn without_flow(mut address: SocketAddr) -> SocketAddr {
    if let SocketAddr::V6(v6) = &mut address {
        v6.set_flowinfo(0);
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        ([10, 0, 0, 1], port).into()
    }

    #[test]
    fn both_ways() {
        let mut peers = Peers::new();
        peers.insert(NodeId(3), at(1)).unwrap();
        assert_eq!(peers.address(NodeId(3)), Some(at(1)));
        assert_eq!(peers.address(NodeId(2)), None);
        assert_eq!(peers.address(STRANGER), None);
        assert_eq!(peers.node(at(1)), Some(NodeId(3)));
        assert_eq!(peers.node(at(2)), None);
    }

    #[test]
    fn strangers_are_admitted_only_when_asked() {
        let peers = Peers::new().admitting_strangers();
        assert_eq!(peers.node(at(2)), Some(STRANGER));
    }

    #[test]
    fn a_node_that_moves_leaves_its_address() {
        let mut peers = Peers::new();
        peers.insert(NodeId(0), at(1)).unwrap();
        peers.insert(NodeId(0), at(2)).unwrap();
        assert_eq!(peers.node(at(1)), None);
        assert_eq!(peers.addresses().collect::<Vec<_>>(), [at(2)]);
        peers.insert(NodeId(0), at(2)).unwrap();
        assert_eq!(peers.node(at(2)), Some(NodeId(0)));
    }

    #[test]
    fn what_would_be_ambiguous_is_refused() {
        let mut peers = Peers::new();
        peers.insert(NodeId(0), at(1)).unwrap();
        let taken = PeerError::AddressTaken { address: at(1), holder: NodeId(0) };
        assert_eq!(peers.insert(NodeId(1), at(1)), Err(taken));
        assert_eq!(peers.address(NodeId(1)), None);
        let large = NodeId(MAX_NODES);
        assert_eq!(peers.insert(large, at(9)), Err(PeerError::NumberTooLarge { node: large }));
    }

    #[test]
    fn flow_labels_do_not_matter() {
        let plain: SocketAddr = "[fd00::1]:5".parse().unwrap();
        let mut labelled = plain;
        if let SocketAddr::V6(v6) = &mut labelled {
            v6.set_flowinfo(77);
        }
        let mut peers = Peers::new();
        peers.insert(NodeId(0), labelled).unwrap();
        assert_eq!(peers.node(plain), Some(NodeId(0)));
        assert_eq!(peers.node(labelled), Some(NodeId(0)));
    }
}
