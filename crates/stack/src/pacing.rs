//! Jobs that take turns: the scheduler of a host, the gates that hold its jobs' packets back, and the words
//! that it exchanges with switches and other hosts.
//!
//! Every job of a host has one gate, which opens as fast as the job's flows may send together. Packets of a
//! job leave for its destinations in turn, so they are counted in turn.

mod budget;
mod gate;
mod ledger;
mod post;
mod words;

use std::collections::BTreeMap;

use thalweg_core::{Body, Bytes, Check, JobId, NodeId, Outbox, Packet, Rate, Rng, Time};
use thalweg_pace::host::{Event, HostError, Usage};
use thalweg_pace::{Enforce, FlowId, Host as Scheduler, Refusal, Relation, Settings, Slot};
use thalweg_transport::JobClass;
use thalweg_wire::Prefix;
use thalweg_wire::pace::{Direction, Word};

pub(crate) use gate::Gated;
pub use ledger::{Ledger, LedgerStats, Way};

use crate::policy::{Packets, Policy, TURN_CLASSES};
use gate::{Gate, Passed};
use post::{Heard, Onward, Post};

/// How much further another host's iteration may be than what is known here. More is a mistake of the
/// sender.
const ITERATIONS_AHEAD: u64 = 64;

/// Of an iteration, how much more a server may owe than was counted. Counts are not exact: messages end in short
/// packets, and servers do not get quite the same.
const OWED_SPARE_PART: u64 = 16;

/// What a host sends for a job in every iteration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PacedJob {
    /// What its worker on this host hands over in an iteration; zero where there is none.
    pub round: Bytes,
    /// Its flows that leave this host.
    pub flows: Vec<PacedFlow>,
    /// Payload of a full packet.
    pub segment_bytes: u32,
    /// What a packet occupies of a link beside its payload.
    pub overhead_bytes: u32,
}

/// A flow that leaves a host in every iteration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PacedFlow {
    /// Its number in the job.
    pub number: u32,
    /// Who receives it.
    pub to: NodeId,
    /// Its payload in an iteration.
    pub volume: Bytes,
    /// How it depends on others. A ring's own chunk and a window are counted in payload.
    pub relation: Relation,
    /// The numbers of those others.
    pub others: Vec<u32>,
}

/// What pacing counted on a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PacingStats {
    /// Plans that were published.
    pub plans: u64,
    /// Of those, how many were made without an answer from the network.
    pub blind: u64,
    /// Plans that a link had no room for.
    pub refused: u64,
    /// What became of them.
    pub usage: Usage,
}

impl PacingStats {
    /// Those of two hosts.
    pub fn merge(self, other: PacingStats) -> PacingStats {
        PacingStats {
            plans: self.plans + other.plans,
            blind: self.blind + other.blind,
            refused: self.refused + other.refused,
            usage: Usage {
                planned: self.usage.planned + other.usage.planned,
                used: self.usage.used + other.usage.used,
            },
        }
    }

    /// Which part of what was planned left in its slot, if anything was.
    pub fn used_part(&self) -> Option<f64> {
        let planned = self.usage.planned.as_u64();
        (planned > 0).then(|| self.usage.used.as_u64() as f64 / planned as f64)
    }
}

/// When the jobs of a host send.
pub struct Pacing {
    settings: Settings,
    scheduler: Scheduler,
    jobs: BTreeMap<JobId, Job>,
    post: Post,
    heard: Heard,
    stats: PacingStats,
    now: Time,
    /// The last one that was begun.
    slot: Slot,
    /// Bytes of a slot on the host's own link.
    slot_bytes: u64,
}

struct Job {
    /// The class in its turn.
    class: u8,
    /// True if its iteration has begun since it got the class.
    is_new: bool,
    /// The class that its packets have got.
    given: Option<JobClass>,
    round: u64,
    handed_over: u64,
    summed: u64,
    /// Iterations that the worker of this host has begun, and that anybody has.
    own_iteration: u64,
    iteration: u64,
    /// Whether it had nothing to send when somebody looked last.
    is_resting: bool,
    flows: Vec<Out>,
    /// Whose turn it is to be counted.
    turn: usize,
    gate: Gate,
}

struct Out {
    id: FlowId,
    to: NodeId,
    /// With everything that packets occupy of a link.
    volume: u64,
    relation: Relation,
    rate: Option<Rate>,
    left: u64,
}

impl Pacing {
    /// Pacing for a host whose own link has that rate.
    pub fn new(
        me: NodeId,
        settings: Settings,
        uplink: Rate,
        rng: &Rng,
    ) -> Result<Pacing, HostError> {
        Ok(Pacing {
            scheduler: Scheduler::new(me, settings, uplink, rng)?,
            settings,
            jobs: BTreeMap::new(),
            post: Post::default(),
            heard: Heard::default(),
            stats: PacingStats::default(),
            now: Time::ZERO,
            slot: Slot(0),
            slot_bytes: settings.bytes_a_slot(uplink),
        })
    }

    /// A job takes part from now on. Flows that stay on the host are left alone.
    pub fn enter(&mut self, id: JobId, paced: &PacedJob) {
        self.leave(id);
        self.scheduler.add_job(id);
        let mut flows = Vec::new();
        for flow in &paced.flows {
            let spec = paced.spec(id, flow);
            let (flow, volume, relation) = (spec.id, spec.volume.as_u64(), spec.relation);
            let to = spec.to;
            if self.scheduler.add_flow(spec).expect("the job was just added") {
                flows.push(Out { id: flow, to, volume, relation, rate: None, left: 0 });
            }
        }
        let job = Job {
            class: TURN_CLASSES,
            is_new: true,
            given: None,
            round: paced.round.as_u64(),
            handed_over: 0,
            summed: 0,
            own_iteration: 0,
            iteration: 0,
            is_resting: true,
            flows,
            turn: 0,
            gate: Gate::new(paced, self.settings.slot, self.settings.enforce),
        };
        self.jobs.insert(id, job);
    }

    /// A job is over.
    pub fn leave(&mut self, job: JobId) {
        if self.jobs.remove(&job).is_some() {
            self.scheduler.remove_job(job);
            self.post.forget(job);
            self.heard.forget(job);
            self.pump();
        }
    }

    /// What was counted so far.
    pub fn stats(&self) -> PacingStats {
        PacingStats { usage: self.scheduler.usage(), ..self.stats }
    }

    // spec: C-08
    /// The worker of a job has handed over a tensor of so many bytes.
    pub(crate) fn handed_over(&mut self, now: Time, id: JobId, bytes: u64) {
        self.now = now;
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if job.handed_over >= job.round || job.own_iteration == 0 {
            (job.handed_over, job.summed) = (0, 0);
            job.own_iteration += 1;
            let iteration = job.own_iteration;
            self.begin_until(now, id, iteration);
        }
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.handed_over += bytes;
        let round = u128::from(job.round.max(1));
        for flow in job.flows.iter().filter(|flow| !flow.follows()) {
            let share = (u128::from(flow.volume) * u128::from(bytes)).div_ceil(round);
            let share = Bytes::new(u64::try_from(share).unwrap_or(u64::MAX));
            self.scheduler.ready(now, flow.id, share).expect("the flow was added");
        }
        self.classify(false);
        self.pump();
    }

    /// The worker of a job has a sum of so many bytes. When it has all, nothing of the iteration is left
    /// to be sent, whatever was lost or sent twice.
    pub(crate) fn summed(&mut self, id: JobId, bytes: u64) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.summed += bytes;
        if job.summed < job.round || job.own_iteration != job.iteration {
            return;
        }
        for flow in job.flows.iter().filter(|flow| !flow.follows()) {
            let ended = self.scheduler.set_volume(flow.id, Bytes::ZERO);
            ended
                .and_then(|()| self.scheduler.sent(flow.id, Bytes::ZERO))
                .expect("the flow was added");
        }
        self.pump();
    }

    /// The gate of a job, if it is paced.
    pub(crate) fn gate(&mut self, job: JobId) -> Option<&mut Gate> {
        self.jobs.get_mut(&job).map(|job| &mut job.gate)
    }

    /// True if jobs have classes.
    pub(crate) fn has_classes(&self) -> bool {
        self.settings.enforce == Enforce::Class
    }

    // spec: C-16
    /// The class of a job's packets. `None` where plans limit rates, or nobody paces the job.
    pub(crate) fn class(&self, now: Time, id: JobId) -> Option<JobClass> {
        if !self.has_classes() {
            return None;
        }
        let job = self.jobs.get(&id)?;
        let turn = job.gate.is_in_turn(now).then_some(job.class);
        let policy = Policy { job_classes: true };
        let dscp = policy.dscp(Packets::Values { turn, layer: None });
        Some(match turn {
            Some(_) => JobClass::InTurn(dscp),
            None => JobClass::OutOfTurn { dscp, patience: self.settings.slot },
        })
    }

    /// The class of a job's packets, if they have not got it yet.
    pub(crate) fn new_class(&mut self, now: Time, id: JobId) -> Option<JobClass> {
        let class = self.class(now, id)?;
        let job = self.jobs.get_mut(&id)?;
        (job.given.replace(class) != Some(class)).then_some(class)
    }

    // spec: C-16
    /// Gives every job the class of what it has left: a newcomer at once. Others become less urgent at once, and more urgent when a slot begins:
    /// a class that rose with every packet would have packets overtake those before them.
    fn classify(&mut self, begins_slot: bool) {
        for (id, job) in &mut self.jobs {
            let class = self.scheduler.rank(*id).class(self.slot_bytes);
            let enters = job.is_new && self.scheduler.is_busy(*id);
            if enters || begins_slot || class > job.class {
                job.class = class;
            }
            job.is_new &= !enters;
        }
    }

    // spec: C-13
    /// Takes in what has passed the gate of a job. Retransmissions and control packets use up what was
    /// granted, and bring nobody further.
    pub(crate) fn settle(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let Passed { mut bytes, other_bytes: mut other } = job.gate.take_passed();
        while bytes > 0 {
            let Some(flow) = job.next_to_count() else { return };
            // What is too much for one is the next one's, so that all together have sent what they may.
            let counted = if flow.left > 0 { bytes.min(flow.left) } else { bytes };
            let resent = counted.min(other);
            flow.left = flow.left.saturating_sub(counted);
            (bytes, other) = (bytes - counted, other - resent);
            if counted > resent {
                let sent = self.scheduler.sent(flow.id, Bytes::new(counted - resent));
                sent.expect("the flow was added");
            }
            if resent > 0 {
                let resent = self.scheduler.resent(flow.id, Bytes::new(resent));
                resent.expect("the flow was added");
            }
        }
        self.pump();
    }

    // spec: C-02
    /// Takes in a word.
    pub(crate) fn handle_checked(&mut self, now: Time, prefix: Prefix, packet: Packet<'_>) {
        self.now = now;
        let Ok(word) = Word::decode_checked(prefix, packet.header) else { return };
        if !self.jobs.contains_key(&word.job) || usize::from(word.slots) != self.horizon() {
            return;
        }
        let Body::Bytes(body) = packet.body else { return };
        let Some(said) = words::read(&word, body) else { return };
        match word.direction {
            Direction::Ask => {
                self.begin_until(now, word.job, word.iteration);
                let progress = words::progress(&word);
                self.scheduler.handle_progress(now, progress);
                self.scheduler.handle_rank(word.job, said.rank);
                self.heard.note(progress);
                self.post.answer(packet.meta.src, word, said);
            }
            Direction::Answer { .. } => self.handle_answer(now, packet.meta.src, &word, &said),
        }
        self.pump();
    }

    fn handle_answer(&mut self, now: Time, src: NodeId, word: &Word, said: &words::Said) {
        let flow = FlowId { job: word.job, number: word.flow };
        let is_own = |job: &Job| job.flows.iter().any(|own| own.id == flow && own.to == src);
        if !self.jobs.get(&word.job).is_some_and(is_own) {
            return;
        }
        for &progress in &said.others {
            self.scheduler.handle_progress(now, progress);
        }
        self.scheduler.handle_rank(word.job, said.rank);
        if Slot(word.slot) != self.settings.slot_at(now) {
            return;
        }
        let heard = self.scheduler.handle_feedback(flow, &said.feedback);
        heard.expect("the flow was added");
        if let Some(refused) = word.refused {
            self.stats.refused += 1;
            let slot = Slot(word.slot).after(refused.at.into());
            let refusal = Refusal { slot, asked: said.plan.at(slot), free: refused.free };
            let planned = self.scheduler.handle_refusal(now, flow, refusal);
            planned.expect("the flow was added");
        }
    }

    /// Whether a slot ends now or has.
    pub(crate) fn ends_slot(&self, now: Time) -> bool {
        self.settings.slot_at(now) > self.slot
    }

    /// Whether a job has nothing to send at the moment, though not everything has left.
    pub(crate) fn rest(&mut self, id: JobId, is_resting: bool) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.is_resting = is_resting;
        for flow in &job.flows {
            self.scheduler.rest(flow.id, is_resting).expect("the flow was added");
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        let begins_slot = self.ends_slot(now);
        self.slot = self.slot.max(self.settings.slot_at(now));
        self.jobs.values_mut().for_each(|job| job.gate.handle_timeout(now));
        if self.scheduler.poll_timeout() <= now {
            self.scheduler.handle_timeout(now);
            self.pump();
        }
        self.classify(begins_slot);
    }

    pub(crate) fn poll_timeout(&self) -> Time {
        let gates = self.jobs.values().map(|job| job.gate.opens_at());
        gates.fold(self.scheduler.poll_timeout(), Time::min)
    }

    pub(crate) fn has_words(&self) -> bool {
        !self.post.is_empty()
    }

    /// Sends words as long as there is room.
    pub(crate) fn transmit(&mut self, now: Time, outbox: &mut dyn Outbox) {
        self.now = now;
        let slot = self.settings.slot_at(now);
        while outbox.room() > 0 && self.post.send(slot, &self.scheduler, &self.heard, outbox) {}
    }

    pub(crate) fn check(&self) {
        self.scheduler.check();
    }

    fn horizon(&self) -> usize {
        self.settings.horizon_slots
    }

    /// Begins a job's iterations up to this one, unless they have begun.
    fn begin_until(&mut self, now: Time, id: JobId, iteration: u64) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let most = job.iteration.saturating_add(ITERATIONS_AHEAD);
        if !(job.iteration + 1..=most).contains(&iteration) {
            return;
        }
        let scheduler = &mut self.scheduler;
        let owed: Vec<Bytes> = job.flows.iter().map(|flow| job.owed(flow, scheduler)).collect();
        for _ in job.iteration..iteration {
            scheduler.begin_iteration(id).expect("the job was added");
        }
        job.iteration = iteration;
        job.is_new = true;
        let next_slot = self.settings.slot_at(now).after(2);
        job.gate.budget.enter(self.slot_bytes, self.settings.start_of(next_slot));
        for (flow, owed) in job.flows.iter().zip(owed) {
            let volume = Bytes::new(flow.volume);
            let mut begin = || {
                scheduler.set_volume(flow.id, volume)?;
                // What there is to send of it, others' progress says.
                if flow.follows() {
                    scheduler.ready(now, flow.id, volume)?;
                }
                scheduler.owe(flow.id, owed)
            };
            begin().expect("the flow was added");
        }
        self.classify(false);
    }

    /// Does what the scheduler wants done.
    fn pump(&mut self) {
        while let Some(event) = self.scheduler.poll_event() {
            match event {
                Event::Probe { flow, packets } => {
                    if let Some(job) = self.jobs.get_mut(&flow.job) {
                        job.gate.probe(packets);
                    }
                    self.post.ask(flow, self.jobs.get(&flow.job).and_then(|job| job.onward(flow)));
                }
                Event::Publish { flow, is_blind } => {
                    self.stats.plans += 1;
                    self.stats.blind += u64::from(is_blind);
                    self.post.plan(flow, self.jobs.get(&flow.job).and_then(|job| job.onward(flow)));
                }
                Event::Grant { flow, rate, volume, until } => {
                    if let Some(job) = self.jobs.get_mut(&flow.job) {
                        job.grant(self.now, (flow, rate, volume), until);
                    }
                }
                // How far a flow is goes with its plan.
                Event::Tell { .. } => {}
            }
        }
        for (id, job) in &mut self.jobs {
            job.gate.hold(self.scheduler.is_busy(*id));
        }
    }
}

impl Job {
    // spec: C-08
    /// What a flow has left when others begin the next iteration. A server's results may still be on their
    /// way to a worker while another one computes again: whoever let them wait for gradients of the next
    /// iteration would wait for the very worker that lacks them.
    fn owed(&self, flow: &Out, scheduler: &Scheduler) -> Bytes {
        let may_owe = flow.follows() && self.iteration > 0 && !self.is_resting;
        let left = scheduler.left(flow.id).filter(|_| may_owe);
        left.map_or(Bytes::ZERO, |left| {
            Bytes::new(left.as_u64().saturating_add(flow.volume / OWED_SPARE_PART).min(flow.volume))
        })
    }

    fn onward(&self, flow: FlowId) -> Option<Onward> {
        let own = self.flows.iter().find(|own| own.id == flow)?;
        let is_summed = matches!(own.relation, Relation::Summed { .. });
        Some(Onward { to: own.to, is_summed })
    }

    /// A flow may send; the gate opens for what all may.
    fn grant(
        &mut self,
        now: Time,
        (flow, rate, volume): (FlowId, Option<Rate>, Bytes),
        until: Time,
    ) {
        if let Some(own) = self.flows.iter_mut().find(|own| own.id == flow) {
            (own.rate, own.left) = (rate, volume.as_u64());
        }
        let granted = self.flows.iter().filter(|own| own.left > 0);
        let bps = granted.clone().filter_map(|own| own.rate).map(Rate::as_bps).sum();
        let left = granted.map(|own| own.left).sum();
        self.gate.grant(now, Rate::from_bps(bps), Bytes::new(left), until);
    }

    /// The flow that the next packet is counted for: in turn, of those that may send something.
    fn next_to_count(&mut self) -> Option<&mut Out> {
        let flows = self.flows.len();
        let in_turn = (0..flows).map(|step| (self.turn + 1 + step) % flows);
        let may_send = |at: &usize| self.flows[*at].left > 0;
        self.turn = in_turn.clone().find(may_send).or_else(|| in_turn.clone().next())?;
        self.flows.get_mut(self.turn)
    }
}

impl Out {
    /// Whether it begins when others have: a server has nothing of its own.
    fn follows(&self) -> bool {
        self.relation == Relation::Broadcast
    }
}

impl PacedJob {
    /// A flow as schedulers count: with everything that its packets occupy of a link.
    fn spec(&self, job: JobId, flow: &PacedFlow) -> thalweg_pace::host::FlowSpec {
        let wire = |payload: u64| {
            let packets = payload.div_ceil(u64::from(self.segment_bytes.max(1)));
            payload + packets * u64::from(self.overhead_bytes)
        };
        let id = |number| FlowId { job, number };
        thalweg_pace::host::FlowSpec {
            id: id(flow.number),
            to: flow.to,
            volume: Bytes::new(wire(flow.volume.as_u64())),
            relation: match flow.relation {
                Relation::Ring { own_chunk } => Relation::Ring { own_chunk: wire(own_chunk) },
                Relation::Summed { window } => Relation::Summed { window: wire(window) },
                other => other,
            },
            others: flow.others.iter().map(|&number| id(number)).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
