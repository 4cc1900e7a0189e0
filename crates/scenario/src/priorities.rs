//! The priorities of one run's flows, and what is believed of their sizes.

use std::collections::BTreeMap;

use thalweg_core::{Bytes, NodeId, Rng, Span, Time};
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
    /// What was sent from host to host, where that counts.
    connections: Option<Connections>,
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
            connections: priorities
                .filter(|it| it.counts_connections)
                .map(|_| Connections::default()),
            flows: TaggedFlows::default(),
        }
    }

    /// The tagger of a flow that starts, or what its size is believed to be where there are no taggers.
    /// Everything is drawn even where it is not needed, so that what is known of one flow changes
    /// nothing for another.
    // spec: Q-12
    pub(crate) fn of_flow(
        &mut self,
        now: Time,
        ends: Ends,
        (size, is_seen): (Bytes, bool),
    ) -> (FlowTagger, Option<Bytes>) {
        let known = self.learned.as_mut().map(|learned| learned.know(size, is_seen));
        let before = self.connections.as_mut().map_or(Bytes::ZERO, |it| it.start(now, ends, size));
        if let Some(known) = known {
            self.flows.bounded += u64::from(known.bounds.is_some());
            self.flows.unseen += u64::from(known.bounds.is_none());
        }
        match &self.tagging {
            Some(tagging) => {
                let known = Known { before, ..known.unwrap_or_default() };
                (tagging.of_flow(size, known), None)
            }
            None => {
                let believed = known.map(|known| known.estimate.unwrap_or(Bytes::ZERO));
                (FlowTagger::default(), believed)
            }
        }
    }

    /// A flow has ended.
    pub(crate) fn on_end(&mut self, now: Time, ends: Ends) {
        if let Some(connections) = &mut self.connections {
            connections.end(now, ends);
        }
    }
}

/// Who sends, and who receives.
pub(crate) type Ends = (NodeId, NodeId);

/// What flows of each pair of hosts have sent, as if they had one connection.
#[derive(Default)]
struct Connections {
    pairs: BTreeMap<Ends, Connection>,
}

struct Connection {
    sent: Bytes,
    /// Flows on their way.
    live: u32,
    idle_since: Time,
}

impl Connections {
    /// After such a pause a connection counts from zero: PIAS's kernel module has it as its default.
    const PAUSE: Span = Span::from_us(500);

    /// What the connection of a flow was given before.
    fn start(&mut self, now: Time, ends: Ends, size: Bytes) -> Bytes {
        let new = Connection { sent: Bytes::ZERO, live: 0, idle_since: now };
        let connection = self.pairs.entry(ends).or_insert(new);
        if connection.live == 0 && now.since(connection.idle_since) > Connections::PAUSE {
            connection.sent = Bytes::ZERO;
        }
        let before = connection.sent;
        connection.sent = before + size;
        connection.live += 1;
        before
    }

    fn end(&mut self, now: Time, ends: Ends) {
        if let Some(connection) = self.pairs.get_mut(&ends) {
            connection.live = connection.live.saturating_sub(1);
            connection.idle_since = now;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_counts_until_it_pauses() {
        let mut connections = Connections::default();
        let at = |us: u64| Time::ZERO + Span::from_us(us);
        let (ends, others) = ((NodeId(0), NodeId(1)), (NodeId(1), NodeId(0)));
        let size = Bytes::new(100);
        let before =
            |connections: &mut Connections, us, ends| connections.start(at(us), ends, size);
        assert_eq!(before(&mut connections, 0, ends), Bytes::ZERO);
        assert_eq!(before(&mut connections, 1, others), Bytes::ZERO);
        assert_eq!(before(&mut connections, 900, ends), Bytes::new(100), "the first is on its way");
        connections.end(at(950), ends);
        connections.end(at(1_000), ends);
        assert_eq!(before(&mut connections, 1_500, ends), Bytes::new(200), "a short pause");
        connections.end(at(1_600), ends);
        assert_eq!(before(&mut connections, 2_101, ends), Bytes::ZERO);
    }
}
