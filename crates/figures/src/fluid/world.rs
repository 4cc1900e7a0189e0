//! Jobs on a cluster, slot by slot.

use std::collections::VecDeque;
use std::ops::Range;

use thalweg_core::Rng;
use thalweg_pace::Relation;

use super::cluster::Cluster;
use super::jobs::JobSpec;

/// Says what flows send.
pub(crate) trait Policy {
    /// A job has got its servers. Returns the slots that it waits before it begins.
    fn admit(&mut self, _world: &World, _job: usize) -> u64 {
        0
    }

    /// A job begins to send in this slot.
    fn begin(&mut self, _world: &World, _job: usize) {}

    /// Fills in how much each flow of the jobs that are sending may send in this slot. Nothing may
    /// exceed a link.
    fn allocate(&mut self, world: &World, bytes: &mut [u64]);

    /// A job has ended.
    fn end(&mut self, _world: &World, _job: usize) {}
}

/// Progress of a run.
pub(crate) struct Progress {
    pub(crate) slot: u64,
    /// Number of jobs that have ended, and number of jobs that have servers.
    pub(crate) ended: usize,
    pub(crate) running: usize,
}

pub(crate) struct Flow {
    pub(crate) job: usize,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) path: Vec<usize>,
    pub(crate) volume: u64,
    pub(crate) sent: u64,
    pub(crate) relation: Relation,
    /// Flows of the same job, by their numbers in the world.
    pub(crate) others: Vec<usize>,
}

pub(crate) struct Job {
    pub(crate) spec: JobSpec,
    pub(crate) servers: Vec<usize>,
    pub(crate) flows: Range<usize>,
    pub(crate) state: State,
    pub(crate) iterations_left: u64,
    pub(crate) ended_at: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum State {
    Waiting,
    Computing { until: f64 },
    Sending { since: u64 },
    Ended,
}

/// The cluster, its jobs and their flows.
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) jobs: Vec<Job>,
    pub(crate) flows: Vec<Flow>,
    pub(crate) slot: u64,
    /// Jobs that are sending, in the order of their numbers.
    pub(crate) sending: Vec<usize>,
    queue: VecDeque<usize>,
    arrived: usize,
    free_gpus: Vec<u32>,
    rng: Rng,
}

impl Flow {
    pub(crate) fn remaining(&self) -> u64 {
        self.volume - self.sent
    }
}

impl World {
    pub(crate) fn new(cluster: Cluster, specs: Vec<JobSpec>, rng: &Rng) -> World {
        let job = |spec: JobSpec| Job {
            iterations_left: spec.iterations,
            spec,
            servers: Vec::new(),
            flows: 0..0,
            state: State::Waiting,
            ended_at: None,
        };
        World {
            free_gpus: vec![cluster.shape().gpus_per_server; cluster.servers()],
            cluster,
            jobs: specs.into_iter().map(job).collect(),
            flows: Vec::new(),
            slot: 0,
            sending: Vec::new(),
            queue: VecDeque::new(),
            arrived: 0,
            rng: rng.stream("places"),
        }
    }

    /// Runs until all jobs have ended, or `watch` returns `false`.
    pub(crate) fn run<E>(
        &mut self,
        policy: &mut dyn Policy,
        mut watch: impl FnMut(&Progress) -> Result<bool, E>,
    ) -> Result<(), E> {
        let mut bytes = Vec::new();
        loop {
            let progress = self.progress();
            if progress.ended == self.jobs.len() || !watch(&progress)? {
                return Ok(());
            }
            self.admit(policy);
            self.begin(policy);
            bytes.clear();
            bytes.resize(self.flows.len(), 0);
            policy.allocate(self, &mut bytes);
            self.send(policy, &mut bytes);
            self.slot += 1;
        }
    }

    fn progress(&self) -> Progress {
        let arrived = &self.jobs[..self.arrived];
        let ended = arrived.iter().filter(|job| job.state == State::Ended).count();
        Progress { slot: self.slot, ended, running: self.arrived - self.queue.len() - ended }
    }

    /// Slots from arrival to end, of those that have ended.
    pub(crate) fn completion_slots(&self) -> Vec<f64> {
        let ended = self.jobs.iter().filter_map(|job| Some((job, job.ended_at?)));
        ended.map(|(job, end)| end as f64 - job.spec.arrives_at).collect()
    }

    /// Flows of jobs that are sending which have something left.
    pub(crate) fn active(&self) -> impl Iterator<Item = usize> {
        let flows = self.sending.iter().flat_map(|job| self.jobs[*job].flows.clone());
        flows.filter(|flow| self.flows[*flow].remaining() > 0)
    }

    fn admit(&mut self, policy: &mut dyn Policy) {
        while self.jobs.get(self.arrived).is_some_and(|job| job.spec.arrives_at <= self.slot as f64)
        {
            self.queue.push_back(self.arrived);
            self.arrived += 1;
        }
        while let Some(&job) = self.queue.front() {
            let mut draws = self.rng.substream("job", job as u64);
            let spec = &self.jobs[job].spec;
            let Some(servers) = spec.place(&self.free_gpus, self.cluster.shape(), &mut draws)
            else {
                return;
            };
            self.queue.pop_front();
            self.settle_in(job, servers);
            let wait = policy.admit(self, job) as f64;
            let until = self.slot as f64 + wait + self.jobs[job].spec.compute_slots;
            self.jobs[job].state = State::Computing { until };
        }
    }

    fn settle_in(&mut self, job: usize, servers: Vec<usize>) {
        let first = self.flows.len();
        for flow in self.jobs[job].spec.flows() {
            let (from, to) = (servers[flow.from], servers[flow.to]);
            self.flows.push(Flow {
                job,
                from,
                to,
                path: self.cluster.path(from, to),
                volume: flow.volume,
                sent: 0,
                relation: flow.relation,
                others: flow.others.iter().map(|other| first + other).collect(),
            });
        }
        servers.iter().for_each(|server| self.free_gpus[*server] -= 1);
        let job = &mut self.jobs[job];
        (job.servers, job.flows) = (servers, first..self.flows.len());
    }

    fn begin(&mut self, policy: &mut dyn Policy) {
        for job in 0..self.arrived {
            let State::Computing { until } = self.jobs[job].state else { continue };
            if until > self.slot as f64 {
                continue;
            }
            self.jobs[job].state = State::Sending { since: self.slot };
            for flow in self.jobs[job].flows.clone() {
                self.flows[flow].sent = 0;
            }
            let at = self.sending.partition_point(|other| *other < job);
            self.sending.insert(at, job);
            policy.begin(self, job);
        }
    }

    fn send(&mut self, policy: &mut dyn Policy, bytes: &mut [u64]) {
        self.check_links(bytes);
        for job in std::mem::take(&mut self.sending) {
            self.clip(job, bytes);
            let flows = self.jobs[job].flows.clone();
            let mut is_done = true;
            for flow in flows {
                let state = &mut self.flows[flow];
                state.sent += bytes[flow].min(state.remaining());
                is_done &= state.remaining() == 0;
            }
            if is_done {
                self.end_iteration(policy, job);
            } else {
                self.sending.push(job);
            }
        }
    }

    fn end_iteration(&mut self, policy: &mut dyn Policy, at: usize) {
        let job = &mut self.jobs[at];
        job.iterations_left -= 1;
        let end = self.slot + 1;
        if job.iterations_left > 0 {
            job.state = State::Computing { until: end as f64 + job.spec.compute_slots };
            return;
        }
        job.state = State::Ended;
        job.ended_at = Some(end);
        job.servers.iter().for_each(|server| self.free_gpus[*server] += 1);
        policy.end(self, at);
    }

    fn check_links(&self, bytes: &[u64]) {
        let mut load = vec![0; self.cluster.capacity().len()];
        for flow in self.active() {
            self.flows[flow].path.iter().for_each(|link| load[*link] += bytes[flow]);
        }
        let over = load.iter().zip(self.cluster.capacity()).position(|(load, most)| load > most);
        assert_eq!(over, None, "a policy gave away more than the link has");
    }

    /// Nothing can be sent that its sender does not have yet.
    pub(crate) fn clip(&self, job: usize, bytes: &mut [u64]) {
        let flows = self.jobs[job].flows.clone();
        // A ring is a circle: what one lacks, all after it may lack as well.
        for flow in flows.clone().chain(flows) {
            let state = &self.flows[flow];
            let wanted = bytes[flow].min(state.remaining());
            let others = state.others.iter().map(|other| self.flows[*other].sent + bytes[*other]);
            let excess = state.relation.ahead(state.sent + wanted, others);
            bytes[flow] = wanted.saturating_sub(excess);
        }
    }
}
