//! All jobs of a run: hands over tensors when it is time, and hears when their sums come.
//!
//! A job ends early when one of its hosts goes down at any time, when one of its machines fails, or
//! when it waits for sums and none comes for [`PATIENCE`]. Then all its hosts forget it.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_aggregate::{Server, server};
use thalweg_core::{JobId, NodeId, Operation, Rng, Span, Time};
use thalweg_fabric::Hosts;
use thalweg_stack::Pacing;
use thalweg_values::Coverage;

use crate::job::{Cast, Job, JobRecord, JobRun, ServerUse, Stage, WorkerStats};
use crate::simulated::SimulatedHost;

/// Longest wait of a job for a sum. Longer than a flow waits for an answer: that says more.
const PATIENCE: Span = Span::from_s(60);

/// All jobs of a run.
pub(crate) struct Jobs<'a> {
    stage: Stage<'a>,
    all: Vec<Live<'a>>,
    by_id: BTreeMap<JobId, usize>,
    due: BTreeSet<(Time, usize, Step)>,
    /// Number of jobs that are not over.
    open: usize,
    finished_sums: u64,
}

struct Live<'a> {
    job: &'a Job,
    cast: Cast,
    run: JobRun<'a>,
    state: State,
    /// When a tensor was handed over or a sum came.
    last_progress: Time,
}

enum State {
    /// Running: its machines have the counters.
    Open,
    Complete,
    /// Ended early: counters until then, and the reason.
    Failed(Vec<WorkerStats>, Vec<ServerUse>, String),
}

/// Next step of a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Begin,
    /// The worker of this rank hands a tensor over.
    Submit(usize),
    /// Sees whether it still moves.
    Look,
}

impl<'a> Jobs<'a> {
    /// All jobs before their start.
    pub(crate) fn new(
        jobs: impl Iterator<Item = &'a Job>,
        casts: Vec<Cast>,
        stage: Stage<'a>,
    ) -> Jobs<'a> {
        let by_id = casts.iter().enumerate().map(|(number, cast)| (cast.id, number)).collect();
        let live = |(job, cast): (&'a Job, Cast)| Live {
            job,
            cast,
            run: JobRun::new(job),
            state: State::Open,
            last_progress: job.start,
        };
        let all: Vec<Live<'a>> = jobs.zip(casts).map(live).collect();
        let begin = |(number, live): (usize, &Live<'_>)| (live.job.start, number, Step::Begin);
        let due = all.iter().enumerate().map(begin).collect();
        Jobs { stage, by_id, due, open: all.len(), finished_sums: 0, all }
    }

    /// When it has something to do.
    pub(crate) fn next_wake(&self) -> Time {
        self.due.first().map_or(Time::NEVER, |(at, ..)| *at)
    }

    /// True if no job is open.
    pub(crate) fn are_over(&self) -> bool {
        self.open == 0
    }

    /// Number of finished sums, over all jobs.
    pub(crate) fn finished_sums(&self) -> u64 {
        self.finished_sums
    }

    /// Prepares a host that has just started.
    pub(crate) fn prepare(&self, node: NodeId, host: &mut SimulatedHost, rng: &Rng) {
        let takes_part = self.all.iter().any(|live| live.job.hosts().any(|own| own == node));
        if let Some(settings) = self.stage.pacing.filter(|_| takes_part) {
            let uplink = self.stage.topology.host_cable(node).rate;
            let pacing = Pacing::new(node, *settings, uplink, rng);
            host.pace(pacing.expect("checked when the file was read"));
        }
        let serves = |live: &Live<'_>| {
            live.job.collective.is_aggregation() && live.job.servers.contains(&node)
        };
        if self.all.iter().any(serves) {
            let server = Server::new(self.stage.aggregation.server(node));
            *host.server_mut() = server.expect("checked when the file was read");
        }
    }

    /// Does what is due.
    pub(crate) fn handle_wake(&mut self, now: Time, hosts: &mut Hosts<'_, SimulatedHost>) {
        while let Some(&(at, number, step)) = self.due.first() {
            if at > now {
                return;
            }
            self.due.pop_first();
            match step {
                Step::Begin => self.begin(now, number, hosts),
                Step::Submit(rank) => self.submit(now, number, rank, hosts),
                Step::Look => self.look(now, number, hosts),
            }
        }
    }

    /// A host has a sum.
    pub(crate) fn on_sum(
        &mut self,
        now: Time,
        node: NodeId,
        (job, operation): (JobId, Operation),
        coverage: &Coverage,
    ) {
        let Some(number) = self.open_job(job) else { return };
        let live = &mut self.all[number];
        let Some(rank) = live.job.workers.iter().position(|&worker| worker == node) else { return };
        live.last_progress = now;
        live.run.on_sum(now, rank, operation.0);
        live.run.on_coverage(rank, coverage);
        self.finished_sums += 1;
        if live.run.is_over() {
            live.state = State::Complete;
            self.close(number);
        } else {
            self.schedule(number, rank);
        }
    }

    /// A machine of a job has failed.
    pub(crate) fn on_failure(
        &mut self,
        job: JobId,
        why: String,
        hosts: &mut Hosts<'_, SimulatedHost>,
    ) {
        if let Some(number) = self.open_job(job) {
            self.fail(number, why, hosts);
        }
    }

    /// A host went down.
    pub(crate) fn on_host_down(&mut self, node: NodeId, hosts: &mut Hosts<'_, SimulatedHost>) {
        for number in 0..self.all.len() {
            if self.all[number].job.hosts().any(|host| host == node) {
                self.fail(number, format!("host {node} went down"), hosts);
            }
        }
    }

    /// The records of all jobs. `host` is how hosts are now.
    pub(crate) fn into_records<'h>(
        self,
        host: impl Fn(NodeId) -> &'h SimulatedHost,
    ) -> Vec<JobRecord> {
        let record = |live: Live<'a>| {
            let (stats, servers, failure) = match live.state {
                State::Failed(stats, servers, why) => (stats, servers, Some(why)),
                State::Open | State::Complete => {
                    let at = |node| live.cast.stats_at(host(node));
                    let (stats, servers) = live.cast.stats(live.job, at);
                    (stats, servers, None)
                }
            };
            live.run.into_record(stats, servers, failure)
        };
        self.all.into_iter().map(record).collect()
    }

    /// Counters of a worker so far.
    pub(crate) fn worker_stats<'h>(
        &self,
        number: usize,
        rank: usize,
        host: impl Fn(NodeId) -> &'h SimulatedHost,
    ) -> Option<WorkerStats> {
        let live = self.all.get(number)?;
        let node = *live.job.workers.get(rank)?;
        Some(match &live.state {
            State::Failed(stats, ..) => stats[rank],
            State::Open | State::Complete => live.cast.stats_at(host(node)).0,
        })
    }

    /// Counters of a server for a job so far.
    pub(crate) fn server_stats(
        &self,
        number: usize,
        node: NodeId,
        host: &SimulatedHost,
    ) -> Option<server::Stats> {
        let live = self.all.get(number)?;
        match &live.state {
            State::Failed(_, servers, _) => {
                servers.iter().find(|used| used.host == node).map(|used| used.stats)
            }
            State::Open | State::Complete => live.cast.stats_at(host).1,
        }
    }

    /// Bytes of tensors whose sums a worker has.
    pub(crate) fn summed_bytes(&self, number: usize, rank: usize) -> Option<u64> {
        self.all.get(number)?.run.summed_bytes(rank)
    }

    /// The name that packets of a job carry.
    pub(crate) fn id(&self, number: usize) -> Option<JobId> {
        self.all.get(number).map(|live| live.cast.id)
    }

    fn open_job(&self, job: JobId) -> Option<usize> {
        let number = *self.by_id.get(&job)?;
        matches!(self.all[number].state, State::Open).then_some(number)
    }

    fn begin(&mut self, now: Time, number: usize, hosts: &mut Hosts<'_, SimulatedHost>) {
        let Live { job, cast, state, .. } = &self.all[number];
        if !matches!(state, State::Open) {
            return;
        }
        cast.enter(now, job, self.stage, hosts);
        (0..job.workers.len()).for_each(|rank| self.schedule(number, rank));
        self.due.insert((now + PATIENCE, number, Step::Look));
    }

    /// Notes when a worker next has something to hand over.
    fn schedule(&mut self, number: usize, rank: usize) {
        if let Some((at, _)) = self.all[number].run.next(rank) {
            self.due.insert((at, number, Step::Submit(rank)));
        }
    }

    fn submit(
        &mut self,
        now: Time,
        number: usize,
        rank: usize,
        hosts: &mut Hosts<'_, SimulatedHost>,
    ) {
        let live = &mut self.all[number];
        let Some((_, ready)) = live.run.next(rank) else { return };
        if !matches!(live.state, State::Open) {
            return;
        }
        let host = hosts.machine(live.job.workers[rank]);
        match host.submit(now, live.cast.id, live.job.call(&ready)) {
            Ok(_) => {
                live.last_progress = now;
                live.run.on_submitted(now, rank);
                self.schedule(number, rank);
            }
            Err(error) => self.fail(number, error.to_string(), hosts),
        }
    }

    fn look(&mut self, now: Time, number: usize, hosts: &mut Hosts<'_, SimulatedHost>) {
        let Live { job, run, state, last_progress, .. } = &self.all[number];
        if !matches!(state, State::Open) {
            return;
        }
        let computes = (0..job.workers.len()).any(|rank| run.next(rank).is_some());
        if !computes && *last_progress + PATIENCE <= now {
            return self.fail(number, format!("no sum came for {PATIENCE}"), hosts);
        }
        let again = if computes { now } else { *last_progress } + PATIENCE;
        self.due.insert((again, number, Step::Look));
    }

    fn fail(&mut self, number: usize, why: String, hosts: &mut Hosts<'_, SimulatedHost>) {
        let Live { job, cast, state, .. } = &mut self.all[number];
        if !matches!(state, State::Open) {
            return;
        }
        let (stats, servers) = cast.stats(job, |node| cast.stats_at(hosts.machine(node)));
        cast.leave(job, hosts);
        *state = State::Failed(stats, servers, why);
        self.close(number);
    }

    fn close(&mut self, number: usize) {
        self.open -= 1;
        self.due.retain(|(_, other, _)| *other != number);
    }
}
