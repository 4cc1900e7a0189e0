//! First in, first out, with a tail that drops.

use std::collections::VecDeque;

use thalweg_core::Meta;

use super::{Admission, Marking, Queue, Waiting};
use crate::pool::PacketRef;

/// One drop-tail queue.
#[derive(Debug)]
pub struct Fifo {
    waiting: VecDeque<Waiting>,
    bytes: u64,
    marking: Marking,
}

impl Fifo {
    /// An empty queue.
    pub fn new(marking: Marking) -> Fifo {
        Fifo { waiting: VecDeque::new(), bytes: 0, marking }
    }
}

impl Queue for Fifo {
    fn enqueue(&mut self, packet: PacketRef, meta: &mut Meta, limit_bytes: u64) -> Admission {
        if self.bytes + u64::from(meta.wire_bytes) > limit_bytes {
            return Admission::Full;
        }
        if !self.marking.apply(meta, self.bytes) {
            return Admission::Unmarkable;
        }
        self.bytes += u64::from(meta.wire_bytes);
        self.waiting.push_back(Waiting { packet, bytes: meta.wire_bytes });
        Admission::Queued
    }

    fn dequeue(&mut self) -> Option<(PacketRef, u32)> {
        let Waiting { packet, bytes } = self.waiting.pop_front()?;
        self.bytes -= u64::from(bytes);
        Some((packet, bytes))
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn packets(&self) -> usize {
        self.waiting.len()
    }
}
