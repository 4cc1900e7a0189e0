//! Completes sums, and sends them back.
//!
//! A [`Server`] takes in what switches could not sum, finishes it, and answers. It keeps results until
//! every worker has them, and asks for what is missing when a worker misses a result. The rules are in
//! `docs/aggregation.md`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use thalweg_core::{JobId, Machine, NodeId, Outbox, Packet, Reports, Span, Time, Verdict};
use thalweg_transport::path;
use thalweg_wire::aggregate::{
    AggregateError, Description, Gradient, Notice, PROBE_JOB, Query, Scale, SwitchLimits,
};
use thalweg_wire::tag::{self, Key, Secrets};
use thalweg_wire::{Kind, Prefix, PrefixError, peek};
use thiserror::Error;

use self::intake::Arrival;
use self::job::{Context, Job};
pub use self::memory::{BudgetError, SPAN_LEAST, check_fit, fit, memory_bytes, needed_bytes};
use self::probe::Probes;
pub use self::probe::SwitchPath;
use self::queue::{Progress, Queue};
pub use self::stats::{Refusals, Stats};
use crate::keys::Keys;
use crate::setup::Setup;

mod check;
mod credit;
mod intake;
mod job;
mod judge;
mod loss_budget;
mod memory;
mod positions;
mod probe;
mod queue;
mod ring;
mod scaling;
mod send;
mod slot;
mod stats;
#[cfg(test)]
mod tests;

/// Settings of a [`Server`].
#[derive(Clone, Debug)]
pub struct Config {
    /// The node that it runs on: it serves the trees with this root.
    pub me: NodeId,
    /// Time in which the same is not asked, answered or announced again. Default 50 µs: a few round trips
    /// of a data centre, so that what was sent can arrive before it is sent once more.
    pub ask_gap: Span,
    /// Most jobs at a time. Default 1,024.
    pub jobs_max: u32,
    /// Most bytes that one job may take, by what it can come to ([`memory_bytes`]). Default no limit: a simulation need not
    /// carry values, and its jobs are not strangers.
    // spec: E-12
    pub job_memory_bytes: u64,
    /// Most bytes that all jobs may take together. Default no limit.
    pub memory_bytes: u64,
    /// Keys of jobs are derived from them: packets are sealed with them, and what was not is dropped.
    /// Default none: a simulation without attackers.
    pub secrets: Option<Secrets>,
}

/// Why settings cannot work. The configuration is at fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ConfigError {
    /// A setting that has to be positive.
    #[error("{0} is zero: set it to more")]
    Zero(&'static str),
}

/// Events for the server's application.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Event {
    /// A job, or a new epoch of one, was not adopted: it does not fit the budgets. Other jobs go on.
    // spec: E-12
    Refused {
        /// The job.
        job: JobId,
        /// The reason.
        reason: BudgetError,
    },
    /// Overflow was frequent: workers will use another scale.
    Rescaled {
        /// The job.
        job: JobId,
        /// The first fragment with the new scale.
        from: u64,
        /// The new scale.
        scale: Scale,
    },
    /// Two ranks have called different operations: their contributions to a fragment are not added, and the job
    /// comes to a stop. Reported once in an epoch.
    // spec: E-11
    Differs {
        /// The job.
        job: JobId,
        /// The fragment.
        sequence: u64,
    },
    /// A switch has answered a [probe](Server::probe).
    // spec: E-06, E-09
    Answered {
        /// The switch.
        switch: NodeId,
        /// Limits of the switch.
        limits: SwitchLimits,
    },
    /// A switch has answered a [probe of its path](Server::probe_path): a packet of this length has passed in both
    /// directions.
    // spec: F-01
    PathAnswered {
        /// The path.
        path: SwitchPath,
        /// Length of the body.
        body_bytes: usize,
    },
}

/// Contributions that are missing of a fragment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Missing {
    /// The contributions of these ranks.
    Ranks(Vec<u32>),
    /// Nothing: the sum is complete, and was sent.
    Nothing,
    /// The fragment is none of those that the server works on.
    Unknown,
}

/// The server of any number of jobs, on one node.
///
/// It acts on packets alone and needs no timer. Memory is bounded by the jobs' set-ups, whatever
/// arrives: a window of fragments for each tree, and buffers for the values, allocated when they are first needed and used
/// again. The most that a job can take ([`memory_bytes`]) is reserved for it while it is here, within
/// [`Config::job_memory_bytes`] and [`Config::memory_bytes`].
#[derive(Debug)]
pub struct Server {
    config: Config,
    jobs: BTreeMap<JobId, Job>,
    queue: Queue,
    probes: Probes,
    events: VecDeque<Event>,
    /// Of jobs that are over, and of packets that belong to no job.
    past: Stats,
    /// Bytes that are reserved for all jobs.
    reserved_bytes: u64,
    /// Most tasks of all jobs in either queue.
    tasks_max: usize,
    refusals: Refusals,
}

impl Config {
    /// The defaults for a server on this node.
    pub fn new(me: NodeId) -> Config {
        Config {
            me,
            ask_gap: Span::from_us(50),
            jobs_max: 1_024,
            job_memory_bytes: u64::MAX,
            memory_bytes: u64::MAX,
            secrets: None,
        }
    }

    /// Refuses settings that cannot work.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.ask_gap == Span::ZERO {
            return Err(ConfigError::Zero("ask_gap"));
        }
        let positive = [
            ("jobs_max", u64::from(self.jobs_max)),
            ("job_memory_bytes", self.job_memory_bytes),
            ("memory_bytes", self.memory_bytes),
        ];
        match positive.into_iter().find(|(_, value)| *value == 0) {
            Some((name, _)) => Err(ConfigError::Zero(name)),
            None => Ok(()),
        }
    }
}

impl Server {
    /// A server without jobs.
    pub fn new(config: Config) -> Result<Server, ConfigError> {
        config.check()?;
        Ok(Server {
            probes: Probes::new(config.me, config.secrets.as_ref().map(Secrets::current)),
            config,
            jobs: BTreeMap::new(),
            queue: Queue::default(),
            events: VecDeque::new(),
            past: Stats::default(),
            reserved_bytes: 0,
            tasks_max: 0,
            refusals: Refusals::default(),
        })
    }

    /// Replaces the secrets of the cluster. Jobs that are here keep their keys until their next set-up. A server without
    /// secrets stays as it is.
    // spec: T-06
    pub fn replace_secrets(&mut self, secrets: Secrets) {
        if self.config.secrets.is_some() {
            self.config.secrets = Some(secrets);
            self.probes.replace_secret(secrets.current());
        }
    }

    /// Takes on a job, or a new epoch of one, and tells its switches. Trees of other servers are
    /// theirs; without any of its own, the job is over here. A set-up that is not newer than what it
    /// has changes nothing, nor does one that does not fit the budgets: [`Event::Refused`] follows.
    // spec, E-12
    pub fn adopt(&mut self, now: Time, setup: Arc<Setup>) {
        let id = setup.job;
        if self.jobs.get(&id).is_some_and(|job| setup.epoch <= job.setup.epoch) {
            return;
        }
        if setup.trees.iter().all(|tree| tree.server() != self.config.me) {
            return self.retire(id);
        }
        if let Err(reason) = self.check_budgets(&setup) {
            self.refusals.note(reason);
            self.events.push_back(Event::Refused { job: id, reason });
            return;
        }
        let mut job = match self.remove(id) {
            Some(job) => job.renew(&self.config, setup),
            None => Job::new(&self.config, setup),
        };
        self.reserved_bytes += job.memory_bytes;
        self.tasks_max += job.tasks_max();
        let (gap, queue, events) = (self.config.ask_gap, &mut self.queue, &mut self.events);
        job.announce(&mut Context { now, job: id, gap, queue, events });
        self.jobs.insert(id, job);
    }

    /// Forgets a job that is over. Late packets of it are dropped.
    pub fn retire(&mut self, job: JobId) {
        if let Some(over) = self.remove(job) {
            self.past += &over.stats;
        }
    }

    /// Bytes that are reserved for all jobs: the most that they can take.
    // spec: E-12
    pub fn reserved_bytes(&self) -> u64 {
        self.reserved_bytes
    }

    /// Bytes that are reserved for each job that is here.
    pub fn reserved_by_job(&self) -> impl Iterator<Item = (JobId, u64)> + '_ {
        self.jobs.iter().map(|(id, job)| (*id, job.memory_bytes))
    }

    /// Jobs that were not adopted, by reason.
    pub fn refusals(&self) -> Refusals {
        self.refusals
    }

    /// Counts of all jobs, with those that are over.
    pub fn stats(&self) -> Stats {
        let mut all = self.past;
        self.jobs.values().for_each(|job| all += &job.stats);
        all
    }

    /// Counts of a job. `None` if it is over, or was never here.
    pub fn stats_of(&self, job: JobId) -> Option<Stats> {
        self.jobs.get(&job).map(|job| job.stats)
    }

    /// Counts of each job that is here.
    pub fn jobs(&self) -> impl Iterator<Item = (JobId, Stats)> + '_ {
        self.jobs.iter().map(|(id, job)| (*id, job.stats))
    }

    /// Contributions that are missing of a fragment of a job.
    // spec: T-07
    pub fn missing(&mut self, job: JobId, sequence: u64) -> Missing {
        self.jobs.get_mut(&job).map_or(Missing::Unknown, |job| job.missing(sequence))
    }

    /// Asks a switch for its limits. If it is there, [`Event::Answered`] follows.
    // spec: E-06, E-09
    pub fn probe(&mut self, switch: NodeId) {
        self.probes.push(SwitchPath { switch, via: None }, 0);
    }

    /// Asks whether packets with bodies of this length pass between here and a switch. If they do,
    /// [`Event::PathAnswered`] follows.
    // spec: F-01
    pub fn probe_path(&mut self, path: SwitchPath, body_bytes: u16) {
        self.probes.push(path, body_bytes);
    }

    /// Answers the probe of a worker's path, in its place. Returns true if the packet must be sent.
    // spec: F-01
    pub fn answer_path(&mut self, prefix: Prefix, packet: &mut Packet<'_>) -> bool {
        // Without secrets nobody knows who may ask.
        let secrets = self.config.secrets;
        let secret = secrets.as_ref().and_then(|secrets| secrets.of(prefix.generation()));
        let key = secret.map(|secret| Key::derive(secret, prefix.job, prefix.epoch()));
        let is_answered = key.is_some() && path::answer(prefix, packet, key.as_ref());
        let count = if is_answered { &mut self.past.path_probes } else { &mut self.past.forged };
        *count += 1;
        is_answered
    }

    /// Takes in a packet whose prefix the caller has [read](peek).
    pub fn handle_checked(&mut self, now: Time, prefix: Prefix, packet: Packet<'_>) {
        if self.take_in(now, prefix, packet).is_err() {
            self.past.malformed += 1;
        }
        self.tidy_queue();
    }

    /// Takes a job out, with what is reserved for it and what waits to be sent.
    fn remove(&mut self, id: JobId) -> Option<Job> {
        let job = self.jobs.remove(&id)?;
        self.reserved_bytes -= job.memory_bytes;
        self.tasks_max -= job.tasks_max();
        self.queue.forget(id);
        self.tidy_queue();
        Some(job)
    }

    /// Checks that a set-up fits the budgets, in place of the one that the job has.
    // spec: E-12
    fn check_budgets(&self, setup: &Setup) -> Result<(), BudgetError> {
        let Config { me, jobs_max, job_memory_bytes, memory_bytes: budget_bytes, .. } = self.config;
        let before = self.jobs.get(&setup.job);
        if before.is_none() && self.jobs.len() >= jobs_max as usize {
            return Err(BudgetError::Jobs(jobs_max));
        }
        let needed_bytes = memory_bytes(setup, me);
        if needed_bytes > job_memory_bytes {
            let budget_bytes = job_memory_bytes;
            return Err(BudgetError::JobMemory { needed_bytes, budget_bytes });
        }
        let reserved_bytes = self.reserved_bytes - before.map_or(0, |job| job.memory_bytes);
        if needed_bytes > budget_bytes - reserved_bytes {
            return Err(BudgetError::Memory { needed_bytes, reserved_bytes, budget_bytes });
        }
        Ok(())
    }

    /// Drops tasks that are over where they fill the queue. A job can make more of them than it can send: its window
    /// moves on, whether or not there is room for what it left behind.
    // spec: E-12
    fn tidy_queue(&mut self) {
        if self.queue.longest() > self.tasks_max {
            let jobs = &self.jobs;
            self.queue.retain(|id, task| jobs.get(&id).is_some_and(|job| job.is_pending(task)));
        }
    }

    fn take_in(
        &mut self,
        now: Time,
        prefix: Prefix,
        packet: Packet<'_>,
    ) -> Result<(), AggregateError> {
        let (kind, job, epoch) = (prefix.kind(), prefix.job, prefix.epoch());
        if job == PROBE_JOB {
            match self.probes.answer(prefix, &packet)? {
                Some(Description { switch, via, limits, .. }) => {
                    let body_bytes = packet.body.len();
                    let path = SwitchPath { switch, via };
                    self.events.push_back(match body_bytes {
                        0 => Event::Answered { switch, limits },
                        _ => Event::PathAnswered { path, body_bytes },
                    });
                }
                None => self.past.forged += 1,
            }
            return Ok(());
        }
        let Some(job) = self.jobs.get_mut(&job) else {
            self.past.unknown += 1;
            return Ok(());
        };
        // What is of another epoch has another key, and is dropped anyway.
        let is_genuine = |keys: &Keys| {
            // Only switches send notices.
            let is_notice = kind == Kind::AggregateNotice;
            let key = if is_notice { &keys.stations } else { &keys.job };
            let is_open = tag::leaves_body_open(&packet.body, prefix.covers_body());
            !(is_open && job.setup.parameters.seals_bodies)
                && tag::verify_packet(packet.header, &packet.body, prefix.covers_body(), key)
        };
        if job.keys.is_some_and(|keys| epoch == job.setup.epoch && !is_genuine(&keys)) {
            job.stats.forged += 1;
            return Ok(());
        }
        let (gap, queue, events) = (self.config.ask_gap, &mut self.queue, &mut self.events);
        let context = &mut Context { now, job: prefix.job, gap, queue, events };
        match kind {
            Kind::AggregateQuery => {
                let query = Query::decode_checked(prefix, packet.header)?;
                job.handle_query(&query, packet.meta.wire_bytes, context);
            }
            Kind::AggregateNotice => {
                job.handle_notice(&Notice::decode_checked(prefix, packet.header)?, context);
            }
            // Whatever else it may be, it is not for a server.
            _ => {
                let arrival = Arrival {
                    gradient: Gradient::decode_checked(prefix, packet.header)?,
                    body: packet.body,
                    ecn: packet.meta.ecn,
                    dscp: packet.meta.dscp,
                    wire_bytes: packet.meta.wire_bytes,
                };
                job.handle_gradient(&arrival, context);
            }
        }
        Ok(())
    }
}

impl Machine for Server {
    fn handle_packet(&mut self, now: Time, packet: Packet<'_>) -> Verdict<'_> {
        match peek(packet.header) {
            Ok(prefix) => self.handle_checked(now, prefix, packet),
            // spec: E-05
            Err(PrefixError::Version { .. }) => self.past.other_version += 1,
            Err(_) => self.past.malformed += 1,
        }
        Verdict::Consume
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, _now: Time, outbox: &mut dyn Outbox) {
        self.probes.send(outbox);
        while outbox.room() > 0
            && let Some((id, task)) = self.queue.front()
        {
            let job = self.jobs.get_mut(&id);
            match job.map_or(Progress::Finished, |job| job.send(task, outbox)) {
                Progress::More => {}
                Progress::Finished => self.queue.pop(),
                Progress::NoRoom => return,
            }
        }
    }

    fn has_backlog(&self) -> bool {
        !self.queue.is_empty() || !self.probes.is_empty()
    }

    fn poll_timeout(&self) -> Time {
        Time::NEVER
    }
}

impl Reports for Server {
    type Event = Event;

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}
