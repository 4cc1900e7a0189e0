//! Decisions of the service: who is in which job, who is gone, and whose fault a stall is.
//!
//! The [`Registry`] is a machine without I/O: what ranks say and the time go in, [`Action`]s come out.
//! Among the ranks of a job it knows *hosts*, those that can share memory, and *leaders*, the lowest
//! rank of each host. Only leaders take part in the aggregation; a
//! [`Registrar`] sets it up among them.
//!
//! **A job has a tree for every sending thread of its ranks**: as many as all of them offer. Each tree is set up by itself, in
//! rounds and epochs of its own, so that none waits for another. Everything else belongs to the job once: its registration,
//! ranks, their processes and streams, what it is allowed, the operations of its ranks, and its end.
//!
//! **A job's life.** It is registered under a name, and gathers its ranks. When all are there they are
//! welcomed, and the leaders are set up. When all have left it is forgotten. When it fails, all ranks
//! are sent the same failure, and the name is free at once; a rank that comes late is sent it as well.
//!
//! **A rank that loses its connection** has `failure_after` to come back, counted from the last moment at which its
//! kernel was there; then it is dead, and the job fails. The same process finds everything as it was. Another process
//! takes over the rank with an empty memory, and the leaders are set up again. A rank that is connected is alive, however
//! long it sends nothing: its silence shows in what is reported of stalls, and ends nothing.
//!
//! **A rank belongs to the process that took it.** Every process gets a [`RankTicket`] when it joins. Another process
//! needs that to replace it, once its connection is closed. Before the job is gathered nothing is lost with a process,
//! and one whose connection was closed can be replaced without the ticket by anybody whose token covers the job. A job
//! all of whose ranks are gone is over as soon as somebody else registers its name.
//!
//! **Switches** are asked for their limits before a job is set up, and from then on whether they are there. One that does
//! not answer, or is of no use to the job, is planned out of it, and in again when that changes.
//!
//! **A registry that restarts** knows nothing. The ranks register their job again with a [`Ticket`],
//! which only the cluster's secret makes, and bring what they remember. A ticket beats a name: a job that was registered
//! under the name meanwhile gives way. Tickets of jobs that have ended are refused while that is remembered.
//!
//! **Callers** are who their credentials say, and the registry checks everything against these: which jobs they reach,
//! with how many ranks, and how much of the registry one of them may use.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;
use std::sync::Arc;

use thalweg_aggregate::Setup;
use thalweg_aggregate::join::{JOBS_MAX, Message, Registrar};
use thalweg_aggregate::server::{self, SwitchPath};
use thalweg_core::{JobId, NodeId, Rng, Span, Time};
use thalweg_net::PORTS_PER_NODE;
use thalweg_wire::tag::Secrets;

use crate::address::Network;
use crate::budget::JobBudgets;
use crate::caller::{Caller, Holder};
#[cfg(doc)]
use crate::message::RankTicket;
use crate::message::{
    Failure, FailureKind, FromRank, JobTree, Join, NAMED_MAX, TREES_MAX, Ticket, ToRank, job_of,
};
use crate::plane::Missing;
use crate::proof::Prover;
use crate::settings::Settings;

mod amounts;
mod cluster;
mod ended;
mod ending;
mod explain;
mod failing;
mod job;
mod operations;
mod paths;
mod plan;
mod refusal;
mod seating;
mod stall;
mod switches;
#[cfg(test)]
mod tests;
mod turns;
mod view;
mod welcomes;

use amounts::{Amount, Amounts};
use cluster::Cluster;
use ended::Ended;
pub use ending::Ending;
use job::{Attendee, Job};
pub use refusal::Refusal;
use stall::Fragment;
use switches::{MESSAGE_BYTES, Switches};
use turns::Turns;
pub use view::{JobSummary, Listing, View};
use welcomes::Welcomes;

/// Most ranks of all jobs at a time.
pub const RANKS_MAX: usize = 65_536;

/// Longest name of a job or a host.
pub const NAME_BYTES_MAX: usize = 256;

/// Time between two messages to those who wait that say for whom.
const WAITING_EVERY: Span = Span::from_s(1);

/// Time for which a job is kept that nobody attends: longer than a rank takes from registering to joining.
const UNATTENDED_FOR: Span = Span::from_s(10);

/// Settings of a [`Registry`].
#[derive(Clone, Debug)]
pub struct RegistryConfig {
    /// The first node of the parameter server.
    pub server: NodeId,
    /// Number of cores of the parameter server: as many nodes, one after the other.
    pub server_cores: u16,
    /// MTU of its interface.
    pub mtu_bytes: u16,
    /// The switch of its rack, if there is one.
    pub switch: Option<NodeId>,
    /// An address of the cluster. The upper half is the same for all nodes.
    pub network: Ipv4Addr,
    /// Keys of jobs are derived from them. A job keeps the one that it was registered with.
    pub secrets: Secrets,
    /// Ids of jobs are drawn from it: another one for every start.
    pub seed: u64,
    /// Most bytes that one job may take of the parameter server. Spans follow from it.
    pub job_memory_bytes: u64,
    /// Most bytes that all jobs may take of the parameter server, on all its cores together.
    pub memory_bytes: u64,
    /// Limits of what one caller registers.
    pub budgets: JobBudgets,
}

/// One stream of one rank. The caller numbers them and never uses a number again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LinkId(pub u64);

/// A job that somebody wants.
#[derive(Clone, PartialEq, Debug)]
pub struct Registration {
    /// Name that its ranks give it.
    pub name: String,
    /// Number of ranks.
    pub workers: u32,
    /// Settings that they agree on.
    pub settings: Settings,
    /// The ticket of a rank that has been welcomed to it before.
    pub resume: Option<Ticket>,
}

/// Action of the service around the registry.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// Tell a rank.
    Tell {
        /// On this stream.
        link: LinkId,
        /// The tree of the job that the message is about; the first one where it is about the job.
        tree: u32,
        /// This.
        message: ToRank,
    },
    /// End a stream, after the messages that were sent on it.
    Close {
        /// This one.
        link: LinkId,
    },
    /// The server adopts a set-up.
    Adopt {
        /// This one.
        setup: Arc<Setup>,
    },
    /// The server forgets a tree of a job.
    Retire {
        /// The id of the tree.
        job: JobId,
    },
    /// Ask the server who has not contributed. Answered by [`Registry::explain`].
    AskMissing {
        /// To the tree with this id.
        job: JobId,
        /// To this fragment.
        sequence: u64,
    },
    /// Ask a switch for its limits. Answered by [`Registry::switch_answered`].
    Probe {
        /// The switch.
        switch: NodeId,
    },
    /// Ask whether packets of an MTU pass the path to a switch. Answered by [`Registry::path_answered`].
    // spec: F-01
    ProbePath {
        /// The path.
        path: SwitchPath,
        /// The MTU.
        mtu_bytes: u16,
    },
    /// A line for the operator.
    Note(String),
    /// A line for the operator about something that needs attention.
    Warn(String),
}

/// All jobs of a service.
///
/// After every call drain [`poll`](Registry::poll), in order. Call [`tick`](Registry::tick) ten times a
/// second. Memory is bounded by [`RANKS_MAX`] and by the jobs that the aggregation allows.
#[derive(Debug)]
pub struct Registry {
    cluster: Cluster,
    secrets: Secrets,
    prover: Prover,
    budgets: JobBudgets,
    rng: Rng,
    registrar: Registrar,
    jobs: BTreeMap<JobId, Job>,
    names: BTreeMap<String, JobId>,
    amounts: Amounts,
    links: BTreeMap<LinkId, (JobId, u32)>,
    switches: Switches,
    /// Jobs with trees whose set-up waits for switches or paths.
    waiting: BTreeSet<JobId>,
    /// Turns of these jobs, and those of jobs whose switches may have changed.
    set_ups: Turns,
    replans: Turns,
    /// The job that is the next of the latter.
    next_replan: JobId,
    job_memory_bytes: u64,
    memory_bytes: u64,
    /// Jobs that did not fit the memory of one job, of one token, or of all.
    refused_jobs: server::Refusals,
    ended: Ended,
    welcomes: Welcomes,
    actions: VecDeque<Action>,
}

impl Registry {
    /// A registry without jobs.
    pub fn new(config: RegistryConfig) -> Registry {
        let rng = Rng::new(config.seed);
        let network = Network::of(config.network);
        Registry {
            cluster: Cluster {
                server: config.server,
                server_cores: config.server_cores,
                mtu_bytes: config.mtu_bytes,
                switch: config.switch,
                network,
            },
            prover: prover(config.secrets),
            secrets: config.secrets,
            budgets: config.budgets,
            // A tenant's trees are limited by its jobs and their memory, and keep out no job of another.
            // spec: E-12, F-04
            registrar: Registrar::with_limit(
                rng.stream("registrar"),
                JOBS_MAX * TREES_MAX as usize,
            ),
            rng: rng.stream("jobs"),
            jobs: BTreeMap::new(),
            names: BTreeMap::new(),
            amounts: Amounts::default(),
            links: BTreeMap::new(),
            switches: Switches::default(),
            waiting: BTreeSet::new(),
            set_ups: Turns::default(),
            replans: Turns::default(),
            next_replan: JobId::default(),
            job_memory_bytes: config.job_memory_bytes,
            memory_bytes: config.memory_bytes,
            refused_jobs: server::Refusals::default(),
            ended: Ended::default(),
            welcomes: Welcomes::default(),
            actions: VecDeque::new(),
        }
    }

    /// The next thing to be done.
    pub fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Replaces the secrets of the cluster. Jobs whose secret is still there keep it.
    // spec: T-06
    pub fn replace_secrets(&mut self, secrets: Secrets) {
        self.prover = prover(secrets);
        self.secrets = secrets;
    }

    /// Returns the number of jobs.
    pub fn jobs(&self) -> usize {
        self.jobs.len()
    }

    /// Makes a job, or finds it.
    // spec: E-04
    pub fn register(
        &mut self,
        now: Time,
        caller: &Caller,
        mut wanted: Registration,
    ) -> Result<JobId, Refusal> {
        refusal::check_name("name", &wanted.name)?;
        wanted.settings.check(wanted.workers)?;
        caller.check(&wanted.name, wanted.workers)?;
        let generation = &mut wanted.settings.parameters.generation;
        let Some(ticket) = wanted.resume else {
            *generation = Some(self.secrets.current().generation());
            return self.register_new(now, caller, wanted);
        };
        let proven = self.prover.verify(&ticket);
        if job_of(ticket.job) != ticket.job || proven.is_none() {
            return Err(Refusal::Ticket);
        }
        // A job lives on with the secret that it began with.
        *generation = proven;
        if self.ended.failed(ticket.job).is_some() {
            // A rank that attends it gets the reason.
            return Ok(ticket.job);
        }
        if self.ended.has(ticket.job) {
            return Err(Refusal::Ended);
        }
        if let Some(job) = self.jobs.get(&ticket.job) {
            return job.agree(&wanted).map(|()| ticket.job);
        }
        self.resume(now, caller, ticket.job, wanted)
    }

    /// A rank attends on a new stream.
    // spec: E-04
    pub fn attend(
        &mut self,
        now: Time,
        link: LinkId,
        caller: &Caller,
        join: Join,
    ) -> Result<(), Refusal> {
        if let Some(failed) = self.ended.failed(join.job) {
            caller.check(&failed.name, 0)?;
            let message = ToRank::Failed(Arc::clone(&failed.failure));
            self.actions.extend([Action::Tell { link, tree: 0, message }, Action::Close { link }]);
            return Ok(());
        }
        if self.ended.has(join.job) {
            return Err(Refusal::Ended);
        }
        self.check_join(now, caller, &join)?;
        let (id, rank, process) = (join.job, join.rank, join.process);
        let owner = self.jobs.get(&id).map_or(caller.holder, |job| job.owner);
        self.ask_switches(now, &join, owner);
        let job = find(&mut self.jobs, id)?;
        let before = job.take_in(now, link, join);
        self.count(id);
        self.links.insert(link, (id, rank));
        if let Some(before) = before {
            self.succeed(id, rank, &before);
        }
        let message = ToRank::Joined { ticket: self.prover.rank_ticket(id, rank, process) };
        self.actions.push_back(Action::Tell { link, tree: 0, message });
        self.welcome(now, id, rank)
    }

    /// Returns whether a rank that joins would come back: to a job that has begun, or that its ranks join again after a restart.
    // spec: E-12
    pub(crate) fn is_back(&self, join: &Join) -> bool {
        let has = |job: &Job| !job.hosts.is_empty() && job.ranks.contains_key(&join.rank);
        self.jobs.get(&join.job).is_some_and(|job| job.is_resumed || has(job))
    }

    /// A rank says something, about a tree of its job or about the job.
    pub fn hear(&mut self, now: Time, link: LinkId, tree: u32, said: FromRank) {
        let Some(&(id, rank)) = self.links.get(&link) else { return };
        let Some(job) = self.jobs.get_mut(&id) else { return };
        // spec: E-13
        self.switches.earn(job.owner, job.ranks.len() as u64 * MESSAGE_BYTES);
        let Some(attendee) = job.ranks.get_mut(&rank) else { return };
        attendee.heard = now;
        // spec: F-04
        if job.trees.len() <= tree as usize {
            return;
        }
        let at = JobTree { job: id, tree };
        match said {
            FromRank::Paths { round, report } => self.note_paths(at, rank, round, report),
            FromRank::Answer { round, seat, watermark } => {
                self.answer(now, (at, rank), round, seat, watermark);
            }
            FromRank::Progress(progress) => {
                attendee.progress.insert(tree, (now, progress));
                job.stalls.progress((rank, tree), &progress);
            }
            FromRank::Stalled(stall) => {
                job.note_stall(now, (rank, tree), stall);
                if job.stalls.look(now, job.settings.stall_after) {
                    self.investigate(now, id);
                }
            }
            FromRank::Failing(failure) => {
                let failure = failing::reported(&self.cluster, job, rank, &failure);
                self.fail(now, id, failure);
            }
            FromRank::Aborting { reason } => {
                self.fail(now, id, failing::aborted(rank, &reason));
            }
            FromRank::Operation { number, fingerprint } => {
                if let Err(mismatch) = job.operations.note(rank, number, &fingerprint) {
                    let text = format!("operation {number}: {mismatch}");
                    let culprits = mismatch.ranks().to_vec();
                    let failure = Failure::new(FailureKind::Agreement, text, culprits);
                    self.fail(now, id, Failure { operation: Some(number), ..failure });
                }
            }
            FromRank::Leave { operations } => self.leave(now, (id, rank), link, operations),
        }
    }

    /// The server has contributions to different operations of a job, in the tree with this id. It knows their digests
    /// alone, so all ranks report what they have called.
    // spec: E-11
    pub fn compare_operations(&mut self, tree: JobId) {
        let Some(job) = self.jobs.get(&job_of(tree)) else { return };
        let text = format!("job {:?}: ranks call different operations and report them", job.name);
        self.actions.push_back(Action::Note(text));
        self.actions.extend(job.tell_all(&ToRank::ReportOperations));
    }

    /// A stream ended without a goodbye.
    // spec: E-01
    pub fn hang_up(&mut self, now: Time, link: LinkId, ending: Ending) {
        let Some((id, rank)) = self.links.remove(&link) else { return };
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if job.lose_link(now, rank, ending) {
            let name = explain::name_of(&self.cluster, job, rank);
            let text = format!("job {:?}: {name} lost its control connection", job.name);
            self.actions.push_back(Action::Note(text));
        }
    }

    /// The server says who has not contributed to a fragment of the tree with this id.
    pub fn explain(&mut self, now: Time, tree: JobId, sequence: u64, missing: Missing) {
        let JobTree { job, tree } = JobTree::of(tree);
        let Some(found) = self.jobs.get_mut(&job) else { return };
        found.stalls.answer(Fragment { tree, sequence }, missing);
        self.diagnose(now, job);
    }

    /// Time passes.
    pub fn tick(&mut self, now: Time) {
        self.ended.tick(now);
        self.welcomes.tick(now);
        self.set_ups.tick(now);
        self.replans.tick(now);
        let ids: Vec<JobId> = self.jobs.keys().copied().collect();
        for id in ids {
            self.tick_job(now, id);
        }
        self.replan_all(now);
        self.probe_switches(now);
        self.probe_paths(now);
    }

    fn register_new(
        &mut self,
        now: Time,
        caller: &Caller,
        wanted: Registration,
    ) -> Result<JobId, Refusal> {
        let named = self.names.get(&wanted.name).copied();
        if let Some(job) = named.and_then(|id| self.jobs.get_mut(&id)) {
            let agreed = job.agree(&wanted);
            if job.is_attended() {
                job.refusal = agreed.as_ref().err().map(Refusal::to_string).or(job.refusal.take());
                return agreed.map(|()| job.id);
            }
            if agreed.is_ok() && job.hosts.is_empty() {
                job.gather_again(now);
                let id = job.id;
                self.count(id);
                return Ok(id);
            }
            // Everybody is gone, and those that come remember nothing: it is another job.
            // spec: E-10
            let (id, failure) = (job.id, failing::restarted(job));
            self.fail(now, id, failure);
        }
        let mut id = job_of(JobId(self.rng.bits()));
        while self.jobs.contains_key(&id) || self.ended.has(id) {
            id = job_of(JobId(self.rng.bits()));
        }
        self.insert(now, caller, id, wanted, false)
    }

    /// Makes a job again that was forgotten. Its members have proved that it is theirs, so that a job which others have
    /// registered under the name meanwhile gives way.
    // spec: A-41, E-04
    fn resume(
        &mut self,
        now: Time,
        caller: &Caller,
        id: JobId,
        wanted: Registration,
    ) -> Result<JobId, Refusal> {
        if let Some(other) = self.names.get(&wanted.name).and_then(|other| self.jobs.get(other)) {
            let (other, is_gathered) = (other.id, !other.hosts.is_empty());
            if self.jobs[&other].is_resumed {
                return Err(Refusal::NameTaken { name: wanted.name });
            }
            if is_gathered {
                self.fail(now, other, failing::superseded(&wanted.name));
            } else {
                // Newcomers were faster than members. They register again, and find the members' job.
                self.forget(other);
            }
        }
        self.insert(now, caller, id, wanted, true)
    }

    fn insert(
        &mut self,
        now: Time,
        caller: &Caller,
        id: JobId,
        wanted: Registration,
        is_resumed: bool,
    ) -> Result<JobId, Refusal> {
        self.check_budget(caller.holder)?;
        let how = if is_resumed { "registered again by its members" } else { "registered" };
        self.note(format!("job {:?}: {how} as {id:?}, {} ranks", wanted.name, wanted.workers));
        self.names.insert(wanted.name.clone(), id);
        self.jobs.insert(id, Job::new(now, id, caller.holder, wanted, is_resumed));
        self.count(id);
        Ok(id)
    }

    /// Checks that there is room for another job, in total and of one caller.
    // spec: E-12
    fn check_budget(&self, holder: Holder) -> Result<(), Refusal> {
        if self.jobs.len() >= JOBS_MAX {
            return Err(Refusal::TooManyJobs);
        }
        let JobBudgets { jobs, unattended, .. } = self.budgets;
        let own = self.amounts.of(holder);
        if own.jobs >= jobs {
            return Err(Refusal::JobsOfToken { limit: jobs });
        }
        if own.unattended >= unattended {
            return Err(Refusal::Unattended { limit: unattended });
        }
        Ok(())
    }

    /// Takes down in the sums of all jobs what one has now.
    // spec: E-12
    fn count(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let now = Amount::of(job);
        let before = std::mem::replace(&mut job.counted, now);
        self.amounts.replace(job.owner, before, now);
    }

    fn check_join(&mut self, now: Time, caller: &Caller, join: &Join) -> Result<(), Refusal> {
        refusal::check_name("host", &join.host)?;
        let job = find(&mut self.jobs, join.job)?;
        caller.check(&job.name, job.workers)?;
        let (owner, is_new) = (job.owner, !job.ranks.contains_key(&join.rank));
        if is_new && self.amounts.total().ranks >= RANKS_MAX {
            return Err(Refusal::TooManyRanks);
        }
        if is_new && self.amounts.of(owner).ranks >= self.budgets.ranks {
            return Err(Refusal::RanksInJobs { limit: self.budgets.ranks });
        }
        self.check_nodes(join)?;
        let is_proven = join.ticket.is_some_and(|ticket| self.prover.verify_rank(&ticket));
        let job = find(&mut self.jobs, join.job)?;
        job.check_join(now, join, &self.cluster, is_proven)
    }

    /// Checks that all threads of a rank are where a rank can be, and that it names a switch where a switch can be.
    fn check_nodes(&self, join: &Join) -> Result<(), Refusal> {
        for (at, node) in join.nodes().enumerate() {
            let address = self.cluster.address(node);
            if !is_node(node) {
                return Err(Refusal::Node { what: "rank", address });
            }
            if self.cluster.is_server(node) {
                return Err(Refusal::ServersNode { address });
            }
            // Only what has answered a probe is a switch: anybody can name the place of another.
            let limits = self.switches.limits(node);
            if self.cluster.switch == Some(node) || limits.is_some() || join.switch == Some(node) {
                return Err(Refusal::SwitchsNode { address });
            }
            // spec: F-04
            if join.nodes().take(at).any(|before| before == node) {
                return Err(Refusal::SameNode { address, rank: join.rank });
            }
        }
        match join.switch.filter(|switch| !is_node(*switch)) {
            Some(switch) => {
                Err(Refusal::Node { what: "switch", address: self.cluster.address(switch) })
            }
            None => Ok(()),
        }
    }

    /// Does what follows from another process or another stream for a rank.
    fn succeed(&mut self, id: JobId, rank: u32, before: &Attendee) {
        if let Some(link) = before.link {
            self.links.remove(&link);
            self.actions.push_back(Action::Close { link });
        }
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if job.ranks.get(&rank).is_some_and(|now| now.process == before.process) {
            return;
        }
        job.welcome = None;
        if job.seat_of(rank).is_some() {
            for at in job.all_trees() {
                let Some(process) = before.process_in(at.tree) else { continue };
                // It may have had no place in the set-up yet; then nothing is lost.
                let _ = self.registrar.handle(Message::Lost { job: at.id(), process });
            }
        }
        let name = explain::name_of(&self.cluster, job, rank);
        let text = format!("job {:?}: {name} is another process than before", job.name);
        self.actions.push_back(Action::Note(text));
    }

    /// Number of trees that a job may have beside the others of its token. Servers and switches have room for a number of trees,
    /// whatever job they are of.
    // spec: E-12
    fn trees_left(&self, id: JobId) -> usize {
        let Some(job) = self.jobs.get(&id) else { return 0 };
        let others = self.amounts.of(job.owner).trees - job.counted.trees;
        self.budgets.trees.saturating_sub(others)
    }

    /// Returns whether all ranks of a job are there and not welcomed, and may be now.
    fn is_ready(&mut self, now: Time, id: JobId) -> bool {
        let Some(job) = self.jobs.get(&id) else { return false };
        if job.welcome.is_some() || !job.is_complete() {
            return false;
        }
        let size = (job.workers, job.trees.len() as u32);
        job.hosts.is_empty() || self.welcomes.take(now, job.owner, size)
    }

    /// Welcomes everybody once all are there, or `rank` alone if it came back.
    pub(super) fn welcome(&mut self, now: Time, id: JobId, rank: u32) -> Result<(), Refusal> {
        let (most_trees, is_ready) = (self.trees_left(id), self.is_ready(now, id));
        let job = find(&mut self.jobs, id)?;
        let is_back = job.welcome.is_some();
        if is_ready {
            let is_first = job.hosts.is_empty();
            job.gather(most_trees);
            self.count(id);
            if is_first && let Err(text) = self.begin(id) {
                self.fail_job(now, id, text);
                return Ok(());
            }
            let job = find(&mut self.jobs, id)?;
            let rounds = job.all_trees().map(|at| self.registrar.round(at.id()).unwrap_or(0));
            let rounds = rounds.collect();
            let ticket = self.prover.ticket(id, job.settings.parameters.generation);
            job.invite(&self.secrets, (ticket, rounds), self.cluster.switch);
        }
        let job = find(&mut self.jobs, id)?;
        match &job.welcome {
            Some(welcome) if is_back => {
                let message = ToRank::Welcome(Arc::clone(welcome));
                let own = job.ranks.get(&rank).and_then(|rank| rank.mtu_bytes);
                let mtu = |at: JobTree| {
                    let mtu = job.plan(at.tree)?.mtu.filter(|_| welcome.probes_paths);
                    let mtu_bytes = mtu?.min(own?);
                    job.tell_of(at.tree, rank, ToRank::PathMtu { mtu_bytes })
                };
                self.actions.extend(job.tell(rank, message));
                self.actions.extend(job.all_trees().filter_map(mtu));
                let departures = job.departures();
                self.actions.extend(departures.filter_map(|message| job.tell(rank, message)));
            }
            Some(welcome) => {
                let message = ToRank::Welcome(Arc::clone(welcome));
                self.actions.extend(job.tell_all(&message));
            }
            // All may be there, and wait for their turn.
            None if job.is_complete() => {}
            None => {
                let missing = job.missing().into();
                self.actions.extend(job.tell(rank, ToRank::Waiting { missing }));
            }
        }
        self.set_up_all(now, id, if is_back { Some(rank) } else { None });
        Ok(())
    }

    fn leave(&mut self, now: Time, (id, rank): (JobId, u32), link: LinkId, operations: u64) {
        self.links.remove(&link);
        self.actions.push_back(Action::Close { link });
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.leave(now, rank, operations);
        self.count(id);
        let Some(job) = self.jobs.get(&id) else { return };
        if !job.hosts.is_empty() {
            self.actions.extend(job.tell_all(&ToRank::Left { rank, operations }));
        }
        if job.is_over() {
            let text = format!("job {:?}: over, all ranks have left", job.name);
            self.note(text);
            return self.forget(id);
        }
        for at in job.all_trees() {
            self.answer_for_departed(now, at, rank);
        }
    }

    // spec: T-07
    fn investigate(&mut self, now: Time, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        match job.stalls.question(now) {
            Some(Fragment { tree, sequence }) => {
                let job = JobTree { job: id, tree }.id();
                self.actions.push_back(Action::AskMissing { job, sequence });
            }
            None => self.diagnose(now, id),
        }
    }

    /// Sends all ranks the reason why the job stalls, if it is new or has to be repeated.
    // spec: T-07
    fn diagnose(&mut self, now: Time, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id).filter(|job| job.stalls.is_explained()) else {
            return;
        };
        let Some(diagnosis) = explain::diagnosis(now, &self.cluster, job) else { return };
        if job.stalls.is_news(now, job.settings.stall_after, &diagnosis) {
            let note = format!("job {:?}: stalled: {}", job.name, diagnosis.text);
            let message = ToRank::Diagnosis(Arc::new(diagnosis));
            self.actions.extend(job.tell_all(&message));
            self.note(note);
        }
    }

    /// Removes a job and ends its streams.
    fn forget(&mut self, id: JobId) {
        let Some(job) = self.jobs.remove(&id) else { return };
        self.names.remove(&job.name);
        self.amounts.replace(job.owner, job.counted, Amount::default());
        if job.has_tickets {
            self.ended.note(job.owner, id);
        }
        for link in job.ranks.values().filter_map(|attendee| attendee.link) {
            self.links.remove(&link);
            self.actions.push_back(Action::Close { link });
        }
        for at in job.all_trees() {
            // It is there only once the job was gathered.
            let _ = self.registrar.end(at.id());
        }
        self.obey();
    }

    fn note_about(&mut self, id: JobId, what: &str) {
        if let Some(job) = self.jobs.get(&id) {
            let text = format!("job {:?}: {what}", job.name);
            self.note(text);
        }
    }

    fn note(&mut self, text: String) {
        self.actions.push_back(Action::Note(text));
    }
}

fn prover(secrets: Secrets) -> Prover {
    Prover::new(&secrets.all().collect::<Vec<_>>())
}

/// Returns whether a node can have this number: its port begins a block.
fn is_node(node: NodeId) -> bool {
    let port = node.0 as u16;
    port > 0 && port.is_multiple_of(PORTS_PER_NODE)
}

fn find(jobs: &mut BTreeMap<JobId, Job>, job: JobId) -> Result<&mut Job, Refusal> {
    jobs.get_mut(&job).ok_or(Refusal::UnknownJob)
}
