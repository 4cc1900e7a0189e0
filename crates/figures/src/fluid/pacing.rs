//! The schedulers of the pacing plane: one on every server, load tables on all links.

use std::time::Instant;

use thalweg_core::{Bytes, JobId, NodeId, Rate, Rng, Time};
use thalweg_pace::host::{Event, FlowSpec};
use thalweg_pace::{Feedback, FlowId, Host, LinkTable, Settings, Slot};

use super::world::{Policy, World};

/// The machines that run on a network, with messages that take no time.
///
/// Feedback is what tables hold when a slot begins. Hosts decide one after the other at their moments, and
/// until then flows do what was planned before.
pub(crate) struct Pacing {
    settings: Settings,
    hosts: Vec<Host>,
    /// By link. Those from servers into the network are the hosts' own, and not used here.
    tables: Vec<LinkTable>,
    /// By flow.
    sending: Vec<Sending>,
    /// By server, flows that have something to send in this slot.
    by_host: Vec<Vec<usize>>,
    /// Flows that ask for feedback.
    probes: Vec<usize>,
    /// Servers with something to tell.
    reporting: Vec<usize>,
    slot: Slot,
    /// Durations of decisions.
    pub(crate) decisions_us: Vec<f64>,
    pub(crate) refusals: u64,
}

#[derive(Clone, Copy, Default)]
struct Sending {
    rate: Option<Rate>,
    left: u64,
    since: Time,
    sent_in_slot: u64,
}

impl Pacing {
    pub(crate) fn new(world: &World, settings: Settings, rng: &Rng) -> Pacing {
        let servers = world.cluster.servers();
        let uplink = Rate::from_gbps(world.cluster.shape().gbps[0]);
        let host = |node| {
            Host::new(NodeId(node as u32), settings, uplink, rng)
                .expect("the settings were checked")
        };
        let table = |capacity: &u64| LinkTable::new(&settings, *capacity);
        Pacing {
            hosts: (0..servers).map(host).collect(),
            tables: world.cluster.capacity().iter().map(table).collect(),
            sending: Vec::new(),
            by_host: vec![Vec::new(); servers],
            probes: Vec::new(),
            reporting: Vec::new(),
            slot: Slot(0),
            settings,
            decisions_us: Vec::new(),
            refusals: 0,
        }
    }

    /// All hosts with something to send begin the slot and get their feedback.
    fn begin_slot(&mut self, world: &World) {
        let now = self.settings.start_of(self.slot);
        self.by_host.iter_mut().for_each(Vec::clear);
        self.sending.resize(world.flows.len(), Sending::default());
        for flow in world.active() {
            self.by_host[world.flows[flow].from].push(flow);
            self.sending[flow] = Sending { since: now, ..self.sending[flow] };
        }
        for host in 0..self.hosts.len() {
            if !self.by_host[host].is_empty() {
                self.hosts[host].handle_timeout(now);
                self.reporting.push(host);
            }
        }
        self.spread(world, now);
        for flow in std::mem::take(&mut self.probes) {
            self.answer(world, flow, now);
        }
        self.spread(world, now);
    }

    fn answer(&mut self, world: &World, flow: usize, now: Time) {
        let id = id_of(world, flow);
        let state = &world.flows[flow];
        let feedback = self.feedback(world, flow);
        let host = &mut self.hosts[state.from];
        host.handle_feedback(id, &feedback).expect("it was announced");
        for progress in self.hosts[state.to].progress(id.job) {
            self.hosts[state.from].handle_progress(now, progress);
        }
        self.reporting.push(state.from);
    }

    /// Feedback of the links of a flow's path now.
    fn feedback(&mut self, world: &World, flow: usize) -> Feedback {
        let who = self.hosts[world.flows[flow].from].ranked(id_of(world, flow));
        let mut feedback = Feedback::new(self.slot, self.settings.horizon_slots);
        for &link in &world.flows[flow].path[1..] {
            self.tables[link].advance(self.slot);
            feedback.add(&self.tables[link], who);
        }
        feedback
    }

    /// Hosts decide, in the order of their moments.
    fn decide(&mut self, world: &World) {
        let end = self.settings.start_of(self.slot.after(1));
        let active = (0..self.hosts.len()).filter(|host| !self.by_host[*host].is_empty());
        let mut order: Vec<(Time, usize)> =
            active.map(|host| (self.hosts[host].poll_timeout(), host)).collect();
        order.sort_unstable();
        for (at, host) in order.into_iter().filter(|(at, _)| *at < end) {
            self.advance(world, host, at);
            let begin = clock();
            self.hosts[host].handle_timeout(at);
            self.decisions_us.push(begin.elapsed().as_nanos() as f64 / 1e3);
            self.reporting.push(host);
            self.spread(world, at);
        }
    }

    /// Handles what hosts have to tell, and what that leads to.
    fn spread(&mut self, world: &World, now: Time) {
        while let Some(host) = self.reporting.pop() {
            while let Some(event) = self.hosts[host].poll_event() {
                self.handle(world, (host, now), event);
            }
        }
    }

    fn handle(&mut self, world: &World, (host, now): (usize, Time), event: Event) {
        match event {
            Event::Probe { flow, .. } => self.probes.push(number_of(world, flow)),
            Event::Grant { flow, rate, volume, .. } => {
                let sending = &mut self.sending[number_of(world, flow)];
                (sending.rate, sending.left, sending.since) = (rate, volume.as_u64(), now);
            }
            Event::Publish { flow, .. } => self.publish(world, (host, now), flow),
            Event::Tell { to, progress } => {
                self.advance(world, to.index(), now);
                self.hosts[to.index()].handle_progress(now, progress);
                self.reporting.push(to.index());
            }
        }
    }

    fn publish(&mut self, world: &World, (host, now): (usize, Time), flow: FlowId) {
        let Some(plan) = self.hosts[host].plan(flow) else { return };
        let who = self.hosts[host].ranked(flow);
        for &link in &world.flows[number_of(world, flow)].path[1..] {
            if let Err(refusal) = self.tables[link].reserve(self.slot, who, plan) {
                self.refusals += 1;
                let again = self.hosts[host].handle_refusal(now, flow, refusal);
                again.expect("it was announced");
                return;
            }
        }
    }

    /// Lets the flows of a host send until `now`.
    fn advance(&mut self, world: &World, host: usize, now: Time) {
        for at in 0..self.by_host[host].len() {
            let flow = self.by_host[host][at];
            let sending = &mut self.sending[flow];
            let passed = now.since(sending.since);
            let most = sending.rate.map_or(0, |rate| rate.bytes_in(passed).as_u64());
            let bytes = most.min(sending.left);
            sending.since = now;
            self.send(world, flow, bytes);
        }
    }

    fn send(&mut self, world: &World, flow: usize, bytes: u64) {
        let sending = &mut self.sending[flow];
        sending.left -= bytes;
        sending.sent_in_slot += bytes;
        if bytes > 0 {
            let host = &mut self.hosts[world.flows[flow].from];
            host.sent(id_of(world, flow), Bytes::new(bytes)).expect("it was announced");
            self.reporting.push(world.flows[flow].from);
        }
    }
}

impl Policy for Pacing {
    fn admit(&mut self, world: &World, job: usize) -> u64 {
        for flow in world.jobs[job].flows.clone() {
            let state = &world.flows[flow];
            let host = &mut self.hosts[state.from];
            host.add_job(JobId(job as u64));
            let spec = FlowSpec {
                id: id_of(world, flow),
                to: NodeId(state.to as u32),
                volume: Bytes::new(state.volume),
                relation: state.relation,
                others: state.others.iter().map(|other| id_of(world, *other)).collect(),
            };
            host.add_flow(spec).expect("the job was announced");
        }
        0
    }

    fn begin(&mut self, world: &World, job: usize) {
        self.slot = Slot(world.slot);
        let now = self.settings.start_of(self.slot);
        let flows = world.jobs[job].flows.clone();
        let mut from: Vec<usize> = flows.clone().map(|flow| world.flows[flow].from).collect();
        from.sort_unstable();
        from.dedup();
        for host in from {
            self.hosts[host].begin_iteration(JobId(job as u64)).expect("it was announced");
        }
        for flow in flows {
            let state = &world.flows[flow];
            let ready =
                self.hosts[state.from].ready(now, id_of(world, flow), Bytes::new(state.volume));
            ready.expect("it was announced");
        }
    }

    fn allocate(&mut self, world: &World, bytes: &mut [u64]) {
        self.slot = Slot(world.slot);
        self.begin_slot(world);
        self.decide(world);
        let end = self.settings.start_of(self.slot.after(1));
        for host in 0..self.by_host.len() {
            for at in 0..self.by_host[host].len() {
                let flow = self.by_host[host][at];
                // Rates are whole bits a second: what rounding leaves is sent as well.
                self.send(world, flow, self.sending[flow].left);
                bytes[flow] = std::mem::take(&mut self.sending[flow].sent_in_slot);
            }
        }
        self.spread(world, end);
    }

    fn end(&mut self, world: &World, job: usize) {
        for &server in &world.jobs[job].servers {
            self.hosts[server].remove_job(JobId(job as u64));
            while self.hosts[server].poll_event().is_some() {}
        }
    }
}

fn id_of(world: &World, flow: usize) -> FlowId {
    let job = world.flows[flow].job;
    FlowId { job: JobId(job as u64), number: (flow - world.jobs[job].flows.start) as u32 }
}

fn number_of(world: &World, flow: FlowId) -> usize {
    world.jobs[flow.job.0 as usize].flows.start + flow.number as usize
}

/// Clock for the durations of decisions, which are what is measured.
#[allow(clippy::disallowed_methods)]
pub(crate) fn clock() -> Instant {
    Instant::now()
}
