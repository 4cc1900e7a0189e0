//! The scheduler of a host: which jobs are on it, what their flows have to send, and how fast.
//!
//! It is a machine without I/O, like those of [`thalweg_core::machine`], but it exchanges words
//! instead of packets; what carries them is its driver's business.
//!
//! **Input.** [`Host::ready`] and [`Host::sent`] say what becomes of a job's tensors;
//! [`Host::handle_feedback`] brings what the links of a flow's path say,
//! [`Host::handle_progress`] how far other hosts' flows are, [`Host::handle_refusal`] that a table did
//! not take a schedule; [`Host::handle_timeout`] is called when [`Host::poll_timeout`] has come.
//!
//! **Output.** After every input [`Host::poll_event`] is drained: packets to send for feedback, rates
//! to obey, schedules to publish along the path, progress to tell to receivers.
//!
//! **A slot.** When it begins, flows go on as planned before, and a few packets of each go out at
//! once. At a moment that differs from host to host, the host decides for all its flows, one after
//! the other, each seeing what those before it reserved on the host's own link. Flows of one job do
//! not take turns: they share what the link has for the job, since it waits for the last of them.

mod decide;
mod event;
mod flow;
mod foresight;
mod plannable;
mod round;
mod uplink;

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;

use thalweg_core::{Bytes, Check, JobId, NodeId, Rate, Rng, Span, Time};
use thiserror::Error;

use crate::ahead::Ahead;
use crate::load::{FlowId, Refusal};
use crate::path::{Feedback, Progress};
use crate::rank::{Rank, Ranked};
use crate::settings::{Covers, Enforce, Settings, SettingsError};

pub use event::Event;
pub use flow::{FlowSpec, Unrelated};
pub use uplink::Uplink;

use decide::Decider;
use flow::{Flow, Job};

/// The scheduler of a host. See the [module](self) for how it is driven.
#[derive(Debug)]
pub struct Host {
    node: NodeId,
    jobs: BTreeMap<JobId, Job>,
    flows: BTreeMap<FlowId, Flow>,
    decider: Decider,
    moments: Rng,
    /// When it decides next; `None` while nothing was begun in the current slot or all is decided.
    decide_at: Option<Time>,
    usage: Usage,
}

/// Use of plans, over all slots that have ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Bytes that flows had planned for them.
    pub planned: Bytes,
    /// Bytes of the plans that left.
    pub used: Bytes,
}

/// Why a command was not carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum HostError {
    /// The settings do not work.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Nobody has announced the job.
    #[error("{0:?} is not on this host: add it first")]
    NoJob(JobId),
    /// Nobody has announced the flow.
    #[error("{0:?} is not on this host: add it first")]
    NoFlow(FlowId),
}

impl Host {
    /// The scheduler of a host whose own link has that rate. All that is random about it, the moments
    /// of its decisions, comes from `rng`.
    pub fn new(
        node: NodeId,
        settings: Settings,
        uplink: Rate,
        rng: &Rng,
    ) -> Result<Host, HostError> {
        settings.check()?;
        Ok(Host {
            node,
            jobs: BTreeMap::new(),
            flows: BTreeMap::new(),
            decider: Decider::new(settings, Uplink::new(&settings, settings.bytes_a_slot(uplink))),
            moments: rng.substream("decisions", node.0.into()),
            decide_at: None,
            usage: Usage::default(),
        })
    }

    // spec: C-08
    /// Announces a job. Its first iteration is number 1, begun by [`Host::begin_iteration`].
    pub fn add_job(&mut self, job: JobId) {
        self.jobs.entry(job).or_default();
    }

    /// Forgets a job, its flows and what they reserved.
    pub fn remove_job(&mut self, job: JobId) {
        self.jobs.remove(&job);
        let decider = &mut self.decider;
        self.flows.retain(|id, flow| {
            if id.job == job {
                decider.stop(flow);
            }
            id.job != job
        });
    }

    // spec: C-15
    /// Announces a flow of a job, in place of one of the same name. `false` when it does not leave the server: such flows are fast
    /// enough, and are left alone.
    pub fn add_flow(&mut self, spec: FlowSpec) -> Result<bool, HostError> {
        let job = self.jobs.get(&spec.id.job).ok_or(HostError::NoJob(spec.id.job))?;
        if spec.to == self.node {
            return Ok(false);
        }
        let iteration = job.iteration;
        self.remove_flow(spec.id);
        let covers = self.decider.settings.covers;
        self.flows.insert(spec.id, Flow::new(spec, iteration, covers));
        Ok(true)
    }

    // spec: C-08
    /// A job begins its next iteration: all volumes start again, and nothing is ready yet.
    pub fn begin_iteration(&mut self, job: JobId) -> Result<(), HostError> {
        let state = self.jobs.get_mut(&job).ok_or(HostError::NoJob(job))?;
        state.iteration += 1;
        for (_, flow) in self.flows.range_mut(flows_of(job)) {
            flow.iteration = state.iteration;
            flow.begin_iteration();
        }
        Ok(())
    }

    // spec: C-08
    /// These bytes of a flow belong to the iteration before the one that has begun: others were done with that
    /// before this one was. It leaves first, and depends on nobody. What turns out not to be there when the
    /// flow [rests](Host::rest) is forgotten.
    pub fn owe(&mut self, flow: FlowId, bytes: Bytes) -> Result<(), HostError> {
        self.flows.get_mut(&flow).ok_or(HostError::NoFlow(flow))?.owe(bytes.as_u64());
        Ok(())
    }

    /// Bytes of a flow's iteration that have not left yet.
    pub fn left(&self, flow: FlowId) -> Option<Bytes> {
        self.flows.get(&flow).map(|flow| Bytes::new(flow.remaining()))
    }

    /// A flow's iteration has another volume than was announced: of programs that announce none, it is only
    /// guessed.
    pub fn set_volume(&mut self, flow: FlowId, volume: Bytes) -> Result<(), HostError> {
        self.flows.get_mut(&flow).ok_or(HostError::NoFlow(flow))?.set_volume(volume.as_u64());
        Ok(())
    }

    /// Marks a flow of whose ready bytes only a part can be seen, as in a socket: it plans all that it is thought to have left.
    // spec: C-17
    pub fn guess(&mut self, flow: FlowId) -> Result<(), HostError> {
        self.flows.get_mut(&flow).ok_or(HostError::NoFlow(flow))?.guess();
        Ok(())
    }

    /// Counts the volume of a flow from now on in what it tells others, whatever iteration its job is in, and expects the
    /// same of those it depends on.
    // spec: C-05, C-18
    pub fn count_from_start(&mut self, flow: FlowId) -> Result<(), HostError> {
        self.flows.get_mut(&flow).ok_or(HostError::NoFlow(flow))?.count_from_start();
        Ok(())
    }

    // spec: C-05, C-06
    /// Takes in how much of a flow has nothing to do with the flows it depends on.
    pub fn set_unrelated(&mut self, flow: FlowId, unrelated: Unrelated) -> Result<(), HostError> {
        self.flows.get_mut(&flow).ok_or(HostError::NoFlow(flow))?.set_unrelated(unrelated);
        Ok(())
    }

    /// One flow begins anew, while others of its job may still be in the iteration before.
    pub fn begin_flow(&mut self, flow: FlowId) -> Result<(), HostError> {
        self.flows.get_mut(&flow).ok_or(HostError::NoFlow(flow))?.begin_iteration();
        Ok(())
    }

    /// Forgets a flow and what it reserved.
    pub fn remove_flow(&mut self, flow: FlowId) {
        if let Some(mut state) = self.flows.remove(&flow) {
            self.decider.stop(&mut state);
        }
    }

    // spec: C-08
    /// More bytes of a flow's tensors can be sent.
    pub fn ready(&mut self, now: Time, flow: FlowId, bytes: Bytes) -> Result<(), HostError> {
        let state = self.flows.get_mut(&flow).ok_or(HostError::NoFlow(flow))?;
        let was_active = state.is_active();
        state.ready(now, bytes.as_u64());
        let begins = !was_active && state.is_active();
        // spec: C-17
        let has_more = was_active && state.covers() == Covers::Ready;
        state.has_unplanned = has_more;
        if begins || has_more {
            self.decider.probe(flow);
            self.catch_up(now);
            self.draw_moment(now);
        }
        Ok(())
    }

    // spec: C-08
    /// More bytes of a flow have left, for the first time.
    pub fn sent(&mut self, flow: FlowId, bytes: Bytes) -> Result<(), HostError> {
        let state = self.flows.get_mut(&flow).ok_or(HostError::NoFlow(flow))?;
        state.sent(bytes.as_u64());
        if !state.is_active() {
            self.decider.finish(state);
        }
        Ok(())
    }

    // spec: C-04
    /// Marks a flow that has not sent all that is ready and waits for something else than the network: for
    /// data of others, say. What it leaves unused then says nothing about links.
    pub fn rest(&mut self, flow: FlowId, is_resting: bool) -> Result<(), HostError> {
        self.flows.get_mut(&flow).ok_or(HostError::NoFlow(flow))?.rest(is_resting);
        Ok(())
    }

    // spec: C-13
    /// Bytes that had left before got lost and leave again. It brings the flow no further, and that is all:
    /// the link carried it, so no estimate and no rate changes, and what the slot has for the rest of the flow
    /// stays, as long as links have room.
    pub fn resent(&mut self, flow: FlowId, bytes: Bytes) -> Result<(), HostError> {
        let state = self.flows.get_mut(&flow).ok_or(HostError::NoFlow(flow))?;
        state.resent(bytes.as_u64());
        if state.is_active() {
            self.decider.make_up(state, bytes.as_u64());
        }
        Ok(())
    }

    // spec: C-02
    /// Progress of the flows that a job sends from here: a receiver reports it to the hosts that send to it.
    pub fn progress(&self, job: JobId) -> Vec<Progress> {
        self.flows_of(job).map(|flow| flow.progress(self.decider.slot())).collect()
    }

    /// Takes in the feedback of a flow's path. It counts for decisions in the slot that it is about.
    pub fn handle_feedback(&mut self, flow: FlowId, feedback: &Feedback) -> Result<(), HostError> {
        let state = self.flows.get_mut(&flow).ok_or(HostError::NoFlow(flow))?;
        state.feedback = Some(*feedback);
        Ok(())
    }

    // spec: C-06
    /// Takes in the progress of another flow. Local flows that depend on it are adjusted at once: slowed if they run
    /// ahead, raised if they lag behind and have been decided in this slot.
    pub fn handle_progress(&mut self, now: Time, progress: Progress) {
        for (_, flow) in self.flows.range_mut(flows_of(progress.flow.job)) {
            if progress.iteration == flow.counted_iteration()
                && flow.learn(progress)
                && flow.is_active()
            {
                self.decider.follow(now, flow);
            }
        }
    }

    // spec: C-15
    /// A table on the path did not take the schedule: it is made again with what the table has left.
    pub fn handle_refusal(
        &mut self,
        now: Time,
        flow: FlowId,
        refusal: Refusal,
    ) -> Result<(), HostError> {
        let state = self.flows.get_mut(&flow).ok_or(HostError::NoFlow(flow))?;
        state.narrow(refusal, self.decider.slot(), self.decider.settings.horizon_slots);
        if !state.is_active() {
            return Ok(());
        }
        let by_job = self.planned_beside(flow);
        if let Some(state) = self.flows.get_mut(&flow) {
            self.decider.decide(now, state, &by_job);
        }
        Ok(())
    }

    /// Begins the slot that has come, and decides when it is time.
    pub fn handle_timeout(&mut self, now: Time) {
        self.catch_up(now);
        if self.decide_at.is_some_and(|at| at <= now) {
            self.decide_at = None;
            round::decide_all(now, &mut self.decider, &self.jobs, &mut self.flows);
            self.plan_more(now);
        }
    }

    // spec: C-17
    /// Plans what got ready after a flow was decided upon. It is planned alone: the others keep what they have, and what
    /// they have reported.
    fn plan_more(&mut self, now: Time) {
        let has_more = |flow: &&Flow| flow.has_unplanned && flow.is_active();
        let due: Vec<FlowId> = self.flows.values().filter(has_more).map(|flow| flow.id).collect();
        for id in due {
            let by_job = self.planned_beside(id);
            if let Some(flow) = self.flows.get_mut(&id) {
                self.decider.decide(now, flow, &by_job);
            }
        }
    }

    /// When [`Host::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Time {
        let next_slot = self.decider.settings.start_of(self.decider.slot().after(1));
        let slot = if self.flows.values().any(Flow::is_active) { next_slot } else { Time::NEVER };
        self.decide_at.unwrap_or(Time::NEVER).min(slot)
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.decider.events.pop_front()
    }

    /// A flow as tables and other hosts see it: its name, and the rank of its job. As published, that is the rank of
    /// the furthest flow here; with classes, the rank of the bytes that the job has left where it has most left.
    pub fn ranked(&self, flow: FlowId) -> Ranked {
        if self.decider.settings.enforce == Enforce::Class {
            return Ranked { flow, rank: self.rank(flow.job) };
        }
        let active = self.flows_of(flow.job).filter(|flow| flow.is_active());
        Ranked { flow, rank: active.map(Flow::rank).min().unwrap_or(Rank::LAST) }
    }

    // spec: C-16
    /// The rank of a job at another host.
    pub fn handle_rank(&mut self, job: JobId, rank: Rank) {
        let slot = self.decider.slot();
        if let Some(job) = self.jobs.get_mut(&job) {
            job.report(slot, rank.repeated());
        }
    }

    // spec: C-16
    /// The rank of a job: what it has left at the host where it has most left, as far as that was reported. Each host
    /// repeats it, a little lower.
    pub fn rank(&self, job: JobId) -> Rank {
        let own = Rank::of_left(round::left(self.flows_of(job)));
        let slot = self.decider.slot();
        self.jobs.get(&job).and_then(|job| job.reported(slot)).map_or(own, |rank| own.max(rank))
    }

    /// Plan of a flow, in bytes by slot.
    pub fn plan(&self, flow: FlowId) -> Option<&Ahead> {
        self.flows.get(&flow).map(|flow| &flow.plan)
    }

    /// Bytes that a flow wanted to send in the last slot, and bytes that it sent.
    pub fn last_slot(&self, flow: FlowId) -> Option<(Bytes, Bytes)> {
        let (asked, carried) = self.flows.get(&flow)?.last;
        Some((Bytes::new(asked), Bytes::new(carried)))
    }

    /// Progress of a flow, which other flows may rely on.
    pub fn progress_of(&self, flow: FlowId) -> Option<Progress> {
        Some(self.flows.get(&flow)?.progress(self.decider.slot()))
    }

    /// True if something of a job has begun and is not over.
    pub fn is_busy(&self, job: JobId) -> bool {
        self.flows_of(job).any(Flow::is_active)
    }

    fn flows_of(&self, job: JobId) -> impl Iterator<Item = &Flow> {
        self.flows.range(flows_of(job)).map(|(_, flow)| flow)
    }

    /// Settings that the host uses.
    pub fn settings(&self) -> &Settings {
        &self.decider.settings
    }

    /// Sum of the plans of the other flows of a flow's job.
    fn planned_beside(&self, flow: FlowId) -> Ahead {
        let mut planned = self.decider.nothing();
        let others = self.flows_of(flow.job).filter(|other| other.id != flow);
        others.for_each(|other| planned.add(&other.plan));
        planned
    }

    /// Use of the host's plans.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// The host's own link.
    pub fn uplink(&self) -> &Uplink {
        &self.decider.uplink
    }

    // spec: C-15
    /// Lets the slot of `now` begin, unless it has.
    fn catch_up(&mut self, now: Time) {
        let slot = self.decider.settings.slot_at(now);
        if slot <= self.decider.slot() {
            return;
        }
        let ended = self.decider.slot();
        let asked = self.flows.values().map(|flow| flow.asked_in(ended)).sum();
        let carried = self.flows.values().map(|flow| flow.sent_in_slot).sum();
        self.decider.begin(slot, asked, carried);
        for (id, flow) in &mut self.flows {
            let planned = flow.plan.at(ended);
            self.usage.planned += Bytes::new(planned);
            self.usage.used += Bytes::new(planned.min(flow.sent_in_slot));
            let loses = self.decider.settings.reclaims_unused && flow.left_unused(ended);
            flow.end_slot(flow.asked_in(ended));
            self.decider.count(flow);
            if flow.is_active() {
                self.decider.probe(*id);
                self.decider.go_on(flow, loses);
            }
        }
        // What was due in an earlier slot is due in this one.
        self.decide_at = None;
        self.draw_moment(self.decider.settings.start_of(slot));
    }

    // spec: C-15
    /// Draws the moment of the next decision, so that hosts differ and none is always the first.
    fn draw_moment(&mut self, from: Time) {
        let spread = self.moments.below(self.decider.settings.decide_spread.as_ps().max(1));
        let at = from + self.decider.settings.decide_after + Span::from_ps(spread);
        self.decide_at = Some(self.decide_at.map_or(at, |earlier| earlier.min(at)));
    }
}

// spec: T-12
impl Check for Host {
    /// Adds up the plans of all flows. The sum of the own link must be theirs, but for what flows that are gone
    /// have used of the current slot.
    fn check(&self) {
        let mut planned = self.decider.nothing();
        for (id, flow) in &self.flows {
            flow.check();
            let job = self.jobs.get(&id.job).map(|job| job.iteration);
            assert_eq!(job, Some(flow.iteration), "{id:?} is in the iteration of its job");
            planned.add(&flow.plan);
        }
        let link = self.decider.uplink.planned();
        assert_eq!(link.first(), self.decider.slot(), "the own link is in the current slot");
        let slots = link.volumes().iter().zip(planned.volumes());
        for (at, (link, flows)) in slots.enumerate() {
            let is_sum = if at == 0 { link >= flows } else { link == flows };
            assert!(
                is_sum,
                "slot {at}: {link} bytes are planned on the own link, {flows} by flows"
            );
        }
    }
}

/// The names of all flows of a job.
fn flows_of(job: JobId) -> RangeInclusive<FlowId> {
    FlowId { job, number: 0 }..=FlowId { job, number: u32::MAX }
}

/// Events that wait for [`poll_event`](Host::poll_event).
type Events = VecDeque<Event>;

#[cfg(test)]
mod tests;
