//! Aggregators and scales of fragments: what all workers change together.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use thalweg_wire::aggregate::{Numbers, Parameter, Scale};

use crate::index;
use crate::setup::{Attempt, Indexing, Setup};

/// Terms by which a fragment is sent, the same at every worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Terms {
    pub aggregator: u32,
    pub attempt: Attempt,
    pub numbers: Numbers,
}

impl Terms {
    /// The same for an operation that sends these floats, where floats are sent.
    #[inline]
    pub fn with_floats(self, floats: Numbers) -> Terms {
        let numbers = if self.numbers == Numbers::Float { floats } else { self.numbers };
        Terms { numbers, ..self }
    }
}

/// The terms of one epoch.
///
/// A change that comes with fragment *s* holds from *s* + span on. No worker is there before it has
/// *s*. So a worker that asks for the terms of a fragment knows all changes that hold for it, and applies
/// them in the order of the fragments from which they hold, whatever the order of their arrival.
// spec
#[derive(Clone, Debug)]
pub(super) struct Agreed {
    aggregators: u32,
    span: u16,
    /// By slot. Empty where indexing is linear.
    indices: Vec<u32>,
    /// From which fragment on, which slot, which index.
    moves: BinaryHeap<Reverse<(u64, u32, u32)>>,
    numbers: Numbers,
    generation: u8,
    /// From which fragment on, which scale.
    scales: BinaryHeap<Reverse<(u64, Scale)>>,
}

impl Agreed {
    pub fn new(setup: &Setup) -> Agreed {
        let period = match setup.parameters.indexing {
            Indexing::Hashed => {
                setup.parameters.aggregators.min(u32::from(setup.parameters.span_fragments))
            }
            Indexing::Linear => 0,
        };
        let first = |slot| index::first(setup.job, slot, setup.parameters.aggregators);
        Agreed {
            aggregators: setup.parameters.aggregators,
            span: setup.parameters.span_fragments,
            indices: (0..period).map(first).collect(),
            moves: BinaryHeap::new(),
            numbers: setup.parameters.numeric.numbers(),
            generation: 0,
            scales: BinaryHeap::new(),
        }
    }

    /// The terms of a fragment. Fragments must be asked for in their order.
    #[inline]
    pub fn terms(&mut self, sequence: u64) -> Terms {
        self.apply_below(sequence + 1);
        Terms {
            aggregator: self.aggregator(sequence),
            attempt: Attempt::of_generation(self.generation),
            numbers: self.numbers,
        }
    }

    /// The scale of the latest fragment that was asked for; `None` where bodies hold floats.
    pub fn scale(&self) -> Option<Scale> {
        match self.numbers {
            Numbers::Fixed(scale) => Some(scale),
            Numbers::Float | Numbers::F16 | Numbers::Bf16 => None,
        }
    }

    /// Takes in what a sum says about later fragments. Must be called once for each fragment.
    pub fn learn(&mut self, parameter: &Parameter) {
        // Nearer than the span, some worker may be past it.
        if parameter.next_distance < self.span {
            return;
        }
        let from = parameter.next_from();
        if let Some(index) = parameter.next_aggregator.filter(|_| !self.indices.is_empty()) {
            self.moves.push(Reverse((from, self.slot(parameter.identity.sequence), index)));
        }
        if let Some(scale) = parameter.next_scale.filter(|_| self.numbers != Numbers::Float) {
            self.scales.push(Reverse((from, scale)));
        }
    }

    #[inline]
    fn aggregator(&self, sequence: u64) -> u32 {
        if self.indices.is_empty() {
            (sequence % u64::from(self.aggregators)) as u32
        } else {
            self.indices[self.slot(sequence) as usize]
        }
    }

    #[inline]
    fn slot(&self, sequence: u64) -> u32 {
        (sequence % self.indices.len() as u64) as u32
    }

    #[inline]
    fn apply_below(&mut self, end: u64) {
        while let Some(&Reverse((from, slot, index))) = self.moves.peek()
            && from < end
        {
            self.indices[slot as usize] = index;
            self.moves.pop();
        }
        while let Some(&Reverse((from, scale))) = self.scales.peek()
            && from < end
        {
            // Another server may have asked for less, not knowing of it.
            if let Numbers::Fixed(current) = self.numbers {
                self.numbers = Numbers::Fixed(current.min(scale));
            }
            self.generation = self.generation.wrapping_add(1);
            self.scales.pop();
        }
    }
}
