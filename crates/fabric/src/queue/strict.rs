//! Eight queues, the most urgent first.

use thalweg_core::{Meta, PRIORITIES};

use super::{Admission, Lane, Marking, Queue, Waiting};
use crate::pool::PacketRef;

/// Strict priorities by the packet's class, in one buffer.
#[derive(Debug)]
pub struct Strict {
    queues: [Lane; PRIORITIES],
    /// A bit for each queue that is not empty.
    occupied: u8,
    bytes: u64,
    marking: StrictMarking,
    /// The most that one queue may hold, however much room the port has.
    queue_limit_bytes: u64,
}

/// What the marking threshold of strict priorities is compared with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StrictMarking {
    /// What waits in the packet's own queue, each with a threshold of its own.
    PerQueue([Marking; PRIORITIES]),
    /// What waits in all of them.
    PerPort(Marking),
}

impl Strict {
    /// Empty queues that mark in this way, none of which ever holds more than `queue_limit_bytes`.
    pub fn new(marking: StrictMarking, queue_limit_bytes: u64) -> Strict {
        Strict { queues: Default::default(), occupied: 0, bytes: 0, marking, queue_limit_bytes }
    }

    /// The size of the next packet to leave.
    pub(super) fn next_bytes(&self) -> Option<u32> {
        let queue = self.queues.get(self.occupied.trailing_zeros() as usize)?;
        queue.waiting.front().map(|next| next.bytes)
    }
}

impl Queue for Strict {
    fn enqueue(&mut self, packet: PacketRef, meta: &mut Meta, limit_bytes: u64) -> Admission {
        let wire_bytes = u64::from(meta.wire_bytes);
        let class = usize::from(meta.dscp.priority());
        let queue = &mut self.queues[class];
        if self.bytes + wire_bytes > limit_bytes
            || !queue.has_room(meta.wire_bytes, self.queue_limit_bytes)
        {
            return Admission::Full;
        }
        let admitted = match &self.marking {
            StrictMarking::PerQueue(markings) => markings[class].apply(meta, queue.bytes),
            StrictMarking::PerPort(marking) => marking.apply(meta, self.bytes),
        };
        if !admitted {
            return Admission::Unmarkable;
        }
        self.bytes += wire_bytes;
        self.occupied |= 1 << class;
        queue.push(Waiting { packet, bytes: meta.wire_bytes });
        Admission::Queued
    }

    fn dequeue(&mut self) -> Option<(PacketRef, u32)> {
        let class = self.occupied.trailing_zeros() as usize;
        let queue = self.queues.get_mut(class)?;
        let (packet, bytes) = queue.pop_front()?;
        if queue.waiting.is_empty() {
            self.occupied &= !(1 << class);
        }
        self.bytes -= u64::from(bytes);
        Some((packet, bytes))
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn packets(&self) -> usize {
        self.queues.iter().map(|queue| queue.waiting.len()).sum()
    }
}
