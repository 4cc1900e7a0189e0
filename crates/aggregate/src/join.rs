//! Set-up of a job, at first and again after a failure.
//!
//! The [`Registrar`] is a machine without packets: [`Message`]s in, [`Instruction`]s out. A control
//! channel carries both; it may delay, double, lose and reorder them.
//!
//! **Rounds.** A job is set up in rounds, numbered from 1. In a round every rank is asked for what its worker
//! remembers ([`Instruction::Report`]); when all have answered ([`Message::Answer`]), the set-up goes out, and the
//! round's number is its epoch. A failure or a departure begins the next round. Only answers that carry the number of
//! the current round count, so that an answer from before a failure is void, however late it comes.
//!
//! **Ranks.** A job has a rank for every worker. A process asks for one ([`Message::Join`]), is offered one by a
//! report, and takes it with its answer. When a worker leaves for good its rank is removed, and the ranks above move
//! down by one; reports and set-ups carry the new rank. Ranks change only between rounds.
//!
//! **Where to go on** (A-41). A set-up resumes from the least watermark of those that kept their memory.
//! A worker that lost it begins there: its application has to be brought to that state, from a checkpoint or
//! by a peer. When nobody kept anything, the job begins a new *age*: at a number that no fragment ever
//! had, because servers keep results over set-ups, and those of the old numbers belong to tensors that
//! nobody remembers. All workers then number their next fragment as the set-up says.
//!
//! **A registrar that restarts** has lost its jobs, and their workers have not. They bring the job's id,
//! the latest round they know and their watermarks, and it goes on with them
//! ([`Registrar::restore`]).
//!
//! **Patience** is the caller's. A worker that keeps silent keeps the round open
//! ([`Registrar::waits_for`] names it) until somebody calls it lost. A worker that misses an answer repeats its
//! message; [`Registrar::remind`] repeats what may have been lost towards the workers. Every message may be
//! repeated without harm.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use thalweg_core::{JobId, NodeId, Rng};
use thalweg_wire::aggregate::LEVELS;
use thalweg_wire::prefix::EPOCH_MAX;
use thiserror::Error;

use crate::parameters::CheckedParameters;
use crate::setup::Setup;
use crate::tree::TreeError;

mod job;
mod membership;
mod spec;
#[cfg(test)]
mod tests;

use job::Job;
pub use membership::Membership;
pub use spec::{CheckedSpec, JobSpec, SERVERS_MAX, SpecError, WORKERS_MAX};

/// Most jobs at a time.
pub const JOBS_MAX: usize = 4_096;

/// Number of fragments in one age of a job: more than a year's, at 100 Gbps.
pub const AGE_FRAGMENTS: u64 = 1 << 48;

/// One run of a program on a node. One process holds at most one rank of a job, and the processes of a
/// job are on different nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process {
    /// Node that it runs on.
    pub node: NodeId,
    /// Tells it from every other process that ever ran there: random, or the time of its start.
    pub life: u64,
}

/// Memory of the job in a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Memory {
    /// Contributions and results from the watermark on.
    Kept {
        /// All fragments below are complete there.
        watermark: u64,
    },
    /// Nothing: it is new.
    Lost,
}

/// Message to the registrar.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// A process asks for a rank. Answered by a report, or by the set-up if it is in it.
    Join {
        /// The job.
        job: JobId,
        /// Process that asks.
        process: Process,
        /// Rank that it asks for, if it matters: a vacant one.
        rank: Option<u32>,
    },
    /// A process answers a report.
    Answer {
        /// The job.
        job: JobId,
        /// Process that answers.
        process: Process,
        /// The round of the report.
        round: u32,
        /// The rank of the report.
        rank: u32,
        /// The switches along its path up to each server, in the order of [`JobSpec::servers`].
        paths: Vec<Vec<NodeId>>,
        /// Memory that it has.
        memory: Memory,
    },
    /// A process leaves for good. The job goes on with one worker less; without workers it is over.
    Leave {
        /// The job.
        job: JobId,
        /// Process that leaves.
        process: Process,
    },
    /// A worker is gone, and another process will come for its rank. It is named by its process, so that a late copy
    /// cannot mean the process after it. A process that was called lost and is not asks for a rank again.
    Lost {
        /// The job.
        job: JobId,
        /// Process that is gone.
        process: Process,
    },
    /// A worker is gone, or its rank vacant, and nobody will come for it.
    GivenUp {
        /// The job.
        job: JobId,
        /// The latest round that the speaker knows.
        round: u32,
        /// The rank.
        rank: u32,
    },
    /// The paths of workers have changed. The job is set up again, and workers answer with their new ones.
    Replan {
        /// The job.
        job: JobId,
    },
    /// A server is there again and has nothing. All of its jobs are set up again.
    ServerRestarted {
        /// The server, and which of its lives this is.
        process: Process,
    },
}

/// Instruction of the registrar.
#[derive(Clone, PartialEq, Debug)]
pub enum Instruction {
    /// The process shall say what it remembers: a set-up is to come. Answered by
    /// [`Message::Answer`].
    Report {
        /// Recipient.
        process: Process,
        /// The job.
        job: JobId,
        /// Number of the round.
        round: u32,
        /// The rank that it has, or is offered.
        rank: u32,
    },
    /// The worker adopts the set-up.
    AdoptWorker {
        /// Recipient. Another process on that node must not take it for its own.
        process: Process,
        /// Rank of the worker.
        rank: u32,
        /// The set-up.
        setup: Arc<Setup>,
    },
    /// The server adopts the set-up, if it still is in this life. One that has restarted must not
    /// take a set-up from before: somebody may have seen sums that it has lost.
    AdoptServer {
        /// Recipient.
        node: NodeId,
        /// The life that its last [`Message::ServerRestarted`] named; `None` without one.
        life: Option<u64>,
        /// The set-up.
        setup: Arc<Setup>,
    },
    /// The node has no part in the job any more, unless it has adopted an epoch from `round` on.
    Retire {
        /// Recipient.
        node: NodeId,
        /// The job.
        job: JobId,
        /// The round that it has no part in.
        round: u32,
    },
}

/// Freshness of a message: its effect on the registrar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Freshness {
    /// It changed something.
    New,
    /// It was known. What it asks for is answered again.
    Again,
    /// It is about a round that is over, and changed nothing.
    Stale,
}

/// Why there is no job.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum RegisterError {
    /// The specification contradicts itself or asks for too much.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// No room.
    #[error("{0} jobs are registered, there is no room for another: end one")]
    TooManyJobs(usize),
    /// The id belongs to a job.
    #[error("{0:?} is registered: take another id, or end that job")]
    Taken(JobId),
    /// More processes than any job had.
    #[error("{0} processes are named as remembering the job, at most {WORKERS_MAX} can")]
    Roster(usize),
    /// No epoch is left to go on in.
    #[error("{0:?} was set up too often, its epochs are used up: register a new job")]
    WornOut(JobId),
}

/// Why a message was refused. It changed nothing.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum JoinError {
    /// Never registered, or over.
    #[error("{0:?} is not registered, or it is over")]
    UnknownJob(JobId),
    /// No job has this server.
    #[error("{0:?} is no server of any job")]
    UnknownServer(NodeId),
    /// The job has no such rank.
    #[error("there is no rank {rank}: the job has {workers} workers")]
    UnknownRank {
        /// The rank.
        rank: u32,
        /// Number of ranks.
        workers: u32,
    },
    /// A round that has not begun.
    #[error("round {round} has not begun, the job is in round {current}")]
    Future {
        /// The round of the message.
        round: u32,
        /// The job's.
        current: u32,
    },
    /// The rank belongs to another process, or the node has another one.
    #[error("rank {rank} belongs to {holder:?}: if that is gone, report it lost first")]
    Taken {
        /// The rank.
        rank: u32,
        /// Process that holds it.
        holder: Process,
    },
    /// No rank is vacant.
    #[error("all ranks are taken: register the job with more workers")]
    Full,
    /// Not one way for each server.
    #[error("{given} ways up were given, the job has {servers} servers: one for each is needed")]
    Paths {
        /// Number of paths that were given.
        given: usize,
        /// Number of servers.
        servers: usize,
    },
    /// More switches than a header has room for.
    #[error("a path to a server has {0} switches, at most {LEVELS} fit")]
    LongPath(usize),
    /// The process was not part of the last set-up, so what it remembers is not what the job knows.
    #[error("the process was not in the last set-up: it has to begin with an empty memory")]
    Outdated,
    /// A watermark that no worker of the job can have.
    #[error("watermark {watermark} is not in {least}..{limit}, where this job can be")]
    Watermark {
        /// The watermark.
        watermark: u64,
        /// The least that it can be.
        least: u64,
        /// Limit that it must stay below.
        limit: u64,
    },
    /// The paths that were given form no tree. A worker that answers again may give another path.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// Epochs or ages are used up.
    #[error("{0:?} was set up too often, its numbers are used up: register a new job")]
    WornOut(JobId),
}

/// Sets up jobs, and sets them up again when somebody fails or leaves.
///
/// After every call drain [`poll`](Registrar::poll). It keeps nothing of jobs that are over.
#[derive(Debug)]
pub struct Registrar {
    rng: Rng,
    jobs_max: usize,
    jobs: BTreeMap<JobId, Job>,
    instructions: VecDeque<Instruction>,
}

impl Registrar {
    /// A registrar that draws the ids of jobs from `rng`, with at most [`JOBS_MAX`].
    pub fn new(rng: Rng) -> Registrar {
        Registrar::with_limit(rng, JOBS_MAX)
    }

    /// A registrar with another limit of jobs, for a caller that counts them itself.
    pub fn with_limit(rng: Rng, jobs_max: usize) -> Registrar {
        Registrar { rng, jobs_max, jobs: BTreeMap::new(), instructions: VecDeque::new() }
    }

    /// Makes a job, whose workers may join from now on.
    // spec: A-40
    pub fn register(&mut self, spec: JobSpec) -> Result<JobId, RegisterError> {
        let mut id = JobId(self.rng.bits());
        while self.jobs.contains_key(&id) {
            id = JobId(self.rng.bits());
        }
        self.register_as(id, spec)?;
        Ok(id)
    }

    /// Makes a job with an id that the caller has drawn.
    pub fn register_as(&mut self, id: JobId, spec: JobSpec) -> Result<(), RegisterError> {
        let spec = self.check_new(id, spec)?;
        self.jobs.insert(id, Job::new(id, spec));
        Ok(())
    }

    /// Makes a job again whose registrar lost its memory. It goes on in the round after `epoch`, the
    /// latest that any of its processes has received. Everybody joins again; those of `roster` were in
    /// its last set-up and may say that they kept their memory, from `watermark` on or above. If none
    /// of them does, the job begins an age above the watermark's.
    // spec: A-41
    pub fn restore(
        &mut self,
        id: JobId,
        spec: JobSpec,
        epoch: u32,
        roster: Vec<Process>,
        watermark: u64,
    ) -> Result<(), RegisterError> {
        let spec = self.check_new(id, spec)?;
        if roster.len() > WORKERS_MAX as usize {
            return Err(RegisterError::Roster(roster.len()));
        }
        let round = next_epoch(epoch).ok_or(RegisterError::WornOut(id))?;
        self.jobs.insert(id, Job::restore(id, spec, round, roster, watermark));
        Ok(())
    }

    /// Takes in a message.
    pub fn handle(&mut self, message: Message) -> Result<Freshness, JoinError> {
        let out = &mut self.instructions;
        match message {
            Message::Join { job, process, rank } => {
                find(&mut self.jobs, job)?.join(process, rank, out)
            }
            Message::Answer { job, process, round, rank, paths, memory } => {
                let answer = job::Answer { paths, memory };
                find(&mut self.jobs, job)?.answer(process, round, rank, answer, out)
            }
            Message::Leave { job, process } => {
                let freshness = find(&mut self.jobs, job)?.leave(process, out)?;
                self.end_if_empty(job);
                Ok(freshness)
            }
            Message::Lost { job, process } => find(&mut self.jobs, job)?.lose(process, out),
            Message::GivenUp { job, round, rank } => {
                let freshness = find(&mut self.jobs, job)?.give_up(round, rank, out)?;
                self.end_if_empty(job);
                Ok(freshness)
            }
            Message::Replan { job } => find(&mut self.jobs, job)?.replan(out),
            Message::ServerRestarted { process } => self.restart_server(process),
        }
    }

    /// Gives a job parameters that hold from its next set-up on. The size of fragments stays as it was in the last
    /// set-up: workers number fragments by it, and refuse another one. So does the span: workers may be that far apart, and
    /// a server that lost its memory goes by it.
    // spec: E-06
    pub fn set_parameters(
        &mut self,
        job: JobId,
        parameters: CheckedParameters,
    ) -> Result<(), JoinError> {
        find(&mut self.jobs, job)?.set_parameters(parameters);
        Ok(())
    }

    /// The next thing to be done.
    pub fn poll(&mut self) -> Option<Instruction> {
        self.instructions.pop_front()
    }

    /// Repeats what may not have arrived: the reports that the open round waits for, or else the
    /// set-up.
    pub fn remind(&mut self, job: JobId) -> Result<(), JoinError> {
        find(&mut self.jobs, job)?.remind(&mut self.instructions);
        Ok(())
    }

    /// Ends a job: everybody may forget it.
    pub fn end(&mut self, job: JobId) -> Result<(), JoinError> {
        let ended = self.jobs.remove(&job).ok_or(JoinError::UnknownJob(job))?;
        ended.retire_all(&mut self.instructions);
        Ok(())
    }

    /// The round that a job is in.
    pub fn round(&self, job: JobId) -> Option<u32> {
        self.jobs.get(&job).map(Job::round)
    }

    /// The ranks without which the job's open round cannot end; nobody where the set-up is out.
    pub fn waits_for(&self, job: JobId) -> impl Iterator<Item = u32> + '_ {
        self.jobs.get(&job).into_iter().flat_map(Job::waits_for)
    }

    /// Number of ranks without which the job's open round cannot end.
    pub fn unanswered(&self, job: JobId) -> usize {
        self.jobs.get(&job).map_or(0, Job::unanswered)
    }

    /// Returns whether the job's open round cannot end without a rank.
    pub fn is_awaited(&self, job: JobId, rank: u32) -> bool {
        self.jobs.get(&job).is_some_and(|job| job.is_awaited(rank))
    }

    /// The last set-up of a job.
    pub fn setup(&self, job: JobId) -> Option<&Arc<Setup>> {
        self.jobs.get(&job)?.setup()
    }

    fn check_new(&self, id: JobId, spec: JobSpec) -> Result<CheckedSpec, RegisterError> {
        let spec = spec.check()?;
        if self.jobs.len() >= self.jobs_max {
            return Err(RegisterError::TooManyJobs(self.jobs_max));
        }
        if self.jobs.contains_key(&id) { Err(RegisterError::Taken(id)) } else { Ok(spec) }
    }

    fn restart_server(&mut self, server: Process) -> Result<Freshness, JoinError> {
        let mut freshness = Err(JoinError::UnknownServer(server.node));
        for job in self.jobs.values_mut().filter(|job| job.has_server(server.node)) {
            let one = job.restart_server(server, &mut self.instructions);
            freshness = match (freshness, one) {
                // One job's trouble is none of the others', but is not hidden either.
                (_, Err(error)) => Err(error),
                (Err(JoinError::UnknownServer(_)) | Ok(Freshness::Again), one) => one,
                (freshness, _) => freshness,
            };
        }
        freshness
    }

    fn end_if_empty(&mut self, job: JobId) {
        if self.jobs.get(&job).is_some_and(Job::is_empty)
            && let Some(ended) = self.jobs.remove(&job)
        {
            ended.retire_all(&mut self.instructions);
        }
    }
}

fn find(jobs: &mut BTreeMap<JobId, Job>, job: JobId) -> Result<&mut Job, JoinError> {
    jobs.get_mut(&job).ok_or(JoinError::UnknownJob(job))
}

/// The epoch after one. `None` if headers cannot name it.
fn next_epoch(epoch: u32) -> Option<u32> {
    (epoch < EPOCH_MAX).then(|| epoch + 1)
}
