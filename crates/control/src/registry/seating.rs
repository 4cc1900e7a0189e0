//! Between the ranks of a job and the registrar of its aggregation.

use std::sync::Arc;

use thalweg_aggregate::join::{Instruction, JoinError, Memory, Message, Process};
use thalweg_aggregate::{JobParameters, Setup};
use thalweg_core::{JobId, Time};
use thalweg_wire::tag::Key;

use super::job::Attendee;
use super::{Action, Registry, explain};
use crate::message::ToRank;

impl Registry {
    /// Makes the aggregation among the leaders, or says why there is none.
    pub(super) fn begin(&mut self, id: JobId) -> Result<(), String> {
        let Some(job) = self.jobs.get_mut(&id) else { return Ok(()) };
        let server = self.cluster.server_of(job.thread());
        let spec = job.settings.spec(job.hosts.len() as u32, server);
        let made = match job.past().filter(|_| job.is_resumed) {
            Some(past) => {
                job.plan.fragment_values = past.fragment_values;
                job.plan.span_fragments = past.span_fragments;
                job.plan.widens_halves = past.widens_halves;
                self.registrar.restore(id, spec, past.round, past.roster, past.watermark)
            }
            None if job.is_resumed => {
                return Err("the server restarted, and the lowest ranks of all hosts are new: \
                            nobody remembers the job"
                    .into());
            }
            None => self.registrar.register_as(id, spec),
        };
        made.map_err(|error| format!("the job cannot be set up: {error}"))
    }

    /// Has one leader or all of them take part in the next set-up. A leader that does is reminded of what it may have
    /// missed.
    pub(super) fn set_up(&mut self, now: Time, id: JobId, only: Option<u32>) {
        // Nobody is set up before it is welcomed, or before its switches were asked.
        if self.jobs.get(&id).is_none_or(|job| job.welcome.is_none()) {
            return self.obey();
        }
        let is_planned = self.plan(now, id);
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let was_open = std::mem::replace(&mut job.plan.is_open, !is_planned);
        if !is_planned {
            return self.obey();
        }
        let only = only.filter(|_| !was_open);
        let leaders = &job.hosts[..];
        let joins = (0..)
            .zip(leaders)
            .filter(|(_, leader)| only.is_none_or(|only| only == **leader))
            .filter_map(|(seat, leader)| Some((seat, job.ranks.get(leader)?.process)))
            .map(|(seat, process)| Message::Join { job: id, process, rank: Some(seat) });
        let joins: Vec<Message> = joins.collect();
        let has_left = |leader: &&u32| job.ranks.get(*leader).is_some_and(Attendee::has_left);
        let departed: Vec<u32> = leaders.iter().filter(has_left).copied().collect();
        for join in joins {
            self.tell_registrar(now, id, join);
        }
        self.obey();
        // Some may have left while switches were asked.
        for rank in departed {
            self.answer_for_departed(now, id, rank);
        }
    }

    pub(super) fn answer(
        &mut self,
        now: Time,
        (id, rank): (JobId, u32),
        round: u32,
        index: u32,
        watermark: Option<u64>,
    ) {
        let Some(job) = self.jobs.get(&id) else { return };
        // A rank can only answer for itself, and has to be asked.
        if job.seat_of(rank) != Some(index) || job.plan.is_open {
            return;
        }
        // The last answer makes the set-up.
        let is_last = self.registrar.round(id) == Some(round)
            && self.registrar.waits_for(id).eq(std::iter::once(index));
        if is_last && !self.conclude(now, id, round) {
            return;
        }
        let Some(job) = self.jobs.get(&id) else { return };
        let Some(attendee) = job.ranks.get(&rank) else { return };
        let memory = watermark.map_or(Memory::Lost, |watermark| Memory::Kept { watermark });
        let path = self.cluster.path(attendee.switch).into_iter();
        let path = path.filter(|switch| job.plan.has(*switch));
        let paths = vec![path.map(|switch| self.switches.shard(switch, job.thread())).collect()];
        let process = attendee.process;
        let message = Message::Answer { job: id, process, round, rank: index, paths, memory };
        self.tell_registrar(now, id, message);
        self.obey();
    }

    /// Answers an open round for a rank that has left. The others have paused for the set-up, and need it to get results
    /// that the server has. Nothing resumes before the watermarks of those that are there: the rank that left lacks
    /// nothing, and operations that need more of it fail by themselves.
    // spec: E-01
    pub(super) fn answer_for_departed(&mut self, now: Time, id: JobId, rank: u32) {
        let index = self.jobs.get(&id).and_then(|job| job.seat_of(rank));
        let (Some(index), Some(round)) = (index, self.registrar.round(id)) else { return };
        if self.registrar.waits_for(id).any(|awaited| awaited == index) {
            self.answer(now, (id, rank), round, index, None);
        }
    }

    pub(super) fn tell_registrar(&mut self, now: Time, id: JobId, message: Message) {
        match self.registrar.handle(message) {
            // StreamMessage too late or too early: it will be asked again.
            Ok(_) | Err(JoinError::UnknownJob(_) | JoinError::Future { .. }) => {}
            Err(error) => {
                let Some(job) = self.jobs.get(&id) else { return };
                let failure = explain::no_set_up(&self.cluster, job, &error);
                self.fail(now, id, failure);
            }
        }
    }

    /// Passes on what the registrar wants.
    pub(super) fn obey(&mut self) {
        while let Some(instruction) = self.registrar.poll() {
            match instruction {
                Instruction::Report { process, job, round, rank: index } => {
                    let report = ToRank::Report { round, seat: index };
                    for message in self.probes_before(job, index, round).into_iter().chain([report])
                    {
                        self.tell_seat(job, index, process, message);
                    }
                }
                Instruction::AdoptWorker { process, rank: seat, setup } => {
                    let secret = self.secrets.of_job(setup.parameters.generation);
                    let key = Key::derive(secret, setup.job, setup.epoch);
                    self.tell_seat(setup.job, seat, process, ToRank::Adopt { seat, key, setup });
                }
                Instruction::AdoptServer { setup, .. } => self.adopt(setup),
                Instruction::Retire { node, job, .. } if self.cluster.is_server(node) => {
                    self.actions.push_back(Action::Retire { job });
                }
                Instruction::Retire { node, job, round } => {
                    let message = ToRank::Retire { round };
                    self.actions
                        .extend(self.jobs.get(&job).and_then(|job| job.tell_node(node, message)));
                }
            }
        }
    }

    fn tell_seat(&mut self, job: JobId, seat: u32, process: Process, message: ToRank) {
        let Some(job) = self.jobs.get(&job) else { return };
        self.actions.extend(job.tell_seat(seat, process, message));
    }

    fn adopt(&mut self, setup: Arc<Setup>) {
        if let Some(job) = self.jobs.get(&setup.job) {
            let JobParameters { aggregators, fragment_values, .. } = *setup.parameters;
            let switches = match (job.plan.planned().count(), job.plan.left_out().count()) {
                (0, 0) => String::new(),
                (planned, left_out) => format!(
                    " and {planned} of {} switches ({aggregators} aggregators, fragments of {fragment_values} values)",
                    planned + left_out
                ),
            };
            self.note(format!(
                "job {:?}: set up in epoch {} with {} ranks on {} hosts{switches}, from fragment {}",
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
