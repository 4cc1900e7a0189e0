//! One job: its seats and its rounds.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use thalweg_core::{JobId, NodeId};
use thalweg_wire::aggregate::LEVELS;

use super::spec::CheckedSpec;
use super::{AGE_FRAGMENTS, Heard, Instruction, JoinError, Memory, Process, next_epoch};
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
    seats: Vec<Seat>,
    /// Indices of what is held, by the nodes of the holders: a job has thousands, and every message names one.
    // spec: E-12
    held: BTreeMap<NodeId, usize>,
    /// Number of answers that this round lacks.
    unanswered: usize,
    /// How many offers were made. Numbers them.
    offers: u64,
    /// The outcome of the last round that ended: its epoch is that round.
    setup: Option<Arc<Setup>>,
    /// Who was in the last set-up: those who may remember the job.
    roster: Vec<Process>,
    /// The least watermark that any of the roster can have.
    least_watermark: u64,
    /// The first fragment of the age after this one; `None` when numbers are used up.
    next_age: Option<u64>,
    /// The life in which each server last said that it had restarted.
    server_lives: Vec<Option<u64>>,
}

/// A place for one worker.
#[derive(Clone, Debug, Default)]
struct Seat {
    holder: Option<Process>,
    /// Who was told that the seat is empty, and the number of that offer. Means something only while
    /// nobody holds the seat.
    offered: Option<(Process, u64)>,
    /// What the holder said in this round.
    answer: Option<Answer>,
}

/// What a worker says in a round.
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
            seats: vec![Seat::default(); spec.workers as usize],
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

    /// Whether there are no seats left.
    pub(super) fn is_empty(&self) -> bool {
        self.seats.is_empty()
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
        self.seats.get(rank as usize).is_some_and(|seat| seat.answer.is_none())
    }

    /// The ranks that the open round lacks.
    pub(super) fn waits_for(&self) -> impl Iterator<Item = u32> + '_ {
        (0..).zip(&self.seats).filter(|(_, seat)| seat.answer.is_none()).map(|(rank, _)| rank)
    }

    /// Offers a seat to a process, or tells it again what it has.
    pub(super) fn join(
        &mut self,
        process: Process,
        rank: Option<u32>,
        out: &mut Instructions,
    ) -> Result<Heard, JoinError> {
        if let Some(rank) = self.rank_of(process) {
            self.remind_one(rank, out);
            return Ok(Heard::Again);
        }
        self.check_node(process)?;
        let rank = match rank {
            Some(rank) => self.empty_seat(rank)?,
            None => self.choose_seat(process)?,
        };
        let seat = &mut self.seats[rank];
        let is_same = seat.offered.is_some_and(|(offered, _)| offered == process);
        seat.offered = Some((process, self.offers));
        self.offers += 1;
        out.push_back(self.report(rank, process));
        Ok(if is_same { Heard::Again } else { Heard::New })
    }

    /// Takes what the worker of a seat says, and ends the round when it is the last.
    pub(super) fn answer(
        &mut self,
        process: Process,
        round: u32,
        rank: u32,
        answer: Answer,
        out: &mut Instructions,
    ) -> Result<Heard, JoinError> {
        if self.is_stale(round)? {
            return Ok(Heard::Stale);
        }
        let rank = self.check_rank(rank)?;
        match self.seats[rank].holder {
            Some(holder) if holder == process => {}
            Some(holder) => return Err(JoinError::Taken { rank: rank as u32, holder }),
            // Whoever knows the round was offered the seat in it. The first to answer has it.
            None => self.check_node(process)?,
        }
        self.check_answer((rank, process), &answer)?;
        if !self.is_open() {
            self.remind_one(rank, out);
            return Ok(Heard::Again);
        }
        if self.seats[rank].answer.as_ref() == Some(&answer) {
            return Ok(Heard::Again);
        }
        let taken = Seat { holder: Some(process), offered: None, answer: Some(answer) };
        let before = self.put(rank, taken);
        self.set_up_if_complete(out).inspect_err(|_| drop(self.put(rank, before)))?;
        Ok(Heard::New)
    }

    /// Removes the seat of a process that leaves.
    pub(super) fn leave(
        &mut self,
        process: Process,
        out: &mut Instructions,
    ) -> Result<Heard, JoinError> {
        let Some(rank) = self.rank_of(process) else {
            if !self.is_seated(process.node) {
                out.push_back(self.retire(process.node));
            }
            return Ok(Heard::Again);
        };
        self.remove_seat(rank, out)?;
        out.push_back(self.retire(process.node));
        Ok(Heard::New)
    }

    /// Empties a seat.
    pub(super) fn lose(
        &mut self,
        process: Process,
        out: &mut Instructions,
    ) -> Result<Heard, JoinError> {
        let Some(rank) = self.rank_of(process) else { return Ok(Heard::Again) };
        let round = self.next_round()?;
        self.put(rank, Seat::default());
        self.begin_round(round, out);
        Ok(Heard::New)
    }

    /// Removes a seat whose worker is gone.
    pub(super) fn give_up(
        &mut self,
        round: u32,
        rank: u32,
        out: &mut Instructions,
    ) -> Result<Heard, JoinError> {
        if self.is_stale(round)? {
            return Ok(Heard::Stale);
        }
        let rank = self.check_rank(rank)?;
        self.remove_seat(rank, out)?;
        Ok(Heard::New)
    }

    /// Begins a round because a server has nothing. A round that is open serves as well: its set-up
    /// comes after the restart.
    pub(super) fn restart_server(
        &mut self,
        server: Process,
        out: &mut Instructions,
    ) -> Result<Heard, JoinError> {
        let Some(index) = self.spec.servers.iter().position(|&node| node == server.node) else {
            return Err(JoinError::UnknownServer(server.node));
        };
        if self.server_lives[index] == Some(server.life) {
            return Ok(Heard::Again);
        }
        if !self.is_open() {
            let round = self.next_round()?;
            self.begin_round(round, out);
        }
        self.server_lives[index] = Some(server.life);
        Ok(Heard::New)
    }

    /// Begins a round because paths have changed. What was answered in an open one may name old paths.
    // spec: E-09
    pub(super) fn replan(&mut self, out: &mut Instructions) -> Result<Heard, JoinError> {
        let round = self.next_round()?;
        self.begin_round(round, out);
        Ok(Heard::New)
    }

    /// Repeats messages that may have been lost.
    pub(super) fn remind(&self, out: &mut Instructions) {
        if !self.is_open() {
            self.adopt_servers(out);
        }
        (0..self.seats.len()).for_each(|rank| self.remind_one(rank, out));
    }

    /// Tells everybody that the job is over.
    pub(super) fn retire_all(&self, out: &mut Instructions) {
        let seated = self.seats.iter().filter_map(|seat| seat.holder).map(|holder| holder.node);
        let mut nodes: Vec<NodeId> = self.roster.iter().map(|process| process.node).collect();
        nodes.extend(seated);
        nodes.extend(&self.spec.servers);
        nodes.sort_unstable();
        nodes.dedup();
        out.extend(nodes.into_iter().map(|node| self.retire(node)));
    }

    /// Whether a round has not ended yet.
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
        (self.seats[rank].holder == Some(process)).then_some(rank)
    }

    fn is_seated(&self, node: NodeId) -> bool {
        self.held.contains_key(&node)
    }

    /// Replaces one. Returns what it was.
    fn put(&mut self, rank: usize, seat: Seat) -> Seat {
        self.unanswered += usize::from(seat.answer.is_none());
        let holder = seat.holder;
        let before = std::mem::replace(&mut self.seats[rank], seat);
        self.unanswered -= usize::from(before.answer.is_none());
        before.holder.map(|before| self.held.remove(&before.node));
        holder.map(|holder| self.held.insert(holder.node, rank));
        before
    }

    /// Whether the node has no other process of this job.
    fn check_node(&self, process: Process) -> Result<(), JoinError> {
        let other = self.held.get(&process.node).copied();
        match other.and_then(|rank| Some((rank as u32, self.seats[rank].holder?))) {
            Some((rank, holder)) => Err(JoinError::Taken { rank, holder }),
            None => Ok(()),
        }
    }

    fn check_rank(&self, rank: u32) -> Result<usize, JoinError> {
        let workers = self.seats.len() as u32;
        let known = (rank < workers).then_some(rank as usize);
        known.ok_or(JoinError::UnknownRank { rank, workers })
    }

    fn empty_seat(&self, rank: u32) -> Result<usize, JoinError> {
        let index = self.check_rank(rank)?;
        match self.seats[index].holder {
            Some(holder) => Err(JoinError::Taken { rank, holder }),
            None => Ok(index),
        }
    }

    /// The seat that the process was offered before, or one that was offered to nobody, or the one
    /// whose offer is the oldest: it may have gone to a process that is no more.
    fn choose_seat(&self, process: Process) -> Result<usize, JoinError> {
        let is_mine = |seat: &Seat| seat.offered.is_some_and(|(offered, _)| offered == process);
        let age = |seat: &Seat| (!is_mine(seat), seat.offered.map(|(_, number)| number));
        let empty = self.seats.iter().enumerate().filter(|(_, seat)| seat.holder.is_none());
        let oldest = empty.min_by_key(|(_, seat)| age(seat));
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

    fn remove_seat(&mut self, rank: usize, out: &mut Instructions) -> Result<(), JoinError> {
        let round = self.next_round()?;
        self.seats.remove(rank);
        let holders = self.seats.iter().enumerate();
        self.held = holders.filter_map(|(rank, seat)| Some((seat.holder?.node, rank))).collect();
        self.begin_round(round, out);
        Ok(())
    }

    /// Forgets what was said and asks everybody again.
    // spec: A-41
    fn begin_round(&mut self, round: u32, out: &mut Instructions) {
        self.round = round;
        for seat in &mut self.seats {
            (seat.offered, seat.answer) = (None, None);
        }
        self.unanswered = self.seats.len();
        (0..self.seats.len()).for_each(|rank| self.remind_one(rank, out));
    }

    /// Sends the holder of a seat what it may have missed.
    fn remind_one(&self, rank: usize, out: &mut Instructions) {
        let seat = &self.seats[rank];
        let Some(process) = seat.holder else { return };
        match self.setup.as_ref().filter(|_| !self.is_open()) {
            Some(setup) => out.push_back(Instruction::AdoptWorker {
                process,
                rank: rank as u32,
                setup: Arc::clone(setup),
            }),
            None if seat.answer.is_none() => out.push_back(self.report(rank, process)),
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
            self.seats.iter().filter_map(|seat| seat.holder).collect(),
        );
        for former in before.iter().filter(|former| !self.is_seated(former.node)) {
            out.push_back(self.retire(former.node));
        }
        // Servers first: a worker may send as soon as it has adopted.
        self.adopt_servers(out);
        (0..self.seats.len()).for_each(|rank| self.remind_one(rank, out));
        Ok(())
    }

    // spec: A-40
    fn trees(&self) -> Result<Vec<Arc<Tree>>, TreeError> {
        let tree = |(index, &server): (usize, &NodeId)| {
            let member = |seat: &Seat| {
                let path = seat.answer.as_ref()?.paths.get(index)?.clone();
                Some(Member { node: seat.holder?.node, path })
            };
            let members: Vec<Member> = self.seats.iter().filter_map(member).collect();
            Tree::build(server, &members).map(Arc::new)
        };
        self.spec.servers.iter().enumerate().map(tree).collect()
    }

    /// Where the set-up resumes, and where the age after that begins.
    // spec: A-41
    fn resume_from(&self) -> Result<(u64, Option<u64>), JoinError> {
        let watermark = |seat: &Seat| match seat.answer.as_ref()?.memory {
            Memory::Kept { watermark } => Some(watermark),
            Memory::Lost => None,
        };
        if let Some(least) = self.seats.iter().filter_map(watermark).min() {
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

    fn answer(job: &mut Job, memory: Memory) -> Result<Heard, JoinError> {
        let answer = Answer { paths: vec![vec![]], memory };
        job.answer(PROCESS, job.round, 0, answer, &mut VecDeque::new())
    }

    #[test]
    fn numbers_that_are_used_up_are_an_error() {
        let out = &mut VecDeque::new();
        let mut job = Job::new(JobId(1), JobSpec::new(1, vec![NodeId(9)]).check().unwrap());
        // The last age, then none.
        job.next_age = Some(u64::MAX - AGE_FRAGMENTS + 1);
        assert_eq!(answer(&mut job, Memory::Lost), Ok(Heard::New));
        assert_eq!(job.setup().map(|setup| setup.resume_from), Some(u64::MAX - AGE_FRAGMENTS + 1));
        job.lose(PROCESS, out).unwrap();
        assert_eq!(answer(&mut job, Memory::Lost), Err(JoinError::WornOut(JobId(1))));
        assert_eq!(answer(&mut job, Memory::Kept { watermark: u64::MAX - 1 }), Ok(Heard::New));
        // The last round, then none.
        job.begin_round(EPOCH_MAX, out);
        assert_eq!(answer(&mut job, Memory::Kept { watermark: u64::MAX - 1 }), Ok(Heard::New));
        assert_eq!(job.lose(PROCESS, out), Err(JoinError::WornOut(JobId(1))));
        assert_eq!(job.leave(PROCESS, out), Err(JoinError::WornOut(JobId(1))));
        assert_eq!(job.waits_for().count(), 0, "it runs on");
    }
}
