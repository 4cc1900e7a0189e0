//! Queues of a port.
//!
//! A discipline decides three things: whether a packet is let in, whether it is marked, and who
//! leaves next. Time, links and shared buffers are not its business.

mod fair;
mod fifo;
mod strict;
#[cfg(test)]
mod tests;
mod trimming;
mod urgency;

pub use fair::{CLASSES, Fair};
pub use fifo::Fifo;
pub use strict::{QueueLimit, Strict, StrictMarking};
pub use trimming::{Trimming, TrimmingSpec};
pub use urgency::Urgency;

use std::collections::VecDeque;

use thalweg_core::Meta;

use crate::pool::PacketRef;

/// Result of offering a packet to a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// It waits.
    Queued,
    /// There was no room within the limit.
    Full,
    /// The queue was above its threshold and the packet could not be marked.
    Unmarkable,
    /// It waits, and a packet, itself or another that waits, must be cut to its header.
    Trimmed {
        /// The packet to cut.
        packet: PacketRef,
        /// Bytes that it occupies of a link from now on. The queue counts that already.
        header_bytes: u32,
    },
    /// There was no room, not even for its header. It goes back to its sender, if it had a payload.
    Returned {
        /// Bytes that its header occupies of a link.
        header_bytes: u32,
    },
    /// It does not wait yet: this one, which waited, was put out to make room. Ask again.
    Displaced(PacketRef),
}

/// A queue discipline.
pub trait Queue: Send {
    /// Lets a packet in, marks it, or turns it away. `limit_bytes` is what this port may hold now:
    /// its own buffer, or its current share of the switch's.
    fn enqueue(&mut self, packet: PacketRef, meta: &mut Meta, limit_bytes: u64) -> Admission;

    /// The next packet to leave, and its size.
    fn dequeue(&mut self) -> Option<(PacketRef, u32)>;

    /// Bytes that wait.
    fn bytes(&self) -> u64;

    /// Packets that wait.
    fn packets(&self) -> usize;
}

/// Threshold at which a queue marks, and treatment of packets that are not ECN-capable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marking {
    /// A packet that would find more than this waiting is marked.
    pub threshold_bytes: u64,
    /// True if a packet that is not ECN-capable is dropped above the threshold; otherwise it is let in.
    pub drop_unmarkable: bool,
}

impl Marking {
    /// Marks nothing.
    pub const NONE: Marking = Marking { threshold_bytes: u64::MAX, drop_unmarkable: false };

    /// Marks ECN-capable packets above the threshold.
    pub const fn above(threshold_bytes: u64) -> Marking {
        Marking { threshold_bytes, drop_unmarkable: false }
    }

    /// Applies to a packet that finds `waiting_bytes`. False: it must be dropped.
    // spec: M-05
    fn apply(&self, meta: &mut Meta, waiting_bytes: u64) -> bool {
        if waiting_bytes <= self.threshold_bytes {
            return true;
        }
        if meta.ecn.is_capable() {
            meta.ecn = thalweg_core::Ecn::Congested;
            return true;
        }
        !self.drop_unmarkable
    }
}

/// A waiting packet with its size, so that leaving does not touch the packet itself.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    packet: PacketRef,
    bytes: u32,
}

/// Packets in order of arrival, and their bytes.
#[derive(Debug, Default)]
struct Lane {
    waiting: VecDeque<Waiting>,
    bytes: u64,
}

impl Lane {
    #[inline]
    fn has_room(&self, bytes: u32, limit_bytes: u64) -> bool {
        self.bytes + u64::from(bytes) <= limit_bytes
    }

    #[inline]
    fn push(&mut self, waiting: Waiting) {
        self.bytes += u64::from(waiting.bytes);
        self.waiting.push_back(waiting);
    }

    #[inline]
    fn pop_front(&mut self) -> Option<(PacketRef, u32)> {
        let Waiting { packet, bytes } = self.waiting.pop_front()?;
        self.bytes -= u64::from(bytes);
        Some((packet, bytes))
    }

    fn pop_back(&mut self) -> Option<Waiting> {
        let last = self.waiting.pop_back()?;
        self.bytes -= u64::from(last.bytes);
        Some(last)
    }
}
