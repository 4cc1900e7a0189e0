//! The machines of a job.

use std::sync::Arc;

use thalweg_aggregate::join::Registrar;
use thalweg_aggregate::{Numeric, Setup, Worker, server, worker};
use thalweg_baselines::switchml;
use thalweg_collective::{Contents, Delivery, Results, ring, server as parameter_server};
use thalweg_core::{Bytes, JobId, NodeId, Rng, Span, Time};
use thalweg_fabric::{Hosts, Topology};
use thalweg_pace::Enforce;
use thalweg_stack::Participant;
use thalweg_transport::control::SampledClasses;
use thalweg_wire::aggregate::FAN_IN_MAX;

use super::paced::paced;
use super::stats::WorkerStats;
use super::{Bounded, Collective, Job, ServerUse, agree, paths, rack_switch};
use crate::error::Mistake;
use crate::plan::{Aggregation, DeliveryPlan, delivery};
use crate::simulated::{SimulatedHost, SimulatedParticipant};

/// Most chunks of one server that a worker may have in flight where front layers go first.
const LAYERS_AT_ONCE: u32 = 64;

/// Settings that all jobs of a scenario have in common.
#[derive(Clone, Copy)]
pub(crate) struct Stage<'a> {
    pub(crate) topology: &'a Topology,
    pub(crate) transport: &'a thalweg_flow::Config,
    pub(crate) aggregation: &'a Aggregation,
    pub(crate) deliveries: DeliveryPlan,
    /// By which jobs take turns, if they do.
    pub(crate) pacing: Option<&'a thalweg_pace::Settings>,
    /// Of each job with a static pool.
    pub(crate) slots: u32,
}

impl Stage<'_> {
    /// The settings of a worker of in-network aggregation. Sums wait for workers whose turn it is not, so
    /// silence says nothing before a slot is over.
    fn worker(&self) -> worker::Config {
        let config = self.aggregation.worker;
        let slot = self.pacing.map_or(Span::ZERO, |pacing| pacing.slot);
        let timeout_after = config.timeout_after.max(slot * 2);
        // Delays of less urgent classes say nothing about congestion.
        let has_classes = self.pacing.is_some_and(|pacing| pacing.enforce == Enforce::Class);
        let control = match has_classes {
            true => config.control.with_classes(SampledClasses::MostUrgent),
            false => config.control,
        };
        worker::Config {
            control,
            timeout_after,
            timeout_max: config.timeout_max.max(timeout_after),
            ..config
        }
    }
}

/// Participants of one job of a run.
#[derive(Clone, Debug)]
pub(crate) struct Cast {
    pub(crate) id: JobId,
    pub(crate) part: Part,
}

/// Set-up that the machines of a job have agreed on.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    Aggregation(Arc<Setup>),
    Server,
    Ring,
    SwitchMl { switch: NodeId, slots: u32 },
}

impl Cast {
    /// Brings the hosts of all jobs together. The mistake comes with the number of the job.
    pub(crate) fn all<'a>(
        jobs: impl Iterator<Item = &'a Job>,
        stage: Stage<'_>,
        rng: &Rng,
    ) -> Result<Vec<Cast>, (usize, Mistake)> {
        let mut registrar = Registrar::new(rng.stream("registrar"));
        let mut casts = Vec::new();
        for (number, job) in jobs.enumerate() {
            let mut ids = rng.substream("job", number as u64);
            let part = Part::of(job, number, stage, &mut registrar);
            let part = part.map_err(|mistake| (number, mistake))?;
            let id =
                if let Part::Aggregation(setup) = &part { setup.job } else { JobId(ids.bits()) };
            let cast = Cast { id, part };
            for host in job.hosts() {
                let participant = cast.participant(Time::ZERO, job, stage, host);
                participant.map_err(|mistake| (number, mistake))?;
            }
            casts.push(cast);
        }
        Ok(casts)
    }

    /// Has every host take part from now on.
    pub(crate) fn enter(
        &self,
        now: Time,
        job: &Job,
        stage: Stage<'_>,
        hosts: &mut Hosts<'_, SimulatedHost>,
    ) {
        if let Part::Aggregation(setup) = &self.part {
            for &node in &job.servers {
                hosts.machine(node).server_mut().adopt(now, Arc::clone(setup));
            }
        }
        for node in job.hosts() {
            let participant = self.participant(now, job, stage, node);
            if let Some(participant) = participant.expect("checked when the file was read") {
                hosts.machine(node).enter(self.id, participant);
            }
            if let Some(paced) = paced(&self.part, job, stage, node) {
                hosts.machine(node).enter_paced(self.id, &paced);
            }
        }
    }

    /// Has every host forget the job.
    pub(crate) fn leave(&self, job: &Job, hosts: &mut Hosts<'_, SimulatedHost>) {
        for node in job.hosts() {
            let host = hosts.machine(node);
            host.leave(self.id);
            if host.server().is_some() {
                host.server_mut().retire(self.id);
            }
        }
    }

    /// Counters of the hosts: workers by rank, then hosts that only serve. `at` asks a host with
    /// [`stats_at`](Cast::stats_at).
    pub(crate) fn stats(
        &self,
        job: &Job,
        mut at: impl FnMut(NodeId) -> (WorkerStats, Option<server::Stats>),
    ) -> (Vec<WorkerStats>, Vec<ServerUse>) {
        let machines = match self.part {
            Part::Server => usize::MAX,
            _ => job.workers.len(),
        };
        let workers = job.hosts().take(machines).map(|node| at(node).0).collect();
        let used = |node: NodeId| Some(ServerUse { host: node, stats: at(node).1? });
        (workers, job.servers.iter().copied().filter_map(used).collect())
    }

    /// Counters of one host, as a worker and as a server of in-network aggregation.
    pub(crate) fn stats_at(&self, host: &SimulatedHost) -> (WorkerStats, Option<server::Stats>) {
        let server = host.server().and_then(|server| server.stats_of(self.id));
        (WorkerStats::of(host, self.id), server)
    }

    /// The machine of one host, if the collective has one there.
    fn participant(
        &self,
        now: Time,
        job: &Job,
        stage: Stage<'_>,
        node: NodeId,
    ) -> Result<Option<SimulatedParticipant>, Mistake> {
        let rank = job.workers.iter().position(|&worker| worker == node);
        let seed = Rng::new(self.id.0).substream("control", node.0.into()).bits();
        let mut flow = thalweg_flow::Config { seed, ..stage.transport.clone() };
        flow.messages.credentials.job = self.id;
        let participant = match (&self.part, rank) {
            (Part::Server, _) => {
                let config =
                    parameter_server::Config::new(job.workers.clone(), job.servers.clone());
                let chunk_bytes = job.chunk.map_or(config.chunk_bytes, Bytes::as_u64);
                let mut config = parameter_server::Config { flow, chunk_bytes, ..config.at(node) };
                if let Some(bounded) = &job.delivery {
                    // Layers can only overtake each other where several are in flight.
                    (config.chunks_in_flight, config.pushes_at_once) =
                        (LAYERS_AT_ONCE, LAYERS_AT_ONCE);
                    config.delivery = Some(self.delivery(*bounded, (stage, job), node));
                }
                let node = parameter_server::Node::new(config);
                Participant::Server(Box::new(node.map_err(Mistake::here)?))
            }
            (_, None) => return Ok(None),
            (Part::Ring, Some(rank)) => {
                let config = ring::Config::new(job.workers.clone(), rank as u32);
                let chunk_bytes = job.chunk.map_or(config.chunk_bytes, Bytes::as_u64);
                let delivery =
                    job.delivery.map(|bounded| self.delivery(bounded, (stage, job), node));
                let config = ring::Config { flow, chunk_bytes, delivery, ..config };
                let ring = ring::Ring::new(config);
                Participant::Ring(Box::new(ring.map_err(Mistake::here)?))
            }
            (Part::Aggregation(setup), Some(rank)) => {
                let worker = Worker::new(stage.worker());
                let mut worker = worker.expect("checked when the file was read");
                let fits = worker.adopt(now, Arc::clone(setup), rank as u32);
                assert!(fits, "the registrar makes set-ups that fit");
                Participant::Aggregate(Box::new(worker))
            }
            (&Part::SwitchMl { switch, slots }, Some(rank)) => {
                let config = self.switchml(job, stage, (switch, slots), rank as u8);
                let worker = switchml::Worker::new(config).map_err(Mistake::here)?;
                return Ok(Some(SimulatedParticipant::SwitchMl(Box::new(worker))));
            }
        };
        Ok(Some(SimulatedParticipant::Product(participant)))
    }

    /// Delivery options of one host's messages where a part may be lost.
    fn delivery(
        &self,
        bounded: Bounded,
        (stage, job): (Stage<'_>, &Job),
        node: NodeId,
    ) -> Delivery {
        let plan = stage.deliveries.with_servers(job.servers.len());
        let default = Delivery::new(Rng::new(self.id.0).substream("host", node.0.into()));
        Delivery {
            endpoint: delivery(stage.transport, stage.topology, (node, self.id), plan),
            loss: bounded.loss,
            layers: bounded.layers,
            contents: Contents::Lengths,
            results: match bounded.keeps_parameters {
                true => Results::MayBeLost,
                false => Results::Exact,
            },
            ..default
        }
    }

    fn switchml(
        &self,
        job: &Job,
        stage: Stage<'_>,
        (switch, slots): (NodeId, u32),
        rank: u8,
    ) -> switchml::Config {
        let default = switchml::Config::new(self.id, switch, rank, job.workers.len() as u8);
        switchml::Config {
            slots,
            fragment_values: stage.aggregation.parameters.fragment_values,
            scale: match stage.aggregation.parameters.numeric {
                Numeric::Fixed { scale, .. } => scale,
                Numeric::Float => default.scale,
            },
            overhead_bytes: stage.aggregation.parameters.overhead_bytes,
            timeout_after: stage.aggregation.worker.timeout_after,
            ..default
        }
    }
}

impl Part {
    fn of(
        job: &Job,
        number: usize,
        stage: Stage<'_>,
        registrar: &mut Registrar,
    ) -> Result<Part, Mistake> {
        Ok(match job.collective {
            Collective::Server => Part::Server,
            Collective::Ring => Part::Ring,
            Collective::SwitchMl => {
                Part::SwitchMl { switch: one_switch(job, stage.topology)?, slots: stage.slots }
            }
            Collective::Aggregate | Collective::RackOnly => {
                let spec = stage.aggregation.job(job.workers.len(), job.servers.clone());
                let paths = paths(stage.topology, job, stage.aggregation.levels, number);
                Part::Aggregation(agree(registrar, spec, &job.workers, paths)?)
            }
        })
    }
}

/// The switch that all workers are connected to.
fn one_switch(job: &Job, topology: &Topology) -> Result<NodeId, Mistake> {
    if job.workers.len() > usize::from(FAN_IN_MAX) {
        let message = format!(
            "{} workers are more than a SwitchML switch sums for: name at most {FAN_IN_MAX}",
            job.workers.len()
        );
        return Err(Mistake::at("workers", message));
    }
    let mut switches = job.workers.iter().map(|&worker| rack_switch(topology, worker));
    let first = switches.next().flatten();
    match first {
        Some(switch) if switches.all(|other| other == first) => Ok(switch),
        _ => {
            let message = "SwitchML sums in one switch: name workers that are all connected to the \
                           same one, or take another collective";
            Err(Mistake::at("workers", message))
        }
    }
}
