//! Jobs that take turns: the agent of a host, the gates that its jobs' packets pass, and the packets in which
//! agents, switches and other hosts talk.

mod ledger;
mod post;
mod words;

use std::collections::BTreeMap;

use thalweg_core::{Body, Bytes, Check, JobId, NodeId, Outbox, Packet, Rate, Rng, Time};
use thalweg_pace::agent::{Agent, AgentStats, Demand, Output};
use thalweg_pace::board::Answer;
use thalweg_pace::gate::{Framing, Gate, Turn};
use thalweg_pace::host::{FlowSpec, HostError, Usage};
use thalweg_pace::{Enforce, FlowId, Refusal, Relation, Settings, Slot, SlotPacer};
use thalweg_transport::JobClass;
use thalweg_wire::Prefix;
use thalweg_wire::pace::{Direction, Word};

pub use ledger::{Ledger, LedgerStats, Way};

use crate::policy::{Packets, Policy};
use post::Post;

/// Of a slot, the part for which packets may leave together: fewer wake-ups, and no queue worth the name.
const BURST_PART: u64 = 1_000;

/// Packets are the only carrier of messages here, so all that is known of a path comes from one source.
const VIA_PACKETS: usize = 0;

/// Bytes and flows that a host sends for a job in every iteration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PacedJob {
    /// Bytes that the job's worker on this host hands over in an iteration; zero without a worker.
    pub round: Bytes,
    /// Flows of the job that leave this host.
    pub flows: Vec<PacedFlow>,
    /// Payload of a full packet.
    pub segment_bytes: u32,
    /// Bytes that a packet occupies of a link beside its payload.
    pub overhead_bytes: u32,
}

/// A flow that leaves a host in every iteration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PacedFlow {
    /// Number of the flow in the job.
    pub number: u32,
    /// Receiver.
    pub to: NodeId,
    /// Payload of the flow in an iteration.
    pub volume: Bytes,
    /// Dependence on other flows. A ring's own chunk and a window are counted in payload.
    pub relation: Relation,
    /// The numbers of those others.
    pub others: Vec<u32>,
}

/// Counters of pacing on a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PacingStats {
    /// Plans that were published.
    pub plans: u64,
    /// Of those, how many were made without an answer from the network.
    pub blind: u64,
    /// Plans that a link had no room for.
    pub refused: u64,
    /// Bytes that were planned, and those of them that left in their slots.
    pub usage: Usage,
}

impl PacingStats {
    /// Sums of the counters of two hosts.
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

    /// Share of the planned bytes that left in its slot, if anything was planned.
    pub fn used_part(&self) -> Option<f64> {
        let planned = self.usage.planned.as_u64();
        (planned > 0).then(|| self.usage.used.as_u64() as f64 / planned as f64)
    }
}

/// When the jobs of a host send.
pub struct Pacing {
    agent: Agent,
    jobs: BTreeMap<JobId, Job>,
    post: Post,
    now: Time,
}

struct Job {
    gate: Gate,
    /// The class that its packets have got.
    given: Option<JobClass>,
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
            agent: Agent::new(me, settings, uplink, Slot(0), rng)?,
            jobs: BTreeMap::new(),
            post: Post::default(),
            now: Time::ZERO,
        })
    }

    /// A job takes part from now on. Flows that stay on the host are left alone.
    pub fn enter(&mut self, id: JobId, paced: &PacedJob) {
        self.leave(id);
        self.agent.add_job(id, paced.round);
        let mut flows = Vec::new();
        for flow in &paced.flows {
            let spec = paced.spec(id, flow);
            let flow = spec.id;
            if self.agent.add_flow(spec, Demand::Known).expect("the job was just added") {
                flows.push(flow);
            }
        }
        let Settings { slot, enforce, .. } = *self.agent.settings();
        let pacer = SlotPacer::with_burst(slot / BURST_PART);
        let gate = Gate::new(enforce, pacer, paced.framing(), flows);
        self.jobs.insert(id, Job { gate, given: None });
    }

    /// A job is over.
    pub fn leave(&mut self, job: JobId) {
        if self.jobs.remove(&job).is_some() {
            self.agent.remove_job(job);
            self.post.forget(job);
            self.carry_out();
        }
    }

    /// Counts so far.
    pub fn stats(&self) -> PacingStats {
        let AgentStats { plans, blind, refused, usage } = self.agent.stats();
        PacingStats { plans, blind, refused, usage }
    }

    // spec: C-08
    /// The worker of a job has handed over a tensor of `bytes`.
    pub(crate) fn handed_over(&mut self, now: Time, id: JobId, bytes: u64) {
        self.now = now;
        self.agent.handed_over(now, id, bytes);
        self.carry_out();
    }

    /// The worker of a job has a sum of `bytes`.
    pub(crate) fn summed(&mut self, id: JobId, bytes: u64) {
        self.agent.summed(id, bytes);
        self.carry_out();
    }

    /// The gate of a job, if it is paced.
    pub(crate) fn gate(&mut self, job: JobId) -> Option<&mut Gate> {
        self.jobs.get_mut(&job).map(|job| &mut job.gate)
    }

    /// True if jobs have classes.
    pub(crate) fn has_classes(&self) -> bool {
        self.agent.settings().enforce == Enforce::Class
    }

    // spec: C-16
    /// The class of a job's packets. `None` where plans limit rates, or nobody paces the job.
    pub(crate) fn class(&self, now: Time, id: JobId) -> Option<JobClass> {
        if !self.has_classes() {
            return None;
        }
        let policy = Policy { job_classes: true };
        let dscp = |class| policy.dscp(Packets::Values { class: Some(class), layer: None });
        Some(match self.jobs.get(&id)?.gate.class(now) {
            Turn::In(class) => JobClass::InTurn(dscp(class)),
            Turn::Out(class) => {
                JobClass::OutOfTurn { dscp: dscp(class), patience: self.agent.settings().slot }
            }
        })
    }

    /// The class of a job's packets, if they have not got it yet.
    pub(crate) fn new_class(&mut self, now: Time, id: JobId) -> Option<JobClass> {
        let class = self.class(now, id)?;
        let job = self.jobs.get_mut(&id)?;
        (job.given.replace(class) != Some(class)).then_some(class)
    }

    // spec: C-13
    /// Takes in what has passed the gate of a job.
    pub(crate) fn settle(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let agent = &mut self.agent;
        job.gate.settle(|sent| agent.sent(sent.flow, sent.bytes, sent.again));
        self.carry_out();
    }

    // spec: C-02
    /// Takes in a word.
    pub(crate) fn handle_checked(&mut self, now: Time, prefix: Prefix, packet: Packet<'_>) {
        self.now = now;
        let Ok(word) = Word::decode_checked(prefix, packet.header) else { return };
        let horizon_slots = self.agent.settings().horizon_slots;
        if !self.agent.has_job(word.job) || usize::from(word.slots) != horizon_slots {
            return;
        }
        let Body::Bytes(body) = packet.body else { return };
        let Some(contents) = words::read(&word, body) else { return };
        match word.direction {
            Direction::Ask => {
                self.agent.handle_peer(now, words::progress(&word), contents.rank);
                self.post.answer(packet.meta.src, word, contents);
            }
            Direction::Answer { .. } => self.handle_answer(now, packet.meta.src, &word, contents),
        }
        self.carry_out();
    }

    fn handle_answer(&mut self, now: Time, src: NodeId, word: &Word, contents: words::Contents) {
        let (flow, slot) = (FlowId { job: word.job, number: word.flow }, Slot(word.slot));
        if self.agent.route(flow).is_none_or(|(to, _)| to != src) {
            return;
        }
        let words::Contents { rank, plan, feedback, others, .. } = contents;
        let answer = Answer { feedback: Some(feedback), progress: others, rank: Some(rank) };
        self.agent.handle_answer(now, (VIA_PACKETS, slot), flow, &answer);
        if let Some(refused) = word.refused {
            let at = slot.after(refused.at.into());
            let refusal = Refusal { slot: at, asked: plan.at(at), free: refused.free };
            self.agent.handle_refusal(now, slot, flow, refusal);
        }
    }

    /// True if a slot ends now or has ended.
    pub(crate) fn ends_slot(&self, now: Time) -> bool {
        self.agent.ends_slot(now)
    }

    /// Reports that a job has nothing to send at the moment, though not everything has left, or that it has again.
    pub(crate) fn rest(&mut self, id: JobId, is_resting: bool) {
        self.agent.rest(id, is_resting);
        if let Some(job) = self.jobs.get_mut(&id) {
            job.gate.rest(is_resting);
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        self.jobs.values_mut().for_each(|job| job.gate.handle_timeout(now));
        self.agent.handle_timeout(now);
        self.carry_out();
    }

    pub(crate) fn poll_timeout(&self) -> Time {
        let gates = self.jobs.values().map(|job| job.gate.opens_at());
        gates.fold(self.agent.poll_timeout(), Time::min)
    }

    pub(crate) fn has_words(&self) -> bool {
        !self.post.is_empty()
    }

    /// Sends words as long as there is room.
    pub(crate) fn transmit(&mut self, now: Time, outbox: &mut dyn Outbox) {
        self.now = now;
        while outbox.room() > 0 && self.post.send(now, &self.agent, outbox) {}
    }

    pub(crate) fn check(&self) {
        self.agent.check();
    }

    /// Does what the agent wants done.
    fn carry_out(&mut self) {
        while let Some(output) = self.agent.poll() {
            match output {
                Output::Ask { flow, has_plan } => {
                    if self.agent.route(flow).is_some() {
                        self.post.ask(flow, has_plan);
                    }
                }
                Output::Order { job, order } => {
                    if let Some(job) = self.jobs.get_mut(&job) {
                        job.gate.obey(self.now, order);
                    }
                }
                // Demand is known here, and nobody keeps records.
                Output::Ended(_) => {}
            }
        }
    }
}

impl PacedJob {
    fn framing(&self) -> Framing {
        let PacedJob { segment_bytes, overhead_bytes, .. } = *self;
        Framing { segment_bytes, overhead_bytes }
    }

    /// A flow as agents count: with everything that its packets occupy of a link.
    fn spec(&self, job: JobId, flow: &PacedFlow) -> FlowSpec {
        let wire = |payload| self.framing().wire_bytes(payload);
        let id = |number| FlowId { job, number };
        FlowSpec {
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
