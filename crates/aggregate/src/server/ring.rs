//! The fragments of one tree that a server has to do with.

use super::seats;
use super::slot::{Slot, Vacant};

/// A slot for every fragment of a window that moves up. Slots, sets and buffers are used again, so
/// that nothing is allocated once it has gone round.
#[derive(Debug)]
pub(super) struct Ring {
    slots: Vec<Slot>,
    /// The set of each slot, so many words each.
    seats: Vec<u64>,
    words: usize,
    vacant: Vacant,
}

/// One fragment's place in the ring.
pub(super) struct Place<'a> {
    pub slot: &'a mut Slot,
    /// Whose contributions the slot has.
    pub seats: &'a mut [u64],
    pub vacant: &'a mut Vacant,
}

impl Ring {
    /// A ring for a window of so many fragments of so many workers.
    pub(super) fn new(fragments: u64, workers: u32) -> Ring {
        let length = fragments.max(1).next_power_of_two() as usize;
        let words = seats::words(workers);
        Ring {
            slots: (0..length).map(|_| Slot::default()).collect(),
            seats: vec![0; length * words],
            words,
            vacant: Vacant::new(),
        }
    }

    /// The place of the fragment that is the so many-th of its tree.
    #[inline]
    pub(super) fn at(&mut self, index: u64) -> Place<'_> {
        // The length is a power of two.
        let at = index as usize & (self.slots.len() - 1);
        Place {
            slot: &mut self.slots[at],
            seats: &mut self.seats[at * self.words..][..self.words],
            vacant: &mut self.vacant,
        }
    }

    /// Forgets a fragment.
    pub(super) fn clear(&mut self, index: u64) {
        let place = self.at(index);
        place.slot.clear(place.vacant);
        place.seats.fill(0);
    }

    /// Number of slots.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// All slots with their sets, in the order of their places.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Slot, &[u64])> {
        self.slots.iter().zip(self.seats.chunks_exact(self.words))
    }

    /// All slots, in no order.
    pub(super) fn into_slots(self) -> impl Iterator<Item = Slot> {
        self.slots.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_round_and_are_clean() {
        let mut ring = Ring::new(5, 65);
        let place = ring.at(3);
        place.slot.seated = 7;
        place.seats[1] = 1;
        assert_eq!(ring.at(11).slot.seated, 7, "eight slots");
        assert_eq!((ring.at(4).slot.seated, ring.at(4).seats[1]), (0, 0));
        ring.clear(3);
        assert_eq!((ring.at(11).slot.seated, ring.at(11).seats[1]), (0, 0));
    }
}
