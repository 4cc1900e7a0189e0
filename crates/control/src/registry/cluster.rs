//! Facts that are fixed while the registry lives.

use std::net::SocketAddrV4;

use thalweg_core::NodeId;
use thalweg_net::shard_of;

use crate::address::Network;

/// The surroundings of all jobs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cluster {
    /// The first node of the server.
    pub(super) server: NodeId,
    /// Number of cores of the server: each is a node of its own, and those follow the first one.
    pub(super) server_cores: u16,
    /// MTU of the server's interface.
    pub(super) mtu_bytes: u16,
    /// The switch of the server's rack.
    pub(super) switch: Option<NodeId>,
    pub(super) network: Network,
}

impl Cluster {
    pub(super) fn address(&self, node: NodeId) -> SocketAddrV4 {
        self.network.address(node)
    }

    /// The node of the server that completes the sums of a sending thread.
    // spec: F-03
    pub(super) fn server_of(&self, thread: u32) -> NodeId {
        shard_of(self.server, self.server_cores, thread)
    }

    /// Returns whether a node is one of the server's.
    pub(super) fn is_server(&self, node: NodeId) -> bool {
        (0..u32::from(self.server_cores)).any(|core| self.server_of(core) == node)
    }

    /// The switches between a worker below this switch and the server.
    pub(super) fn path(&self, switch: Option<NodeId>) -> Vec<NodeId> {
        let Some(own) = switch else { return Vec::new() };
        let servers = self.switch.filter(|servers| *servers != own);
        [own].into_iter().chain(servers).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_go_through_the_switches_of_both_racks() {
        let path = |own: Option<u32>, servers: Option<u32>| {
            let network = Network::of(std::net::Ipv4Addr::LOCALHOST);
            let switch = servers.map(NodeId);
            let cluster =
                Cluster { server: NodeId(9), server_cores: 1, mtu_bytes: 1_500, switch, network };
            cluster.path(own.map(NodeId)).into_iter().map(|node| node.0).collect::<Vec<_>>()
        };
        assert!(path(None, None).is_empty());
        assert!(path(None, Some(1)).is_empty());
        assert_eq!(path(Some(1), None), [1]);
        assert_eq!(path(Some(1), Some(1)), [1]);
        assert_eq!(path(Some(2), Some(1)), [2, 1]);
    }

    // spec: F-03 machine
    #[test]
    fn sending_threads_take_turns_at_the_cores_of_the_server() {
        let network = Network::of(std::net::Ipv4Addr::LOCALHOST);
        let server = NodeId(4_808);
        let cluster = Cluster { server, server_cores: 3, mtu_bytes: 1_500, switch: None, network };
        assert_eq!(
            [0, 1, 2, 3, 7].map(|thread| cluster.server_of(thread).0),
            [4_808, 4_824, 4_840, 4_808, 4_824]
        );
        let is_server = |node: u32| cluster.is_server(NodeId(node));
        assert_eq!([4_800, 4_808, 4_816, 4_840].map(is_server), [false, true, false, true]);
    }
}
