//! Eight queues, the most urgent first.

use std::collections::VecDeque;

use thalweg_core::{Meta, PRIORITIES};

use super::{Admission, Marking, Queue, Waiting};
use crate::pool::PacketRef;

/// Strict priorities by the packet's class, in one buffer.
#[derive(Debug)]
pub struct Strict {
    queues: [VecDeque<Waiting>; PRIORITIES],
    /// A bit for each queue that is not empty.
    occupied: u8,
    queue_bytes: [u64; PRIORITIES],
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
    /// Each queue marks by what waits in itself.
    pub fn marking_per_queue(markings: [Marking; PRIORITIES]) -> Strict {
        Strict::new(StrictMarking::PerQueue(markings))
    }

    /// Every queue marks by what waits in the whole port.
    pub fn marking_per_port(marking: Marking) -> Strict {
        Strict::new(StrictMarking::PerPort(marking))
    }

    /// Empty queues that mark in this way.
    pub fn new(marking: StrictMarking) -> Strict {
        Strict {
            queues: Default::default(),
            occupied: 0,
            queue_bytes: [0; PRIORITIES],
            bytes: 0,
            marking,
            queue_limit_bytes: u64::MAX,
        }
    }

    /// The same, and no queue holds more than so much.
    #[must_use]
    pub fn with_queue_limit(self, bytes: u64) -> Strict {
        Strict { queue_limit_bytes: bytes, ..self }
    }

    /// The size of the next packet to leave.
    pub(super) fn next_bytes(&self) -> Option<u32> {
        let queue = self.queues.get(self.occupied.trailing_zeros() as usize)?;
        queue.front().map(|next| next.bytes)
    }
}

impl Queue for Strict {
    fn enqueue(&mut self, packet: PacketRef, meta: &mut Meta, limit_bytes: u64) -> Admission {
        let wire_bytes = u64::from(meta.wire_bytes);
        let class = usize::from(meta.dscp.priority());
        let is_full = self.bytes + wire_bytes > limit_bytes
            || self.queue_bytes[class] + wire_bytes > self.queue_limit_bytes;
        if is_full {
            return Admission::Full;
        }
        let admitted = match &self.marking {
            StrictMarking::PerQueue(markings) => {
                markings[class].apply(meta, self.queue_bytes[class])
            }
            StrictMarking::PerPort(marking) => marking.apply(meta, self.bytes),
        };
        if !admitted {
            return Admission::Unmarkable;
        }
        self.bytes += wire_bytes;
        self.queue_bytes[class] += wire_bytes;
        self.occupied |= 1 << class;
        self.queues[class].push_back(Waiting { packet, bytes: meta.wire_bytes });
        Admission::Queued
    }

    fn dequeue(&mut self) -> Option<(PacketRef, u32)> {
        let class = self.occupied.trailing_zeros() as usize;
        let queue = self.queues.get_mut(class)?;
        let Waiting { packet, bytes } = queue.pop_front()?;
        if queue.is_empty() {
            self.occupied &= !(1 << class);
        }
        self.bytes -= u64::from(bytes);
        self.queue_bytes[class] -= u64::from(bytes);
        Some((packet, bytes))
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn packets(&self) -> usize {
        self.queues.iter().map(VecDeque::len).sum()
    }
}
