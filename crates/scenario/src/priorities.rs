//! The priorities of one run's flows, and what is believed of their sizes.

use thalweg_core::{Bytes, Rng};
use thalweg_flow::FlowTagger;
use thalweg_prioritize::generate::Describer;
use thalweg_prioritize::{Model, Scratch};
use thalweg_stack::{Known, Tagging};

use crate::plan::Learning;
use crate::scenario::Scenario;

/// Gives every flow that starts its tagger, or the size that it is ranked by.
pub(crate) struct Prioritizer {
    tagging: Option<Tagging>,
    learned: Option<Learned>,
    /// Flows that started, by what was known of them.
    pub(crate) flows: TaggedFlows,
}

/// How many flows were tagged, by what was known of them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TaggedFlows {
    /// Their sizes were bounded by a forest.
    pub bounded: u64,
    /// No flow like them had been seen: they went by what they had sent.
    pub unseen: u64,
}

/// What a forest has learned before the run.
struct Learned {
    model: Model,
    describer: Describer,
    /// The share of flows that go where none went before, and whose turn that is.
    unseen: f64,
    turns: Rng,
    scratch: Scratch,
}

impl Prioritizer {
    pub(crate) fn new(scenario: &Scenario, rng: &Rng) -> Prioritizer {
        let priorities = scenario.priorities.as_ref();
        let learning = priorities.and_then(|priorities| priorities.learning.as_ref());
        Prioritizer {
            tagging: priorities.and_then(|priorities| priorities.tagging),
            learned: learning.map(|learning| Learned::new(scenario, learning, rng)),
            flows: TaggedFlows::default(),
        }
    }

    /// The tagger of a flow that starts, or what its size is believed to be where there are no taggers.
    /// Everything is drawn even where it is not needed, so that what is known of one flow changes
    /// nothing for another.
    // spec: Q-12
    pub(crate) fn of_flow(&mut self, size: Bytes, is_seen: bool) -> (FlowTagger, Option<Bytes>) {
        let known = self.learned.as_mut().map(|learned| learned.know(size, is_seen));
        if let Some(known) = known {
            self.flows.bounded += u64::from(known.bounds.is_some());
            self.flows.unseen += u64::from(known.bounds.is_none());
        }
        match &self.tagging {
            Some(tagging) => (tagging.of_flow(size, known.unwrap_or_default()), None),
            None => {
                let believed = known.map(|known| known.estimate.unwrap_or(Bytes::ZERO));
                (FlowTagger::default(), believed)
            }
        }
    }
}

impl Learned {
    fn new(scenario: &Scenario, learning: &Learning, rng: &Rng) -> Learned {
        let mut draws = rng.stream("sizes");
        let sizes: Vec<Bytes> = match &learning.sizes {
            Some(sizes) => (0..learning.flows).map(|_| sizes.sample(&mut draws)).collect(),
            None => scenario.likely_sizes(learning.flows, &mut draws),
        };
        let learned = learning.model(&sizes, rng);
        let (model, describer) = learned.expect("checked when the file was read");
        let turns = rng.stream("turns");
        Learned { model, describer, unseen: learning.unseen, turns, scratch: Scratch::default() }
    }

    fn know(&mut self, size: Bytes, is_seen: bool) -> Known {
        let is_strange = self.turns.chance(self.unseen);
        let flow = self.describer.describe(size, is_seen && !is_strange);
        Known::by(&self.model, &flow, &mut self.scratch)
    }
}
