//! Settings of a ring.

use thalweg_core::{NodeId, Tag};

use crate::config::{ConfigError, check_nodes, check_positive, chunk_values, node_at};
use crate::delivery::Delivery;

/// Settings of a [`Ring`](super::Ring). All workers need the same ones, except for the rank.
#[derive(Clone, Debug)]
pub struct Config {
    /// The workers, in the order of the ring.
    pub members: Vec<NodeId>,
    /// This worker's place among them, from 0.
    pub rank: u32,
    /// Most bytes of a message; a piece is as many of them as there are workers. Default 1 MiB: long
    /// enough that a flow reaches full speed, short enough that a piece is soon around.
    pub chunk_bytes: u64,
    /// Most pieces in flight at once. Default 4: while one waits for its next round, the
    /// others use the link.
    pub pieces_in_flight: u32,
    /// The class that packets travel in.
    pub tag: Tag,
    /// The transport. `first_message` has to be the same at all workers.
    pub flow: thalweg_flow::Config,
    /// Has tensors travel in place of flows, of which a part may be lost. Default none. Its loss is
    /// divided among the hops of a segment.
    pub delivery: Option<Delivery>,
}

impl Config {
    /// The default settings of one of `members`.
    pub fn new(members: Vec<NodeId>, rank: u32) -> Config {
        Config {
            members,
            rank,
            chunk_bytes: 1 << 20,
            pieces_in_flight: 4,
            tag: Tag::training(),
            flow: thalweg_flow::Config::default(),
            delivery: None,
        }
    }

    /// Checks that the settings can work together. Returns the values of a chunk.
    pub(super) fn check(&self) -> Result<u64, ConfigError> {
        check_nodes("members", &self.members)?;
        node_at("rank", &self.members, self.rank)?;
        check_positive(&[("pieces_in_flight", self.pieces_in_flight)])?;
        chunk_values(self.chunk_bytes, &self.flow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::Ring;

    #[test]
    fn what_cannot_work_is_named() {
        let check = |change: fn(&mut Config)| {
            let mut config = Config::new(vec![NodeId(4), NodeId(2)], 1);
            change(&mut config);
            Ring::new(config).err().map(|error| error.to_string())
        };
        let message = |change| check(change).expect("must be refused");
        assert_eq!(check(|_| ()), None);
        assert!(message(|c| c.members.clear()).contains("members is empty"));
        assert!(message(|c| c.members.push(NodeId(4))).contains("node 4 twice"));
        assert!(message(|c| c.rank = 2).contains("rank is 2, but there are 2"));
        assert!(message(|c| c.pieces_in_flight = 0).contains("pieces_in_flight is zero"));
        assert!(message(|c| c.chunk_bytes = 3).contains("chunk_bytes is 3"));
        assert!(message(|c| c.chunk_bytes = 1 << 29).contains("at most 268435392 bytes"));
        assert!(message(|c| c.flow.messages.segment_bytes = 0).contains("chunk_bytes"));
        assert!(message(|c| c.flow.messages.span_packets = 0).contains("flow: span_packets"));
    }
}
