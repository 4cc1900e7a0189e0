//! Jobs: what they train, where, and what they send.

use serde::Deserialize;
use thalweg_core::Rng;
use thalweg_pace::Relation;
use thalweg_workload::{Compute, TrainingJob, models};

use super::cluster::Shape;

/// Exchange of a job's gradients.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Half of the members are parameter servers, half workers.
    Servers,
    Ring,
}

/// Distribution of jobs.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Mix {
    pub(crate) models: Vec<Trained>,
    /// A job has one of these numbers of members, each on a server of its own.
    pub(crate) members: Vec<usize>,
    pub(crate) batch: u32,
    pub(crate) flops_per_s: f64,
    /// The share of jobs whose members are anywhere in the cluster; the others are in one rack.
    pub(crate) scattered: f64,
}

/// Number, rate and length of jobs.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Arrivals {
    pub(crate) jobs: usize,
    /// On average, between arrivals.
    pub(crate) gap_slots: f64,
    /// The fewest and the most iterations.
    pub(crate) iterations: (u64, u64),
}

/// A model and how it is trained.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Trained {
    pub(crate) model: String,
    pub(crate) kind: Kind,
}

/// One job.
#[derive(Clone, Debug)]
pub(crate) struct JobSpec {
    pub(crate) kind: Kind,
    pub(crate) members: usize,
    pub(crate) bytes: u64,
    pub(crate) compute_slots: f64,
    pub(crate) iterations: u64,
    pub(crate) arrives_at: f64,
    pub(crate) is_scattered: bool,
}

/// A flow of a job, its ends counted in the job's members, its others in the job's flows.
pub(crate) struct JobFlow {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) volume: u64,
    pub(crate) relation: Relation,
    pub(crate) others: Vec<usize>,
}

impl Mix {
    /// The jobs of a seed, in the order of their arrival. `None` where a model has no such name or no
    /// such plan.
    pub(crate) fn draw(&self, arrivals: &Arrivals, slot_s: f64, rng: &Rng) -> Option<Vec<JobSpec>> {
        let kinds: Option<Vec<(u64, f64, Kind)>> =
            self.models.iter().map(|trained| self.profile(trained)).collect();
        let kinds = kinds?;
        let mut gaps = rng.stream("gaps");
        let mut draws = rng.stream("jobs");
        let mut now = 0.0;
        let mut job = || {
            now -= arrivals.gap_slots * libm::log(1.0 - gaps.uniform());
            let (bytes, compute_s, kind) = kinds[draws.below(kinds.len() as u64) as usize];
            let (fewest, most) = arrivals.iterations;
            JobSpec {
                kind,
                members: self.members[draws.below(self.members.len() as u64) as usize],
                bytes,
                compute_slots: compute_s / slot_s,
                iterations: fewest + draws.below(most - fewest + 1),
                arrives_at: now,
                is_scattered: draws.chance(self.scattered),
            }
        };
        Some((0..arrivals.jobs).map(|_| job()).collect())
    }

    /// Bytes of the gradients and seconds of computing.
    fn profile(&self, trained: &Trained) -> Option<(u64, f64, Kind)> {
        let model = models::by_name(&trained.model)?;
        let bytes = 4 * model.values();
        let compute = Compute::Accelerator { flops_per_s: self.flops_per_s, batch: self.batch };
        let job = TrainingJob {
            model,
            workers: vec![0],
            iterations: 1,
            compute,
            bytes_per_value: 4,
            buckets: None,
        };
        let plan = job.plan().ok()?;
        Some((bytes, (plan.forward + plan.backward).as_s_f64(), trained.kind))
    }
}

impl JobSpec {
    /// Flows of an iteration.
    pub(crate) fn flows(&self) -> Vec<JobFlow> {
        match self.kind {
            Kind::Ring => ring(self.members, self.bytes),
            Kind::Servers => servers(self.members / 2, self.members - self.members / 2, self.bytes),
        }
    }

    /// Servers of its members: servers with a free processor, or `None` when there are too few. It takes
    /// one rack after the other from a random one on, or servers in random order.
    pub(crate) fn place(&self, free: &[u32], shape: &Shape, rng: &mut Rng) -> Option<Vec<usize>> {
        let racks = free.len() / shape.servers_per_rack;
        let in_rack = |rack: usize| {
            let first = rack * shape.servers_per_rack;
            (first..first + shape.servers_per_rack).filter(|server| free[*server] > 0)
        };
        if !self.is_scattered {
            let start = rng.below(racks as u64) as usize;
            let order = (0..racks).map(|at| (start + at) % racks);
            let mut fitting = order.map(|rack| in_rack(rack).collect::<Vec<_>>());
            if let Some(mut servers) = fitting.find(|servers| servers.len() >= self.members) {
                rng.shuffle(&mut servers);
                servers.truncate(self.members);
                return Some(servers);
            }
        }
        let mut servers: Vec<usize> = (0..free.len()).filter(|server| free[*server] > 0).collect();
        rng.shuffle(&mut servers);
        servers.truncate(self.members);
        (servers.len() == self.members).then_some(servers)
    }
}

/// The first members are servers, the others workers; every server has an equal part of the model.
fn servers(servers: usize, workers: usize, bytes: u64) -> Vec<JobFlow> {
    let volume = bytes.div_ceil(servers as u64);
    let mut flows = Vec::new();
    for server in 0..servers {
        let first = flows.len();
        let (up, down) = (first..first + workers, first + workers..first + 2 * workers);
        flows.extend((0..workers).map(|worker| JobFlow {
            from: servers + worker,
            to: server,
            volume,
            relation: Relation::Aggregation,
            others: down.clone().collect(),
        }));
        flows.extend((0..workers).map(|worker| JobFlow {
            from: server,
            to: servers + worker,
            volume,
            relation: Relation::Broadcast,
            others: up.clone().collect(),
        }));
    }
    flows
}

fn ring(members: usize, bytes: u64) -> Vec<JobFlow> {
    let own_chunk = bytes.div_ceil(members as u64);
    let flow = |at: usize| JobFlow {
        from: at,
        to: (at + 1) % members,
        volume: own_chunk * 2 * (members as u64 - 1),
        relation: Relation::Ring { own_chunk },
        others: vec![(at + members - 1) % members],
    };
    (0..members).map(flow).collect()
}
