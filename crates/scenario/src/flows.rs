//! The flows of a scenario over a protocol that the caller brings.

use std::collections::BTreeMap;

use thalweg_core::{Bytes, NodeId, Rng, Time};
use thalweg_fabric::{Config, Director, Fabric, Hosts, Limit, Pause};
use thalweg_flow::{ArrivalStats, Event, FlowId, Message, MessageConfig, Payload, Sent};
use thalweg_transport::messages::FlowTagger;
use thalweg_transport::{Endpoint, Protocol};
use thiserror::Error;

use crate::director::{FlowEnd, FlowRecord, ScenarioDirector};
use crate::outcome::{LinkUse, Outcome};
use crate::priorities::TaggedFlows;
use crate::run::Ending;
use crate::scenario::Scenario;
use crate::traffic::Source;

/// Why a scenario has no run over a protocol of the caller's. The file is at fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum FlowsError {
    /// Jobs have machines of their own.
    #[error("the scenario has a job: take training and all-reduce out of [[traffic]]")]
    Job,
    /// Hosts would have to be built again in the middle of the run.
    #[error("the scenario has a node-down: take it out of [[faults]]")]
    Outage,
    /// Priorities belong to the transports of the file.
    #[error("the scenario has a tagger or hints: take them out of [transport]")]
    Priorities,
}

impl Scenario {
    /// Runs the flows over endpoints that `build` makes, in place of the transport of the file. The flows, their paths and
    /// the losses are those of [`run`](Scenario::run) with the same seed.
    ///
    /// `build` gets the number of a host and the message settings of the file, which its protocol must use.
    pub fn run_over<P: Protocol>(
        &self,
        seed: u64,
        mut build: impl FnMut(NodeId, MessageConfig) -> Endpoint<P>,
    ) -> Result<Outcome, FlowsError> {
        self.has_flows_only()?;
        let rng = Rng::new(seed);
        let sources = self.traffic.iter().enumerate().map(|(index, traffic)| {
            let source = traffic.source(&rng.substream("traffic", index as u64));
            source.expect("checked when the file was read")
        });
        let mut flows = Flows {
            sources: sources.collect(),
            entropy: rng.stream("entropy"),
            records: Vec::new(),
            live: BTreeMap::new(),
        };
        let host = |node| build(node, self.transport.messages.clone());
        let mut fabric = Fabric::new(self.topology.clone(), &self.fabric, seed, host);
        let limit = self.stop_after.map_or(Time::NEVER, |span| Time::ZERO + span);
        let ending = match fabric.run(&mut flows, Limit::until(limit)) {
            Pause::Done => Ending::Complete,
            Pause::Quiet => Ending::Stuck,
            Pause::Limit => Ending::TimeUp,
        };
        Ok(self.outcome_of(seed, ending, &mut fabric, flows.records))
    }

    fn has_flows_only(&self) -> Result<(), FlowsError> {
        let Config { outages, .. } = &self.fabric;
        if self.jobs().next().is_some() {
            return Err(FlowsError::Job);
        }
        if !outages.is_empty() {
            return Err(FlowsError::Outage);
        }
        self.priorities.is_none().then_some(()).ok_or(FlowsError::Priorities)
    }

    fn outcome_of<P: Protocol>(
        &self,
        seed: u64,
        ending: Ending,
        fabric: &mut Fabric<Endpoint<P>>,
        flows: Vec<FlowRecord>,
    ) -> Outcome {
        let link_use = |link| {
            let (from, to) = self.topology.link_ends(link);
            let rate = self.topology.cables()[link.index() / 2].rate;
            LinkUse { from, to, rate, stats: fabric.link_stats(link) }
        };
        let links = self.topology.links().map(link_use).collect();
        let hosts = || (0..self.topology.hosts()).map(|host| fabric.machine(NodeId(host)));
        let (ideals, answers) = self.ideals(&flows);
        Outcome {
            seed,
            digest: fabric.digest(),
            now: fabric.now(),
            ending,
            stats: fabric.stats(),
            resent_packets: hosts().map(Endpoint::retransmissions).sum(),
            lost_of_flows: Bytes::ZERO,
            arrivals: hosts()
                .map(Endpoint::arrivals)
                .fold(ArrivalStats::default(), ArrivalStats::merge),
            pacing: None,
            tagged: TaggedFlows::default(),
            links,
            ideals,
            answers,
            flows,
            jobs: Vec::new(),
            switches: Vec::new(),
            queues: Vec::new(),
            check: fabric.check(),
        }
    }
}

/// The application: starts flows at their times and notes their ends.
struct Flows {
    sources: Vec<Source>,
    entropy: Rng,
    records: Vec<FlowRecord>,
    /// Records of flows that have not ended, by sender and name.
    live: BTreeMap<(NodeId, FlowId), usize>,
}

impl Flows {
    fn next_start(&mut self) -> Option<(Time, usize)> {
        ScenarioDirector::next_start(&mut self.sources)
    }

    fn start<P: Protocol>(&mut self, now: Time, source: usize, hosts: &mut Hosts<'_, Endpoint<P>>) {
        let Some(spec) = self.sources[source].next() else { return };
        // Drawn even where it is not needed, as with the transports of the file.
        let drawn = self.entropy.bits() as u16;
        let src = NodeId(spec.src as u32);
        let message = Message {
            dst: NodeId(spec.dst as u32),
            body: Payload::Length(spec.bytes),
            tagger: FlowTagger::default(),
            entropy: spec.path.unwrap_or(drawn),
        };
        let end = match hosts.machine(src).start(now, message) {
            Ok(flow) => {
                self.live.insert((src, flow), self.records.len());
                None
            }
            Err(_) => Some(FlowEnd::lost(now)),
        };
        self.records.push(FlowRecord { spec, source, end });
    }

    fn end(&mut self, now: Time, host: NodeId, sent: &Sent, arrived: bool) {
        let Some(record) = self.live.remove(&(host, sent.flow)) else { return };
        let Sent { retransmissions, timeouts, detections, .. } = *sent;
        let end = FlowEnd { at: now, arrived, retransmissions, timeouts, detections };
        self.records[record].end = Some(end);
    }
}

impl<P: Protocol> Director<Endpoint<P>> for Flows {
    fn next_wake(&mut self) -> Time {
        self.next_start().map_or(Time::NEVER, |(start, _)| start)
    }

    fn handle_wake(&mut self, now: Time, hosts: &mut Hosts<'_, Endpoint<P>>) {
        while let Some((start, source)) = self.next_start() {
            if start > now {
                return;
            }
            self.start(now, source, hosts);
        }
    }

    fn handle_event(
        &mut self,
        now: Time,
        node: NodeId,
        event: Event,
        _: &mut Hosts<'_, Endpoint<P>>,
    ) {
        match event {
            Event::Sent(sent) => self.end(now, node, &sent, true),
            Event::Failed(sent) => self.end(now, node, &sent, false),
            Event::Received(_) => {}
        }
    }

    fn is_done(&mut self) -> bool {
        self.live.is_empty() && self.next_start().is_none()
    }
}

#[cfg(test)]
mod tests {
    use thalweg_flow::Windowed;

    use super::*;

    const PLAIN: &str = "
title = \"flows\"
topology.one-switch = { hosts = 4, host-cable = { rate = \"10Gbps\", delay = \"1us\" } }
[[traffic]]
poisson = { sizes = \"web-search\", load = 0.7, flows = 60 }
[[faults]]
loss = { probability = 0.001 }
";

    fn scenario(more: &str) -> Scenario {
        let no_files = |file: &str| Err(format!("{file}: there are no files"));
        Scenario::parse("test.toml", &format!("{PLAIN}{more}"), &no_files).expect("valid")
    }

    fn run(scenario: &Scenario) -> Result<Outcome, FlowsError> {
        let windows = |messages| thalweg_flow::Config { messages, ..scenario.transport.clone() };
        let build = |_, messages| Endpoint::<Windowed>::new(windows(messages)).expect("checked");
        scenario.run_over(3, build)
    }

    #[test]
    fn the_transport_of_the_file_has_the_same_run_as_a_protocol_of_the_caller() {
        let scenario = scenario("");
        let outcome = run(&scenario).expect("flows only");
        let expected = scenario.run_bare(3).finish();
        assert_eq!((outcome.ending, outcome.check), (Ending::Complete, Ok(())));
        assert_eq!((outcome.flows, outcome.digest), (expected.flows, expected.digest));
        assert!(outcome.resent_packets > 0, "packets were lost");
        assert_eq!(outcome.resent_packets, expected.resent_packets);
    }

    #[test]
    fn what_is_more_than_flows_is_refused() {
        let job = "[[traffic]]
            all-reduce = { workers = [0, 1], server = 2, bytes = \"1MB\", rounds = 1 }";
        let outage = "[[faults]]\nnode-down = { node = 1, from = \"1ms\" }";
        let priorities = "[switch]\nqueues = \"strict\"\n[transport]\ntagger = \"pias\"";
        let cases = [
            (job, FlowsError::Job),
            (outage, FlowsError::Outage),
            (priorities, FlowsError::Priorities),
        ];
        for (more, error) in cases {
            assert_eq!(run(&scenario(more)).map(|_| ()), Err(error), "{more}");
        }
    }
}
