//! The priorities of one run's flows, and what is believed of their sizes.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_core::{Bytes, NodeId, Rng, Span, Time};
use thalweg_flow::FlowTagger;
use thalweg_prioritize::generate::{Describer, describe};
use thalweg_prioritize::online::{Learner, Newest, Reader};
use thalweg_prioritize::{NewFlow, Scratch};
use thalweg_stack::{Known, Tagging};
use thalweg_workload::FlowSpec;

use crate::plan::{Counting, Learning};
use crate::scenario::Scenario;
use crate::traffic::{Messages, Traffic};

/// Gives every flow that starts its tagger, or the size that it is ranked by.
pub(crate) struct Prioritizer {
    tagging: Option<Tagging>,
    learned: Option<Learned>,
    /// Bytes sent from host to host, if connections count them.
    connections: Option<Connections>,
    /// Flows that started, by what was known of them.
    pub(crate) flows: TaggedFlows,
}

/// Number of flows that were tagged, by what was known of them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TaggedFlows {
    /// Their sizes were bounded by a forest.
    pub bounded: u64,
    /// Of these, those whose sizes lie within their bounds.
    pub within: u64,
    /// No flow like them had been seen: they went by what they had sent.
    pub unseen: u64,
    /// Forests that were learned while flows went on.
    pub forests: u64,
}

/// A flow that starts.
#[derive(Clone, Copy)]
pub(crate) struct Starting<'a> {
    /// The number of the flow, in the order of starts.
    pub(crate) number: usize,
    pub(crate) spec: &'a FlowSpec,
    /// The table of traffic that it belongs to.
    pub(crate) source: usize,
    /// True if flows like it may be learned from.
    pub(crate) is_seen: bool,
}

impl Starting<'_> {
    fn ends(&self) -> Ends {
        (NodeId(self.spec.src as u32), NodeId(self.spec.dst as u32))
    }
}

impl Prioritizer {
    pub(crate) fn new(scenario: &Scenario, rng: &Rng) -> Prioritizer {
        let priorities = scenario.priorities.as_ref();
        let learning = priorities.and_then(|priorities| priorities.learning.as_ref());
        let counting = priorities.and_then(|priorities| priorities.connections);
        Prioritizer {
            tagging: priorities.and_then(|priorities| priorities.tagging),
            learned: learning.map(|learning| Learned::new(scenario, learning, rng)),
            connections: counting.map(Connections::new),
            flows: TaggedFlows::default(),
        }
    }

    /// The tagger of a flow that starts, or what its size is believed to be where there are no taggers.
    /// Everything is drawn even where it is not needed, so that what is known of one flow changes
    /// nothing for another.
    // spec: Q-12
    pub(crate) fn of_flow(&mut self, now: Time, flow: Starting<'_>) -> (FlowTagger, Option<Bytes>) {
        let size = flow.spec.bytes;
        let known = self.learned.as_mut().map(|learned| learned.know(flow));
        let before =
            self.connections.as_mut().map_or(Bytes::ZERO, |it| it.start(now, flow.ends(), size));
        if let Some(known) = known {
            let is_within = known.bounds.is_some_and(|bounds| bounds.contain(size));
            self.flows.bounded += u64::from(known.bounds.is_some());
            self.flows.within += u64::from(is_within);
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

    /// A flow has ended, with all of it.
    // spec: Q-11
    pub(crate) fn on_end(&mut self, now: Time, number: usize, spec: &FlowSpec) {
        if let Some(connections) = &mut self.connections {
            connections.end(now, (NodeId(spec.src as u32), NodeId(spec.dst as u32)));
        }
        if let Some(learned) = &mut self.learned {
            self.flows.forests += u64::from(learned.on_end(number, spec.bytes));
        }
    }
}

/// Sender and receiver.
pub(crate) type Ends = (NodeId, NodeId);

/// Bytes that flows of each pair of hosts have sent, as if they had one connection.
struct Connections {
    pairs: BTreeMap<Ends, Connection>,
    counting: Counting,
}

struct Connection {
    sent: Bytes,
    /// Live flows.
    live: u32,
    idle_since: Time,
}

impl Connections {
    /// After such a pause a connection counts from zero: PIAS's kernel module has it as its default.
    const PAUSE: Span = Span::from_us(500);

    fn new(counting: Counting) -> Connections {
        Connections { pairs: BTreeMap::new(), counting }
    }

    /// Starts a flow; returns the bytes that its connection was given before.
    fn start(&mut self, now: Time, ends: Ends, size: Bytes) -> Bytes {
        let new = Connection { sent: Bytes::ZERO, live: 0, idle_since: now };
        let connection = self.pairs.entry(ends).or_insert(new);
        let has_paused =
            connection.live == 0 && now.since(connection.idle_since) > Connections::PAUSE;
        if has_paused && self.counting == Counting::UntilPause {
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

/// A forest, and those that replace it during the run.
struct Learned {
    learning: Learning,
    newest: Arc<Newest>,
    reader: Reader,
    describer: Describer,
    /// The types of messages of each table of traffic.
    messages: Vec<Option<Messages>>,
    features: Rng,
    /// Draws of the flows that go where none went before.
    turns: Rng,
    again: Option<Again>,
    scratch: Scratch,
}

/// Flows that a forest learns from again, the latest, if it did not begin with more.
const LATEST_FLOWS: u32 = 20_000;

/// Learning that goes on.
struct Again {
    learner: Learner,
    /// Flows in flight, as they were described when they began.
    open: BTreeMap<usize, NewFlow>,
    rng: Rng,
    forests: u64,
}

impl Learned {
    fn new(scenario: &Scenario, learning: &Learning, rng: &Rng) -> Learned {
        let checked = "checked when the file was read";
        let own = scenario.traffic.iter().map(Traffic::messages);
        let messages: Vec<Option<Messages>> = own.map(Option::<&Messages>::cloned).collect();
        let ended = Learned::ended(scenario, learning, rng);
        let model = learning.train(&ended, rng).expect(checked);
        let again = learning.again_after.map(|due_after| {
            let capacity = learning.flows.max(LATEST_FLOWS) as usize;
            let mut learner = Learner::new(capacity, due_after as usize);
            ended.iter().for_each(|&(flow, bytes)| learner.finished(flow, bytes));
            // The model has learned from those already.
            drop(learner.take_due());
            Again { learner, open: BTreeMap::new(), rng: rng.stream("again"), forests: 0 }
        });
        let newest = Newest::new();
        newest.publish(model);
        Learned {
            describer: Describer::new(&ended, learning.hints, &rng.stream("started")),
            learning: learning.clone(),
            reader: newest.reader(),
            newest,
            messages,
            features: rng.stream("features"),
            turns: rng.stream("turns"),
            again,
            scratch: Scratch::default(),
        }
    }

    /// Flows that ended before the run.
    fn ended(scenario: &Scenario, learning: &Learning, rng: &Rng) -> Vec<(NewFlow, Bytes)> {
        let mut draws = rng.stream("sizes");
        let hinted = |sizes: &[Bytes]| describe(sizes, learning.hints, &rng.stream("learned"));
        let seen: Vec<&Traffic> =
            scenario.traffic.iter().filter(|traffic| traffic.is_seen()).collect();
        if seen.iter().all(|traffic| traffic.messages().is_none()) {
            let sizes: Vec<Bytes> = match &learning.sizes {
                Some(sizes) => (0..learning.flows).map(|_| sizes.sample(&mut draws)).collect(),
                None => scenario.likely_sizes(learning.flows, &mut draws),
            };
            return hinted(&sizes);
        }
        let count = learning.flows.div_ceil(seen.len() as u32);
        let of_table = |(table, traffic): (u64, &&Traffic)| match traffic.messages() {
            Some(messages) => {
                let rng = rng.substream("messages", table);
                match &learning.sizes {
                    Some(sizes) => messages.with_sizes(sizes).ended(count, &rng),
                    None => messages.ended(count, &rng),
                }
            }
            None => {
                let sizes = (0..count).map_while(|_| traffic.likely_size(&mut draws));
                hinted(&sizes.collect::<Vec<Bytes>>())
            }
        };
        (0..).zip(&seen).flat_map(of_table).collect()
    }

    fn know(&mut self, starting: Starting<'_>) -> Known {
        let Starting { number, spec, source, is_seen } = starting;
        let is_strange = self.turns.chance(self.learning.unseen);
        let is_seen = is_seen && !is_strange;
        let flow = match (&self.messages[source], spec.kind) {
            (Some(messages), Some(kind)) => {
                messages.types.describe(kind, is_seen, &mut self.features)
            }
            _ => self.describer.describe(spec.bytes, is_seen),
        };
        if let Some(again) = &mut self.again {
            again.open.insert(number, flow);
        }
        let model = self.reader.model().expect("there is one from the beginning");
        Known::by(model, &flow, &mut self.scratch)
    }

    /// A flow has ended. Returns whether a new forest replaced the old one.
    // spec: Q-11
    fn on_end(&mut self, number: usize, bytes: Bytes) -> bool {
        let Some(again) = &mut self.again else { return false };
        let Some(flow) = again.open.remove(&number) else { return false };
        again.learner.finished(flow, bytes);
        let Some(flows) = again.learner.take_due() else { return false };
        again.forests += 1;
        let rng = again.rng.substream("forest", again.forests);
        let model = self.learning.train(&flows, &rng).expect("checked when the file was read");
        self.newest.publish(model);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_counts_until_it_pauses() {
        let mut connections = Connections::new(Counting::UntilPause);
        let at = |us: u64| Time::ZERO + Span::from_us(us);
        let (ends, others) = ((NodeId(0), NodeId(1)), (NodeId(1), NodeId(0)));
        let size = Bytes::new(100);
        let before =
            |connections: &mut Connections, us, ends| connections.start(at(us), ends, size);
        assert_eq!(before(&mut connections, 0, ends), Bytes::ZERO);
        assert_eq!(before(&mut connections, 1, others), Bytes::ZERO);
        assert_eq!(before(&mut connections, 900, ends), Bytes::new(100), "the first is in flight");
        connections.end(at(950), ends);
        connections.end(at(1_000), ends);
        assert_eq!(before(&mut connections, 1_500, ends), Bytes::new(200), "a short pause");
        connections.end(at(1_600), ends);
        assert_eq!(before(&mut connections, 2_101, ends), Bytes::ZERO);
    }

    #[test]
    fn an_open_connection_counts_for_ever() {
        let mut connections = Connections::new(Counting::ForEver);
        let ends = (NodeId(0), NodeId(1));
        let at = |us: u64| Time::ZERO + Span::from_us(us);
        assert_eq!(connections.start(at(0), ends, Bytes::new(100)), Bytes::ZERO);
        connections.end(at(1), ends);
        assert_eq!(connections.start(at(900_000), ends, Bytes::new(7)), Bytes::new(100));
    }
}
