//! The fragments of one tree that a server has to do with.

use super::positions;
use super::slot::{Slot, Vacant};

/// Slots that are made together, when one of them is first used. A power of two.
const CHUNK_SLOTS: usize = 128;

/// A slot for every fragment of a window that moves up. Slots are made where a fragment first needs one, so that a job
/// that sends nothing takes no memory. Slots, sets and buffers are used again, so that nothing is allocated once it has
/// gone round.
// spec: E-12
#[derive(Debug)]
pub(super) struct Ring {
    /// Slots in the order of their places. A chunk is empty until one of its slots is used.
    chunks: Vec<Chunk>,
    length: usize,
    /// Words of the set of a slot.
    words: usize,
    vacant: Vacant,
}

/// Slots and their sets.
#[derive(Debug, Default)]
struct Chunk {
    slots: Vec<Slot>,
    /// The set of each slot, `words` words each.
    positions: Vec<u64>,
}

/// One fragment's place in the ring.
pub(super) struct Place<'a> {
    pub slot: &'a mut Slot,
    /// Positions whose contributions the slot has.
    pub positions: &'a mut [u64],
    pub vacant: &'a mut Vacant,
}

impl Ring {
    /// A ring for a window of this number of fragments of these workers.
    pub(super) fn new(fragments: u64, workers: u32) -> Ring {
        let length = Ring::slots_for(fragments);
        Ring {
            chunks: (0..length.div_ceil(CHUNK_SLOTS)).map(|_| Chunk::default()).collect(),
            length,
            words: positions::words(workers),
            vacant: Vacant::new(),
        }
    }

    /// Number of slots for a window.
    pub(super) fn slots_for(fragments: u64) -> usize {
        fragments.max(1).next_power_of_two() as usize
    }

    /// Most bytes that a ring takes, without the bytes of buffers.
    pub(super) fn memory_bytes(fragments: u64, workers: u32) -> u64 {
        let slots = Ring::slots_for(fragments) as u64;
        let words = positions::words(workers) as u64 * size_of::<u64>() as u64;
        // Every buffer may be vacant, and each has its place among those.
        let of_slot = (size_of::<Slot>() + size_of::<Vec<u8>>()) as u64 + words;
        let chunks = slots.div_ceil(CHUNK_SLOTS as u64) * size_of::<Chunk>() as u64;
        slots * of_slot + chunks
    }

    /// The place of the fragment that is number `index` of its tree.
    #[inline]
    pub(super) fn at(&mut self, index: u64) -> Place<'_> {
        // The length is a power of two.
        let at = index as usize & (self.length - 1);
        let chunk = &mut self.chunks[at / CHUNK_SLOTS];
        if chunk.slots.is_empty() {
            *chunk = Chunk::new(self.length.min(CHUNK_SLOTS), self.words);
        }
        let at = at % CHUNK_SLOTS;
        Place {
            slot: &mut chunk.slots[at],
            positions: &mut chunk.positions[at * self.words..][..self.words],
            vacant: &mut self.vacant,
        }
    }

    /// Forgets a fragment.
    pub(super) fn clear(&mut self, index: u64) {
        if self.chunks[(index as usize & (self.length - 1)) / CHUNK_SLOTS].slots.is_empty() {
            return;
        }
        let place = self.at(index);
        place.slot.clear(place.vacant);
        place.positions.fill(0);
    }

    /// Number of slots.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// All slots that were made, with their places and sets, in the order of their places.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &Slot, &[u64])> {
        self.chunks.iter().enumerate().flat_map(|(at, chunk)| {
            let places = at * CHUNK_SLOTS..;
            let slots = chunk.slots.iter().zip(chunk.positions.chunks_exact(self.words));
            places.zip(slots).map(|(place, (slot, positions))| (place, slot, positions))
        })
    }

    /// All slots that were made, in the order of their places. Their memory is given back chunk by chunk.
    pub(super) fn into_slots(self) -> impl Iterator<Item = Slot> {
        self.chunks.into_iter().flat_map(|chunk| chunk.slots)
    }
}

impl Chunk {
    fn new(slots: usize, words: usize) -> Chunk {
        Chunk {
            slots: (0..slots).map(|_| Slot::default()).collect(),
            positions: vec![0; slots * words],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_round_and_are_clean() {
        let mut ring = Ring::new(5, 65);
        let place = ring.at(3);
        place.slot.contributors = 7;
        place.positions[1] = 1;
        assert_eq!(ring.at(11).slot.contributors, 7, "eight slots");
        assert_eq!((ring.at(4).slot.contributors, ring.at(4).positions[1]), (0, 0));
        ring.clear(3);
        assert_eq!((ring.at(11).slot.contributors, ring.at(11).positions[1]), (0, 0));
    }

    // spec: E-12 machine
    #[test]
    fn slots_are_made_where_they_are_used() {
        let mut ring = Ring::new(1_000, 65);
        assert_eq!((ring.len(), ring.iter().count()), (1_024, 0), "nothing was used");
        ring.clear(700);
        assert_eq!(ring.iter().count(), 0, "what was never used need not be cleared");
        ring.at(1_024 + 700).slot.contributors = 7;
        ring.at(3).slot.contributors = 8;
        let used: Vec<(usize, u32)> = ring
            .iter()
            .map(|(place, slot, _)| (place, slot.contributors))
            .filter(|it| it.1 > 0)
            .collect();
        assert_eq!((ring.iter().count(), used), (2 * CHUNK_SLOTS, vec![(3, 8), (700, 7)]));
        assert_eq!(ring.into_slots().filter(|slot| slot.contributors > 0).count(), 2);
    }
}
