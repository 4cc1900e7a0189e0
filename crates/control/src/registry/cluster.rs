//! What is fixed while the registry lives.

use std::net::SocketAddrV4;

use thalweg_core::NodeId;

use crate::address::Network;

/// The surroundings of all jobs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cluster {
    pub(super) server: NodeId,
    /// The switch of the server's rack.
    pub(super) switch: Option<NodeId>,
    pub(super) network: Network,
}

impl Cluster {
    pub(super) fn address(&self, node: NodeId) -> SocketAddrV4 {
        self.network.address(node)
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
            let cluster = Cluster { server: NodeId(9), switch, network };
            cluster.path(own.map(NodeId)).into_iter().map(|node| node.0).collect::<Vec<_>>()
        };
        assert!(path(None, None).is_empty());
        assert!(path(None, Some(1)).is_empty());
        assert_eq!(path(Some(1), None), [1]);
        assert_eq!(path(Some(1), Some(1)), [1]);
        assert_eq!(path(Some(2), Some(1)), [2, 1]);
    }
}
