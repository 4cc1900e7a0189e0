//! Starts the flows of a scenario at their times and notes when they end.
//!
//! A host that goes down loses its memory, so the flows that it sends end there. Those that it
//! receives go on: their senders try again until they give up. The jobs that it takes part in end.

use std::collections::BTreeMap;

use thalweg_core::{NodeId, Rng, Time};
use thalweg_fabric::{Director, Hosts, Outage};
use thalweg_flow::{
    Endpoint, Event, FlowId, FlowTagger, Message, Payload, Received, Sent, StartError,
};
use thalweg_workload::FlowSpec;

use crate::source::Source;
use crate::training::{JobRecord, Part};

/// One flow of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowRecord {
    /// What was asked for.
    pub spec: FlowSpec,
    /// How it ended; `None` while it is on its way.
    pub end: Option<FlowEnd>,
}

/// How a flow ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowEnd {
    /// When the last acknowledgement came back, or it was given up.
    pub at: Time,
    /// Whether everything arrived.
    pub arrived: bool,
    /// Packets that were sent again; not known, and 0, if its sender went down.
    pub retransmissions: u32,
    /// How often nothing came back in time.
    pub timeouts: u32,
}

pub(crate) struct FlowDirector {
    sources: Vec<Source>,
    entropy: Rng,
    pub(crate) records: Vec<FlowRecord>,
    /// Flows on their way, by sender and name.
    live: BTreeMap<(NodeId, FlowId), LiveFlow>,
    /// In order of time. They may overlap, and some are of switches.
    outages: Vec<Outage>,
    /// How many of them have begun.
    begun_outages: usize,
    /// Packets that endpoints sent again before they lost their memory.
    pub(crate) resent_before_restarts: u64,
    /// Builds the endpoint of a host that lost its memory.
    transport: thalweg_flow::Config,
}

struct LiveFlow {
    /// The index of its record.
    record: usize,
    /// The source whose job waits for it, and as what, until it has arrived.
    awaited_by: Option<(usize, Part)>,
}

impl FlowDirector {
    pub(crate) fn new(
        sources: Vec<Source>,
        entropy: Rng,
        mut outages: Vec<Outage>,
        transport: thalweg_flow::Config,
    ) -> FlowDirector {
        outages.sort_by_key(|outage| outage.from);
        FlowDirector {
            sources,
            entropy,
            records: Vec::new(),
            live: BTreeMap::new(),
            outages,
            begun_outages: 0,
            resent_before_restarts: 0,
            transport,
        }
    }

    pub(crate) fn finished(&self) -> usize {
        self.records.len() - self.live.len()
    }

    /// The flows and the jobs as they are now.
    pub(crate) fn into_records(self) -> (Vec<FlowRecord>, Vec<JobRecord>) {
        let record = |source| match source {
            Source::Flows(_) => None,
            Source::Job(job) => Some(job.into_record()),
        };
        (self.records, self.sources.into_iter().filter_map(record).collect())
    }

    /// Of the sources' next flows the earliest; of equal ones that of the first source.
    fn next_start(sources: &mut [Source]) -> Option<(Time, usize)> {
        let starts = sources.iter_mut().enumerate();
        starts.filter_map(|(index, source)| Some((source.next_start()?, index))).min()
    }

    fn start(&mut self, now: Time, source: usize, hosts: &mut Hosts<'_, Endpoint>) {
        let Some((spec, part)) = self.sources[source].next_flow() else { return };
        let awaited_by = part.map(|part| (source, part));
        let record = self.records.len();
        match self.try_start(now, &spec, hosts) {
            Some(name) => {
                self.live.insert(name, LiveFlow { record, awaited_by });
                self.records.push(FlowRecord { spec, end: None });
            }
            None => {
                self.records.push(FlowRecord { spec, end: Some(FlowEnd::lost(now)) });
                self.fail_job(awaited_by);
            }
        }
    }

    /// Begins to send a flow, unless its host is down or has no name left for it.
    fn try_start(
        &mut self,
        now: Time,
        spec: &FlowSpec,
        hosts: &mut Hosts<'_, Endpoint>,
    ) -> Option<(NodeId, FlowId)> {
        let src = NodeId(spec.src as u32);
        if self.is_down(now, src) {
            return None;
        }
        // Drawn even where it is not needed, so that a path for one flow changes that of no other.
        let drawn = self.entropy.bits() as u16;
        let message = Message {
            dst: NodeId(spec.dst as u32),
            body: Payload::Length(spec.bytes),
            tagger: FlowTagger::default(),
            entropy: spec.path.unwrap_or(drawn),
        };
        match hosts.machine(src).start(now, message) {
            Ok(flow) => Some((src, flow)),
            Err(StartError::TooMany) => None,
            Err(error @ StartError::TooLong(_)) => {
                unreachable!("sizes are checked when the file is read, yet {error}")
            }
        }
    }

    fn end(&mut self, now: Time, host: NodeId, sent: &Sent, arrived: bool) {
        let Some(flow) = self.live.remove(&(host, sent.flow)) else { return };
        let Sent { retransmissions, timeouts, .. } = *sent;
        let end = FlowEnd { at: now, arrived, retransmissions, timeouts };
        self.records[flow.record].end = Some(end);
        self.fail_job(flow.awaited_by);
    }

    /// The job of a flow that ended, if it still waited for it.
    fn fail_job(&mut self, awaited_by: Option<(usize, Part)>) {
        let source = awaited_by.map(|(source, _)| &mut self.sources[source]);
        if let Some(job) = source.and_then(Source::job) {
            job.on_failure();
        }
    }

    fn arrive(&mut self, now: Time, received: &Received) {
        let flow = self.live.get_mut(&(received.src, received.flow));
        let Some((source, part)) = flow.and_then(|flow| flow.awaited_by.take()) else { return };
        if let Some(job) = self.sources[source].job() {
            job.on_arrival(now, part);
        }
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
        for (_, flow) in lost {
            self.records[flow.record].end = Some(FlowEnd::lost(now));
            self.fail_job(flow.awaited_by);
        }
    }
}

impl FlowEnd {
    /// Of a flow whose sender is gone.
    fn lost(at: Time) -> FlowEnd {
        FlowEnd { at, arrived: false, retransmissions: 0, timeouts: 0 }
    }
}

impl Director<Endpoint> for FlowDirector {
    fn next_wake(&mut self) -> Time {
        let start = FlowDirector::next_start(&mut self.sources);
        start.map_or(Time::NEVER, |(start, _)| start).min(self.next_outage())
    }

    fn handle_wake(&mut self, now: Time, hosts: &mut Hosts<'_, Endpoint>) {
        while self.next_outage() <= now {
            let host = self.outages[self.begun_outages].node;
            self.begun_outages += 1;
            self.lose_flows_of(now, host);
            let jobs = self.sources.iter_mut().filter_map(Source::job);
            jobs.for_each(|job| job.on_host_down(host.index()));
        }
        while let Some((start, index)) = FlowDirector::next_start(&mut self.sources) {
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
        _hosts: &mut Hosts<'_, Endpoint>,
    ) {
        match event {
            Event::Sent(sent) => self.end(now, node, &sent, true),
            Event::Failed(sent) => self.end(now, node, &sent, false),
            Event::Received(received) => self.arrive(now, &received),
        }
    }

    fn handle_restart(&mut self, now: Time, host: NodeId, old: &Endpoint) -> Option<Endpoint> {
        self.resent_before_restarts += old.retransmissions();
        // One may have started in the same moment, before the host was up.
        self.lose_flows_of(now, host);
        // No host has started more flows than there are in all.
        let first_message = self.records.len() as u64;
        Endpoint::new(thalweg_flow::Config { first_message, ..self.transport.clone() }).ok()
    }

    fn is_done(&mut self) -> bool {
        self.live.is_empty() && FlowDirector::next_start(&mut self.sources).is_none()
    }
}
