//! Nodes that are named by where they are.
//!
//! On a real network a node's number says its address, so that a switch that has just started can
//! reach every node that a packet names without any configuration: the upper half is the lower
//! half of the IP address, the lower half the UDP port. All nodes of a cluster so share the rest of
//! the address: the first 16 bits in IPv4, the first 112 in IPv6.
//!
//! A node has a block of [`PORTS_PER_NODE`] ports, which begins at a multiple of that. It is reached
//! at the first one and may send from all of them: routers that spread flows over equal paths look at
//! the source port.

use std::net::{IpAddr, SocketAddr};

use thalweg_core::NodeId;

/// Number of ports that belong to a node.
pub const PORTS_PER_NODE: u16 = 8;

/// Distance of the ports of two cores of a daemon: every second block, so that the default ports of a switch and of a
/// server on one host do not collide.
pub const SHARD_PORTS: u16 = 2 * PORTS_PER_NODE;

/// The node of a daemon on several cores that works for a sending thread. Each core has a node, [`SHARD_PORTS`] after the
/// one before, and threads take turns at them.
// spec: F-03
pub const fn shard_of(first: NodeId, cores: u16, thread: u32) -> NodeId {
    let cores = if cores == 0 { 1 } else { cores as u32 };
    NodeId(first.0.wrapping_add(thread % cores * SHARD_PORTS as u32))
}

/// The part of all addresses that nodes' numbers leave out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    /// Any address of the network.
    member: IpAddr,
}

impl Network {
    /// The network of which `member` is an address.
    pub const fn of(member: IpAddr) -> Network {
        Network { member }
    }

    /// The node that sends from, or is reached at, an address. `None` for one of another network.
    #[inline]
    pub fn node(self, address: SocketAddr) -> Option<NodeId> {
        let low = match (self.member, address.ip()) {
            (IpAddr::V4(member), IpAddr::V4(ip)) => {
                let (member, ip) = (member.to_bits(), ip.to_bits());
                (member >> 16 == ip >> 16).then_some(ip as u16)
            }
            (IpAddr::V6(member), IpAddr::V6(ip)) => {
                let (member, ip) = (member.to_bits(), ip.to_bits());
                (member >> 16 == ip >> 16).then_some(ip as u16)
            }
            _ => None,
        }?;
        let port = address.port() - address.port() % PORTS_PER_NODE;
        Some(NodeId(u32::from(low) << 16 | u32::from(port)))
    }

    /// Address at which a node is reached. `None` for a number that no node has.
    #[inline]
    pub fn address(self, node: NodeId) -> Option<SocketAddr> {
        let (low, port) = ((node.0 >> 16) as u16, node.0 as u16);
        if port == 0 || !port.is_multiple_of(PORTS_PER_NODE) {
            return None;
        }
        let ip: IpAddr = match self.member {
            IpAddr::V4(member) => {
                std::net::Ipv4Addr::from_bits(member.to_bits() >> 16 << 16 | u32::from(low)).into()
            }
            IpAddr::V6(member) => {
                std::net::Ipv6Addr::from_bits(member.to_bits() >> 16 << 16 | u128::from(low)).into()
            }
        };
        Some(SocketAddr::new(ip, port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(network: &str, address: &str) -> Option<u32> {
        let network = Network::of(network.parse().unwrap());
        network.node(address.parse().unwrap()).map(|node| node.0)
    }

    #[test]
    fn numbers_say_where() {
        assert_eq!(node("10.77.0.1", "10.77.3.5:4808"), Some(0x0305_12c8));
        assert_eq!(node("10.77.0.1", "10.77.3.5:4815"), Some(0x0305_12c8), "another path");
        assert_eq!(node("10.77.0.1", "10.78.3.5:4808"), None);
        assert_eq!(node("10.77.0.1", "[::1]:4808"), None);
        assert_eq!(node("fd00::1", "[fd00::305]:4808"), Some(0x0305_12c8));
        assert_eq!(node("fd00::1", "[fd01::305]:4808"), None);
    }

    #[test]
    fn addresses_come_back() {
        for text in ["10.77.3.5:4808", "127.0.0.1:8", "[fd00::ffff]:65528"] {
            let address: SocketAddr = text.parse().unwrap();
            let network = Network::of(address.ip());
            let node = network.node(address).unwrap();
            assert_eq!(network.address(node), Some(address));
        }
    }

    #[test]
    fn numbers_that_no_node_has_lead_nowhere() {
        let network = Network::of([10, 0, 0, 1].into());
        assert_eq!(network.address(NodeId(u32::MAX)), None);
        assert_eq!(network.address(NodeId(0x0001_0000)), None, "port 0");
        assert_eq!(network.address(NodeId(0x0001_0009)), None, "inside a block");
    }
}
