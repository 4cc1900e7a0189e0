//! What an agent decides, without I/O: jobs and switches talk to it, it talks back.
//!
//! Whoever drives it hands in what came and the time, drains [`Office::poll`] after every input, and calls
//! [`Office::handle_timeout`] when [`Office::poll_timeout`] has come. A job whose words are refused is sent off
//! with [`Office::forget`].

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;

use thalweg_control::local::{Dependence, FromJob, ToJob, VERSION};
use thalweg_core::{Bytes, JobId, NodeId, Rate, Rng, Time};
use thalweg_pace::board::{Answer, Plan, Question, Verdict};
use thalweg_pace::host::{Event, FlowSpec, HostError};
use thalweg_pace::{Ahead, Feedback, FlowId, Host, Refusal, Relation, Settings, Slot, VOLUME_MAX};

use super::burst::{Bursts, Step};
use super::record::Record;
use super::stats::JobStats;

/// Most flows of a host.
const FLOWS_MAX: usize = 1_024;
/// Of the own link, the part that a flow may use of which nothing is planned: small messages pass at
/// once, and a burst does no harm until it is noticed.
const IDLE_PART: u64 = 16;

/// A first burst is thought to go on for so many slots of the own link: with less, jobs of which nothing is
/// known yet would change places in every slot.
const UNSEEN_SLOTS: u64 = 4;

/// The most that can have left of a flow in a slot, a petabyte: with it, what all flows of a host report in a slot
/// can be added up.
const SLOT_BYTES_MAX: u64 = 1 << 50;

/// A connection of a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Seat(pub u64);

/// A request of the scheduler.
#[derive(Clone, PartialEq, Debug)]
pub enum Output {
    /// Tell a job.
    Say(Seat, ToJob),
    /// Ask the switches on the way, in this slot.
    Ask(Slot, Vec<Question>),
    /// Tell them.
    Tell(Slot, Vec<Plan>),
    /// Write down what became of a slot.
    Note(Record),
}

/// The agent's mind. Slots of its host begin at zero; those of the network at 1970, `base` before.
pub struct Office {
    host: Host,
    address: Ipv4Addr,
    settings: Settings,
    base: Slot,
    idle: Rate,
    jobs: BTreeMap<Seat, Job>,
    flows: BTreeMap<FlowId, (Seat, u32)>,
    /// What switches said in the current slot.
    heard: BTreeMap<(FlowId, usize), Feedback>,
    now: Time,
    outputs: VecDeque<Output>,
}

struct Job {
    name: String,
    id: JobId,
    flows: BTreeMap<u32, Known>,
}

struct Known {
    id: FlowId,
    to: NodeId,
    volume: Option<u64>,
    others: Vec<FlowId>,
    bursts: Bursts,
    /// What has left in the current slot.
    left_in_slot: u64,
    granted: Option<Rate>,
    granted_until: Time,
}

impl Office {
    /// The office of a host with that address, whose link has that rate. It is slot `base` of the network; all
    /// that is random comes from `rng`.
    pub fn new(
        address: Ipv4Addr,
        uplink: Rate,
        settings: Settings,
        base: Slot,
        rng: &Rng,
    ) -> Result<Office, HostError> {
        let idle = Rate::from_bps(uplink.as_bps() / IDLE_PART).unwrap_or(uplink);
        Ok(Office {
            host: Host::new(node(address), settings, uplink, rng)?,
            address,
            settings,
            base,
            idle,
            jobs: BTreeMap::new(),
            flows: BTreeMap::new(),
            heard: BTreeMap::new(),
            now: Time::ZERO,
            outputs: VecDeque::new(),
        })
    }

    /// What to do next, to be drained after every input.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When it wants to be called.
    pub fn poll_timeout(&self) -> Time {
        let known = self.jobs.values().flat_map(|job| job.flows.values());
        known
            .map(|flow| flow.bursts.due())
            .min()
            .unwrap_or(Time::NEVER)
            .min(self.host.poll_timeout())
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Time) {
        self.pass(now);
        let seats: Vec<Seat> = self.jobs.keys().copied().collect();
        for seat in seats {
            self.end_bursts(seat);
        }
        self.host.handle_timeout(self.now);
        self.pump();
    }

    // spec: E-14
    /// Says the rates again that hold until further notice: enforcers let a flow send freely whose agent has been
    /// silent. Called a few times a second.
    pub fn renew(&mut self, now: Time) {
        self.pass(now);
        self.pump();
        let mut idle = Vec::new();
        for (connection, job) in &self.jobs {
            let is_idle = |flow: &Known| !flow.bursts.is_active() || flow.granted_until <= self.now;
            let flows = job.flows.iter().filter(|(_, flow)| is_idle(flow));
            idle.extend(flows.map(|(number, _)| (*connection, *number)));
        }
        for (connection, number) in idle {
            self.say_idle(connection, number);
        }
    }

    /// Takes in that the clock by which the network counts slots was set. It is slot `base` of the network at time
    /// zero from now on.
    // spec: E-14
    pub fn set_base(&mut self, base: Slot) {
        self.base = base;
    }

    /// What a job said; an error says what was wrong with it, and the job has to go.
    pub fn handle_job(&mut self, now: Time, seat: Seat, words: FromJob) -> Result<(), String> {
        self.pass(now);
        words.check()?;
        let done = match words {
            FromJob::Join { job, .. } => self.join(seat, job),
            FromJob::Flow { flow, to, volume, relation, others } => {
                self.add_flow(seat, flow, to, volume, relation, &others)
            }
            FromJob::Report { flow, ready, sent } => self.report(seat, flow, (ready, sent)),
            FromJob::Close { flow } => self.close(seat, flow),
        };
        self.pump();
        done
    }

    /// A job hung up.
    pub fn forget(&mut self, now: Time, seat: Seat) {
        self.pass(now);
        let Some(job) = self.jobs.remove(&seat) else { return };
        for flow in job.flows.values() {
            self.host.remove_flow(flow.id);
            self.flows.remove(&flow.id);
        }
        if !self.jobs.values().any(|other| other.id == job.id) {
            self.host.remove_job(job.id);
        }
        self.pump();
    }

    /// What a switch said to flows in a slot. What several switches say adds up.
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
        let current = self.settings.slot_at(self.now);
        for (question, answer) in questions.iter().zip(answers) {
            for progress in answer.progress {
                self.host.handle_progress(self.now, progress);
            }
            let Some(said) = answer.feedback.filter(|_| self.own(slot) == current) else {
                continue;
            };
            let said = Feedback {
                load: Ahead::of(current, said.load.volumes()),
                free: Ahead::of(current, said.free.volumes()),
                narrowest: said.narrowest,
            };
            self.heard.insert((question.flow, switch), said);
            let mut path = Feedback::new(current, self.settings.horizon_slots);
            let of_flow = (question.flow, 0)..=(question.flow, usize::MAX);
            self.heard.range(of_flow).for_each(|(_, said)| path.join(said));
            // A flow that has gone meanwhile needs no answer.
            let _ = self.host.handle_feedback(question.flow, &path);
        }
        self.pump();
    }

    /// What became of plans at a switch.
    pub fn handle_verdicts(&mut self, now: Time, plans: &[Plan], verdicts: &[Verdict]) {
        self.pass(now);
        let current = self.settings.slot_at(self.now);
        for (plan, verdict) in plans.iter().zip(verdicts) {
            let Verdict::Full(refusal) = verdict else { continue };
            let refusal = Refusal { slot: self.own(refusal.slot), ..*refusal };
            if refusal.slot >= current {
                let _ = self.host.handle_refusal(self.now, plan.flow, refusal);
            }
        }
        self.pump();
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

    fn join(&mut self, seat: Seat, name: String) -> Result<(), String> {
        if self.jobs.contains_key(&seat) {
            return Err("the job has joined already".into());
        }
        let id = job_id(&name);
        self.host.add_job(id);
        self.jobs.insert(seat, Job { name, id, flows: BTreeMap::new() });
        let slot_us = self.settings.slot.as_ps() / 1_000_000;
        let welcome = ToJob::Welcome { version: VERSION, slot_us, idle_bps: self.idle.as_bps() };
        self.outputs.push_back(Output::Say(seat, welcome));
        Ok(())
    }

    fn add_flow(
        &mut self,
        seat: Seat,
        number: u32,
        to: Ipv4Addr,
        volume: Option<u64>,
        relation: Dependence,
        others: &[(Ipv4Addr, Ipv4Addr)],
    ) -> Result<(), String> {
        let job = self.jobs.get_mut(&seat).ok_or("join first")?;
        if job.flows.contains_key(&number) {
            return Err(format!("flow {number} is there already: close it first"));
        }
        if self.flows.len() >= FLOWS_MAX {
            return Err(format!("{FLOWS_MAX} flows are on this host already"));
        }
        let id = FlowId { job: job.id, number: flow_number(self.address, to) };
        if self.flows.contains_key(&id) {
            let name = &job.name;
            return Err(format!(
                "{name:?} sends to {to} already: give each process a name of its own"
            ));
        }
        let of = |&(from, to): &(Ipv4Addr, Ipv4Addr)| FlowId {
            job: job.id,
            number: flow_number(from, to),
        };
        let others: Vec<FlowId> = others.iter().map(of).collect();
        let spec = FlowSpec {
            id,
            to: node(to),
            volume: Bytes::new(volume.unwrap_or(0)),
            relation: to_relation(relation),
            others: others.clone(),
        };
        let leaves = self.host.add_flow(spec).map_err(|error| error.to_string())?;
        if !leaves {
            let free = ToJob::Rate { flow: number, bps: u64::MAX, bytes: None, within_us: None };
            self.outputs.push_back(Output::Say(seat, free));
            return Ok(());
        }
        let unseen = self.host.uplink().capacity().saturating_mul(UNSEEN_SLOTS);
        let bursts = Bursts::new(unseen);
        let known = Known {
            id,
            to: node(to),
            volume,
            others,
            bursts,
            left_in_slot: 0,
            granted: None,
            granted_until: Time::ZERO,
        };
        job.flows.insert(number, known);
        self.flows.insert(id, (seat, number));
        self.say_idle(seat, number);
        Ok(())
    }

    fn close(&mut self, seat: Seat, number: u32) -> Result<(), String> {
        let job = self.jobs.get_mut(&seat).ok_or("join first")?;
        let flow = job.flows.remove(&number).ok_or_else(|| format!("there is no flow {number}"))?;
        self.flows.remove(&flow.id);
        self.host.remove_flow(flow.id);
        Ok(())
    }

    // spec: C-08
    fn report(&mut self, seat: Seat, number: u32, counts: (u64, u64)) -> Result<(), String> {
        let job_id = self.jobs.get(&seat).ok_or("join first")?.id;
        // A job may have several processes here.
        let of_job = self.jobs.values().filter(|job| job.id == job_id);
        let mut flows = of_job.flat_map(|job| job.flows.values());
        let is_new = !flows.any(|flow| flow.bursts.is_active());
        let job = self.jobs.get_mut(&seat).ok_or("join first")?;
        let Some(flow) = job.flows.get_mut(&number) else {
            // One that stays on this host was not kept.
            return Ok(());
        };
        let before = flow.bursts.sent();
        let step = flow.bursts.report(self.now, counts, flow.volume);
        let step = step.ok_or_else(|| format!("the counts of flow {number} went back"))?;
        flow.left_in_slot = flow.left_in_slot.saturating_add(flow.bursts.sent() - before);
        if flow.left_in_slot > SLOT_BYTES_MAX {
            return Err(format!("{} bytes cannot have left in a slot", flow.left_in_slot));
        }
        let id = flow.id;
        let done = match step {
            Step::Nothing => Ok(()),
            Step::Begun { volume, ready, sent } => {
                if is_new { self.host.begin_iteration(job_id) } else { self.host.begin_flow(id) }
                    .and_then(|()| self.host.set_volume(id, Bytes::new(volume)))
                    .and_then(|()| self.host.ready(self.now, id, Bytes::new(ready)))
                    .and_then(|()| self.host.sent(id, Bytes::new(sent)))
            }
            Step::Moved { volume, ready, sent } => self
                .host
                .set_volume(id, Bytes::new(volume))
                .and_then(|()| self.host.ready(self.now, id, Bytes::new(ready)))
                .and_then(|()| self.host.sent(id, Bytes::new(sent))),
        };
        self.end_bursts(seat);
        done.map_err(|error| error.to_string())
    }

    fn end_bursts(&mut self, seat: Seat) {
        let Some(job) = self.jobs.get_mut(&seat) else { return };
        let mut ended = Vec::new();
        for (number, flow) in &mut job.flows {
            if let Some(volume) = flow.bursts.end(self.now) {
                ended.push((*number, flow.id, volume));
            }
        }
        for (number, id, volume) in ended {
            let finish = self.host.set_volume(id, Bytes::new(volume));
            let _ = finish.and_then(|()| self.host.sent(id, Bytes::ZERO));
            self.pump();
            self.say_idle(seat, number);
        }
    }

    fn say_idle(&mut self, seat: Seat, flow: u32) {
        let rate = ToJob::Rate { flow, bps: self.idle.as_bps(), bytes: None, within_us: None };
        self.outputs.push_back(Output::Say(seat, rate));
    }

    /// Lets time pass, and writes down what a slot that has ended came to.
    fn pass(&mut self, now: Time) {
        let now = self.now.max(now);
        let is_new_slot = self.settings.slot_at(now) > self.settings.slot_at(self.now);
        self.now = now;
        if !is_new_slot {
            return;
        }
        self.heard.clear();
        self.host.handle_timeout(now);
        let slot = Slot(self.base.0 + self.settings.slot_at(now).0 - 1);
        for job in self.jobs.values_mut() {
            for flow in job.flows.values_mut() {
                flow.left_in_slot = 0;
                let Some((asked, carried)) = self.host.last_slot(flow.id) else { continue };
                if asked + carried > Bytes::ZERO {
                    self.outputs.push_back(Output::Note(Record {
                        slot: slot.0,
                        job: job.name.clone(),
                        to: Ipv4Addr::from(flow.to.0),
                        granted_bps: flow.granted.map_or(0, Rate::as_bps),
                        asked_bytes: asked.as_u64(),
                        carried_bytes: carried.as_u64(),
                    }));
                }
            }
        }
    }

    /// Takes what the host's scheduler wants done, and gathers it.
    fn pump(&mut self) {
        let (mut asked, mut told) = (Vec::new(), Vec::new());
        while let Some(event) = self.host.poll_event() {
            match event {
                Event::Probe { flow, .. } => asked.push(flow),
                Event::Publish { flow, .. } if !told.contains(&flow) => told.push(flow),
                // How far a flow is goes with its plan.
                Event::Publish { .. } | Event::Tell { .. } => {}
                Event::Grant { flow, rate, volume, until } => self.grant(flow, rate, volume, until),
            }
        }
        let slot = self.base.after(self.settings.slot_at(self.now).0);
        let questions: Vec<Question> =
            asked.iter().filter_map(|flow| self.question(*flow)).collect();
        if !questions.is_empty() {
            self.outputs.push_back(Output::Ask(slot, questions));
        }
        let plans: Vec<Plan> = told.iter().filter_map(|flow| self.plan(*flow, slot)).collect();
        if !plans.is_empty() {
            self.outputs.push_back(Output::Tell(slot, plans));
        }
    }

    fn grant(&mut self, flow: FlowId, rate: Option<Rate>, volume: Bytes, until: Time) {
        let Some(&(seat, number)) = self.flows.get(&flow) else { return };
        let known = self.jobs.get_mut(&seat).and_then(|job| job.flows.get_mut(&number));
        let Some(known) = known.filter(|known| known.bursts.is_active()) else { return };
        (known.granted, known.granted_until) = (rate, until);
        let within_us = until.since(self.now).as_ps() / 1_000_000;
        let rate = ToJob::Rate {
            flow: number,
            bps: rate.map_or(0, Rate::as_bps),
            bytes: Some(volume.as_u64()),
            within_us: Some(within_us),
        };
        self.outputs.push_back(Output::Say(seat, rate));
    }

    fn known(&self, flow: FlowId) -> Option<&Known> {
        let (seat, number) = self.flows.get(&flow)?;
        self.jobs.get(seat)?.flows.get(number)
    }

    fn question(&self, flow: FlowId) -> Option<Question> {
        let known = self.known(flow)?;
        let rank = self.host.ranked(flow).rank;
        Some(Question { flow, rank, to: known.to, others: known.others.clone() })
    }

    fn plan(&self, flow: FlowId, slot: Slot) -> Option<Plan> {
        let known = self.known(flow)?;
        let (asked, carried) = self.host.last_slot(flow)?;
        let mut plan = *self.host.plan(flow)?;
        plan.advance_to(self.settings.slot_at(self.now));
        Some(Plan {
            flow,
            rank: self.host.ranked(flow).rank,
            to: known.to,
            plan: Ahead::of(slot, plan.volumes()),
            progress: self.host.progress_of(flow)?,
            // One that is not believed would make a switch refuse what others plan, too.
            asked: asked.as_u64().min(VOLUME_MAX),
            carried: carried.as_u64().min(VOLUME_MAX),
        })
    }

    /// The slot of the host for one of the network.
    fn own(&self, slot: Slot) -> Slot {
        Slot(slot.since(self.base))
    }
}

fn to_relation(dependence: Dependence) -> Relation {
    match dependence {
        Dependence::Alone => Relation::Alone,
        Dependence::Aggregation => Relation::Aggregation,
        Dependence::Broadcast => Relation::Broadcast,
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
