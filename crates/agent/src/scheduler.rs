//! Decisions of an agent, without I/O: messages from jobs and switches in, messages to them out.
//!
//! The machine that decides is [`Agent`], the same as in a simulation. Here are the names that jobs, their processes and
//! their flows have on a host, and the lines in which they talk.
//!
//! Its driver hands in what came and the time, drains [`Scheduler::poll`] after every input, and calls
//! [`Scheduler::handle_timeout`] when [`Scheduler::poll_timeout`] has come. A job whose words are refused is sent off
//! with [`Scheduler::forget`].

mod leaves;
mod shared;

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;

use thalweg_control::local::{self, Announced, Dependence, FromJob, Obeys, ToJob, VERSION};
use thalweg_core::{Bytes, JobId, NodeId, Rate, Rng, Span, Time};
use thalweg_pace::agent::{self, Agent, Demand, Order, ReportError, SlotRecord};
use thalweg_pace::board::{Answer, Plan, Question, Verdict};
use thalweg_pace::host::{FlowSpec, HostError, Unrelated};
use thalweg_pace::{Enforce, FlowId, Relation, Settings, Slot};

use super::record::Record;
use super::stats::JobStats;
use crate::interface::Leaf;
use leaves::{Leaves, soft_limit};
use shared::{Counts, SharedFlow};

/// Most flows of a host.
const FLOWS_MAX: usize = 1_024;
/// Of the own link, the part that a flow may use of which nothing is planned: small messages pass at
/// once, and a burst does no harm until it is noticed.
const IDLE_PART: u64 = 16;

/// A connection of a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Client(pub u64);

/// A request of the scheduler.
#[derive(Clone, PartialEq, Debug)]
pub enum Output {
    /// Tell a job.
    Say(Client, ToJob),
    /// Ask the switches along the path, in this slot.
    Ask(Slot, Vec<Question>),
    /// Tell them.
    Tell(Slot, Vec<Plan>),
    /// Write down what became of a slot.
    Note(Record),
    /// Change the leaves of jobs at the interface.
    Leaves(Vec<Leaf>),
}

/// The agent of a host, for processes of jobs and switches that have names. Slots of its host begin at zero; those of the
/// network at 1970, `base` before.
pub struct Scheduler {
    agent: Agent,
    address: Ipv4Addr,
    base: Slot,
    idle: Rate,
    jobs: BTreeMap<Client, Job>,
    flows: BTreeMap<FlowId, SharedFlow>,
    now: Time,
    outputs: VecDeque<Output>,
    uplink: Rate,
    /// `None` where the interface has no classes.
    leaves: Option<Leaves>,
}

/// A process of a job.
struct Job {
    name: String,
    id: JobId,
    /// True if it can give its packets classes. Otherwise it keeps to rates whatever the others do.
    has_classes: bool,
    /// True if its packets have a leaf at the interface.
    has_leaf: bool,
    flows: BTreeMap<u32, FlowId>,
}

impl Scheduler {
    /// The agent of a host with that address, whose link has that rate. It is slot `base` of the network; all
    /// that is random comes from `rng`.
    pub fn new(
        address: Ipv4Addr,
        uplink: Rate,
        settings: Settings,
        base: Slot,
        rng: &Rng,
    ) -> Result<Scheduler, HostError> {
        let idle = Rate::from_bps(uplink.as_bps() / IDLE_PART).unwrap_or(uplink);
        Ok(Scheduler {
            agent: Agent::new(node(address), settings, uplink, base, rng)?,
            address,
            base,
            idle,
            jobs: BTreeMap::new(),
            flows: BTreeMap::new(),
            now: Time::ZERO,
            outputs: VecDeque::new(),
            uplink,
            leaves: None,
        })
    }

    // spec: C-16
    /// Jobs whose processes can be marked have leaves from now on: the interface has classes.
    pub fn offer_leaves(&mut self) {
        self.leaves = Some(Leaves::default());
    }

    /// The next output, to be drained after every input.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When it wants to be called.
    pub fn poll_timeout(&self) -> Time {
        self.agent.poll_timeout()
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.agent.handle_timeout(self.now);
        self.carry_out();
    }

    // spec: E-14
    /// Says the rates again that hold until further notice: enforcers let a flow send freely whose agent has been
    /// silent. Called a few times a second.
    pub fn renew(&mut self, now: Time) {
        self.pass(now);
        self.agent.renew();
        self.carry_out();
    }

    /// Takes in that the clock by which the network counts slots was set. It is slot `base` of the network at time
    /// zero from now on.
    // spec: E-14
    pub fn set_base(&mut self, base: Slot) {
        self.base = base;
        self.agent.set_base(base);
    }

    /// A message of a job; an error says what was wrong with it, and the job has to go.
    pub fn handle_job(&mut self, now: Time, client: Client, words: FromJob) -> Result<(), String> {
        self.pass(now);
        words.check()?;
        let done = match words {
            FromJob::Join { job, classes, leaf, .. } => {
                self.join(client, job, Obeys { classes, leaf })
            }
            FromJob::Flow(announced) => self.add_flow(client, &announced),
            FromJob::Report { flow, ready, sent, unrelated } => {
                self.report(client, flow, Counts { ready, sent, unrelated })
            }
            FromJob::Close { flow } => self.close(client, flow),
        };
        self.carry_out();
        done
    }

    /// A job hung up.
    pub fn forget(&mut self, now: Time, client: Client) {
        self.pass(now);
        let Some(job) = self.jobs.remove(&client) else { return };
        for flow in job.flows.values() {
            self.leave_flow(client, *flow);
        }
        if !self.jobs.values().any(|other| other.id == job.id) {
            self.agent.remove_job(job.id);
            self.leaves.iter_mut().for_each(|leaves| leaves.remove(job.id));
        }
        self.carry_out();
    }

    /// Handles the answers of a switch to flows in a slot. Answers of several switches add up.
    // spec: C-02
    pub fn handle_answers(
        &mut self,
        now: Time,
        switch: usize,
        slot: Slot,
        questions: &[Question],
        answers: Vec<Answer>,
    ) {
        self.pass(now);
        for (question, answer) in questions.iter().zip(answers) {
            self.agent.handle_answer(self.now, (switch, slot), question.flow, &answer);
        }
        self.carry_out();
    }

    /// Handles the verdicts of a switch on plans.
    pub fn handle_verdicts(&mut self, now: Time, plans: &[Plan], verdicts: &[Verdict]) {
        self.pass(now);
        for (plan, verdict) in plans.iter().zip(verdicts) {
            if let Verdict::Full(refusal) = verdict {
                self.agent.handle_refusal(self.now, plan.plan.first(), plan.flow, *refusal);
            }
        }
        self.carry_out();
    }

    /// Processes and flows of each job, by its name. Bytes are counted by the caller, from records.
    pub fn jobs(&self) -> BTreeMap<String, JobStats> {
        let mut jobs = BTreeMap::<String, JobStats>::new();
        for job in self.jobs.values() {
            let stats = jobs.entry(job.name.clone()).or_default();
            stats.processes += 1;
            stats.flows += job.flows.len() as u64;
        }
        jobs
    }

    fn join(&mut self, client: Client, name: String, obeys: Obeys) -> Result<(), String> {
        if self.jobs.contains_key(&client) {
            return Err("the job has joined already".into());
        }
        let id = job_id(&name);
        self.agent.add_job(id, Bytes::ZERO);
        let by_class = obeys.classes && self.agent.settings().enforce == Enforce::Class;
        let leaf = self.leaves.as_mut().filter(|_| obeys.leaf && !by_class);
        let leaf = leaf.and_then(|leaves| leaves.add(id));
        let (has_leaf, flows) = (leaf.is_some(), BTreeMap::new());
        self.jobs.insert(client, Job { name, id, has_classes: by_class, has_leaf, flows });
        let slot_us = micros(self.agent.settings().slot);
        let idle_bps = if has_leaf { u64::MAX } else { self.idle.as_bps() };
        let welcome = ToJob::Welcome { version: VERSION, slot_us, idle_bps, by_class };
        self.outputs.push_back(Output::Say(client, welcome));
        if let Some(number) = leaf {
            let mark = Leaf::mark(number);
            self.outputs.push_back(Output::Say(client, ToJob::Leaf { mark }));
        }
        // A process that comes later has to learn the class of its job. Other jobs receive nothing.
        self.agent.renew_job(id);
        Ok(())
    }

    fn add_flow(&mut self, client: Client, announced: &Announced) -> Result<(), String> {
        let Announced { flow: number, to, volume, is_exact, relation, ref others } = *announced;
        let job = self.jobs.get_mut(&client).ok_or("join first")?;
        if job.flows.contains_key(&number) {
            return Err(format!("flow {number} is there already: close it first"));
        }
        if self.flows.len() >= FLOWS_MAX {
            return Err(format!("{FLOWS_MAX} flows are on this host already"));
        }
        let id = FlowId { job: job.id, number: flow_number(self.address, to) };
        // spec: C-18
        if let Some(shared) = self.flows.get_mut(&id) {
            if !shared.add(client, number) {
                return Err(format!("the process sends to {to} already: close that flow first"));
            }
            job.flows.insert(number, id);
            self.obey(id.job, Order::Idle { flow: id });
            return Ok(());
        }
        let of = |&(from, to): &(Ipv4Addr, Ipv4Addr)| FlowId {
            job: job.id,
            number: flow_number(from, to),
        };
        let demand = if is_exact { Demand::Counted } else { Demand::Guessed };
        let spec = FlowSpec {
            id,
            to: node(to),
            volume: Bytes::new(volume.unwrap_or(0)),
            relation: to_relation(relation),
            others: others.iter().map(of).collect(),
        };
        let leaves = self.agent.add_flow(spec, demand);
        if !leaves.map_err(|error| error.to_string())? {
            let free = ToJob::Rate { flow: number, bps: u64::MAX, bytes: None, within_us: None };
            self.outputs.push_back(Output::Say(client, free));
            return Ok(());
        }
        job.flows.insert(number, id);
        self.flows.entry(id).or_default().add(client, number);
        self.obey(id.job, Order::Idle { flow: id });
        Ok(())
    }

    fn close(&mut self, client: Client, number: u32) -> Result<(), String> {
        let job = self.jobs.get_mut(&client).ok_or("join first")?;
        let flow = job.flows.remove(&number).ok_or_else(|| format!("there is no flow {number}"))?;
        self.leave_flow(client, flow);
        Ok(())
    }

    /// A process has no part in a flow any more. A flow without processes is over.
    fn leave_flow(&mut self, client: Client, id: FlowId) {
        let Some(shared) = self.flows.get_mut(&id) else { return };
        if shared.remove(client) {
            let Counts { ready, sent, .. } = shared.total();
            // They are as they were, without what it had left to send.
            let _ = self.agent.report(id, (ready, sent));
        } else {
            self.flows.remove(&id);
            self.agent.remove_flow(id);
        }
    }

    // spec: C-08
    fn report(&mut self, client: Client, number: u32, counts: Counts) -> Result<(), String> {
        let job = self.jobs.get(&client).ok_or("join first")?;
        // One that stays on this host was not kept.
        let Some(&flow) = job.flows.get(&number) else { return Ok(()) };
        let wrong = |error: ReportError| format!("flow {number}: {error}");
        let Some(shared) = self.flows.get_mut(&flow) else { return Ok(()) };
        let all = shared.report(client, counts).ok_or(wrong(ReportError::WentBack))?;
        let local::Unrelated { ready, sent } = all.unrelated;
        self.agent.set_unrelated(flow, Unrelated { ready, sent });
        self.agent.report(flow, (all.ready, all.sent)).map_err(wrong)
    }

    /// Lets time pass.
    fn pass(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.agent.pass(self.now);
    }

    /// Takes what the agent wants done, and gathers it.
    fn carry_out(&mut self) {
        let (mut asked, mut planned) = (Vec::new(), Vec::new());
        while let Some(output) = self.agent.poll() {
            match output {
                agent::Output::Ask { flow, has_plan: false } => asked.push(flow),
                agent::Output::Ask { flow, .. } if !planned.contains(&flow) => planned.push(flow),
                agent::Output::Ask { .. } => {}
                agent::Output::Order { job, order } => self.obey(job, order),
                agent::Output::Ended(record) => self.note(record),
            }
        }
        let own = self.agent.settings().slot_at(self.now);
        let slot = self.base.after(own.0);
        let questions: Vec<Question> =
            asked.into_iter().filter_map(|flow| self.agent.question(flow)).collect();
        if !questions.is_empty() {
            self.outputs.push_back(Output::Ask(slot, questions));
        }
        let plans: Vec<Plan> =
            planned.into_iter().filter_map(|flow| self.agent.plan(flow, own)).collect();
        if !plans.is_empty() {
            self.outputs.push_back(Output::Tell(slot, plans));
        }
        let leaves = self.leaves.as_mut();
        let changed = leaves.and_then(|leaves| leaves.take_changed(self.now, self.uplink));
        self.outputs.extend(changed.map(Output::Leaves));
    }

    /// Passes an order on to the processes that it is for.
    fn obey(&mut self, job: JobId, order: Order) {
        self.leaves.iter_mut().for_each(|leaves| leaves.obey(self.now, job, order));
        let within_us = |until: Time| micros(until.since(self.now));
        let words = match order {
            Order::Grant { flow, rate, volume, until } => {
                let (bps, bytes) = (rate.map_or(0, Rate::as_bps), Some(volume.as_u64()));
                return self.say_rate(flow, bps, bytes, Some(within_us(until)));
            }
            Order::Idle { flow } => return self.say_rate(flow, self.idle.as_bps(), None, None),
            Order::Hold(is_held) => ToJob::Hold { is_held },
            Order::Enter { bytes, until } => ToJob::Enter { bytes, within_us: within_us(until) },
            Order::Class(class) => ToJob::Class { class },
            // Processes ask nobody, and what they send at first passes at the rate of those with nothing planned.
            Order::Probe { .. } => return,
        };
        let able = self.jobs.iter().filter(|(_, other)| other.id == job && other.has_classes);
        self.outputs.extend(able.map(|(place, _)| Output::Say(*place, words.clone())));
    }

    fn say_rate(&mut self, id: FlowId, bps: u64, bytes: Option<u64>, within_us: Option<u64>) {
        let Some(shared) = self.flows.get(&id) else { return };
        let has_leaf = |client: Client| self.jobs.get(&client).is_some_and(|job| job.has_leaf);
        // Each may send at the rate of those with nothing planned; what is planned is divided.
        if bytes.is_none() {
            for member in shared.members() {
                let bps = if has_leaf(member.client) { u64::MAX } else { bps };
                let words = ToJob::Rate { flow: member.number, bps, bytes, within_us };
                self.outputs.push_back(Output::Say(member.client, words));
            }
            return;
        }
        let rates = shared.divide(bps).zip(shared.divide(bytes.unwrap_or(0)));
        for ((member, bps), (_, bytes)) in rates {
            let words = if has_leaf(member.client) {
                let plan = Rate::from_bps(bps.max(1)).unwrap_or(self.uplink);
                let limit = soft_limit(plan, self.uplink, self.agent.load_of_others(id));
                let bps = limit.map_or(u64::MAX, Rate::as_bps);
                ToJob::Rate { flow: member.number, bps, bytes: None, within_us }
            } else {
                ToJob::Rate { flow: member.number, bps, bytes: Some(bytes), within_us }
            };
            self.outputs.push_back(Output::Say(member.client, words));
        }
    }

    fn note(&mut self, record: SlotRecord) {
        let SlotRecord { slot, flow, granted, asked, carried } = record;
        let first = self.flows.get(&flow).and_then(SharedFlow::first);
        let name = first.and_then(|client| Some(self.jobs.get(&client)?.name.clone()));
        let (Some(job), Some((to, _))) = (name, self.agent.route(flow)) else { return };
        self.outputs.push_back(Output::Note(Record {
            slot: slot.0,
            job,
            to: Ipv4Addr::from(to.0),
            granted_bps: granted.map_or(0, Rate::as_bps),
            asked_bytes: asked.as_u64(),
            carried_bytes: carried.as_u64(),
        }));
    }
}

fn micros(span: Span) -> u64 {
    span.as_ps() / 1_000_000
}

fn to_relation(dependence: Dependence) -> Relation {
    match dependence {
        Dependence::Alone => Relation::Alone,
        Dependence::Aggregation => Relation::Aggregation,
        Dependence::Broadcast => Relation::Broadcast,
        Dependence::Summed { window } => Relation::Summed { window },
        Dependence::Ring { own_chunk } => Relation::Ring { own_chunk },
    }
}

/// Hosts are their addresses.
fn node(address: Ipv4Addr) -> NodeId {
    NodeId(u32::from(address))
}

/// From which host to which: half of either address, since hosts of a cluster share the other.
fn flow_number(from: Ipv4Addr, to: Ipv4Addr) -> u32 {
    u32::from(from) << 16 | u32::from(to) & 0xffff
}

/// The same on all hosts: FNV-1a of the name.
fn job_id(name: &str) -> JobId {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    JobId(name.bytes().fold(0xcbf2_9ce4_8422_2325, mix))
}

#[cfg(test)]
mod tests;
