//! The most urgent leaves, the least urgent is dropped.

use thalweg_core::{Meta, NodeId};

use super::{Admission, Queue, Waiting};
use crate::pool::PacketRef;

/// One small buffer in which ranks decide everything (pFabric).
///
/// When it is full, the packet of the largest rank is dropped, be it the one that comes. The packet
/// of the smallest rank says whose turn it is, and the packet of the same flow that came first
/// leaves: ranks shrink along a flow, and it would be reordered otherwise. Packets of one flow
/// have the same ends and the same entropy.
///
/// It looks at every packet that waits, each time: buffers for it hold a few dozen.
#[derive(Debug, Default)]
pub struct Urgency {
    /// In order of arrival.
    waiting: Vec<Ranked>,
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Ranked {
    waiting: Waiting,
    rank: u32,
    flow: (NodeId, NodeId, u16),
}

impl Urgency {
    fn remove(&mut self, place: usize) -> Waiting {
        // The order of the others is kept: it is the order of their arrival.
        let Ranked { waiting, .. } = self.waiting.remove(place);
        self.bytes -= u64::from(waiting.bytes);
        waiting
    }

    /// Position of the least urgent packet; of equal ones the one that came last.
    fn least_urgent(&self) -> Option<(usize, u32)> {
        let places = self.waiting.iter().enumerate();
        places.map(|(place, ranked)| (place, ranked.rank)).max_by_key(|(_, rank)| *rank)
    }
}

impl Queue for Urgency {
    fn enqueue(&mut self, packet: PacketRef, meta: &mut Meta, limit_bytes: u64) -> Admission {
        if self.bytes + u64::from(meta.wire_bytes) > limit_bytes {
            return match self.least_urgent() {
                Some((place, rank)) if rank > meta.rank => {
                    Admission::Displaced(self.remove(place).packet)
                }
                _ => Admission::Full,
            };
        }
        self.bytes += u64::from(meta.wire_bytes);
        self.waiting.push(Ranked {
            waiting: Waiting { packet, bytes: meta.wire_bytes },
            rank: meta.rank,
            flow: (meta.src, meta.dst, meta.entropy),
        });
        Admission::Queued
    }

    fn dequeue(&mut self) -> Option<(PacketRef, u32)> {
        let flow = self.waiting.iter().min_by_key(|ranked| ranked.rank)?.flow;
        let first = self.waiting.iter().position(|ranked| ranked.flow == flow)?;
        let Waiting { packet, bytes } = self.remove(first);
        Some((packet, bytes))
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn packets(&self) -> usize {
        self.waiting.len()
    }
}
