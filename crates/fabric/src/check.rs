//! What must hold at every moment of every run.

use crate::network::Network;
use crate::stats::FabricStats;

/// A broken law of the simulator itself: never the fault of a scenario.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Violation {
    /// Packets appeared or vanished.
    #[error(
        "{created} packets were made, {ended} ended, {pooled} are held, but {placed} wait or travel"
    )]
    Conservation {
        /// Made by machines, multicast and faults.
        created: u64,
        /// Consumed or dropped.
        ended: u64,
        /// Held in the pool.
        pooled: u64,
        /// In queues and on wires.
        placed: u64,
    },
    /// A queue's own counts disagree.
    #[error("link {link} counts {counted} waiting packets, its queue holds {held}")]
    QueueCount {
        /// The link.
        link: usize,
        /// What the link counted.
        counted: u32,
        /// What the queue holds.
        held: usize,
    },
    /// A wire is out of order.
    #[error("packets on link {0} are not in order of arrival")]
    WireOrder(usize),
    /// A buffer holds more than it has.
    #[error("node {node} holds {held} bytes in a buffer that counts {counted}")]
    BufferCount {
        /// The node.
        node: usize,
        /// What its queues hold.
        held: u64,
        /// What the shared buffer counts.
        counted: u64,
    },
    /// A port holds more than it may.
    #[error("link {link} holds {held} bytes, its limit is {limit}")]
    BufferLimit {
        /// The link.
        link: usize,
        /// What it holds.
        held: u64,
        /// What it may hold.
        limit: u64,
    },
}

pub(crate) fn check(network: &Network, stats: FabricStats) -> Result<(), Violation> {
    check_links(network)?;
    network.check_buffers()?;
    let wires = network.links.iter().map(|link| link.wire.len() as u64);
    let queues = network.links.iter().map(|link| u64::from(link.waiting));
    let placed = wires.chain(queues).sum();
    let created = stats.created_packets + stats.copied_packets;
    let ended = stats.consumed_packets + stats.dropped();
    let pooled = network.pool.live() as u64;
    if pooled != placed || created != ended + pooled {
        return Err(Violation::Conservation { created, ended, pooled, placed });
    }
    Ok(())
}

fn check_links(network: &Network) -> Result<(), Violation> {
    for (index, link) in network.links.iter().enumerate() {
        let held = link.queue.packets();
        if held != link.waiting as usize {
            return Err(Violation::QueueCount { link: index, counted: link.waiting, held });
        }
        if !link.wire.iter().is_sorted_by_key(|flight| flight.arrives) {
            return Err(Violation::WireOrder(index));
        }
    }
    Ok(())
}
