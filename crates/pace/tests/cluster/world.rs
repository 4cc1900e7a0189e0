//! Hosts, the tables of the switches between them, and a transport that sends what it is granted.

use std::collections::BTreeMap;

use thalweg_core::{Bytes, Check, NodeId, Rate, Rng, Span, Time};
use thalweg_pace::host::{Event, FlowSpec};
use thalweg_pace::{Covers, Feedback, FlowId, Host, LinkTable, Relation, Settings, Slot};

use crate::jobs::{Job, JobFlow};

const SLOT_MS: u64 = 60;
const HOST_RATE: Rate = Rate::from_gbps(1);

pub struct World {
    seed: u64,
    settings: Settings,
    hosts: Vec<Host>,
    jobs: Vec<Job>,
    /// Tables of the switches: a rack's uplinks, a rack's downlinks, hosts' downlinks.
    tables: Vec<LinkTable>,
    /// Tables as hosts see them in this slot.
    snapshot: Vec<LinkTable>,
    /// Hosts and flows that asked for it.
    probes: Vec<(usize, FlowId)>,
    flows: BTreeMap<FlowId, Sending>,
    now_ms: u64,
    pub refusals: u32,
    /// Slots in which some link carried several flows.
    pub shared_slots: u32,
}

/// A flow as the transport sees it.
struct Sending {
    from: usize,
    links: Vec<usize>,
    volume: u64,
    ready: u64,
    sent: u64,
    sent_in_slot: u64,
    bytes_a_ms: u64,
    left: u64,
    /// True if it has been through an iteration, and so may be expected to have bytes that it has not.
    is_known: bool,
}

impl World {
    pub fn draw(seed: u64, settings: Settings) -> World {
        let mut rng = Rng::new(seed).stream("cluster");
        let racks = 1 + rng.below(3) as usize;
        let hosts = racks * (2 + rng.below(3) as usize) + 1;
        let jobs = 1 + rng.below(5);
        let mut jobs: Vec<Job> = (0..jobs).map(|job| Job::draw(job, hosts, &mut rng)).collect();
        if settings.covers == Covers::Iteration {
            // Others would rely on bytes that do not exist.
            jobs.iter_mut().for_each(|job| job.parts = 1);
        }
        let narrow = Rate::from_bps(1_000_000_000 * (1 + rng.below(3))).unwrap();
        let rates = (0..2 * racks).map(|_| narrow).chain((0..hosts).map(|_| HOST_RATE));
        let tables: Vec<LinkTable> =
            rates.map(|rate| LinkTable::new(&settings, settings.bytes_a_slot(rate))).collect();
        let host = |node| Host::new(NodeId(node as u32), settings, HOST_RATE, &rng).unwrap();
        let mut world = World {
            seed,
            settings,
            hosts: (0..hosts).map(host).collect(),
            snapshot: tables.clone(),
            tables,
            probes: Vec::new(),
            flows: BTreeMap::new(),
            jobs,
            now_ms: 0,
            refusals: 0,
            shared_slots: 0,
        };
        world.announce(racks);
        world
    }

    pub fn slots(&self) -> u64 {
        self.now_ms / SLOT_MS
    }

    /// Until everybody has finished.
    pub fn run(&mut self) {
        while self.jobs.iter().any(|job| job.iterations_left > 0) {
            if self.now_ms.is_multiple_of(SLOT_MS) {
                self.begin_slot();
            }
            self.resume_jobs();
            self.decide();
            self.send();
            self.finish_jobs();
            self.now_ms += 1;
            assert!(self.slots() < 3_000, "seed {}: nothing moves", self.seed);
        }
        // What was planned to spare is given back.
        self.drain_all();
        let end = Slot(self.slots() + 1);
        self.tables.iter_mut().for_each(|table| table.advance(end));
        let entries: usize = self.tables.iter().map(LinkTable::flows).sum();
        assert_eq!(entries, 0, "seed {}: reservations are left over", self.seed);
    }

    fn announce(&mut self, racks: usize) {
        let rack = |host: usize| host % racks;
        for job in &self.jobs {
            for flow in &job.flows {
                let (from, to) = (rack(flow.from), rack(flow.to));
                let between = if from == to { vec![] } else { vec![from, racks + to] };
                let links = between.into_iter().chain([2 * racks + flow.to]).collect();
                let sending = Sending {
                    from: flow.from,
                    links,
                    volume: flow.volume,
                    ready: flow.volume,
                    sent: flow.volume,
                    sent_in_slot: 0,
                    bytes_a_ms: 0,
                    left: 0,
                    is_known: false,
                };
                self.flows.insert(flow.id, sending);
                self.hosts[flow.from].add_job(job.id);
                self.hosts[flow.from].add_flow(spec(flow)).unwrap();
            }
        }
    }

    fn now(&self) -> Time {
        Time::ZERO + Span::from_ms(self.now_ms)
    }

    fn begin_slot(&mut self) {
        self.check();
        let slot = Slot(self.slots());
        self.tables.iter_mut().for_each(|table| table.advance(slot));
        self.tables.iter().for_each(LinkTable::check);
        self.flows.values_mut().for_each(|flow| flow.sent_in_slot = 0);
    }

    fn resume_jobs(&mut self) {
        for at in 0..self.jobs.len() {
            let job = &self.jobs[at];
            if job.iterations_left > 0 && job.resume_at_ms.is_some_and(|at| at <= self.now_ms) {
                self.begin_iteration(at);
            }
            let job = &self.jobs[at];
            let begun_ms = job.parts_from_ms;
            let is_due = |parts: u64| self.now_ms >= begun_ms + parts * job.gap_ms;
            let has_more = job.resume_at_ms.is_none() && job.ready_parts < job.parts;
            if has_more && is_due(job.ready_parts) {
                self.make_ready(at);
            }
        }
    }

    fn begin_iteration(&mut self, at: usize) {
        let job = &mut self.jobs[at];
        (job.resume_at_ms, job.ready_parts, job.parts_from_ms) = (None, 0, self.now_ms);
        let mut hosts: Vec<usize> = job.flows.iter().map(|flow| flow.from).collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts.iter().for_each(|host| self.hosts[*host].begin_iteration(job.id).unwrap());
        for flow in &job.flows {
            let sending = self.flows.get_mut(&flow.id).unwrap();
            (sending.sent, sending.ready) = (0, 0);
        }
    }

    fn make_ready(&mut self, at: usize) {
        let now = self.now();
        let job = &mut self.jobs[at];
        job.ready_parts += 1;
        for flow in &job.flows {
            let sending = self.flows.get_mut(&flow.id).unwrap();
            let ready = flow.volume * job.ready_parts / job.parts;
            let more = Bytes::new(ready - sending.ready);
            sending.ready = ready;
            self.hosts[flow.from].rest(flow.id, false).unwrap();
            self.hosts[flow.from].ready(now, flow.id, more).unwrap();
            self.hosts[flow.from].check();
        }
    }

    fn decide(&mut self) {
        let now = self.now();
        for host in 0..self.hosts.len() {
            if self.hosts[host].poll_timeout() <= now {
                self.hosts[host].handle_timeout(now);
                self.hosts[host].check();
            }
        }
        self.drain_all();
        if self.now_ms.is_multiple_of(SLOT_MS) {
            self.snapshot.clone_from(&self.tables);
        }
        for (host, flow) in std::mem::take(&mut self.probes) {
            self.answer(host, flow);
        }
        self.drain_all();
    }

    /// Progress of one flow leads to progress of others.
    fn drain_all(&mut self) {
        while (0..self.hosts.len()).any(|host| self.drain(host)) {}
    }

    fn drain(&mut self, host: usize) -> bool {
        let now = self.now();
        let mut any = false;
        while let Some(event) = self.hosts[host].poll_event() {
            any = true;
            match event {
                Event::Probe { flow, .. } => self.probes.push((host, flow)),
                Event::Grant { flow, rate, volume, until } => {
                    assert_eq!(until, self.settings.start_of(Slot(self.slots() + 1)));
                    let sending = self.flows.get_mut(&flow).unwrap();
                    let bytes = rate.map_or(0, |rate| rate.as_bps().div_ceil(8_000));
                    (sending.bytes_a_ms, sending.left) = (bytes, volume.as_u64());
                }
                Event::Publish { flow, .. } => {
                    let slot = Slot(self.slots());
                    let plan = *self.hosts[host].plan(flow).unwrap();
                    // One that has sent all in the slot before has nothing left to plan.
                    if plan.first() == slot {
                        self.check_covered(flow, plan.total());
                    }
                    let who = self.hosts[host].ranked(flow);
                    for &link in &self.flows[&flow].links {
                        let reserved = self.tables[link].reserve(slot, who, &plan);
                        self.tables[link].check();
                        if let Err(refusal) = reserved {
                            self.refusals += 1;
                            self.hosts[host].handle_refusal(now, flow, refusal).unwrap();
                            self.hosts[host].check();
                            break;
                        }
                    }
                }
                Event::Tell { to, progress } => {
                    self.hosts[to.index()].handle_progress(now, progress);
                    self.hosts[to.index()].check();
                }
            }
        }
        any
    }

    /// Feedback of a path's links when the slot began, and progress of the receiver's flows.
    fn answer(&mut self, host: usize, flow: FlowId) {
        let mut feedback = Feedback::new(Slot(self.slots()), self.settings.horizon_slots);
        let who = self.hosts[host].ranked(flow);
        for &link in &self.flows[&flow].links {
            feedback.add(&self.snapshot[link], who);
        }
        self.hosts[host].handle_feedback(flow, &feedback).unwrap();
        let job = self.jobs.iter().find(|job| job.id == flow.job).unwrap();
        let to = job.flows.iter().find(|known| known.id == flow).unwrap().to;
        let now = self.now();
        for progress in self.hosts[to].progress(flow.job) {
            self.hosts[host].handle_progress(now, progress);
            self.hosts[host].check();
        }
    }

    fn send(&mut self) {
        for (id, flow) in &mut self.flows {
            let bytes = flow.bytes_a_ms.min(flow.left).min(flow.ready - flow.sent);
            if bytes > 0 {
                flow.left -= bytes;
                flow.sent += bytes;
                flow.sent_in_slot += bytes;
                self.hosts[flow.from].sent(*id, Bytes::new(bytes)).unwrap();
                self.hosts[flow.from].rest(*id, flow.sent == flow.ready).unwrap();
                self.hosts[flow.from].check();
            }
        }
    }

    fn finish_jobs(&mut self) {
        for job in &mut self.jobs {
            let is_done = |flow: &JobFlow| {
                let sending = &self.flows[&flow.id];
                sending.sent == sending.volume
            };
            if job.resume_at_ms.is_none() && job.flows.iter().all(is_done) {
                job.iterations_left -= 1;
                job.resume_at_ms = Some(self.now_ms + job.compute_ms + 1);
                let flows = job.flows.iter();
                flows.for_each(|flow| self.flows.get_mut(&flow.id).unwrap().is_known = true);
            }
        }
    }

    /// A flow whose iterations are not known yet plans only bytes that are ready, where plans cover those.
    fn check_covered(&self, flow: FlowId, planned: u64) {
        let Sending { ready, sent, sent_in_slot, is_known, .. } = self.flows[&flow];
        let volume = ready - sent + sent_in_slot;
        let most = volume + volume * u64::from(self.settings.spare_per_mille) / 1_000;
        let is_covered = is_known || planned <= most;
        let is_free = self.settings.covers == Covers::Iteration;
        assert!(is_free || is_covered, "seed {}: {flow:?} plans {planned} of {volume}", self.seed);
    }

    /// Conditions that hold whenever a slot ends.
    fn check(&mut self) {
        let seed = self.seed;
        let mut carried = vec![(0, 0); self.tables.len()];
        for flow in self.flows.values().filter(|flow| flow.sent_in_slot > 0) {
            for &link in &flow.links {
                carried[link].0 += flow.sent_in_slot;
                carried[link].1 += 1;
            }
        }
        self.shared_slots += u32::from(carried.iter().any(|(_, flows)| *flows > 1));
        for (table, (bytes, _)) in self.tables.iter().zip(carried) {
            let planned = table.planned().volumes().iter();
            assert!(planned.max() <= Some(&table.capacity()), "seed {seed}: {table:?}");
            assert!(bytes <= table.capacity(), "seed {seed}: {bytes} over {}", table.capacity());
        }
        for flow in self.jobs.iter().flat_map(|job| &job.flows) {
            let sent = |id: &FlowId| self.flows[id].sent;
            let least = flow.others.iter().map(sent).min().unwrap_or(u64::MAX);
            let limit = match flow.relation {
                Relation::Broadcast => least,
                Relation::Ring { own_chunk } => least + own_chunk,
                Relation::Summed { window } => least + window,
                Relation::Aggregation | Relation::Alone => u64::MAX,
            };
            let (own, slot) = (sent(&flow.id), self.now_ms / SLOT_MS);
            assert!(own <= limit, "seed {seed}, slot {slot}: {flow:?} is ahead: {own} of {limit}");
        }
    }
}

fn spec(flow: &JobFlow) -> FlowSpec {
    FlowSpec {
        id: flow.id,
        to: NodeId(flow.to as u32),
        volume: Bytes::new(flow.volume),
        relation: flow.relation,
        others: flow.others.clone(),
    }
}
