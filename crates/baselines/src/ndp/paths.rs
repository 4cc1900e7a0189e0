//! The path of every packet.

use thalweg_core::Rng;

/// Goes through all paths in random order, then through all of them in another: packets spread more
/// evenly than by chance, and senders do not fall into step.
#[derive(Debug)]
pub(super) struct Paths {
    order: Vec<u8>,
    next: usize,
    rng: Rng,
}

impl Paths {
    pub(super) fn new(paths: u8, rng: Rng) -> Paths {
        Paths { order: (0..paths).collect(), next: 0, rng }
    }

    /// The entropy of the next packet: the low byte picks the path at the first switch, the high byte
    /// those after it.
    pub(super) fn next(&mut self) -> u16 {
        if self.next == 0 {
            self.rng.shuffle(&mut self.order);
        }
        let low = self.order[self.next];
        self.next = (self.next + 1) % self.order.len();
        u16::from_le_bytes([low, self.rng.bits() as u8])
    }
}
