//! The agent of a host: jobs and their iterations, questions to switches, plans, and orders to jobs.
//!
//! It is a machine without I/O around the scheduler, [`Host`]: the same in a simulation, where messages are packets, and on
//! a host, where switches are asked by gRPC and jobs obey over a Unix socket. Messages are values ([`Question`], [`Plan`],
//! [`Answer`], [`Refusal`], [`Order`]); the caller turns them into bytes.
//!
//! **Demand.** A job whose iterations are known says what it hands over ([`Agent::handed_over`]), and an iteration ends
//! when all of its bytes are. Of other jobs only counters are known ([`Agent::report`]): they are cut into bursts.
//!
//! **Output.** After every input [`Agent::poll`] is drained.

mod bursts;
mod job;
mod order;

use std::collections::{BTreeMap, VecDeque};

use thalweg_core::{Bytes, Check, JobId, NodeId, Rate, Rng, Time};
use thiserror::Error;

use crate::adjust::Relation;
use crate::ahead::{Ahead, Slot, VOLUME_MAX};
use crate::board::{Answer, Plan, Question};
use crate::host::{Event, FlowSpec, Host, HostError, Unrelated, Usage};
use crate::load::{FlowId, Refusal};
use crate::path::{Feedback, Progress};
use crate::rank::Rank;
use crate::settings::{Enforce, Settings};

pub use bursts::Bursts;
pub use order::Order;

use bursts::Step;
use job::{Flow, Job};

/// Number of iterations that another host may be ahead of what is known here. More is a mistake of the
/// sender.
const ITERATIONS_AHEAD: u64 = 64;

/// Most flows of other hosts whose progress is remembered.
const PEERS_MAX: usize = 4_096;

/// The most that can have left of a flow in a slot, a petabyte: with it, what all flows of a host report in a slot
/// can be added up.
const SLOT_BYTES_MAX: u64 = 1 << 50;

/// A first burst is thought to go on for this number of slots of the own link: with less, jobs of which nothing is
/// known yet would change places in every slot.
const UNSEEN_SLOTS: u64 = 4;

/// Knowledge about the bytes that a flow sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Demand {
    /// The volume of every iteration: its [`FlowSpec`] has it.
    Known,
    /// Counters of all that was handed over and has left, which are cut into bursts. The volume of a burst is that of the
    /// [`FlowSpec`], or, where that is zero, is learnt from the one before.
    Counted,
    /// The same, of which only a part of what is ready can be seen, as in a socket.
    Guessed,
}

/// A request of an agent.
#[derive(Clone, PartialEq, Debug)]
pub enum Output {
    /// Ask the path of a flow: [`Agent::question`]; and tell it the plan, if that is new: [`Agent::plan`].
    Ask {
        /// The flow.
        flow: FlowId,
        /// True if its plan is new.
        has_plan: bool,
    },
    /// Pass it to the processes of a job.
    Order {
        /// The job.
        job: JobId,
        /// The order.
        order: Order,
    },
    /// A slot of a flow whose demand is observed has ended.
    Ended(SlotRecord),
}

/// Account of a flow in a slot that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotRecord {
    /// The slot, of the network.
    pub slot: Slot,
    /// The flow.
    pub flow: FlowId,
    /// Rate that it was granted last.
    pub granted: Option<Rate>,
    /// Bytes that it wanted to send.
    pub asked: Bytes,
    /// Bytes that left.
    pub carried: Bytes,
}

/// Counters of an agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AgentStats {
    /// Plans that were published.
    pub plans: u64,
    /// Of those, how many were made without an answer from the network.
    pub blind: u64,
    /// Plans that a link had no room for.
    pub refused: u64,
    /// Use of the plans.
    pub usage: Usage,
}

/// Why counters of a job are not taken in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ReportError {
    /// They are lower than before, or more has left than there was.
    #[error("the counts of the flow went back")]
    WentBack,
    /// No link carries that.
    #[error("{0} bytes cannot have left in a slot")]
    TooMuch(u64),
}

/// The agent of a host. See the [module](self) for how it is driven.
#[derive(Debug)]
pub struct Agent {
    host: Host,
    jobs: BTreeMap<JobId, Job>,
    /// Progress of flows of other hosts that end here. The hosts that send one learn of the others from it.
    peers: BTreeMap<FlowId, Progress>,
    /// By flow and switch, what the links of a path say.
    feedback: BTreeMap<(FlowId, usize), Feedback>,
    outputs: VecDeque<Output>,
    stats: AgentStats,
    /// The slot of the network at time zero.
    base: Slot,
    now: Time,
    /// The last one that has begun.
    slot: Slot,
    /// False while the demand of every flow is known.
    observes: bool,
}

impl Agent {
    /// The agent of a host whose link has that rate. Time zero is slot `base` of the network; all that is random comes
    /// from `rng`.
    pub fn new(
        node: NodeId,
        settings: Settings,
        uplink: Rate,
        base: Slot,
        rng: &Rng,
    ) -> Result<Agent, HostError> {
        Ok(Agent {
            host: Host::new(node, settings, uplink, rng)?,
            jobs: BTreeMap::new(),
            peers: BTreeMap::new(),
            feedback: BTreeMap::new(),
            outputs: VecDeque::new(),
            stats: AgentStats::default(),
            base,
            now: Time::ZERO,
            slot: Slot(0),
            observes: false,
        })
    }

    /// Settings that it counts by.
    pub fn settings(&self) -> &Settings {
        self.host.settings()
    }

    /// The scheduler, to look at.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Counters so far.
    pub fn stats(&self) -> AgentStats {
        AgentStats { usage: self.host.usage(), ..self.stats }
    }

    /// Takes out the next request.
    pub fn poll(&mut self) -> Option<Output> {
        if self.outputs.is_empty() {
            self.pump();
        }
        self.outputs.pop_front()
    }

    // spec: E-14
    /// The clock by which the network counts slots was set: time zero is slot `base` of the network from now on.
    pub fn set_base(&mut self, base: Slot) {
        self.base = base;
    }

    /// True if the job is here.
    pub fn has_job(&self, job: JobId) -> bool {
        self.jobs.contains_key(&job)
    }

    // spec: C-08
    /// A job takes part from now on, if it does not yet. Its worker on this host, if there is one, hands over `round`
    /// bytes in an iteration.
    pub fn add_job(&mut self, id: JobId, round: Bytes) {
        self.host.add_job(id);
        self.jobs.entry(id).or_insert_with(|| Job::new(round.as_u64()));
    }

    /// A job is over.
    pub fn remove_job(&mut self, id: JobId) {
        if self.jobs.remove(&id).is_some() {
            self.host.remove_job(id);
            self.peers.retain(|flow, _| flow.job != id);
            self.feedback.retain(|(flow, _), _| flow.job != id);
        }
    }

    /// A flow of a job takes part. Returns false if it stays on the host: such flows are left alone.
    pub fn add_flow(&mut self, spec: FlowSpec, demand: Demand) -> Result<bool, HostError> {
        let unseen = self.host.uplink().capacity().saturating_mul(UNSEEN_SLOTS);
        let flow = Flow::new(&spec, demand, unseen);
        let (id, job) = (spec.id, spec.id.job);
        if !self.host.add_flow(spec)? {
            return Ok(false);
        }
        if demand == Demand::Guessed {
            self.host.guess(id)?;
        }
        if demand != Demand::Known {
            self.host.count_from_start(id)?;
            self.observes = true;
        }
        let job = self.jobs.get_mut(&job).ok_or(HostError::NoJob(job))?;
        job.flows.push(flow);
        Ok(true)
    }

    /// A flow is over.
    pub fn remove_flow(&mut self, id: FlowId) {
        if let Some(job) = self.jobs.get_mut(&id.job) {
            job.flows.retain(|flow| flow.id != id);
        }
        self.feedback.retain(|(flow, _), _| *flow != id);
        self.host.remove_flow(id);
    }

    // spec: C-08
    /// The worker of a job has handed over a tensor of this number of bytes.
    pub fn handed_over(&mut self, now: Time, id: JobId, bytes: u64) {
        self.now = now;
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if let Some(iteration) = job.hand_over() {
            self.begin_until(now, id, iteration);
        }
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.handed_over += bytes;
        let round = u128::from(job.round.max(1));
        for flow in job.flows.iter().filter(|flow| !flow.follows()) {
            let share = (u128::from(flow.volume) * u128::from(bytes)).div_ceil(round);
            let share = Bytes::new(u64::try_from(share).unwrap_or(u64::MAX));
            self.host.ready(now, flow.id, share).expect("the flow was added");
        }
        self.classify(false);
    }

    /// The worker of a job has a sum of this number of bytes. When it has all, nothing of the iteration is left
    /// to be sent, whatever was lost or sent twice.
    pub fn summed(&mut self, id: JobId, bytes: u64) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if !job.sum(bytes) {
            return;
        }
        for flow in job.flows.iter().filter(|flow| !flow.follows()) {
            let ended = self.host.set_volume(flow.id, Bytes::ZERO);
            ended.and_then(|()| self.host.sent(flow.id, Bytes::ZERO)).expect("the flow was added");
        }
    }

    // spec: C-13
    /// This number of bytes of a flow has left for the first time, and that number again. What leaves again uses up what
    /// was granted, and brings nobody further.
    pub fn sent(&mut self, flow: FlowId, bytes: Bytes, again: Bytes) {
        if bytes > Bytes::ZERO {
            // A flow that has gone meanwhile counts nothing.
            let _ = self.host.sent(flow, bytes);
        }
        if again > Bytes::ZERO {
            let _ = self.host.resent(flow, again);
        }
    }

    // spec: C-04
    /// Takes in whether a job has nothing to send at the moment, though not everything has left.
    pub fn rest(&mut self, id: JobId, is_resting: bool) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.is_resting = is_resting;
        for flow in &job.flows {
            self.host.rest(flow.id, is_resting).expect("the flow was added");
        }
    }

    // spec: C-05, C-06
    /// Takes in how much of a flow has nothing to do with the flows it depends on: bytes of other collectives. Called before
    /// [`Agent::report`] counts them.
    pub fn set_unrelated(&mut self, flow: FlowId, unrelated: Unrelated) {
        // A flow that has gone meanwhile depends on nobody.
        let _ = self.host.set_unrelated(flow, unrelated);
    }

    // spec: C-08
    /// Takes in counters of a flow whose demand is observed: bytes that were handed over and that have left, in all.
    pub fn report(&mut self, flow: FlowId, counts: (u64, u64)) -> Result<(), ReportError> {
        let now = self.now;
        let Some(job) = self.jobs.get_mut(&flow.job) else { return Ok(()) };
        let is_new = !job.flows.iter().any(Flow::is_in_burst);
        let Some(step) = job.report(now, flow, counts)? else { return Ok(()) };
        // The flow was added, and its job.
        let _ = self.take_step(flow, step, is_new);
        self.end_bursts(flow.job);
        self.classify(false);
        Ok(())
    }

    fn take_step(&mut self, id: FlowId, step: Step, is_new: bool) -> Result<(), HostError> {
        let (volume, ready, sent) = match step {
            Step::Nothing => return Ok(()),
            Step::Begun { volume, ready, sent } => {
                if is_new {
                    self.host.begin_iteration(id.job)?;
                    self.enter(self.now, id.job);
                } else {
                    self.host.begin_flow(id)?;
                }
                (volume, ready, sent)
            }
            Step::Moved { volume, ready, sent } => (volume, ready, sent),
        };
        self.host.set_volume(id, Bytes::new(volume))?;
        self.host.ready(self.now, id, Bytes::new(ready))?;
        self.host.sent(id, Bytes::new(sent))
    }

    /// Ends the bursts of a job that are over.
    fn end_bursts(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        for (flow, volume) in job.end_bursts(self.now) {
            let finish = self.host.set_volume(flow, Bytes::new(volume));
            let _ = finish.and_then(|()| self.host.sent(flow, Bytes::ZERO));
            self.pump();
            self.outputs.push_back(Output::Order { job: id, order: Order::Idle { flow } });
        }
    }

    // spec: C-02
    /// Another host says how far a flow is that ends here, and what its job has left there.
    pub fn handle_peer(&mut self, now: Time, progress: Progress, rank: Rank) {
        self.now = now;
        let job = progress.flow.job;
        self.begin_until(now, job, progress.iteration);
        self.host.handle_progress(now, progress);
        self.host.handle_rank(job, rank);
        if self.peers.len() < PEERS_MAX || self.peers.contains_key(&progress.flow) {
            self.peers.insert(progress.flow, progress);
        }
    }

    // spec: C-02
    /// Progress that the receiver of a flow answers with: that of its own flows of the job, and of those that end there.
    pub fn progress_beside(&self, flow: FlowId) -> impl Iterator<Item = Progress> + '_ {
        let id = |number| FlowId { job: flow.job, number };
        let peers = self.peers.range(id(0)..=id(u32::MAX)).map(|(_, progress)| *progress);
        let peers = peers.filter(move |progress| progress.flow != flow);
        self.host.progress(flow.job).into_iter().chain(peers)
    }

    // spec: C-02
    /// Takes in the answer to a flow of the part of a path that switch `via` knows, about a slot of the network. Answers of
    /// several switches add up. Progress counts whenever it comes, the rest in its slot.
    pub fn handle_answer(
        &mut self,
        now: Time,
        (via, slot): (usize, Slot),
        flow: FlowId,
        answer: &Answer,
    ) {
        self.now = self.now.max(now);
        for &progress in &answer.progress {
            self.host.handle_progress(self.now, progress);
        }
        if let Some(rank) = answer.rank {
            self.host.handle_rank(flow.job, rank);
        }
        let current = self.settings().slot_at(self.now);
        if let Some(feedback) = answer.feedback.filter(|_| self.own(slot) == current) {
            let feedback = Feedback {
                load: Ahead::of(current, feedback.load.volumes()),
                free: Ahead::of(current, feedback.free.volumes()),
                narrowest: feedback.narrowest,
            };
            self.feedback.insert((flow, via), feedback);
            let mut path = Feedback::new(current, self.settings().horizon_slots);
            let of_flow = (flow, 0)..=(flow, usize::MAX);
            let of_slot = self.feedback.range(of_flow).filter(|(_, part)| part.is_of(current));
            of_slot.for_each(|(_, part)| path.join(part));
            if self.host.handle_feedback(flow, &path).is_err() {
                // It has gone meanwhile.
                self.feedback.retain(|(known, _), _| *known != flow);
            }
        }
    }

    // spec: C-15
    /// A table did not take what a flow planned in a slot of the network. Once that has passed it does not matter.
    pub fn handle_refusal(&mut self, now: Time, planned_in: Slot, flow: FlowId, refusal: Refusal) {
        self.now = self.now.max(now);
        let refusal = Refusal { slot: self.own(refusal.slot), ..refusal };
        if self.own(planned_in) == self.settings().slot_at(self.now) {
            self.stats.refused += 1;
            // A flow that has gone meanwhile plans nothing.
            let _ = self.host.handle_refusal(self.now, flow, refusal);
        }
    }

    /// True if a slot ends now or has.
    pub fn ends_slot(&self, now: Time) -> bool {
        self.settings().slot_at(now) > self.slot
    }

    /// Lets the slot of `now` begin, unless it has, before anything else is taken in. For those whose clocks move on between
    /// two calls.
    pub fn pass(&mut self, now: Time) {
        self.now = self.now.max(now);
        if self.ends_slot(self.now) {
            self.handle_timeout(self.now);
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        let begins_slot = self.ends_slot(now);
        self.slot = self.slot.max(self.settings().slot_at(now));
        let observed: Vec<JobId> = self.observed().collect();
        observed.iter().for_each(|job| self.end_bursts(*job));
        if self.host.poll_timeout() <= now || !observed.is_empty() {
            self.host.handle_timeout(now);
        }
        // Before orders for the slot that begins replace those of the last one.
        if begins_slot {
            self.end_slot(&observed);
        }
        self.classify(begins_slot);
    }

    /// Jobs whose demand is observed.
    fn observed(&self) -> impl Iterator<Item = JobId> + '_ {
        let jobs = self.observes.then_some(&self.jobs).into_iter().flatten();
        let is_observed = |(_, job): &(&JobId, &Job)| job.flows.iter().any(Flow::is_observed);
        jobs.filter(is_observed).map(|(id, _)| *id)
    }

    /// When [`Agent::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Time {
        if !self.observes {
            return self.host.poll_timeout();
        }
        let flows = self.jobs.values().flat_map(|job| &job.flows);
        flows.map(Flow::due).fold(self.host.poll_timeout(), Time::min)
    }

    // spec: E-14
    /// Repeats the orders that hold until further notice: enforcers let a flow send freely whose agent has been
    /// silent. Called a few times a second.
    pub fn renew(&mut self) {
        let now = self.now;
        for (&job, state) in &mut self.jobs {
            let idle = state.flows.iter().filter(|flow| flow.is_idle(now));
            let orders = idle.map(|flow| Order::Idle { flow: flow.id });
            self.outputs.extend(orders.map(|order| Output::Order { job, order }));
            self.outputs.push_back(Output::Order { job, order: state.repeat() });
        }
        self.classify(false);
    }

    /// Repeats the orders of one job that hold for all of its processes: another one has joined.
    pub fn renew_job(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get_mut(&id) {
            let order = job.repeat();
            self.order(id, order);
            self.classify(false);
        }
    }

    // spec: C-16
    /// Bytes that other flows plan to send in the current slot on the path of a flow, as its switches say, and those that the
    /// narrowest link carries. `None` if nothing was reported in the slot.
    pub fn load_of_others(&self, id: FlowId) -> Option<(u64, u64)> {
        let slot = self.settings().slot_at(self.now);
        let of_flow = self.feedback.range((id, 0)..=(id, usize::MAX)).map(|(_, part)| part);
        let of_slot = of_flow.filter(|part| part.is_of(slot));
        of_slot.map(|part| (part.load.at(slot), part.narrowest)).max_by_key(|(load, _)| *load)
    }

    /// Receiver of a flow, and its dependence on others.
    pub fn route(&self, id: FlowId) -> Option<(NodeId, Relation)> {
        let flow = self.jobs.get(&id.job)?.flow(id)?;
        Some((flow.to, flow.relation))
    }

    /// The question of a flow to its path.
    pub fn question(&self, id: FlowId) -> Option<Question> {
        let flow = self.jobs.get(&id.job)?.flow(id)?;
        let rank = self.host.ranked(id).rank;
        Some(Question { flow: id, rank, to: flow.to, others: flow.others.clone() })
    }

    /// The message of a flow to its path in a slot of this host.
    pub fn plan(&self, id: FlowId, slot: Slot) -> Option<Plan> {
        let flow = self.jobs.get(&id.job)?.flow(id)?;
        let (asked, carried) = self.host.last_slot(id)?;
        let planned = self.host.plan(id)?;
        let mut plan = Ahead::empty(self.base.after(slot.0), self.settings().horizon_slots);
        let volumes = plan.volumes_mut().iter_mut().enumerate();
        volumes.for_each(|(at, volume)| *volume = planned.at(slot.after(at as u64)));
        Some(Plan {
            flow: id,
            rank: self.host.ranked(id).rank,
            to: flow.to,
            plan,
            progress: self.host.progress_of(id)?,
            // One that is not believed would make a switch refuse what others plan as well.
            asked: asked.as_u64().min(VOLUME_MAX),
            carried: carried.as_u64().min(VOLUME_MAX),
        })
    }

    /// Begins a job's iterations up to this one, unless they have begun.
    fn begin_until(&mut self, now: Time, id: JobId, iteration: u64) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let most = job.iteration.saturating_add(ITERATIONS_AHEAD);
        if !(job.iteration + 1..=most).contains(&iteration) {
            return;
        }
        let host = &mut self.host;
        let owed: Vec<Bytes> = job.flows.iter().map(|flow| job.owed(flow, host)).collect();
        for _ in job.iteration..iteration {
            host.begin_iteration(id).expect("the job was added");
        }
        job.iteration = iteration;
        for (flow, owed) in job.flows.iter().zip(owed) {
            let volume = Bytes::new(flow.volume);
            let mut begin = || {
                host.set_volume(flow.id, volume)?;
                // Progress of others decides how much of it there is to send.
                if flow.follows() {
                    host.ready(now, flow.id, volume)?;
                }
                host.owe(flow.id, owed)
            };
            begin().expect("the flow was added");
        }
        self.enter(now, id);
        self.classify(false);
    }

    // spec: C-16
    /// A job begins an iteration: it takes part at once, with a budget of one slot.
    fn enter(&mut self, now: Time, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.is_new = true;
        let next_slot = self.host.settings().slot_at(now).after(2);
        let until = self.host.settings().start_of(next_slot);
        let order = Order::Enter { bytes: self.host.uplink().capacity(), until };
        self.outputs.push_back(Output::Order { job: id, order });
    }

    // spec: C-16
    /// Gives every job the class of what it has left: a newcomer at once. Others become less urgent at once, and more urgent
    /// when a slot begins: a class that rose with every packet would have packets overtake those before them.
    fn classify(&mut self, begins_slot: bool) {
        if self.settings().enforce != Enforce::Class {
            return;
        }
        let slot_bytes = self.host.uplink().capacity();
        for (id, job) in &mut self.jobs {
            let class = self.host.rank(*id).class(slot_bytes);
            let enters = job.is_new && self.host.is_busy(*id);
            if enters || begins_slot || class > job.class {
                job.class = class;
            }
            job.is_new &= !enters;
            if job.given.replace(job.class) != Some(job.class) {
                let order = Order::Class(job.class);
                self.outputs.push_back(Output::Order { job: *id, order });
            }
        }
    }

    /// Takes what the scheduler wants done.
    fn pump(&mut self) {
        while let Some(event) = self.host.poll_event() {
            match event {
                Event::Probe { flow, packets } => {
                    self.order(flow.job, Order::Probe { packets });
                    self.outputs.push_back(Output::Ask { flow, has_plan: false });
                }
                Event::Publish { flow, is_blind } => {
                    self.stats.plans += 1;
                    self.stats.blind += u64::from(is_blind);
                    self.outputs.push_back(Output::Ask { flow, has_plan: true });
                }
                Event::Grant { flow, rate, volume, until } => {
                    let job = self.jobs.get_mut(&flow.job);
                    if job.is_some_and(|job| job.grant(flow, rate, until)) {
                        self.order(flow.job, Order::Grant { flow, rate, volume, until });
                    }
                }
                // The progress of a flow goes with its plan.
                Event::Tell { .. } => {}
            }
        }
        for (id, job) in &mut self.jobs {
            let is_held = self.host.is_busy(*id);
            if std::mem::replace(&mut job.is_held, is_held) != is_held {
                let order = Order::Hold(is_held);
                self.outputs.push_back(Output::Order { job: *id, order });
            }
        }
    }

    fn order(&mut self, job: JobId, order: Order) {
        self.outputs.push_back(Output::Order { job, order });
    }

    /// Writes down what the slot that has ended came to.
    fn end_slot(&mut self, observed: &[JobId]) {
        let slot = Slot((self.base.0 + self.slot.0).saturating_sub(1));
        for job in observed {
            let flows = self.jobs.get_mut(job).map(|job| &mut job.flows);
            for flow in flows.into_iter().flatten() {
                let granted = flow.end_slot();
                let Some((asked, carried)) = self.host.last_slot(flow.id) else { continue };
                if asked + carried > Bytes::ZERO {
                    let record = SlotRecord { slot, flow: flow.id, granted, asked, carried };
                    self.outputs.push_back(Output::Ended(record));
                }
            }
        }
    }

    /// The slot of the host for one of the network.
    fn own(&self, slot: Slot) -> Slot {
        Slot(slot.since(self.base))
    }
}

// spec: T-12
impl Check for Agent {
    /// Checks the scheduler, and that it knows the flows of every job.
    fn check(&self) {
        self.host.check();
        for flow in self.jobs.values().flat_map(|job| &job.flows) {
            assert!(self.host.plan(flow.id).is_some(), "the scheduler knows {:?}", flow.id);
        }
        assert!(self.peers.len() <= PEERS_MAX, "the number of remembered flows is bounded");
    }
}

#[cfg(test)]
mod tests;
