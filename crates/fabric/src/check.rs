//! Invariants of every moment of every run.

use crate::network::Network;
use crate::stats::FabricStats;

/// A broken law of the simulator itself: never the fault of a scenario.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Violation(pub(crate) String);

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
        return Err(Violation(format!(
            "{created} packets were made, {ended} ended, {pooled} are held, but {placed} wait or travel"
        )));
    }
    Ok(())
}

fn check_links(network: &Network) -> Result<(), Violation> {
    for (index, link) in network.links.iter().enumerate() {
        let held = link.queue.packets();
        if held != link.waiting as usize {
            let counted = link.waiting;
            return Err(Violation(format!(
                "link {index} counts {counted} waiting packets, its queue holds {held}"
            )));
        }
        if !link.wire.iter().is_sorted_by_key(|flight| flight.arrives) {
            let text = format!("packets on link {index} are not in order of arrival");
            return Err(Violation(text));
        }
    }
    Ok(())
}
