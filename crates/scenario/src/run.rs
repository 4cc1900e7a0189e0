//! A scenario in motion.

use std::io;

use thalweg_core::{NodeId, Rng, Time};
use thalweg_fabric::trace::Tracer;
use thalweg_fabric::{Fabric, Limit, LinkId, Pause, Violation};
use thalweg_flow::Endpoint;

use crate::director::FlowDirector;
use crate::outcome::{LinkUse, Outcome};
use crate::samples::{QueueSample, Samples};
use crate::scenario::Scenario;

/// A run that can be watched: call [`advance`](Run::advance) until it says that it is over, then
/// take the [`outcome`](Run::outcome).
pub struct Run<'a> {
    scenario: &'a Scenario,
    seed: u64,
    fabric: Fabric<Endpoint>,
    director: FlowDirector,
    samples: Option<Samples>,
    ports: Vec<LinkId>,
    ended: Option<Ending>,
}

/// How far a run is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Simulated time.
    pub now: Time,
    /// Flows that have started.
    pub started_flows: u64,
    /// Flows that have ended.
    pub ended_flows: u64,
    /// Flows there will be, where that is known.
    pub expected_flows: Option<u64>,
    /// Packets that crossed a link.
    pub packet_hops: u64,
    /// Why it is over, if it is.
    pub ended: Option<Ending>,
}

/// Why a run is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// Every flow has ended.
    Complete,
    /// The scenario's time was up.
    TimeUp,
    /// Nothing was left to happen, yet flows had not ended.
    Stuck,
    /// Whoever ran it went no further.
    Interrupted,
}

impl<'a> Run<'a> {
    /// A run at time zero. Queue lengths are sampled unless speed is all that counts.
    pub fn new(scenario: &'a Scenario, seed: u64, sample_queues: bool) -> Run<'a> {
        let rng = Rng::new(seed);
        let endpoint = |_: NodeId| {
            Endpoint::new(scenario.transport.clone()).expect("checked when the file was read")
        };
        let fabric = Fabric::new(scenario.topology.clone(), &scenario.fabric, seed, endpoint);
        let sources = scenario.traffic.iter().enumerate().map(|(index, traffic)| {
            let source = traffic.source(&rng.substream("traffic", index as u64));
            source.expect("checked when the file was read")
        });
        let director = FlowDirector::new(
            sources.collect(),
            rng.stream("entropy"),
            scenario.fabric.outages.clone(),
            scenario.transport.clone(),
        );
        let links = scenario.topology.links();
        let from_switch =
            |link: &LinkId| !scenario.topology.is_host(scenario.topology.link_ends(*link).0);
        Run {
            scenario,
            seed,
            fabric,
            director,
            samples: sample_queues.then(Samples::default),
            ports: links.filter(from_switch).collect(),
            ended: None,
        }
    }

    /// Reports every packet to a tracer.
    pub fn trace(&mut self, tracer: Box<dyn Tracer>) {
        self.fabric.trace(tracer);
    }

    /// Ends tracing. Fails if not everything could be written.
    pub fn finish_trace(&mut self) -> io::Result<()> {
        self.fabric.finish_trace()
    }

    /// Goes on for about so many events.
    pub fn advance(&mut self, events: u64) -> Progress {
        let goal = self.fabric.stats().events.saturating_add(events);
        while self.ended.is_none() && self.fabric.stats().events < goal {
            self.slice(goal - self.fabric.stats().events);
        }
        self.progress()
    }

    /// Runs to the end.
    pub fn finish(mut self) -> Outcome {
        while self.ended.is_none() {
            self.advance(u64::MAX);
        }
        self.outcome()
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        let expected = self.scenario.traffic.iter().map(|traffic| traffic.expected_flows()).sum();
        Progress {
            now: self.fabric.now(),
            started_flows: self.director.records.len() as u64,
            ended_flows: self.director.finished() as u64,
            expected_flows: expected,
            packet_hops: self.fabric.stats().packet_hops,
            ended: self.ended,
        }
    }

    /// Checks what must hold at every moment.
    pub fn check(&self) -> Result<(), Violation> {
        self.fabric.check()
    }

    /// What happened.
    pub fn outcome(mut self) -> Outcome {
        let links = self.scenario.topology.links();
        let link_use = |link: LinkId| {
            let (from, to) = self.scenario.topology.link_ends(link);
            let rate = self.scenario.topology.cables()[link.index() / 2].rate;
            LinkUse { from, to, rate, stats: self.fabric.link_stats(link) }
        };
        let links = links.map(link_use).collect();
        let hosts = (0..self.scenario.topology.hosts()).map(NodeId);
        let resent_now: u64 = hosts.map(|host| self.fabric.machine(host).retransmissions()).sum();
        let resent_packets = resent_now + self.director.resent_before_restarts;
        let ideals = self.scenario.ideals(&self.director.records);
        let (flows, jobs) = self.director.into_records();
        Outcome {
            seed: self.seed,
            digest: self.fabric.digest(),
            now: self.fabric.now(),
            ending: self.ended.unwrap_or(Ending::Interrupted),
            stats: self.fabric.stats(),
            resent_packets,
            links,
            ideals,
            flows,
            jobs,
            queues: self.samples.map(|samples| samples.taken).unwrap_or_default(),
            check: self.fabric.check(),
        }
    }

    /// Runs to the next sample, the end of time, or for so many events.
    fn slice(&mut self, events: u64) {
        let stop = self.scenario.stop_after.map_or(Time::NEVER, |span| Time::ZERO + span);
        let sample_at = self.samples.as_ref().map_or(Time::NEVER, Samples::next);
        let until = stop.min(sample_at);
        let last = self.fabric.stats().events.saturating_add(events);
        let pause = self.fabric.run(&mut self.director, Limit { until, events });
        match pause {
            Pause::Done => self.ended = Some(Ending::Complete),
            Pause::Quiet => self.ended = Some(Ending::Stuck),
            // More may be due in this very moment.
            Pause::Limit if self.fabric.stats().events == last => {}
            Pause::Limit if self.fabric.now() >= stop => self.ended = Some(Ending::TimeUp),
            Pause::Limit if self.fabric.now() >= sample_at => self.sample(),
            Pause::Limit => {}
        }
    }

    fn sample(&mut self) {
        let Run { fabric, samples: Some(samples), ports, .. } = self else { return };
        let queued = |link: &LinkId| fabric.queue_bytes(*link);
        let (fullest_bytes, total_bytes) =
            ports.iter().map(queued).fold((0, 0), |(fullest, total): (u64, u64), bytes| {
                (fullest.max(bytes), total + bytes)
            });
        samples.push(QueueSample { at: fabric.now(), fullest_bytes, total_bytes });
    }
}
