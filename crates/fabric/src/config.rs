//! Behaviour of the fabric's switches and interfaces.

use thalweg_core::{PRIORITIES, Rng};

use crate::fault::{Outage, Rule};
use crate::queue::{
    CLASSES, Fair, Fifo, Marking, Queue, QueueLimit, Strict, StrictMarking, Trimming, TrimmingSpec,
    Urgency,
};
use crate::routing::Spread;

/// Settings of a fabric, besides its topology. Nodes and cables that they name must be there: who
/// reads them from a file checks that.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Queue discipline of switch ports.
    pub discipline: Discipline,
    /// The memory it waits in.
    pub buffer: Buffer,
    /// Choice of switches among equal paths.
    pub spread: Spread,
    /// Faults of links.
    pub faults: Vec<Rule>,
    /// Outages of nodes.
    pub outages: Vec<Outage>,
}

/// The queues of every switch port.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Discipline {
    /// One drop-tail queue.
    Fifo(Marking),
    /// Eight strict priorities.
    Strict {
        /// When they mark.
        marking: StrictMarking,
        /// The most that each may hold, however much room the port has.
        queue_limit: QueueLimit,
        /// Share of the link that the last one has while others are waiting, in thousandths.
        last_per_mille: u32,
    },
    /// Full queues cut packets to their headers.
    Trimming(TrimmingSpec),
    /// The packet of the most urgent rank leaves, that of the least urgent is dropped.
    Urgency,
    /// Two classes of traffic divide the link in proportion to their weights. Each has eight strict
    /// priorities and its share of the buffer.
    Fair {
        /// Of the classes of [`TrafficClass`](thalweg_core::TrafficClass), in order; none is 0.
        weights: [u32; CLASSES],
        /// When each of them marks.
        markings: [StrictMarking; CLASSES],
        /// Share of what training has that its last priority has while others are waiting, in thousandths.
        last_per_mille: u32,
    },
}

/// The memory of a switch.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Buffer {
    /// Every port has its own.
    PerPort {
        /// Bytes of each.
        bytes: u64,
    },
    /// All ports share one; a port may hold `alpha` times what is free.
    Shared {
        /// Bytes of the whole switch.
        bytes: u64,
        /// The share; commodity switches use powers of two from 1/128 to 8.
        alpha: f64,
    },
}

impl Default for Discipline {
    /// Marks nothing.
    fn default() -> Discipline {
        Discipline::Fifo(Marking::NONE)
    }
}

impl Default for Buffer {
    /// A thousand full-sized packets, the habit of packet simulators.
    fn default() -> Buffer {
        Buffer::PerPort { bytes: 1_500_000 }
    }
}

impl Discipline {
    /// Eight strict priorities that mark by what waits in the queue of each.
    pub const fn strict_per_queue(markings: [Marking; PRIORITIES]) -> Discipline {
        let marking = StrictMarking::PerQueue(markings);
        Discipline::Strict { marking, queue_limit: QueueLimit::NONE, last_per_mille: 0 }
    }

    /// Eight strict priorities that mark by what waits in the port.
    pub const fn strict_per_port(marking: Marking) -> Discipline {
        let marking = StrictMarking::PerPort([marking; PRIORITIES]);
        Discipline::Strict { marking, queue_limit: QueueLimit::NONE, last_per_mille: 0 }
    }

    /// An empty queue that draws from `rng`.
    pub(crate) fn queue(&self, rng: &Rng) -> Box<dyn Queue> {
        match *self {
            Discipline::Fifo(marking) => Box::new(Fifo::new(marking)),
            Discipline::Strict { marking, queue_limit, last_per_mille } => {
                Box::new(Strict::new(marking, queue_limit).with_last_share(last_per_mille))
            }
            Discipline::Trimming(spec) => Box::new(Trimming::new(spec, rng.clone())),
            Discipline::Urgency => Box::new(Urgency::default()),
            Discipline::Fair { weights, markings, last_per_mille } => {
                Box::new(Fair::new(weights, markings).with_last_share(last_per_mille))
            }
        }
    }
}

impl Buffer {
    /// Bytes that a port may hold when its switch holds `used_bytes` in total.
    pub(crate) fn limit_bytes(&self, used_bytes: u64, port_bytes: u64) -> u64 {
        match *self {
            Buffer::PerPort { bytes } => bytes,
            Buffer::Shared { bytes, alpha } => {
                let free_bytes = bytes.saturating_sub(used_bytes);
                let share_bytes = (free_bytes as f64 * alpha) as u64;
                share_bytes.min(port_bytes + free_bytes)
            }
        }
    }

    /// All the bytes of a port's, or the switch's, memory.
    pub(crate) fn bytes(&self) -> u64 {
        match *self {
            Buffer::PerPort { bytes } | Buffer::Shared { bytes, .. } => bytes,
        }
    }

    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, Buffer::Shared { .. })
    }
}
