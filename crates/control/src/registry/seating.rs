//! Between the ranks of a job and the registrar of its aggregation.

use std::sync::Arc;

use thalweg_aggregate::join::{Instruction, JoinError, Memory, Message, Process};
use thalweg_aggregate::{JobParameters, Setup};
use thalweg_core::{JobId, Time};
use thalweg_wire::tag::Key;

use super::job::Attendee;
use super::{Action, Registry, explain};
use crate::message::{JobTree, ToRank};

impl Registry {
    /// Makes the aggregation among the leaders in all trees, or says why it is impossible.
    // spec: F-03, F-04
    pub(super) fn begin(&mut self, id: JobId) -> Result<(), String> {
        let Some(job) = self.jobs.get(&id) else { return Ok(()) };
        if let Some(rank) = job.narrower_rank() {
            let trees = job.trees.len();
            return Err(format!(
                "it has {trees} sending threads at every rank since before the server restarted, and rank {rank} offers \
                 fewer"
            ));
        }
        job.all_trees().try_for_each(|at| self.begin_tree(at))
    }

    fn begin_tree(&mut self, at: JobTree) -> Result<(), String> {
        let (id, tree) = (at.id(), at.tree);
        let Some(job) = self.jobs.get_mut(&at.job) else { return Ok(()) };
        let spec = job.settings.spec(job.hosts.len() as u32, self.cluster.server_of(tree));
        let past = job.past(tree).filter(|_| job.is_resumed);
        let is_resumed = job.is_resumed;
        let Some(plan) = job.plan_mut(tree) else { return Ok(()) };
        let made = match past {
            Some(past) => {
                plan.fragment_values = past.fragment_values;
                plan.span_fragments = past.span_fragments;
                plan.widens_halves = past.widens_halves;
                self.registrar.restore(id, spec, past.round, past.roster, past.watermark)
            }
            None if is_resumed => {
                return Err("the server restarted, and the lowest ranks of all hosts are new: \
                            nobody remembers the job"
                    .into());
            }
            None => self.registrar.register_as(id, spec),
        };
        made.map_err(|error| format!("the job cannot be set up: {error}"))
    }

    /// Has one leader or all of them take part in the next set-up of every tree.
    pub(super) fn set_up_all(&mut self, now: Time, id: JobId, only: Option<u32>) {
        let Some(job) = self.jobs.get(&id) else { return };
        for at in job.all_trees() {
            self.set_up(now, at, only);
        }
    }

    /// Has one leader or all of them take part in the next set-up of a tree. A leader that does is reminded of what it may
    /// have missed.
    pub(super) fn set_up(&mut self, now: Time, at: JobTree, only: Option<u32>) {
        // Nobody is set up before it is welcomed, or before its switches were asked.
        if self.jobs.get(&at.job).is_none_or(|job| job.welcome.is_none()) {
            return self.obey();
        }
        let is_planned = self.plan(now, at);
        let Some(job) = self.jobs.get_mut(&at.job) else { return };
        let Some(plan) = job.plan_mut(at.tree) else { return };
        let was_open = std::mem::replace(&mut plan.is_open, !is_planned);
        if !is_planned {
            self.waiting.insert(at.job);
            return self.obey();
        }
        let only = only.filter(|_| !was_open);
        // One that comes back is no reason to go through all.
        // spec: E-12
        let indices = match only.map(|only| job.seat_of(only)) {
            Some(index) => index.map_or(0..0, |index| index..index + 1),
            None => 0..job.hosts.len() as u32,
        };
        let leaders = indices.filter_map(|index| Some((index, *job.hosts.get(index as usize)?)));
        let joins = leaders
            .filter_map(|(index, leader)| {
                Some((index, job.ranks.get(&leader)?.process_in(at.tree)?))
            })
            .map(|(index, process)| Message::Join { job: at.id(), process, rank: Some(index) });
        let joins: Vec<Message> = joins.collect();
        let has_left = |leader: &&u32| job.ranks.get(*leader).is_some_and(Attendee::has_left);
        let leaders = if job.has_departed() { &job.hosts[..] } else { &[] };
        let departed: Vec<u32> = leaders.iter().filter(has_left).copied().collect();
        for join in joins {
            self.tell_registrar(now, at, join);
        }
        self.obey();
        // Some may have left while switches were asked.
        for rank in departed {
            self.answer_for_departed(now, at, rank);
        }
    }

    pub(super) fn answer(
        &mut self,
        now: Time,
        (at, rank): (JobTree, u32),
        round: u32,
        index: u32,
        watermark: Option<u64>,
    ) {
        let (id, tree) = (at.id(), at.tree);
        let Some(job) = self.jobs.get(&at.job) else { return };
        // A rank can only answer for itself, and has to be asked.
        if job.seat_of(rank) != Some(index) || job.plan(tree).is_none_or(|plan| plan.is_open) {
            return;
        }
        // The last answer makes the set-up.
        let is_last = self.registrar.round(id) == Some(round)
            && self.registrar.unanswered(id) == 1
            && self.registrar.is_awaited(id, index);
        if is_last && !self.conclude(now, at, round) {
            return;
        }
        let Some(job) = self.jobs.get(&at.job) else { return };
        let Some(attendee) = job.ranks.get(&rank) else { return };
        let memory = watermark.map_or(Memory::Lost, |watermark| Memory::Kept { watermark });
        let path = self.cluster.path(attendee.switch).into_iter();
        let path = path.filter(|switch| job.has_switch(tree, *switch));
        let paths = vec![path.map(|switch| self.switches.shard(switch, tree)).collect()];
        let Some(process) = attendee.process_in(tree) else { return };
        let message = Message::Answer { job: id, process, round, rank: index, paths, memory };
        self.tell_registrar(now, at, message);
        self.obey();
    }

    /// Answers an open round for a rank that has left. The others have paused for the set-up, and need it to get results
    /// that the server has. Nothing resumes before the watermarks of those that are there: the rank that left lacks
    /// nothing, and operations that need more of it fail by themselves.
    // spec: E-01
    pub(super) fn answer_for_departed(&mut self, now: Time, at: JobTree, rank: u32) {
        let index = self.jobs.get(&at.job).and_then(|job| job.seat_of(rank));
        let (Some(index), Some(round)) = (index, self.registrar.round(at.id())) else { return };
        if self.registrar.is_awaited(at.id(), index) {
            self.answer(now, (at, rank), round, index, None);
        }
    }

    pub(super) fn tell_registrar(&mut self, now: Time, at: JobTree, message: Message) {
        match self.registrar.handle(message) {
            // StreamMessage too late or too early: it will be asked again.
            Ok(_) | Err(JoinError::UnknownJob(_) | JoinError::Future { .. }) => {}
            Err(error) => {
                let Some(job) = self.jobs.get(&at.job) else { return };
                let failure = explain::no_set_up(&self.cluster, job, &error);
                self.fail(now, at.job, failure);
            }
        }
    }

    /// Passes on what the registrar wants.
    pub(super) fn obey(&mut self) {
        while let Some(instruction) = self.registrar.poll() {
            match instruction {
                Instruction::Report { process, job, round, rank: index } => {
                    let (at, report) = (JobTree::of(job), ToRank::Report { round, seat: index });
                    for message in self.probes_before(at, index, round).into_iter().chain([report])
                    {
                        self.tell_seat(at, (index, process), message);
                    }
                }
                Instruction::AdoptWorker { process, rank: seat, setup } => {
                    let secret = self.secrets.of_job(setup.parameters.generation);
                    let key = Key::derive(secret, setup.job, setup.epoch);
                    let at = JobTree::of(setup.job);
                    self.tell_seat(at, (seat, process), ToRank::Adopt { seat, key, setup });
                }
                Instruction::AdoptServer { setup, .. } => self.adopt(setup),
                Instruction::Retire { node, job, .. } if self.cluster.is_server(node) => {
                    self.actions.push_back(Action::Retire { job });
                }
                Instruction::Retire { node, job, round } => {
                    let (at, message) = (JobTree::of(job), ToRank::Retire { round });
                    let job = self.jobs.get(&at.job);
                    self.actions.extend(job.and_then(|job| job.tell_node(at.tree, node, message)));
                }
            }
        }
    }

    fn tell_seat(&mut self, at: JobTree, holder: (u32, Process), message: ToRank) {
        let Some(job) = self.jobs.get(&at.job) else { return };
        self.actions.extend(job.tell_seat(at.tree, holder, message));
    }

    fn adopt(&mut self, setup: Arc<Setup>) {
        let at = JobTree::of(setup.job);
        let job = self.jobs.get(&at.job);
        if let Some((job, plan)) = job.and_then(|job| Some((job, job.plan(at.tree)?))) {
            let JobParameters { aggregators, fragment_values, .. } = *setup.parameters;
            let switches = match (plan.planned().count(), plan.left_out().count()) {
                (0, 0) => String::new(),
                (planned, left_out) => format!(
                    " and {planned} of {} switches ({aggregators} aggregators, fragments of {fragment_values} values)",
                    planned + left_out
                ),
            };
            let tree = match job.trees.len() {
                1 => String::new(),
                trees => format!("tree {} of {trees} ", at.tree + 1),
            };
            self.note(format!(
                "job {:?}: {tree}set up in epoch {} with {} ranks on {} hosts{switches}, from fragment {}",
                job.name,
                setup.epoch,
                job.workers,
                job.hosts.len(),
                setup.resume_from
            ));
        }
        self.actions.push_back(Action::Adopt { setup });
    }
}
