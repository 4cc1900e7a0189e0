//! First in, first out, with a tail that drops.

use thalweg_core::Meta;

use super::{Admission, Lane, Marking, Queue, Waiting};
use crate::pool::PacketRef;

/// One drop-tail queue.
#[derive(Debug)]
pub struct Fifo {
    lane: Lane,
    marking: Marking,
}

impl Fifo {
    /// An empty queue.
    pub fn new(marking: Marking) -> Fifo {
        Fifo { lane: Lane::default(), marking }
    }
}

impl Queue for Fifo {
    fn enqueue(&mut self, packet: PacketRef, meta: &mut Meta, limit_bytes: u64) -> Admission {
        if !self.lane.has_room(meta.wire_bytes, limit_bytes) {
            return Admission::Full;
        }
        if !self.marking.apply(meta, self.lane.bytes) {
            return Admission::Unmarkable;
        }
        self.lane.push(Waiting { packet, bytes: meta.wire_bytes });
        Admission::Queued
    }

    fn dequeue(&mut self) -> Option<(PacketRef, u32)> {
        self.lane.pop_front()
    }

    fn bytes(&self) -> u64 {
        self.lane.bytes
    }

    fn packets(&self) -> usize {
        self.lane.waiting.len()
    }
}
