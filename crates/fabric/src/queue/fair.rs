//! Two classes of traffic that cannot starve each other.

use thalweg_core::{Meta, TrafficClass};

use super::{Admission, Queue, QueueLimit, Strict, StrictMarking};
use crate::pool::PacketRef;

/// Number of classes.
pub const CLASSES: usize = 2;

/// Bytes that a class of weight 1 may send in its turn: about a packet, so that turns are short.
const TURN_BYTES: u64 = 1_500;

/// Deficit round robin between two classes, each with strict priorities of its own. What one class
/// does not use is the other's; its part of the buffer is not, or the other could not even queue.
// spec: M-15
#[derive(Debug)]
pub struct Fair {
    classes: [Strict; CLASSES],
    weights: [u32; CLASSES],
    /// Bytes that each class may still send before it is the other's turn.
    credit_bytes: [u64; CLASSES],
    turn: usize,
}

impl Fair {
    /// An empty port. Weights are at least 1. A class marks by what waits of itself.
    pub fn new(weights: [u32; CLASSES], markings: [StrictMarking; CLASSES]) -> Fair {
        Fair {
            classes: markings.map(|marking| Strict::new(marking, QueueLimit::NONE)),
            weights: weights.map(|weight| weight.max(1)),
            credit_bytes: [0; CLASSES],
            turn: 0,
        }
    }

    /// The same port, where the last priority of training has this share of what training has, in thousandths, while
    /// others of training are waiting.
    #[must_use]
    pub fn with_last_share(self, per_mille: u32) -> Fair {
        let [ordinary, training] = self.classes;
        Fair { classes: [ordinary, training.with_last_share(per_mille)], ..self }
    }

    /// The part of a limit that is for one class.
    fn share(&self, class: usize, limit_bytes: u64) -> u64 {
        let weights: u64 = self.weights.iter().map(|&weight| u64::from(weight)).sum();
        let share = u128::from(limit_bytes) * u128::from(self.weights[class]) / u128::from(weights);
        share as u64
    }

    fn pass_turn(&mut self) {
        self.turn = (self.turn + 1) % CLASSES;
        self.credit_bytes[self.turn] += TURN_BYTES * u64::from(self.weights[self.turn]);
    }
}

impl Queue for Fair {
    fn enqueue(&mut self, packet: PacketRef, meta: &mut Meta, limit_bytes: u64) -> Admission {
        let class = match meta.dscp.class() {
            TrafficClass::Ordinary => 0,
            TrafficClass::Training => 1,
        };
        let share_bytes = self.share(class, limit_bytes);
        self.classes[class].enqueue(packet, meta, share_bytes)
    }

    fn dequeue(&mut self) -> Option<(PacketRef, u32)> {
        if self.packets() == 0 {
            return None;
        }
        // Every round gives credit to a class that waits, so somebody's is enough in the end.
        loop {
            let class = self.turn;
            match self.classes[class].next_bytes() {
                Some(bytes) if u64::from(bytes) <= self.credit_bytes[class] => {
                    self.credit_bytes[class] -= u64::from(bytes);
                    return self.classes[class].dequeue();
                }
                Some(_) => self.pass_turn(),
                None => {
                    // Who has nothing to send saves nothing up.
                    self.credit_bytes[class] = 0;
                    self.pass_turn();
                }
            }
        }
    }

    fn bytes(&self) -> u64 {
        self.classes.iter().map(Strict::bytes).sum()
    }

    fn packets(&self) -> usize {
        self.classes.iter().map(Strict::packets).sum()
    }
}
