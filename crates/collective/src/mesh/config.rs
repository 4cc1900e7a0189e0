//! Settings of a mesh.

use thalweg_core::{NodeId, Tag};

use super::grid::{Grid, Stream};
use crate::config::{ConfigError, check_fits_message, check_nodes, check_positive, node_at};
use thalweg_wire::trailer::TRAILER_BYTES;

/// Size of the largest value: chunks are multiples of it, so that none cuts a value.
const UNIT_BYTES: u64 = 8;

/// A transfer is cut into this many chunks, where they are not too short or too long for it. Chunks to
/// all ranks share a link, so that the first ones are done late; with few of them, nobody would have
/// anything to combine or to pass on for much of the time.
const FEWEST_CHUNKS: u64 = 32;

/// No chunk but the last is shorter, unless longer ones are not allowed: below this, starting a flow
/// takes longer than the flow.
const LEAST_CHUNK_BYTES: u64 = 64 << 10;

/// Settings of a [`Mesh`](super::Mesh). All ranks need the same ones, except for the rank.
#[derive(Clone, Debug)]
pub struct Config {
    /// The nodes, in the order of their ranks.
    pub members: Vec<NodeId>,
    /// This node's place among them, from 0.
    pub rank: u32,
    /// Most bytes of a message. Default 1 MiB: long enough that a flow reaches full speed. What is
    /// shorter than 32 of them is cut into 32 chunks, down to 64 KiB each, so that combining and passing
    /// on begin long before the last byte is there.
    pub chunk_bytes: u64,
    /// Most chunks in flight to one rank at once. Default 4: while one waits for its last
    /// acknowledgements, the others use the link.
    pub chunks_at_once: u32,
    /// Order among transfers to one rank. Ranks may differ. Default in turn.
    pub order: TransferOrder,
    /// Data of up to this length is not divided among the ranks: one of them combines it, or the root
    /// sends it to all. Default 16 KiB: to eight ranks of 100 Gbps that is 9 µs of one link, less than
    /// the second trip of divided data.
    pub direct_bytes: u64,
    /// Bytes of a transfer after which its sender waits until the other rank has made its call. Default
    /// 4 MiB, which take longer than the go-ahead does.
    pub eager_bytes: u64,
    /// Longest data of a call, and longest part of it that another rank may announce. Default 16 GiB.
    pub max_bytes: u64,
    /// Most memory for messages that came before this rank made the call that they belong to.
    /// Default 1 GiB. More of them are a [`Failure::TooEarly`](super::Failure::TooEarly).
    pub max_early_bytes: u64,
    /// Most messages that came before the call that they belong to. Default 65,536.
    pub max_early_messages: u32,
    /// The class that packets travel in.
    pub tag: Tag,
    /// The transport. `first_message` has to be the same at all ranks.
    pub flow: thalweg_flow::Config,
}

/// Order in which transfers to one rank send their chunks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum TransferOrder {
    /// A chunk of each in turn: none waits for another, and all of them end late.
    #[default]
    InTurn,
    /// The transfer with the fewest bytes left, and the first one among equals. For programs that have several
    /// operations of one length in progress, as pieces of a tensor: in turn, all pieces would end together, and those that
    /// wait for their memory would begin together, while the link is idle. A short transfer waits for no long one.
    ShortestFirst,
}

impl Config {
    /// The default settings of one of `members`.
    pub fn new(members: Vec<NodeId>, rank: u32) -> Config {
        Config {
            members,
            rank,
            chunk_bytes: 1 << 20,
            chunks_at_once: 4,
            order: TransferOrder::default(),
            direct_bytes: 16 << 10,
            eager_bytes: 4 << 20,
            max_bytes: 16 << 30,
            max_early_bytes: 1 << 30,
            max_early_messages: 65_536,
            tag: Tag::training(),
            flow: thalweg_flow::Config::default(),
        }
    }

    /// Checks that the settings can work together.
    pub(super) fn check(&self) -> Result<Place, ConfigError> {
        check_nodes("members", &self.members)?;
        node_at("rank", &self.members, self.rank)?;
        check_positive(&[("chunks_at_once", self.chunks_at_once)])?;
        let chunk_bytes = self.chunk_bytes;
        if chunk_bytes == 0 || !chunk_bytes.is_multiple_of(UNIT_BYTES) {
            return Err(ConfigError::ChunkNotWhole { chunk_bytes, unit: UNIT_BYTES });
        }
        check_fits_message(chunk_bytes, TRAILER_BYTES as u64, &self.flow)?;
        // Nodes have 32-bit names, and each is here once.
        Ok(self.place(self.members.len() as u32))
    }

    fn place(&self, ranks: u32) -> Place {
        Place {
            rank: self.rank,
            ranks,
            chunk_bytes: self.chunk_bytes,
            direct_bytes: self.direct_bytes,
            eager_bytes: self.eager_bytes,
            max_bytes: self.max_bytes,
        }
    }
}

/// The rank, and the settings that every operation needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub rank: u32,
    pub ranks: u32,
    pub direct_bytes: u64,
    pub max_bytes: u64,
    eager_bytes: u64,
    chunk_bytes: u64,
}

impl Place {
    /// The place of a rank with the default settings.
    pub fn of(rank: u32, ranks: u32) -> Place {
        Config::new(Vec::new(), rank).place(ranks)
    }

    /// Grid of a transfer of `total` bytes: all ranks cut it alike.
    pub fn grid(&self, total: u64) -> Grid {
        let even_bytes = (total / FEWEST_CHUNKS).next_multiple_of(UNIT_BYTES);
        let least_bytes = LEAST_CHUNK_BYTES.min(self.chunk_bytes);
        Grid { total, chunk_bytes: even_bytes.clamp(least_bytes, self.chunk_bytes) }
    }

    /// True if a transfer of this rank goes to or comes from another one.
    pub fn is_other(&self, rank: u32) -> bool {
        rank != self.rank
    }

    /// Number of chunks of a transfer that may leave, depending on whether its receiver is known to have made
    /// the call.
    pub fn limit(&self, grid: Grid, has_called: bool) -> u64 {
        if has_called { u64::MAX } else { self.eager_chunks(grid) }
    }

    /// True if a transfer stands still until its receiver has made the call.
    pub fn holds(&self, stream: &Stream) -> bool {
        stream.is_held_at(self.eager_chunks(stream.grid))
    }

    fn eager_chunks(&self, grid: Grid) -> u64 {
        (self.eager_bytes / grid.chunk_bytes).max(1)
    }

    /// True if a transfer is so long that its sender waits for the call of its receiver.
    pub fn needs_go(&self, grid: Grid) -> bool {
        grid.chunks() > self.eager_chunks(grid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::Mesh;

    #[test]
    fn what_cannot_work_is_named() {
        let check = |change: fn(&mut Config)| {
            let mut config = Config::new(vec![NodeId(4), NodeId(2)], 1);
            change(&mut config);
            Mesh::new(config).err().map(|error| error.to_string())
        };
        let message = |change| check(change).expect("must be refused");
        assert_eq!(check(|_| ()), None);
        assert_eq!(check(|c| c.eager_bytes = 0), None, "the first chunk announces the others");
        assert!(message(|c| c.members.clear()).contains("members is empty"));
        assert!(message(|c| c.members.push(NodeId(4))).contains("node 4 twice"));
        assert!(message(|c| c.rank = 2).contains("rank is 2, but there are 2"));
        assert!(message(|c| c.chunks_at_once = 0).contains("chunks_at_once is zero"));
        assert!(message(|c| c.chunk_bytes = 0).contains("chunk_bytes is 0"));
        assert!(message(|c| c.chunk_bytes = 12).contains("multiple of 8"));
        assert!(message(|c| c.chunk_bytes = 256 << 20).contains("at most 268435392 bytes"));
        assert!(message(|c| c.flow.messages.span_packets = 0).contains("flow: span_packets"));
    }
}
