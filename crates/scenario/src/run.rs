//! A scenario in motion.

use std::io;

use thalweg_aggregate::server;
use thalweg_core::{NodeId, Rng, Time};
use thalweg_fabric::trace::Tracer;
use thalweg_fabric::{Fabric, Limit, LinkId, LinkStats, Pause, Violation};
use thalweg_flow::ArrivalStats;
use thalweg_stack::{PacingStats, Participant};

use crate::director::ScenarioDirector;
use crate::job::WorkerStats;
use crate::jobs::Jobs;
use crate::outcome::{LinkUse, Outcome};
use crate::programs::{Programs, SwitchStats, SwitchUse};
use crate::samples::{QueueSample, Samples};
use crate::scenario::Scenario;
use crate::simulated::SimulatedHost;

/// A run that can be watched: call [`advance`](Run::advance) until it says that it is over, then
/// take the [`outcome`](Run::outcome).
pub struct Run<'a> {
    scenario: &'a Scenario,
    seed: u64,
    fabric: Fabric<SimulatedHost>,
    director: ScenarioDirector<'a>,
    /// Switches with a program.
    switches: Vec<NodeId>,
    samples: Option<Samples>,
    ports: Vec<LinkId>,
    ended: Option<Ending>,
}

/// Progress of a run.
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
    /// Sums that workers have, over all jobs.
    pub finished_sums: u64,
    /// Sums there will be.
    pub expected_sums: u64,
    /// Packets that crossed a link.
    pub packet_hops: u64,
    /// Why it is over, if it is.
    pub ended: Option<Ending>,
}

/// Why a run is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// Every flow and every job has ended.
    Complete,
    /// The scenario's time was up.
    TimeUp,
    /// Nothing was left to happen, yet not everything had ended.
    Stuck,
    /// The caller went no further.
    Interrupted,
}

impl<'a> Run<'a> {
    /// A run at time zero. Queue lengths are sampled unless speed is all that counts.
    pub fn new(scenario: &'a Scenario, seed: u64, sample_queues: bool) -> Run<'a> {
        let rng = Rng::new(seed);
        let sources = scenario.traffic.iter().enumerate().map(|(index, traffic)| {
            let source = traffic.source(&rng.substream("traffic", index as u64));
            source.expect("checked when the file was read")
        });
        let (casts, programs) = scenario.cast(&rng).expect("checked when the file was read");
        let switches: Vec<NodeId> = programs.switches().collect();
        let director = ScenarioDirector::new(
            sources.collect(),
            (Jobs::new(scenario.jobs(), casts, scenario.stage()), programs.clone()),
            &rng,
            scenario,
        );
        let host = |node: NodeId| director.host(node, 0);
        let mut fabric = Fabric::new(scenario.topology.clone(), &scenario.fabric, seed, host);
        for &switch in &switches {
            fabric.install(switch, programs.start(switch).expect("it has one"));
        }
        let links = scenario.topology.links();
        let from_switch =
            |link: &LinkId| !scenario.topology.is_host(scenario.topology.link_ends(*link).0);
        Run {
            scenario,
            seed,
            fabric,
            director,
            switches,
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

    /// Runs for about this number of events.
    pub fn advance(&mut self, events: u64) -> Progress {
        let goal = self.fabric.stats().events.saturating_add(events);
        while self.ended.is_none() && self.fabric.stats().events < goal {
            self.slice(goal - self.fabric.stats().events, Time::NEVER);
        }
        self.progress()
    }

    /// Goes on to a moment: what happens then has happened.
    pub fn advance_until(&mut self, at: Time) -> Progress {
        while self.ended.is_none() {
            self.slice(u64::MAX, at);
            if self.fabric.now() >= at {
                break;
            }
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

    /// Progress so far.
    pub fn progress(&self) -> Progress {
        let expected = self.scenario.traffic.iter().map(|traffic| traffic.expected_flows()).sum();
        Progress {
            now: self.fabric.now(),
            started_flows: self.director.records.len() as u64,
            ended_flows: self.director.finished() as u64,
            expected_flows: expected,
            finished_sums: self.director.jobs.finished_sums(),
            expected_sums: self.scenario.expected_sums(),
            packet_hops: self.fabric.stats().packet_hops,
            ended: self.ended,
        }
    }

    /// Simulated time.
    pub fn now(&self) -> Time {
        self.fabric.now()
    }

    /// Counters of a link so far.
    pub fn link_stats(&mut self, link: LinkId) -> LinkStats {
        self.fabric.link_stats(link)
    }

    /// Counters of a switch's program since it last started; `None` if it has no program.
    pub fn switch_stats(&self, switch: NodeId) -> Option<SwitchStats> {
        Programs::stats(&self.fabric, switch)
    }

    /// Counters of a server of in-network aggregation for a job, which is counted from 0 in the order of the file;
    /// `None` if it is no server of that job.
    pub fn server_stats(&self, host: NodeId, job: usize) -> Option<server::Stats> {
        self.director.jobs.server_stats(job, host, self.fabric.machine(host))
    }

    /// Counters of a worker of a job.
    pub fn worker_stats(&self, job: usize, rank: usize) -> Option<WorkerStats> {
        self.director.jobs.worker_stats(job, rank, |host| self.fabric.machine(host))
    }

    /// Bytes of tensors whose sums a worker of a job has.
    pub fn summed_bytes(&self, job: usize, rank: usize) -> Option<u64> {
        self.director.jobs.summed_bytes(job, rank)
    }

    /// The machine of a host in a job, to read from. A job that ended early has none, nor has one of
    /// SwitchML.
    pub fn participant(&self, host: NodeId, job: usize) -> Option<&Participant> {
        self.fabric.machine(host).participant(self.director.jobs.id(job)?)?.product()
    }

    /// Checks what must hold at every moment.
    pub fn check(&self) -> Result<(), Violation> {
        self.fabric.check()
    }

    /// Results of the run.
    pub fn outcome(mut self) -> Outcome {
        let links = self.scenario.topology.links();
        let link_use = |link: LinkId| {
            let (from, to) = self.scenario.topology.link_ends(link);
            let rate = self.scenario.topology.cables()[link.index() / 2].rate;
            LinkUse { from, to, rate, stats: self.fabric.link_stats(link) }
        };
        let links = links.map(link_use).collect();
        let hosts = || (0..self.scenario.topology.hosts()).map(NodeId);
        let of_flows = |host| self.fabric.machine(host).flows().retransmissions();
        let resent_now: u64 = hosts().map(of_flows).sum();
        let lost_of_flows = hosts().map(|host| self.fabric.machine(host).flows().lost()).sum();
        let arrivals = hosts().map(|host| self.fabric.machine(host).flows().arrivals());
        let arrivals = arrivals.fold(ArrivalStats::default(), ArrivalStats::merge);
        let pacing = hosts().filter_map(|host| Some(self.fabric.machine(host).pacing()?.stats()));
        let pacing = pacing.reduce(PacingStats::merge);
        let switch_use = |&switch: &NodeId| {
            Some(SwitchUse { switch, stats: Programs::stats(&self.fabric, switch)? })
        };
        let switches = self.switches.iter().filter_map(switch_use).collect();
        let ScenarioDirector { records: flows, jobs, resent_before_restarts, prioritizer, .. } =
            self.director;
        let jobs = jobs.into_records(|host| self.fabric.machine(host));
        let resent_by_jobs: u64 = jobs.iter().map(|job| job.total().resent).sum();
        let (ideals, answers) = self.scenario.ideals(&flows);
        Outcome {
            seed: self.seed,
            digest: self.fabric.digest(),
            now: self.fabric.now(),
            ending: self.ended.unwrap_or(Ending::Interrupted),
            stats: self.fabric.stats(),
            resent_packets: resent_now + resent_before_restarts + resent_by_jobs,
            lost_of_flows,
            arrivals,
            pacing,
            tagged: prioritizer.flows,
            links,
            ideals,
            answers,
            flows,
            jobs,
            switches,
            queues: self.samples.map(|samples| samples.taken).unwrap_or_default(),
            check: self.fabric.check(),
        }
    }

    /// Runs to the next sample, the end of time or another moment, or for this number of events.
    fn slice(&mut self, events: u64, at: Time) {
        let stop = self.scenario.stop_after.map_or(Time::NEVER, |span| Time::ZERO + span);
        let sample_at = self.samples.as_ref().map_or(Time::NEVER, Samples::next);
        let until = stop.min(sample_at).min(at);
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
