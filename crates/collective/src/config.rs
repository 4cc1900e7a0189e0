//! Checks of the settings of all collectives.

use std::collections::BTreeSet;

use thalweg_core::NodeId;
use thalweg_flow::{MAX_PACKETS, MessageConfig};
use thalweg_wire::frame::SUM_FRAME_BYTES;
use thiserror::Error;

use crate::block::VALUE_BYTES;

/// Why settings cannot work. The configuration is at fault.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
pub enum ConfigError {
    /// Nobody takes part.
    #[error("{0} is empty: name at least one node")]
    Empty(&'static str),
    /// A node has two places.
    #[error("{name} has node {node} twice: name every node once")]
    Repeated {
        /// The list.
        name: &'static str,
        /// The node.
        node: NodeId,
    },
    /// A place beyond the list.
    #[error("{name} is {index}, but there are {count}, counted from 0: choose a smaller one")]
    NoSuchPlace {
        /// The setting.
        name: &'static str,
        /// Value of the setting.
        index: u32,
        /// Number of places in the list.
        count: usize,
    },
    /// A node with nothing to do.
    #[error("this node is neither worker nor server: give it a rank, a server's place, or both")]
    NoRole,
    /// The two roles of one node are in different nodes' places.
    #[error("worker {rank} is node {worker}, server {index} is node {server}: one node has one id")]
    TwoNodes {
        /// The worker's rank.
        rank: u32,
        /// Node that the rank names.
        worker: NodeId,
        /// The server's place.
        index: u32,
        /// Node that the place names.
        server: NodeId,
    },
    /// A setting that has to be positive.
    #[error("{0} is zero: set it to 1 or more")]
    Zero(&'static str),
    /// A chunk without values.
    #[error("chunk_bytes is {0}: set it to {VALUE_BYTES} or more, the size of a value")]
    ChunkTooShort(u64),
    /// A chunk that no message can carry.
    #[error("chunk_bytes is {chunk_bytes}, but a message has at most {max} bytes: make it smaller")]
    ChunkTooLong {
        /// Value of the setting.
        chunk_bytes: u64,
        /// The longest message.
        max: u64,
    },
    /// A chunk that would cut values.
    #[error("chunk_bytes is {chunk_bytes}: make it a multiple of {unit}, the size of a value")]
    ChunkNotWhole {
        /// Value of the setting.
        chunk_bytes: u64,
        /// Size of the largest value.
        unit: u64,
    },
    /// The transport's settings cannot work.
    #[error("flow: {0}")]
    Flow(#[from] thalweg_flow::ConfigError),
    /// The settings of deliveries cannot work.
    #[error("delivery: {0}")]
    Delivery(#[from] thalweg_deliver::ConfigError),
}

/// Checks that a list names nodes, each once.
pub(crate) fn check_nodes(name: &'static str, nodes: &[NodeId]) -> Result<(), ConfigError> {
    if nodes.is_empty() {
        return Err(ConfigError::Empty(name));
    }
    let mut seen = BTreeSet::new();
    match nodes.iter().find(|node| !seen.insert(**node)) {
        Some(&node) => Err(ConfigError::Repeated { name, node }),
        None => Ok(()),
    }
}

/// The node in a place of a list.
pub(crate) fn node_at(
    name: &'static str,
    nodes: &[NodeId],
    index: u32,
) -> Result<NodeId, ConfigError> {
    let node = nodes.get(index as usize).copied();
    node.ok_or(ConfigError::NoSuchPlace { name, index, count: nodes.len() })
}

/// Checks that counts are positive.
pub(crate) fn check_positive(settings: &[(&'static str, u32)]) -> Result<(), ConfigError> {
    match settings.iter().find(|(_, value)| *value == 0) {
        Some(&(name, _)) => Err(ConfigError::Zero(name)),
        None => Ok(()),
    }
}

/// Number of values of a chunk, if every chunk fits a message.
pub(crate) fn chunk_values(
    chunk_bytes: u64,
    flow: &thalweg_flow::Config,
) -> Result<u64, ConfigError> {
    if chunk_bytes < VALUE_BYTES {
        return Err(ConfigError::ChunkTooShort(chunk_bytes));
    }
    check_fits_message(chunk_bytes, SUM_FRAME_BYTES as u64, flow)?;
    Ok(chunk_bytes / VALUE_BYTES)
}

/// Checks that a chunk, with its frame or trailer, fits a message.
pub(crate) fn check_fits_message(
    chunk_bytes: u64,
    overhead_bytes: u64,
    flow: &thalweg_flow::Config,
) -> Result<(), ConfigError> {
    let MessageConfig { segment_bytes, max_message_bytes, .. } = flow.messages;
    let max = max_message_bytes.min(u64::from(segment_bytes) * u64::from(MAX_PACKETS));
    let max = max.saturating_sub(overhead_bytes);
    if chunk_bytes > max {
        return Err(ConfigError::ChunkTooLong { chunk_bytes, max });
    }
    Ok(())
}
