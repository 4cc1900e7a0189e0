//! Steps of the operations for each chunk.

use std::ops::Range;

use thalweg_core::{Combine, Element};
use thalweg_values::{combine, divide};

use crate::pipeline::{Place, Steps};

/// Bytes that are combined at a time. Those of a few members fit into the first-level cache.
const BLOCK_BYTES: usize = 8 << 10;

/// Up to this part of a chunk, everybody combines all of the data for itself: that saves waiting for
/// the others' slices, which takes longer.
const WHOLE_PART_OF_CHUNK: usize = 32;

/// Arithmetic of a combination.
#[derive(Clone, Copy)]
pub(crate) struct Arithmetic {
    pub(crate) element: Element,
    pub(crate) how: Combine,
    /// Number by which the combination is divided: what makes a mean of a sum.
    pub(crate) divisor: u32,
}

/// Combines data for everybody, or for one.
pub(crate) struct Reduce<'a> {
    data: &'a mut [u8],
    arithmetic: Arithmetic,
    /// True if this member gets the combination.
    is_for_me: bool,
    /// True if others get it as well.
    is_for_others: bool,
    /// True if a member that gets the combination makes all of it, not only its slice.
    is_whole: bool,
    /// Private copies of what is combined, so that it cannot change meanwhile.
    scratch: &'a mut Vec<u8>,
}

impl<'a> Reduce<'a> {
    /// Without a root, everybody gets the combination.
    pub(crate) fn new(
        data: &'a mut [u8],
        arithmetic: Arithmetic,
        (me, root): (u32, Option<u32>),
        chunk_bytes: usize,
        scratch: &'a mut Vec<u8>,
    ) -> Reduce<'a> {
        Reduce {
            arithmetic,
            is_for_me: root.is_none_or(|root| root == me),
            is_for_others: root != Some(me),
            is_whole: data.len() <= chunk_bytes / WHOLE_PART_OF_CHUNK,
            data,
            scratch,
        }
    }

    /// Part of a chunk that this member combines.
    fn own_slice(&self, at: &Place<'_>) -> Range<usize> {
        let bytes = at.range.len();
        match (self.is_whole, self.is_for_me) {
            (true, true) => 0..bytes,
            (true, false) => 0..0,
            (false, _) => at.board.layout.slice(bytes, at.me),
        }
    }

    /// Combines a block of a chunk, and leaves it at the beginning of the scratch memory.
    fn merge_block(&mut self, at: &Place<'_>, block: Range<usize>) {
        let layout = &at.board.layout;
        let bytes = block.len();
        let (result, copies) = self.scratch.split_at_mut(BLOCK_BYTES);
        let own = &self.data[at.range.start + block.start..][..bytes];
        let parts: Vec<&[u8]> = copies
            .chunks_exact_mut(BLOCK_BYTES)
            .zip(0..layout.members)
            .map(|(copy, member)| {
                if member == at.me {
                    return own;
                }
                let copy = &mut copy[..bytes];
                at.board.memory.read(layout.input(member, at.slot) + block.start, copy);
                &*copy
            })
            .collect();
        let Arithmetic { element, how, divisor } = self.arithmetic;
        let result = &mut result[..bytes];
        combine(element, how, &parts, result);
        // While it is in the cache. Every value is divided once, by the member that combines it.
        if divisor > 1 {
            divide(element, result, divisor);
        }
    }
}

impl Steps for Reduce<'_> {
    fn bytes(&self) -> usize {
        self.data.len()
    }

    fn put(&mut self, at: &Place<'_>) {
        let chunk = &self.data[at.range.clone()];
        let input = at.board.layout.input(at.me, at.slot);
        if self.is_whole {
            at.board.memory.write(input, chunk);
            return;
        }
        // Nobody else needs the own slice.
        let slice = self.own_slice(at);
        at.board.memory.write(input, &chunk[..slice.start]);
        if slice.end < chunk.len() {
            at.board.memory.write(input + slice.end, &chunk[slice.end..]);
        }
    }

    fn merge(&mut self, at: &Place<'_>) {
        let slice = self.own_slice(at);
        let layout = &at.board.layout;
        self.scratch.resize((1 + layout.members as usize) * BLOCK_BYTES, 0);
        for start in slice.clone().step_by(BLOCK_BYTES) {
            let block = start..slice.end.min(start + BLOCK_BYTES);
            self.merge_block(at, block.clone());
            let result = &self.scratch[..block.len()];
            if self.is_for_me {
                self.data[at.range.start + start..][..block.len()].copy_from_slice(result);
            }
            if self.is_for_others && !self.is_whole {
                let place = layout.result(at.me, at.slot) + (start - slice.start);
                at.board.memory.write(place, result);
            }
        }
    }

    fn takes(&self) -> bool {
        self.is_for_me && !self.is_whole
    }

    fn take(&mut self, at: &Place<'_>) {
        let layout = &at.board.layout;
        let chunk = &mut self.data[at.range.clone()];
        for member in (0..layout.members).filter(|member| *member != at.me) {
            let slice = layout.slice(chunk.len(), member);
            at.board.memory.read(layout.result(member, at.slot), &mut chunk[slice]);
        }
    }
}

/// Copies one member's data to everybody.
pub(crate) struct Broadcast<'a> {
    pub(crate) data: &'a mut [u8],
    pub(crate) root: u32,
}

impl Steps for Broadcast<'_> {
    fn bytes(&self) -> usize {
        self.data.len()
    }

    fn put(&mut self, at: &Place<'_>) {
        if self.root == at.me {
            let input = at.board.layout.input(at.me, at.slot);
            at.board.memory.write(input, &self.data[at.range.clone()]);
        }
    }

    fn merge(&mut self, at: &Place<'_>) {
        if self.root != at.me {
            let input = at.board.layout.input(self.root, at.slot);
            at.board.memory.read(input, &mut self.data[at.range.clone()]);
        }
    }
}

/// Copies everybody's data to everybody.
pub(crate) struct Gather<'a> {
    pub(crate) mine: &'a [u8],
    pub(crate) all: &'a mut [u8],
}

impl Steps for Gather<'_> {
    fn bytes(&self) -> usize {
        self.mine.len()
    }

    fn put(&mut self, at: &Place<'_>) {
        let input = at.board.layout.input(at.me, at.slot);
        at.board.memory.write(input, &self.mine[at.range.clone()]);
    }

    fn merge(&mut self, at: &Place<'_>) {
        let layout = &at.board.layout;
        for member in 0..layout.members {
            let start = member as usize * self.mine.len() + at.range.start;
            let part = &mut self.all[start..][..at.range.len()];
            if member == at.me {
                part.copy_from_slice(&self.mine[at.range.clone()]);
            } else {
                at.board.memory.read(layout.input(member, at.slot), part);
            }
        }
    }
}

/// Moves nothing.
pub(crate) struct Barrier;

impl Steps for Barrier {
    fn bytes(&self) -> usize {
        0
    }

    fn put(&mut self, _at: &Place<'_>) {}

    fn merge(&mut self, _at: &Place<'_>) {}
}
