//! Starts the flows of a scenario at their times and notes when they end.
//!
//! A host that goes down loses its memory, so the flows that it sends end there. Those that it
//! receives go on: their senders try again until they give up. The jobs that it takes part in end,
//! and a switch starts its program again.

use std::collections::BTreeMap;

use thalweg_collective::Event as SumEvent;
use thalweg_core::{NodeId, Rng, Time};
use thalweg_fabric::{Director, Hosts, Outage, Program};
use thalweg_flow::{FlowId, Message, Payload, Sent, StartError};
use thalweg_stack::Event;
use thalweg_workload::FlowSpec;

use crate::jobs::Jobs;
use crate::priorities::{Prioritizer, Starting};
use crate::programs::Programs;
use crate::scenario::Scenario;
use crate::simulated::{About, SimulatedHost};
use crate::traffic::Source;

/// One flow of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowRecord {
    /// The requested flow.
    pub spec: FlowSpec,
    /// Index of its table of traffic, from 0.
    pub source: usize,
    /// Outcome; `None` while the flow is live.
    pub end: Option<FlowEnd>,
}

/// End of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowEnd {
    /// When the last acknowledgement came back, or it was given up.
    pub at: Time,
    /// True if all bytes arrived.
    pub arrived: bool,
    /// Packets that were sent again; not known, and 0, if its sender went down.
    pub retransmissions: u32,
    /// Number of retransmission timeouts.
    pub timeouts: u32,
    /// Number of losses that were detected before a timeout.
    pub detections: u32,
}

pub(crate) struct ScenarioDirector<'a> {
    sources: Vec<Source>,
    entropy: Rng,
    pub(crate) prioritizer: Prioritizer,
    pub(crate) records: Vec<FlowRecord>,
    /// Records of live flows, by sender and name.
    live: BTreeMap<(NodeId, FlowId), usize>,
    pub(crate) jobs: Jobs<'a>,
    programs: Programs,
    /// In order of time. They may overlap, and some are of switches.
    outages: Vec<Outage>,
    /// Number of outages that have begun.
    begun_outages: usize,
    /// Packets that endpoints sent again before they lost their memory.
    pub(crate) resent_before_restarts: u64,
    /// Builds the endpoint of a host that lost its memory.
    scenario: &'a Scenario,
    /// Random stream of endpoints.
    endpoints: Rng,
}

impl<'a> ScenarioDirector<'a> {
    pub(crate) fn new(
        sources: Vec<Source>,
        (jobs, programs): (Jobs<'a>, Programs),
        rng: &Rng,
        scenario: &'a Scenario,
    ) -> ScenarioDirector<'a> {
        let mut outages = scenario.fabric.outages.clone();
        outages.sort_by_key(|outage| outage.from);
        ScenarioDirector {
            sources,
            entropy: rng.stream("entropy"),
            prioritizer: Prioritizer::new(scenario, &rng.stream("priorities")),
            records: Vec::new(),
            live: BTreeMap::new(),
            jobs,
            programs,
            outages,
            begun_outages: 0,
            resent_before_restarts: 0,
            scenario,
            endpoints: rng.stream("endpoints"),
        }
    }

    /// A host that knows nothing yet.
    pub(crate) fn host(&self, node: NodeId, first_message: u64) -> SimulatedHost {
        let Scenario { transport, protocol, topology, .. } = self.scenario;
        let mut transport = transport.clone();
        transport.messages.first_message = first_message;
        // A restarted host draws anew.
        let rng = self.endpoints.substream("from", first_message);
        let endpoint = protocol.endpoint(node, transport, topology, &rng);
        let mut host = SimulatedHost::new(node, endpoint);
        self.jobs.prepare(node, &mut host, &rng);
        host
    }

    pub(crate) fn finished(&self) -> usize {
        self.records.len() - self.live.len()
    }

    /// The earliest start of a flow; of equal ones the first source's.
    pub(crate) fn next_start(sources: &mut [Source]) -> Option<(Time, usize)> {
        let starts = sources.iter_mut().enumerate();
        starts.filter_map(|(index, source)| Some((source.peek()?.start, index))).min()
    }

    fn start(&mut self, now: Time, source: usize, hosts: &mut Hosts<'_, SimulatedHost>) {
        let Some(spec) = self.sources[source].next() else { return };
        let end = match self.try_start(now, (&spec, source), hosts) {
            Some(name) => {
                self.live.insert(name, self.records.len());
                None
            }
            None => Some(FlowEnd::lost(now)),
        };
        self.records.push(FlowRecord { spec, source, end });
    }

    /// Begins to send a flow, unless its host is down or has no name left for it.
    fn try_start(
        &mut self,
        now: Time,
        (spec, source): (&FlowSpec, usize),
        hosts: &mut Hosts<'_, SimulatedHost>,
    ) -> Option<(NodeId, FlowId)> {
        let src = NodeId(spec.src as u32);
        if self.is_down(now, src) {
            return None;
        }
        // Drawn even where it is not needed, so that a path for one flow changes that of no other.
        let drawn = self.entropy.bits() as u16;
        let is_seen = self.scenario.traffic[source].is_seen();
        let dst = NodeId(spec.dst as u32);
        let starting = Starting { number: self.records.len(), spec, source, is_seen };
        let (tagger, believed) = self.prioritizer.of_flow(now, starting);
        let message = Message {
            dst,
            body: Payload::Length(spec.bytes),
            tagger,
            entropy: spec.path.unwrap_or(drawn),
        };
        let about = About { layer: spec.layer, believed };
        match hosts.machine(src).flows_mut().start(now, message, about) {
            Ok(flow) => {
                hosts.machine(dst).flows_mut().expect(now, src, flow, spec.bytes);
                Some((src, flow))
            }
            Err(StartError::TooMany) => None,
            Err(error @ StartError::TooLong(_)) => {
                unreachable!("sizes are checked when the file is read, yet {error}")
            }
        }
    }

    fn end(&mut self, now: Time, host: NodeId, sent: &Sent, arrived: bool) {
        let Some(record) = self.live.remove(&(host, sent.flow)) else { return };
        let Sent { retransmissions, timeouts, detections, .. } = *sent;
        let end = FlowEnd { at: now, arrived, retransmissions, timeouts, detections };
        self.records[record].end = Some(end);
        self.prioritizer.on_end(now, record, &self.records[record].spec);
    }

    /// When the next outage begins.
    fn next_outage(&self) -> Time {
        self.outages.get(self.begun_outages).map_or(Time::NEVER, |outage| outage.from)
    }

    fn is_down(&self, now: Time, host: NodeId) -> bool {
        let begun = &self.outages[..self.begun_outages];
        begun.iter().any(|outage| outage.node == host && now < outage.until)
    }

    fn lose_flows_of(&mut self, now: Time, host: NodeId) {
        let own = (host, FlowId(0))..=(host, FlowId(u64::MAX));
        let lost: Vec<_> = self.live.extract_if(own, |_, _| true).collect();
        for (_, record) in lost {
            self.records[record].end = Some(FlowEnd::lost(now));
        }
    }
}

impl FlowEnd {
    /// Of a flow whose sender is gone.
    pub(crate) fn lost(at: Time) -> FlowEnd {
        FlowEnd { at, arrived: false, retransmissions: 0, timeouts: 0, detections: 0 }
    }
}

impl Director<SimulatedHost> for ScenarioDirector<'_> {
    fn next_wake(&mut self) -> Time {
        let start = ScenarioDirector::next_start(&mut self.sources);
        let start = start.map_or(Time::NEVER, |(start, _)| start);
        start.min(self.next_outage()).min(self.jobs.next_wake())
    }

    fn handle_wake(&mut self, now: Time, hosts: &mut Hosts<'_, SimulatedHost>) {
        while self.next_outage() <= now {
            let node = self.outages[self.begun_outages].node;
            self.begun_outages += 1;
            self.lose_flows_of(now, node);
            self.jobs.on_host_down(node, hosts);
            for job in self.programs.jobs_that_end_with(node) {
                self.jobs.on_failure(job, format!("switch {node} went down"), hosts);
            }
        }
        self.jobs.handle_wake(now, hosts);
        while let Some((start, index)) = ScenarioDirector::next_start(&mut self.sources) {
            if start > now {
                return;
            }
            self.start(now, index, hosts);
        }
    }

    fn handle_event(
        &mut self,
        now: Time,
        node: NodeId,
        event: Event,
        hosts: &mut Hosts<'_, SimulatedHost>,
    ) {
        match event {
            Event::Flow(thalweg_flow::Event::Sent(sent)) => self.end(now, node, &sent, true),
            Event::Flow(thalweg_flow::Event::Failed(sent)) => self.end(now, node, &sent, false),
            // No job of a scenario has a mesh, posts deliveries or probes its paths.
            Event::Flow(thalweg_flow::Event::Received(_))
            | Event::Server(_)
            | Event::Paths(_)
            | Event::Mesh { .. }
            | Event::Delivery { .. } => {}
            Event::Sum { job, event: SumEvent::Finished { operation, coverage, .. } } => {
                self.jobs.on_sum(now, node, (job, operation), &coverage);
            }
            Event::Sum { job, event: SumEvent::Failed { failure, .. } } => {
                self.jobs.on_failure(job, failure.to_string(), hosts);
            }
        }
    }

    fn handle_restart(
        &mut self,
        now: Time,
        node: NodeId,
        old: &SimulatedHost,
    ) -> Option<SimulatedHost> {
        self.resent_before_restarts += old.flows().retransmissions();
        // One may have started in the same moment, before the host was up.
        self.lose_flows_of(now, node);
        // No host has started more flows than there are in all.
        Some(self.host(node, self.records.len() as u64))
    }

    fn handle_switch_restart(&mut self, _now: Time, switch: NodeId) -> Option<Program> {
        self.programs.start(switch)
    }

    fn is_done(&mut self) -> bool {
        self.live.is_empty()
            && self.jobs.are_over()
            && ScenarioDirector::next_start(&mut self.sources).is_none()
    }
}
