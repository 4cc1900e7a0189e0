//! One job: its ranks and its rounds.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use thalweg_core::{JobId, NodeId};
use thalweg_wire::aggregate::LEVELS;

use super::spec::CheckedSpec;
use super::{AGE_FRAGMENTS, Freshness, Instruction, JoinError, Memory, Process, next_epoch};
use crate::parameters::CheckedParameters;
use crate::setup::Setup;
use crate::tree::{Member, Tree, TreeError};

type Instructions = VecDeque<Instruction>;

/// A job between registration and end.
#[derive(Debug)]
pub(super) struct Job {
    id: JobId,
    spec: CheckedSpec,
    round: u32,
    /// By rank.
    ranks: Vec<RankState>,
    /// Indices of what is held, by the nodes of the holders: a job has thousands, and every message names one.
    // spec: E-12
    held: BTreeMap<NodeId, usize>,
    /// Number of answers that this round lacks.
    unanswered: usize,
    /// Number of offers that were made. Numbers them.
    offers: u64,
    /// The outcome of the last round that ended: its epoch is that round.
    setup: Option<Arc<Setup>>,
    /// Processes in the last set-up: those that may remember the job.
    roster: Vec<Process>,
    /// The least watermark that any of the roster can have.
    least_watermark: u64,
    /// The first fragment of the age after this one; `None` when numbers are used up.
    next_age: Option<u64>,
    /// The life that each server's last [`ServerRestarted`](super::Message::ServerRestarted) named.
    server_lives: Vec<Option<u64>>,
}

/// State of one rank.
#[derive(Clone, Debug, Default)]
struct RankState {
    holder: Option<Process>,
    /// Process that the vacant rank was offered to last, and the number of that offer. Means something only while
    /// nobody holds the rank.
    offered: Option<(Process, u64)>,
    /// Answer of the holder in this round.
    answer: Option<Answer>,
}

/// Answer of a worker in a round.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Answer {
    pub(super) paths: Vec<Vec<NodeId>>,
    pub(super) memory: Memory,
}

impl Job {
    pub(super) fn new(id: JobId, spec: CheckedSpec) -> Job {
        Job {
            id,
            round: 1,
            ranks: vec![RankState::default(); spec.workers as usize],
            held: BTreeMap::new(),
            unanswered: spec.workers as usize,
            offers: 0,
            setup: None,
            roster: Vec::new(),
            least_watermark: 0,
            next_age: Some(0),
            server_lives: vec![None; spec.servers.len()],
            spec,
        }
    }

    /// A job that was set up before, by a registrar that forgot all but this.
    pub(super) fn restore(
        id: JobId,
        spec: CheckedSpec,
        round: u32,
        roster: Vec<Process>,
        watermark: u64,
    ) -> Job {
        let next_age = (watermark / AGE_FRAGMENTS + 1).checked_mul(AGE_FRAGMENTS);
        Job { round, roster, least_watermark: watermark, next_age, ..Job::new(id, spec) }
    }

    pub(super) fn set_parameters(&mut self, parameters: CheckedParameters) {
        self.spec.parameters = parameters;
    }

    pub(super) fn round(&self) -> u32 {
        self.round
    }

    pub(super) fn setup(&self) -> Option<&Arc<Setup>> {
        self.setup.as_ref()
    }

    /// True if there are no ranks left.
    pub(super) fn is_empty(&self) -> bool {
        self.ranks.is_empty()
    }

    pub(super) fn has_server(&self, node: NodeId) -> bool {
        self.spec.servers.contains(&node)
    }

    /// Number of ranks that the open round lacks.
    pub(super) fn unanswered(&self) -> usize {
        self.unanswered
    }

    /// Returns whether the open round lacks a rank.
    pub(super) fn is_awaited(&self, rank: u32) -> bool {
        self.ranks.get(rank as usize).is_some_and(|state| state.answer.is_none())
    }

    /// The ranks that the open round lacks.
    pub(super) fn waits_for(&self) -> impl Iterator<Item = u32> + '_ {
        (0..).zip(&self.ranks).filter(|(_, state)| state.answer.is_none()).map(|(rank, _)| rank)
    }

    /// Offers a rank to a process, or repeats what it has.
    pub(super) fn join(
        &mut self,
        process: Process,
        rank: Option<u32>,
        out: &mut Instructions,
    ) -> Result<Freshness, JoinError> {
        if let Some(rank) = self.rank_of(process) {
            self.remind_one(rank, out);
            return Ok(Freshness::Again);
        }
        self.check_node(process)?;
        let rank = match rank {
            Some(rank) => self.vacant_rank(rank)?,
            None => self.choose_rank(process)?,
        };
        let state = &mut self.ranks[rank];
        let is_same = state.offered.is_some_and(|(offered, _)| offered == process);
        state.offered = Some((process, self.offers));
        self.offers += 1;
        out.push_back(self.report(rank, process));
        Ok(if is_same { Freshness::Again } else { Freshness::New })
    }

    /// Takes the answer of a rank's worker, and ends the round when it is the last.
    pub(super) fn answer(
        &mut self,
        process: Process,
        round: u32,
        rank: u32,
        answer: Answer,
        out: &mut Instructions,
    ) -> Result<Freshness, JoinError> {
        if self.is_stale(round)? {
            return Ok(Freshness::Stale);
        }
        let rank = self.check_rank(rank)?;
        match self.ranks[rank].holder {
            Some(holder) if holder == process => {}
            Some(holder) => return Err(JoinError::Taken { rank: rank as u32, holder }),
            // A process that knows the round was offered the rank in it. The first to answer has it.
            None => self.check_node(process)?,
        }
        self.check_answer((rank, process), &answer)?;
        if !self.is_open() {
            self.remind_one(rank, out);
            return Ok(Freshness::Again);
        }
        if self.ranks[rank].answer.as_ref() == Some(&answer) {
            return Ok(Freshness::Again);
        }
        let taken = RankState { holder: Some(process), offered: None, answer: Some(answer) };
        let before = self.put(rank, taken);
        self.set_up_if_complete(out).inspect_err(|_| drop(self.put(rank, before)))?;
        Ok(Freshness::New)
    }

    /// Removes the rank of a process that leaves.
    pub(super) fn leave(
        &mut self,
        process: Process,
        out: &mut Instructions,
    ) -> Result<Freshness, JoinError> {
        let Some(rank) = self.rank_of(process) else {
            if !self.is_seated(process.node) {
                out.push_back(self.retire(process.node));
            }
            return Ok(Freshness::Again);
        };
        self.remove_rank(rank, out)?;
        out.push_back(self.retire(process.node));
        Ok(Freshness::New)
    }

    /// Vacates a rank.
    pub(super) fn lose(
        &mut self,
        process: Process,
        out: &mut Instructions,
    ) -> Result<Freshness, JoinError> {
        let Some(rank) = self.rank_of(process) else { return Ok(Freshness::Again) };
        let round = self.next_round()?;
        self.put(rank, RankState::default());
        self.begin_round(round, out);
        Ok(Freshness::New)
    }

    /// Removes a rank whose worker is gone.
    pub(super) fn give_up(
        &mut self,
        round: u32,
        rank: u32,
        out: &mut Instructions,
    ) -> Result<Freshness, JoinError> {
        if self.is_stale(round)? {
            return Ok(Freshness::Stale);
        }
        let rank = self.check_rank(rank)?;
        self.remove_rank(rank, out)?;
        Ok(Freshness::New)
    }

    /// Begins a round because a server has nothing. A round that is open serves as well: its set-up
    /// comes after the restart.
    pub(super) fn restart_server(
        &mut self,
        server: Process,
        out: &mut Instructions,
    ) -> Result<Freshness, JoinError> {
        let Some(index) = self.spec.servers.iter().position(|&node| node == server.node) else {
            return Err(JoinError::UnknownServer(server.node));
        };
        if self.server_lives[index] == Some(server.life) {
            return Ok(Freshness::Again);
        }
        if !self.is_open() {
            let round = self.next_round()?;
            self.begin_round(round, out);
        }
        self.server_lives[index] = Some(server.life);
        Ok(Freshness::New)
    }

    /// Begins a round because paths have changed. What was answered in an open one may name old paths.
    // spec: E-09
    pub(super) fn replan(&mut self, out: &mut Instructions) -> Result<Freshness, JoinError> {
        let round = self.next_round()?;
        self.begin_round(round, out);
        Ok(Freshness::New)
    }

    /// Repeats messages that may have been lost.
    pub(super) fn remind(&self, out: &mut Instructions) {
        if !self.is_open() {
            self.adopt_servers(out);
        }
        (0..self.ranks.len()).for_each(|rank| self.remind_one(rank, out));
    }

    /// Tells everybody that the job is over.
    pub(super) fn retire_all(&self, out: &mut Instructions) {
        let holders = self.ranks.iter().filter_map(|state| state.holder).map(|holder| holder.node);
        let mut nodes: Vec<NodeId> = self.roster.iter().map(|process| process.node).collect();
        nodes.extend(holders);
        nodes.extend(&self.spec.servers);
        nodes.sort_unstable();
        nodes.dedup();
        out.extend(nodes.into_iter().map(|node| self.retire(node)));
    }

    /// True if a round has not ended yet.
    fn is_open(&self) -> bool {
        self.setup.as_ref().is_none_or(|setup| setup.epoch != self.round)
    }

    fn is_stale(&self, round: u32) -> Result<bool, JoinError> {
        if round > self.round {
            return Err(JoinError::Future { round, current: self.round });
        }
        Ok(round < self.round)
    }

    fn next_round(&self) -> Result<u32, JoinError> {
        next_epoch(self.round).ok_or(JoinError::WornOut(self.id))
    }

    fn rank_of(&self, process: Process) -> Option<usize> {
        let rank = *self.held.get(&process.node)?;
        (self.ranks[rank].holder == Some(process)).then_some(rank)
    }

    fn is_seated(&self, node: NodeId) -> bool {
        self.held.contains_key(&node)
    }

    /// Replaces one. Returns what it was.
    fn put(&mut self, rank: usize, state: RankState) -> RankState {
        self.unanswered += usize::from(state.answer.is_none());
        let holder = state.holder;
        let before = std::mem::replace(&mut self.ranks[rank], state);
        self.unanswered -= usize::from(before.answer.is_none());
        before.holder.map(|before| self.held.remove(&before.node));
        holder.map(|holder| self.held.insert(holder.node, rank));
        before
    }

    /// Refuses the node if it has another process of this job.
    fn check_node(&self, process: Process) -> Result<(), JoinError> {
        let other = self.held.get(&process.node).copied();
        match other.and_then(|rank| Some((rank as u32, self.ranks[rank].holder?))) {
            Some((rank, holder)) => Err(JoinError::Taken { rank, holder }),
            None => Ok(()),
        }
    }

    fn check_rank(&self, rank: u32) -> Result<usize, JoinError> {
        let workers = self.ranks.len() as u32;
        let known = (rank < workers).then_some(rank as usize);
        known.ok_or(JoinError::UnknownRank { rank, workers })
    }

    fn vacant_rank(&self, rank: u32) -> Result<usize, JoinError> {
        let index = self.check_rank(rank)?;
        match self.ranks[index].holder {
            Some(holder) => Err(JoinError::Taken { rank, holder }),
            None => Ok(index),
        }
    }

    /// The rank that the process was offered before, or one that was offered to nobody, or the one
    /// whose offer is the oldest: it may have gone to a process that is no more.
    fn choose_rank(&self, process: Process) -> Result<usize, JoinError> {
        let is_mine =
            |state: &RankState| state.offered.is_some_and(|(offered, _)| offered == process);
        let age = |state: &RankState| (!is_mine(state), state.offered.map(|(_, number)| number));
        let empty = self.ranks.iter().enumerate().filter(|(_, state)| state.holder.is_none());
        let oldest = empty.min_by_key(|(_, state)| age(state));
        oldest.map(|(rank, _)| rank).ok_or(JoinError::Full)
    }

    fn check_answer(
        &self,
        (rank, process): (usize, Process),
        answer: &Answer,
    ) -> Result<(), JoinError> {
        let (given, servers) = (answer.paths.len(), self.spec.servers.len());
        if given != servers {
            return Err(JoinError::Paths { given, servers });
        }
        if let Some(long) = answer.paths.iter().map(Vec::len).find(|&length| length > LEVELS) {
            return Err(JoinError::LongPath(long));
        }
        let Memory::Kept { watermark } = answer.memory else { return Ok(()) };
        // Most have the rank that they had.
        if self.roster.get(rank) != Some(&process) && !self.roster.contains(&process) {
            return Err(JoinError::Outdated);
        }
        let (least, limit) = (self.least_watermark, self.next_age.unwrap_or(u64::MAX));
        if !(least..limit).contains(&watermark) {
            return Err(JoinError::Watermark { watermark, least, limit });
        }
        Ok(())
    }

    fn remove_rank(&mut self, rank: usize, out: &mut Instructions) -> Result<(), JoinError> {
        let round = self.next_round()?;
        self.ranks.remove(rank);
        let holders = self.ranks.iter().enumerate();
        self.held = holders.filter_map(|(rank, state)| Some((state.holder?.node, rank))).collect();
        self.begin_round(round, out);
        Ok(())
    }

    /// Forgets all answers and asks everybody again.
    // spec: A-41
    fn begin_round(&mut self, round: u32, out: &mut Instructions) {
        self.round = round;
        for state in &mut self.ranks {
            (state.offered, state.answer) = (None, None);
        }
        self.unanswered = self.ranks.len();
        (0..self.ranks.len()).for_each(|rank| self.remind_one(rank, out));
    }

    /// Sends the holder of a rank what it may have missed.
    fn remind_one(&self, rank: usize, out: &mut Instructions) {
        let state = &self.ranks[rank];
        let Some(process) = state.holder else { return };
        match self.setup.as_ref().filter(|_| !self.is_open()) {
            Some(setup) => out.push_back(Instruction::AdoptWorker {
                process,
                rank: rank as u32,
                setup: Arc::clone(setup),
            }),
            None if state.answer.is_none() => out.push_back(self.report(rank, process)),
            None => {}
        }
    }

    fn report(&self, rank: usize, process: Process) -> Instruction {
        Instruction::Report { process, job: self.id, round: self.round, rank: rank as u32 }
    }

    fn retire(&self, node: NodeId) -> Instruction {
        Instruction::Retire { node, job: self.id, round: self.round }
    }

    fn adopt_servers(&self, out: &mut Instructions) {
        let Some(setup) = &self.setup else { return };
        for (&node, &life) in self.spec.servers.iter().zip(&self.server_lives) {
            out.push_back(Instruction::AdoptServer { node, life, setup: Arc::clone(setup) });
        }
    }

    fn set_up_if_complete(&mut self, out: &mut Instructions) -> Result<(), JoinError> {
        if self.unanswered > 0 {
            return Ok(());
        }
        let trees = self.trees()?;
        let (resume_from, next_age) = self.resume_from()?;
        (self.least_watermark, self.next_age) = (resume_from, next_age);
        self.setup = Some(Arc::new(self.setup_with(trees, resume_from)));
        let before = std::mem::replace(
            &mut self.roster,
            self.ranks.iter().filter_map(|state| state.holder).collect(),
        );
        for former in before.iter().filter(|former| !self.is_seated(former.node)) {
            out.push_back(self.retire(former.node));
        }
        // Servers first: a worker may send as soon as it has adopted.
        self.adopt_servers(out);
        (0..self.ranks.len()).for_each(|rank| self.remind_one(rank, out));
        Ok(())
    }

    // spec: A-40
    fn trees(&self) -> Result<Vec<Arc<Tree>>, TreeError> {
        let tree = |(index, &server): (usize, &NodeId)| {
            let member = |state: &RankState| {
                let path = state.answer.as_ref()?.paths.get(index)?.clone();
                Some(Member { node: state.holder?.node, path })
            };
            let members: Vec<Member> = self.ranks.iter().filter_map(member).collect();
            Tree::build(server, &members).map(Arc::new)
        };
        self.spec.servers.iter().enumerate().map(tree).collect()
    }

    /// Fragment at which the set-up resumes, and first fragment of the age after that.
    // spec: A-41
    fn resume_from(&self) -> Result<(u64, Option<u64>), JoinError> {
        let watermark = |state: &RankState| match state.answer.as_ref()?.memory {
            Memory::Kept { watermark } => Some(watermark),
            Memory::Lost => None,
        };
        if let Some(least) = self.ranks.iter().filter_map(watermark).min() {
            return Ok((least, self.next_age));
        }
        let begin = self.next_age.ok_or(JoinError::WornOut(self.id))?;
        Ok((begin, begin.checked_add(AGE_FRAGMENTS)))
    }

    fn setup_with(&self, trees: Vec<Arc<Tree>>, resume_from: u64) -> Setup {
        Setup {
            job: self.id,
            epoch: self.round,
            trees,
            parameters: self.spec.parameters,
            resume_from,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::JobSpec;
    use super::*;
    use thalweg_wire::prefix::EPOCH_MAX;

    const PROCESS: Process = Process { node: NodeId(1), life: 1 };

    fn answer(job: &mut Job, memory: Memory) -> Result<Freshness, JoinError> {
        let answer = Answer { paths: vec![vec![]], memory };
        job.answer(PROCESS, job.round, 0, answer, &mut VecDeque::new())
    }

    #[test]
    fn numbers_that_are_used_up_are_an_error() {
        let out = &mut VecDeque::new();
        let mut job = Job::new(JobId(1), JobSpec::new(1, vec![NodeId(9)]).check().unwrap());
        // The last age, then none.
        job.next_age = Some(u64::MAX - AGE_FRAGMENTS + 1);
        assert_eq!(answer(&mut job, Memory::Lost), Ok(Freshness::New));
        assert_eq!(job.setup().map(|setup| setup.resume_from), Some(u64::MAX - AGE_FRAGMENTS + 1));
        job.lose(PROCESS, out).unwrap();
        assert_eq!(answer(&mut job, Memory::Lost), Err(JoinError::WornOut(JobId(1))));
        assert_eq!(answer(&mut job, Memory::Kept { watermark: u64::MAX - 1 }), Ok(Freshness::New));
        // The last round, then none.
        job.begin_round(EPOCH_MAX, out);
        assert_eq!(answer(&mut job, Memory::Kept { watermark: u64::MAX - 1 }), Ok(Freshness::New));
        assert_eq!(job.lose(PROCESS, out), Err(JoinError::WornOut(JobId(1))));
        assert_eq!(job.leave(PROCESS, out), Err(JoinError::WornOut(JobId(1))));
        assert_eq!(job.waits_for().count(), 0, "it runs on");
    }
}
