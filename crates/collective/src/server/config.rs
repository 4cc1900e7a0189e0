//! Settings of workers and servers.

use thalweg_core::{NodeId, Tag};

use crate::config::{ConfigError, check_nodes, check_positive, chunk_values, node_at};
use crate::delivery::Delivery;

/// Settings of a [`Node`](super::Node). All nodes need the same ones, except for the roles.
#[derive(Clone, Debug)]
pub struct Config {
    /// The workers, by rank. Sums are added in this order.
    pub workers: Vec<NodeId>,
    /// The servers. Some or all may be on hosts of workers.
    pub servers: Vec<NodeId>,
    /// This node's rank among the workers, from 0, if it is one.
    pub rank: Option<u32>,
    /// This node's place among the servers, from 0, if it is one.
    pub server: Option<u32>,
    /// Most bytes of a chunk. Default 4,096,000, the partition of BytePS.
    pub chunk_bytes: u64,
    /// Divides tensors that have fewer chunks than there are servers into as many as there are servers, as long as
    /// these have this many bytes. Default none: a short tensor is the work of one server, whose link carries
    /// it once for each worker.
    pub least_chunk_bytes: Option<u64>,
    /// Number of chunks of one server that a worker may be ahead of the oldest that has no sum. Default 8:
    /// with less, one server runs dry while sums come back; with more, little is gained.
    pub chunks_in_flight: u32,
    /// Number of chunks that a worker pushes to one server at the same time. Default 2: one would have to
    /// gain speed before it fills the link, more would all be complete at the same late moment.
    pub pushes_at_once: u32,
    /// The class that packets travel in.
    pub tag: Tag,
    /// The transport. `first_message` has to be the same at all nodes.
    pub flow: thalweg_flow::Config,
    /// Has tensors travel in place of flows, of which a part may be lost. Default none.
    pub delivery: Option<Delivery>,
}

impl Config {
    /// The default settings of a node without a role.
    pub fn new(workers: Vec<NodeId>, servers: Vec<NodeId>) -> Config {
        Config {
            workers,
            servers,
            rank: None,
            server: None,
            chunk_bytes: 4_096_000,
            least_chunk_bytes: None,
            chunks_in_flight: 8,
            pushes_at_once: 2,
            tag: Tag::training(),
            flow: thalweg_flow::Config::default(),
            delivery: None,
        }
    }

    /// The settings of a node with every role that the lists have for it.
    pub fn at(self, node: NodeId) -> Config {
        let place = |nodes: &[NodeId]| nodes.iter().position(|&other| other == node);
        let rank = place(&self.workers).map(|rank| rank as u32);
        let server = place(&self.servers).map(|server| server as u32);
        Config { rank, server, ..self }
    }

    /// Checks that the settings can work together. Returns the values of a chunk.
    pub(super) fn check(&self) -> Result<u64, ConfigError> {
        check_nodes("workers", &self.workers)?;
        check_nodes("servers", &self.servers)?;
        self.check_roles()?;
        check_positive(&[
            ("chunks_in_flight", self.chunks_in_flight),
            ("pushes_at_once", self.pushes_at_once),
        ])?;
        chunk_values(self.chunk_bytes, &self.flow)
    }

    fn check_roles(&self) -> Result<(), ConfigError> {
        let worker = self.rank.map(|rank| node_at("rank", &self.workers, rank)).transpose()?;
        let server =
            self.server.map(|index| node_at("server", &self.servers, index)).transpose()?;
        match (self.rank.zip(worker), self.server.zip(server)) {
            (None, None) => Err(ConfigError::NoRole),
            (Some((rank, worker)), Some((index, server))) if worker != server => {
                Err(ConfigError::TwoNodes { rank, worker, index, server })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Node;

    #[test]
    fn what_cannot_work_is_named() {
        let check = |change: fn(&mut Config)| {
            let nodes = vec![NodeId(4), NodeId(2)];
            let mut config = Config::new(nodes.clone(), nodes).at(NodeId(2));
            change(&mut config);
            Node::new(config).err().map(|error| error.to_string())
        };
        let message = |change| check(change).expect("must be refused");
        assert_eq!(check(|_| ()), None);
        assert_eq!(check(|c| c.rank = None), None);
        assert!(message(|c| c.servers.clear()).contains("servers is empty"));
        assert!(message(|c| c.workers.push(NodeId(2))).contains("workers has node 2 twice"));
        assert!(message(|c| c.server = Some(2)).contains("server is 2, but there are 2"));
        assert!(message(|c| c.server = Some(0)).contains("server 0 is node 4"));
        assert!(message(|c| *c = c.clone().at(NodeId(9))).contains("neither worker nor server"));
        assert!(message(|c| c.chunks_in_flight = 0).contains("chunks_in_flight is zero"));
        assert!(message(|c| c.pushes_at_once = 0).contains("pushes_at_once is zero"));
        assert!(message(|c| c.chunk_bytes = 0).contains("chunk_bytes is 0"));
    }
}
