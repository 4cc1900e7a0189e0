//! Nodes as people know them.

use std::net::{Ipv4Addr, SocketAddrV4};

use thalweg_core::NodeId;

/// The upper half of the addresses of all nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Network(u32);

impl Network {
    /// The network of one of its addresses.
    pub(crate) fn of(address: Ipv4Addr) -> Network {
        Network(u32::from(address) & 0xffff_0000)
    }

    /// A node is the lower half of its address, then its port.
    pub(crate) fn address(self, node: NodeId) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::from(self.0 | node.0 >> 16), node.0 as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_half_an_address_and_a_port() {
        let network = Network::of(Ipv4Addr::new(10, 1, 2, 3));
        let node = NodeId(0x0007_12c8);
        assert_eq!(network.address(node).to_string(), "10.1.0.7:4808");
        assert_eq!(network.address(NodeId(u32::MAX)).to_string(), "10.1.255.255:65535");
    }
}
