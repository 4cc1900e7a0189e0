//! Plays applications, the control channel, and the crashes.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_aggregate::join::{
    AGE_FRAGMENTS, Instruction, JobSpec, JoinError, Membership, Message, Process, Registrar,
};
use thalweg_aggregate::{JobParameters, Setup, SumOptions, Switch, Worker, server, switch, worker};
use thalweg_collective::Event as SumEvent;
use thalweg_core::{Checked, JobId, NodeId, Operation, Rng, Span, Time};
use thalweg_fabric::{Director, Hosts, Program};
use thalweg_flow::Endpoint;
use thalweg_stack::{Event, Participant, TrainingHost};
use thalweg_transport::control::{Aimd, Fixed};
use thalweg_transport::path::PathReport;
use thalweg_values::{Coverage, Tensor};
use thalweg_wire::tag::{Key, Secrets};

use crate::contents::{self, Oracle};
use crate::paths::Probing;
use crate::plan::{JobPlan, Plan, Stall};

/// Message in flight over the control channel, or an action that is due at a time.
#[derive(Clone)]
pub(crate) enum Mail {
    Tell(Message),
    Instruct(Instruction),
    /// All workers of a job ask to join.
    Begin(usize),
    /// A worker that was not set up yet asks again.
    Again {
        job: usize,
        rank: usize,
        life: u64,
    },
    /// A worker that was late begins its operation.
    Late {
        job: usize,
        rank: usize,
        life: u64,
    },
    /// Participants that wait are reminded.
    Remind(usize),
    /// A server that restarted says so, until it is set up again.
    Restarted(Process),
    Crash(NodeId),
    /// A worker has probed its paths before it answers a round.
    Probed {
        job: usize,
        rank: usize,
        round: u32,
        report: PathReport,
        answer: Message,
    },
    /// Workers that make no progress probe their paths again.
    Watch(usize),
    /// A worker of a job with a path that is too narrow gets the error.
    End {
        job: usize,
        rank: usize,
    },
    /// The servers of such a job forget it.
    Retire(usize),
}

/// One run.
pub struct Swarm<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) registrar: Registrar,
    pub(crate) rng: Rng,
    mail: BTreeMap<(Time, u64), Mail>,
    posted: u64,
    lives: u64,
    /// Of servers that have restarted.
    server_lives: BTreeMap<NodeId, u64>,
    pub(crate) jobs: Vec<Job>,
    /// Number of operations that failed at a rank because a path became too narrow.
    pub narrowed: u64,
    /// Number of first set-ups with shorter fragments than announced.
    pub short_setups: u64,
    /// The first failure.
    pub failure: Option<String>,
}

pub(crate) struct Job {
    pub(crate) id: JobId,
    pub(crate) plan: Arc<JobPlan>,
    oracles: Vec<Oracle>,
    /// The first fragment of each operation, and one past the last.
    firsts: Vec<u64>,
    ranks: Vec<RankState>,
    /// True if it has ended because ranks differ.
    has_failed: bool,
    /// Probes of its paths, where paths may be narrow.
    pub(crate) probing: Option<Probing>,
}

/// State of a worker, as the control side knows it.
struct RankState {
    life: u64,
    membership: Membership,
    /// The operation that it began with; `None` before it was set up.
    first: Option<usize>,
    submitted: usize,
    finished: usize,
    /// When it goes on after it was late.
    late_until: Option<Time>,
}

impl<'a> Swarm<'a> {
    pub fn new(plan: &'a Plan) -> Swarm<'a> {
        let rng = Rng::new(plan.seed);
        let mut swarm = Swarm {
            plan,
            registrar: Registrar::new(rng.stream("registrar")),
            rng: rng.stream("control"),
            mail: BTreeMap::new(),
            posted: 0,
            lives: 0,
            server_lives: BTreeMap::new(),
            jobs: Vec::new(),
            narrowed: 0,
            short_setups: 0,
            failure: None,
        };
        for job in &plan.jobs {
            swarm.register(Arc::new(job.clone()), job.start);
        }
        for outage in plan.outages.iter().filter(|outage| outage.node.0 < plan.hosts()) {
            swarm.post(outage.from, Mail::Crash(outage.node));
        }
        swarm
    }

    /// The jobs' ids.
    pub fn jobs(&self) -> impl Iterator<Item = JobId> + '_ {
        self.jobs.iter().map(|job| job.id)
    }

    /// A host without memory, checked after every input.
    pub fn host(&self, node: NodeId) -> Checked<TrainingHost> {
        let flows = Endpoint::new(thalweg_flow::Config::default()).expect("defaults work");
        let mut host = TrainingHost::new(node, flows);
        if let Some(secret) = self.plan.secret {
            let config =
                server::Config { secrets: Some(secret.into()), ..server::Config::new(node) };
            host.serve(config).expect("defaults work");
        }
        self.give_prober(node, &mut host);
        Checked::new(host)
    }

    /// A switch without memory, checked after every input.
    pub fn program(&self, switch: NodeId) -> Program {
        let config = switch::Config {
            aggregators: self.plan.aggregators,
            values_max: self.plan.values_max,
            stale_after: self.plan.stale_after,
            ask_gap: Span::from_us(20),
            groups_max: 8,
            secrets: self.plan.secret.map(Secrets::from),
            holds_to_share: self.plan.holds_to_share,
            ..switch::Config::new(switch)
        };
        let machine = Switch::new(config).expect("settings that are drawn work");
        Program::addressed(Box::new(Checked::new(machine)))
    }

    /// Ranks that have not finished, for the report of a run that did not end.
    pub fn unfinished(&self) -> Vec<String> {
        let ranks = self.jobs.iter().enumerate().flat_map(|(job, state)| {
            let open = move |(rank, rank_state): (usize, &RankState)| {
                let last = state.plan.operations.len();
                (!rank_state.is_done(last)).then(|| {
                    let RankState { first, submitted, finished, .. } = rank_state;
                    format!("job {job} rank {rank}: from {first:?}, {submitted} submitted, {finished} finished")
                })
            };
            state.ranks.iter().enumerate().filter_map(open)
        });
        ranks.collect()
    }

    /// Makes a job whose workers ask to join at a time.
    pub(crate) fn register(&mut self, plan: Arc<JobPlan>, start: Time) {
        let job = self.jobs.len();
        let parameters = self.parameters(&plan);
        let (workers, servers) = (plan.workers.len() as u32, plan.servers.clone());
        let spec = JobSpec { workers, servers, parameters };
        let id = self.registrar.register(spec).expect("jobs that are drawn can be registered");
        let ranks = (0..plan.workers.len()).map(|rank| self.rank_state(id, &plan, rank)).collect();
        let probing = self.plan.probes_paths.then(|| Probing::new(start, plan.workers.len()));
        self.post(start, Mail::Begin(job));
        let (oracles, firsts, has_failed) = (Vec::new(), Vec::new(), false);
        self.jobs.push(Job { id, plan, oracles, firsts, ranks, has_failed, probing });
        self.jobs[job].number(self.plan.seed, job);
    }

    pub(crate) fn parameters(&self, plan: &JobPlan) -> JobParameters {
        JobParameters {
            fragment_values: plan.fragment_values,
            numeric: plan.numeric,
            recovery: plan.recovery,
            indexing: plan.indexing,
            aggregators: self.plan.aggregators,
            span_fragments: plan.span_fragments,
            seals_bodies: self.plan.seals_bodies,
            widens_halves: plan.widens_halves,
            ..JobParameters::default()
        }
    }

    /// A worker's process that has just begun.
    fn rank_state(&mut self, id: JobId, plan: &JobPlan, rank: usize) -> RankState {
        self.lives += 1;
        let node = plan.workers[rank];
        let paths = plan.servers.iter().map(|&server| self.plan.path(plan, node, server));
        let process = Process { node, life: self.lives };
        RankState {
            life: self.lives,
            membership: Membership::new(id, process, paths.collect()),
            first: None,
            submitted: 0,
            finished: 0,
            late_until: None,
        }
    }

    pub(crate) fn post(&mut self, at: Time, mail: Mail) {
        self.posted += 1;
        self.mail.insert((at, self.posted), mail);
    }

    /// Sends something over the control channel, which loses it now and then, or doubles it.
    pub(crate) fn send(&mut self, now: Time, mail: Mail) {
        if self.rng.chance(0.05) {
            return;
        }
        if self.rng.chance(0.05) {
            let delay = Span::from_us(5 + self.rng.below(2_000));
            self.post(now + delay, mail.clone());
        }
        let delay = Span::from_us(5 + self.rng.below(100));
        self.post(now + delay, mail);
    }

    fn is_down(&self, now: Time, node: NodeId) -> bool {
        let outages = self.plan.outages.iter();
        outages
            .filter(|outage| outage.node == node)
            .any(|outage| outage.from <= now && now < outage.until)
    }

    fn handle_mail(&mut self, now: Time, mail: Mail, hosts: &mut Hosts<'_, Checked<TrainingHost>>) {
        match mail {
            Mail::Begin(job) => {
                (0..self.jobs[job].ranks.len()).for_each(|rank| self.ask_to_join(now, job, rank));
                self.post(now + Span::from_us(500), Mail::Remind(job));
                self.watch_from(now, job);
            }
            Mail::Again { job, rank, life } => {
                let rank_state = &self.jobs[job].ranks[rank];
                if rank_state.life == life
                    && rank_state.first.is_none()
                    && !self.jobs[job].has_ended()
                {
                    self.ask_to_join(now, job, rank);
                }
            }
            Mail::Late { job, rank, life } => {
                if self.jobs[job].ranks[rank].life == life {
                    let node = self.jobs[job].plan.workers[rank];
                    self.submit(now, job, rank, hosts.machine(node));
                }
            }
            Mail::Remind(job) => {
                let Job { id, .. } = self.jobs[job];
                if !self.jobs[job].has_ended() {
                    self.registrar.remind(id).expect("it is registered");
                    self.post(now + self.plan.remind_gap(), Mail::Remind(job));
                }
            }
            Mail::Restarted(process) => {
                if self.server_lives.get(&process.node) == Some(&process.life) {
                    self.send(now, Mail::Tell(Message::ServerRestarted { process }));
                    self.post(now + Span::from_us(400), Mail::Restarted(process));
                }
            }
            Mail::Tell(message) => self.tell(message),
            Mail::Instruct(instruction) => self.instruct(now, instruction, hosts),
            Mail::Crash(node) => self.crash(now, node),
            Mail::Probed { job, rank, round, report, answer } => {
                self.note_paths(now, (job, rank), round, report, answer);
            }
            Mail::Watch(job) => self.watch(now, job, hosts),
            Mail::End { job, rank } => self.end_rank(now, (job, rank), hosts),
            Mail::Retire(job) => self.retire(job, hosts),
        }
        while let Some(instruction) = self.registrar.poll() {
            self.send(now, Mail::Instruct(instruction));
        }
    }

    /// Messages that are refused or stale are repeated until they fit. A worker that finds its rank taken by its
    /// former life reports that life as lost.
    pub(crate) fn tell(&mut self, message: Message) {
        let outcome = (message.clone(), self.registrar.handle(message));
        let (Message::Join { job, process, .. }, Err(JoinError::Taken { holder, .. })) = outcome
        else {
            return;
        };
        let is_current = self.rank_state_of(job, process.node).1.life == process.life;
        if holder.node == process.node && is_current {
            drop(self.registrar.handle(Message::Lost { job, process: holder }));
        }
    }

    fn ask_to_join(&mut self, now: Time, job: usize, rank: usize) {
        let rank_state = &self.jobs[job].ranks[rank];
        let (message, life) = (rank_state.membership.join(Some(rank as u32)), rank_state.life);
        if !self.is_down(now, self.jobs[job].plan.workers[rank]) {
            self.send(now, Mail::Tell(message));
        }
        self.post(now + Span::from_us(300), Mail::Again { job, rank, life });
    }

    fn instruct(
        &mut self,
        now: Time,
        instruction: Instruction,
        hosts: &mut Hosts<'_, Checked<TrainingHost>>,
    ) {
        let of = match &instruction {
            Instruction::AdoptWorker { setup, .. } | Instruction::AdoptServer { setup, .. } => {
                setup.job
            }
            Instruction::Report { job, .. } | Instruction::Retire { job, .. } => *job,
        };
        if self.jobs.iter().any(|job| job.id == of && job.has_ended()) {
            return;
        }
        match &instruction {
            Instruction::Report { process, job, round, .. } if !self.is_down(now, process.node) => {
                let worker = hosts.machine(process.node).worker_mut(*job);
                let watermark = worker.as_ref().map_or(0, |worker| worker.watermark());
                let (index, rank_state) = self.rank_state_of(*job, process.node);
                if let Some(answer) = rank_state.membership.answer(&instruction, watermark) {
                    worker.map(Worker::pause);
                    if self.plan.probes_paths {
                        let place = (index, process.node);
                        return self.answer_when_probed(now, place, *round, answer, hosts);
                    }
                    self.send(now, Mail::Tell(answer));
                }
            }
            Instruction::AdoptWorker { process, setup, .. } if !self.is_down(now, process.node) => {
                let (job, rank_state) = self.rank_state_of(setup.job, process.node);
                if let Some((rank, setup)) = rank_state.membership.adopt(&instruction) {
                    self.adopt(now, job, rank, &setup, hosts.machine(process.node));
                }
            }
            Instruction::AdoptServer { node, life, setup }
                if !self.is_down(now, *node) && self.server_lives.get(node) == life.as_ref() =>
            {
                hosts.machine(*node).server_mut().adopt(now, setup.clone());
            }
            _ => {}
        }
    }

    fn adopt(
        &mut self,
        now: Time,
        job: usize,
        rank: u32,
        setup: &Arc<Setup>,
        host: &mut TrainingHost,
    ) {
        let plan = Arc::clone(&self.jobs[job].plan);
        if self.jobs[job].ranks[rank as usize].first.is_none() {
            let firsts = &self.jobs[job].firsts;
            // When nobody remembers anything, numbers begin again at a new age.
            let age = setup.resume_from - setup.resume_from % AGE_FRAGMENTS;
            let first = firsts[1..].iter().position(|&end| setup.resume_from < age + end);
            let first = first.unwrap_or(plan.operations.len());
            let mut config = worker::Config::default();
            if let Some(bytes) = plan.window_bytes {
                config.control = Fixed { bytes }.into();
            } else if self.plan.holds_to_share {
                config.control = Aimd::DELAY.into();
                config.shared_phase = Some(Span::ZERO);
            }
            config.loss_threshold = plan.loss_threshold;
            config.paths.count = plan.paths;
            config.importance = plan.importance[rank as usize];
            let worker = Worker::resuming(config, Operation(first as u64), age + firsts[first]);
            let worker = Box::new(worker.expect("settings that are drawn work"));
            host.enter(setup.job, Participant::Aggregate(worker));
            let rank_state = &mut self.jobs[job].ranks[rank as usize];
            (rank_state.first, rank_state.submitted, rank_state.finished) =
                (Some(first), first, first);
            self.submit(now, job, rank as usize, host);
        }
        let worker = host.worker_mut(setup.job).expect("it has entered");
        assert!(worker.adopt(now, setup.clone(), rank), "a later epoch of the same job");
        worker.set_key(self.plan.secret.map(|secret| Key::derive(&secret, setup.job, setup.epoch)));
    }

    /// Hands over the next operation, or all of them.
    fn submit(&mut self, now: Time, job: usize, rank: usize, host: &mut TrainingHost) {
        let has_ended = self.jobs[job].has_ended_at(rank);
        let state = &mut self.jobs[job];
        let (id, plan) = (state.id, Arc::clone(&state.plan));
        let rank_state = &mut state.ranks[rank];
        if has_ended || rank_state.late_until.is_some_and(|until| now < until) {
            return;
        }
        while rank_state.submitted < plan.operations.len() {
            let values = contents::tensor(self.plan.seed, job, &plan, rank, rank_state.submitted);
            let is_late =
                |stall: &Stall| stall.rank == rank && stall.operation == rank_state.submitted;
            if let Some(stall) = plan.stall.filter(is_late)
                && rank_state.late_until.is_none()
            {
                let (until, life) = (now + stall.span, rank_state.life);
                rank_state.late_until = Some(until);
                return self.post(until, Mail::Late { job, rank, life });
            }
            let at = rank_state.submitted;
            let fingerprint = Some(plan.fingerprint(rank, at));
            let options = SumOptions { fingerprint, ..plan.reliabilities[at].into() };
            let worker = host.worker_mut(id).expect("it has entered");
            let operation = worker.submit_with(now, values, options);
            assert_eq!(operation, Operation(rank_state.submitted as u64));
            rank_state.submitted += 1;
            if !plan.all_at_once {
                return;
            }
        }
    }

    /// A server has contributions to different operations. The job fails everywhere, as the registrar has it.
    // spec: E-11 simulator
    fn differ(&mut self, id: JobId, hosts: &mut Hosts<'_, Checked<TrainingHost>>) {
        let index = self.jobs.iter().position(|own| own.id == id).expect("a job of the swarm");
        let plan = Arc::clone(&self.jobs[index].plan);
        if plan.difference.is_none() {
            self.failure.get_or_insert(format!("job {index} is reported to differ"));
        }
        self.jobs[index].has_failed = true;
        for &worker in &plan.workers {
            hosts.machine(worker).leave(id);
        }
        for &server in &plan.servers {
            hosts.machine(server).server_mut().retire(id);
        }
    }

    /// Number of jobs that have ended because ranks differ.
    pub fn differing(&self) -> u64 {
        self.jobs.iter().filter(|job| job.has_failed).count() as u64
    }

    fn crash(&mut self, now: Time, node: NodeId) {
        for job in 0..self.jobs.len() {
            let plan = Arc::clone(&self.jobs[job].plan);
            let Some(rank) = plan.workers.iter().position(|&worker| worker == node) else {
                continue;
            };
            let id = self.jobs[job].id;
            let process = Process { node, life: self.jobs[job].ranks[rank].life };
            self.jobs[job].ranks[rank] = self.rank_state(id, &plan, rank);
            self.jobs[job].oracles.iter_mut().for_each(|oracle| oracle.forget(rank));
            self.send(now, Mail::Tell(Message::Lost { job: id, process }));
            if self.mail.values().all(|mail| !matches!(mail, Mail::Begin(own) if *own == job)) {
                self.ask_to_join(now, job, rank);
            }
        }
    }

    fn rank_state_of(&mut self, job: JobId, node: NodeId) -> (usize, &mut RankState) {
        let index = self.jobs.iter().position(|own| own.id == job).expect("a job of the swarm");
        let rank = self.jobs[index].plan.workers.iter().position(|&worker| worker == node);
        (index, &mut self.jobs[index].ranks[rank.expect("a worker of it")])
    }

    fn finish(
        &mut self,
        (job, node): (JobId, NodeId),
        operation: Operation,
        tensor: &Tensor,
        coverage: &Coverage,
    ) -> (usize, usize) {
        let index = self.jobs.iter().position(|own| own.id == job).expect("a job of the swarm");
        let state = &mut self.jobs[index];
        let rank =
            state.plan.workers.iter().position(|&worker| worker == node).expect("its worker");
        state.ranks[rank].finished += 1;
        let wide = contents::widened(tensor);
        let checked = state.oracles[operation.0 as usize].check(rank, &wide, coverage);
        if let Err(problem) = checked {
            let place = format!("job {index} rank {rank} operation {}", operation.0);
            self.failure.get_or_insert(format!("{place}: {problem}"));
        }
        (index, rank)
    }
}

impl Job {
    /// Cuts its operations into fragments of the length that its plan says.
    pub(crate) fn number(&mut self, seed: u64, job: usize) {
        self.firsts = vec![0];
        for (operation, values) in self.plan.operations.iter().enumerate() {
            let fragments = values.div_ceil(self.plan.fragment_values(operation));
            self.firsts.push(self.firsts[operation] + fragments);
        }
        let operations = 0..self.plan.operations.len();
        let oracle = |operation| Oracle::new(seed, job, &self.plan, operation);
        self.oracles = operations.map(oracle).collect();
    }

    /// Operations that a rank has begun, and those that have finished there.
    pub(crate) fn progress(&self, rank: usize) -> (usize, usize) {
        let own = &self.ranks[rank];
        (own.submitted, own.finished)
    }

    /// Returns whether nothing of it is set up any more.
    fn has_ended(&self) -> bool {
        self.has_failed || self.probing.as_ref().is_some_and(Probing::has_ended)
    }

    fn has_ended_at(&self, rank: usize) -> bool {
        self.has_failed || self.probing.as_ref().is_some_and(|probing| probing.has_ended_at(rank))
    }

    /// Returns whether another job goes on with its operations.
    fn is_followed(&self) -> bool {
        self.probing.as_ref().is_some_and(|probing| probing.is_followed)
    }
}

impl RankState {
    fn is_done(&self, operations: usize) -> bool {
        self.first.is_some() && self.finished == operations
    }
}

impl Director<Checked<TrainingHost>> for Swarm<'_> {
    fn next_wake(&mut self) -> Time {
        self.mail.keys().next().map_or(Time::NEVER, |(at, _)| *at)
    }

    fn handle_wake(&mut self, now: Time, hosts: &mut Hosts<'_, Checked<TrainingHost>>) {
        while let Some(entry) = self.mail.first_entry() {
            if entry.key().0 > now {
                return;
            }
            let mail = entry.remove();
            self.handle_mail(now, mail, hosts);
        }
    }

    fn handle_event(
        &mut self,
        now: Time,
        node: NodeId,
        event: Event,
        hosts: &mut Hosts<'_, Checked<TrainingHost>>,
    ) {
        let (job, operation, tensor, coverage) = match event {
            Event::Sum { job, event: SumEvent::Finished { operation, tensor, coverage } } => {
                (job, operation, tensor, coverage)
            }
            Event::Server(server::Event::Differs { job, .. }) => return self.differ(job, hosts),
            Event::Server(_) => return,
            Event::Paths(report) => return self.take_paths(now, node, report),
            other => {
                self.failure.get_or_insert(format!("{node:?} reports {other:?}"));
                return;
            }
        };
        let (job, rank) = self.finish((job, node), operation, &tensor, &coverage);
        self.submit(now, job, rank, hosts.machine(node));
    }

    fn handle_restart(
        &mut self,
        now: Time,
        host: NodeId,
        _old: &Checked<TrainingHost>,
    ) -> Option<Checked<TrainingHost>> {
        if self.plan.jobs.iter().any(|job| job.servers.contains(&host)) {
            self.lives += 1;
            let process = Process { node: host, life: self.lives };
            self.server_lives.insert(host, self.lives);
            self.post(now, Mail::Restarted(process));
        }
        Some(self.host(host))
    }

    fn handle_switch_restart(&mut self, _now: Time, switch: NodeId) -> Option<Program> {
        Some(self.program(switch))
    }

    fn is_done(&mut self) -> bool {
        let is_done = |state: &Job| {
            let operations = state.plan.operations.len();
            state.has_failed
                || state.is_followed()
                || state.ranks.iter().all(|rank_state| rank_state.is_done(operations))
        };
        self.failure.is_some() || self.jobs.iter().all(is_done)
    }
}
