//! The event loop: machines on a network, in one total order of time.

use std::any::Any;
use std::io;

use thalweg_core::{Digest, Machine, NodeId, Packet, Reports, Rng, Time, Verdict};

use crate::check::{self, Violation};
use crate::config::Config;
use crate::director::{Director, Hosts};
use crate::fault::Outage;
use crate::network::{Lender, Network};
use crate::pool::PacketRef;
use crate::stats::{DropReason, FabricStats, LinkStats};
use crate::topology::{LinkId, Topology};
use crate::trace::Tracer;

/// Packets that a switch's program may hand over at once.
const PROGRAM_BATCH: usize = 64;

/// Hosts with machines, switches with or without programs, and the links between them.
///
/// Runs are exact repeats of each other for equal topology, settings, seed and machines: same
/// packets, same picoseconds, same [`digest`](Fabric::digest).
// spec: T-04
pub struct Fabric<M> {
    network: Network,
    topology: Topology,
    machines: Vec<M>,
    /// Programs of switches, by node; empty places for switches that only forward.
    programs: Vec<Option<Program>>,
    /// Moment that the agenda has for each node's timer.
    timers_armed: Vec<Time>,
    outages: Vec<OutageEdge>,
    next_outage: usize,
    has_started: bool,
    /// Moment that the agenda has for the director.
    director_armed: Time,
    touched: Vec<NodeId>,
    lent: Vec<PacketRef>,
}

/// A machine that can be a switch's program. Every machine is one that can be sent to another thread
/// and borrows nothing.
pub trait SwitchMachine: Machine + Any + Send {}

impl<M: Machine + Any + Send> SwitchMachine for M {}

/// A machine in a switch, with the packets it is shown. It reports no events.
pub struct Program {
    /// The machine.
    pub machine: Box<dyn SwitchMachine>,
    /// Packets that the machine is shown.
    pub intercept: Intercept,
}

impl Program {
    /// A machine that is shown the packets sent to the address of the switch.
    pub fn addressed(machine: Box<dyn SwitchMachine>) -> Program {
        Program { machine, intercept: Intercept::Addressed }
    }
}

/// Packets that a switch shows to its program. The others are just forwarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Intercept {
    /// Packets sent to the switch's own address.
    Addressed,
    /// All packets that pass.
    Everything,
}

/// Bounds at which a run hands control back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// Events after this moment stay pending.
    pub until: Time,
    /// At most this many events, for progress reports.
    pub events: u64,
}

/// Why a run handed control back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pause {
    /// The director is done.
    Done,
    /// Nothing is pending any more.
    Quiet,
    /// The limit was reached.
    Limit,
}

#[derive(Clone, Copy)]
struct OutageEdge {
    at: Time,
    node: NodeId,
    goes_down: bool,
}

impl Limit {
    /// Runs to a moment, however many events it takes.
    pub const fn until(until: Time) -> Limit {
        Limit { until, events: u64::MAX }
    }
}

impl<M: Reports> Fabric<M> {
    /// A fabric at time zero, with the machine that `build` makes for each host.
    pub fn new(
        topology: Topology,
        config: &Config,
        seed: u64,
        build: impl FnMut(NodeId) -> M,
    ) -> Fabric<M> {
        let network = Network::new(&topology, config, &Rng::new(seed).stream("fabric"));
        let nodes = topology.nodes() as usize;
        let machines = (0..topology.hosts()).map(NodeId).map(build).collect();
        let mut fabric = Fabric {
            network,
            machines,
            programs: (0..nodes).map(|_| None).collect(),
            timers_armed: vec![Time::NEVER; nodes],
            outages: outage_edges(&config.outages),
            next_outage: 0,
            has_started: false,
            director_armed: Time::NEVER,
            touched: Vec::new(),
            lent: Vec::new(),
            topology,
        };
        fabric.arm_outage();
        fabric
    }

    /// Gives a switch a program.
    pub fn install(&mut self, switch: NodeId, program: Program) {
        assert!(!self.network.is_host(switch), "hosts have machines");
        self.programs[switch.index()] = Some(program);
        self.arm_timer(switch);
    }

    /// Reports every packet to a tracer from now on.
    pub fn trace(&mut self, tracer: Box<dyn Tracer>) {
        self.network.tracer = Some(tracer);
    }

    /// Ends tracing. Fails if not everything could be written.
    pub fn finish_trace(&mut self) -> io::Result<()> {
        self.network.tracer.take().map_or(Ok(()), |mut tracer| tracer.finish())
    }

    /// Runs until the director is done, nothing is pending, or the limit is reached.
    pub fn run(&mut self, director: &mut impl Director<M>, limit: Limit) -> Pause {
        let last = self.network.stats.events.saturating_add(limit.events);
        if !std::mem::replace(&mut self.has_started, true) {
            self.touched.extend((0..self.topology.nodes()).rev().map(NodeId));
            self.settle(director);
        }
        while self.network.stats.events < last {
            if director.is_done() {
                return Pause::Done;
            }
            let Some((at, source)) = self.network.agenda.next() else { return Pause::Quiet };
            if at > limit.until {
                self.network.now = limit.until.max(self.network.now);
                return Pause::Limit;
            }
            self.network.now = at;
            self.network.agenda.advance(at);
            self.network.stats.events += 1;
            self.step(source, director);
        }
        Pause::Limit
    }

    /// The time.
    pub fn now(&self) -> Time {
        self.network.now
    }

    /// The fingerprint of everything that happened so far.
    pub fn digest(&self) -> Digest {
        self.network.digest
    }

    /// Counters of the whole fabric so far.
    pub fn stats(&self) -> FabricStats {
        let copies = self.network.links.iter().map(|link| link.stats.duplicated_packets);
        let mut stats = self.network.stats;
        stats.copied_packets += copies.sum::<u64>();
        stats
    }

    /// Counters of one link so far.
    pub fn link_stats(&mut self, link: LinkId) -> LinkStats {
        self.network.observe(link);
        self.network.links[link.index()].stats
    }

    /// Bytes that wait in front of a link now.
    pub fn queue_bytes(&mut self, link: LinkId) -> u64 {
        self.network.observe(link);
        self.network.links[link.index()].queue.bytes()
    }

    /// The nodes and cables.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// A host's machine, to read from.
    pub fn machine(&self, host: NodeId) -> &M {
        &self.machines[host.index()]
    }

    /// A switch's program, to read from, if it has one of this type.
    pub fn program<P: SwitchMachine>(&self, switch: NodeId) -> Option<&P> {
        let program = self.programs[switch.index()].as_ref()?;
        let machine: &dyn Any = &*program.machine;
        machine.downcast_ref()
    }

    /// Checks what must hold at every moment, whatever happened.
    pub fn check(&self) -> Result<(), Violation> {
        check::check(&self.network, self.stats())
    }

    fn step(&mut self, source: u32, director: &mut impl Director<M>) {
        let links = self.network.links.len() as u32;
        let nodes = self.topology.nodes();
        if source < links {
            self.step_link(LinkId(source), director);
        } else if source < links + nodes {
            self.step_timer(NodeId(source - links), director);
        } else if source == self.director_source() {
            let now = self.network.now;
            let mut hosts = Hosts { machines: &mut self.machines, touched: &mut self.touched };
            director.handle_wake(now, &mut hosts);
            self.settle(director);
        } else {
            self.step_outage(director);
        }
    }

    #[inline]
    fn step_link(&mut self, link_id: LinkId, director: &mut impl Director<M>) {
        let link = &self.network.links[link_id.index()];
        if link.eager && link.busy_until == self.network.now {
            let (from, wants_pull) = (link.from, link.wants_pull);
            self.network.catch_up(link_id);
            if wants_pull && !self.network.down[from.index()] {
                self.settle_host(from, director);
            }
        }
        let Some((node, packet)) = self.network.receive(link_id) else { return };
        if self.network.is_host(node) {
            self.deliver_to_host(node, packet);
            self.settle_host(node, director);
        } else if self.programs[node.index()].is_some() {
            self.show_to_program(node, packet, link_id, director);
        } else {
            self.network.forward(node, packet, Some(link_id));
        }
    }

    fn step_timer(&mut self, node: NodeId, director: &mut impl Director<M>) {
        let now = self.network.now;
        self.timers_armed[node.index()] = Time::NEVER;
        self.network.agenda.set(self.timer_source(node), Time::NEVER);
        if self.network.down[node.index()] {
            return;
        }
        if self.poll_timeout(node) <= now {
            if self.network.is_host(node) {
                self.machines[node.index()].handle_timeout(now);
            } else if let Some(program) = &mut self.programs[node.index()] {
                program.machine.handle_timeout(now);
            }
        }
        self.touched.push(node);
        self.settle(director);
    }

    #[inline]
    fn deliver_to_host(&mut self, host: NodeId, packet: PacketRef) {
        let lent = self.network.pool.lend(packet);
        for word in lent.header.as_chunks().0 {
            self.network.digest.add(u64::from_le_bytes(*word));
        }
        let verdict = self.machines[host.index()].handle_packet(self.network.now, lent);
        act(&mut self.network, host, packet, None, verdict);
    }

    fn show_to_program(
        &mut self,
        switch: NodeId,
        packet: PacketRef,
        over: LinkId,
        director: &mut impl Director<M>,
    ) {
        let is_addressed = self.network.pool.meta(packet).dst == switch;
        let program = self.programs[switch.index()].as_mut().expect("the caller looked");
        if program.intercept == Intercept::Addressed && !is_addressed {
            return self.network.forward(switch, packet, Some(over));
        }
        let lent: Packet<'_> = self.network.pool.lend(packet);
        let verdict = program.machine.handle_packet(self.network.now, lent);
        act(&mut self.network, switch, packet, Some(over), verdict);
        self.touched.push(switch);
        self.settle(director);
    }

    /// Drains every machine that was given input.
    fn settle(&mut self, director: &mut impl Director<M>) {
        while let Some(node) = self.touched.pop() {
            if self.network.down[node.index()] {
                continue;
            }
            if self.network.is_host(node) {
                self.settle_one_host(node, director);
            } else {
                self.settle_program(node);
            }
        }
        let wake = director.next_wake().max(self.network.now);
        if wake != self.director_armed || wake == self.network.now {
            self.director_armed = wake;
            self.network.agenda.set(self.director_source(), wake);
        }
    }

    /// The common case: one host was given a packet, or room for one. The director is only asked for
    /// its next wake after an event.
    #[inline]
    fn settle_host(&mut self, host: NodeId, director: &mut impl Director<M>) {
        if self.settle_one_host(host, director) {
            self.settle(director);
        }
    }

    #[inline]
    fn settle_one_host(&mut self, host: NodeId, director: &mut impl Director<M>) -> bool {
        self.pull(host);
        let mut is_handled = false;
        while let Some(event) = self.machines[host.index()].poll_event() {
            let mut hosts = Hosts { machines: &mut self.machines, touched: &mut self.touched };
            director.handle_event(self.network.now, host, event, &mut hosts);
            is_handled = true;
        }
        self.arm_timer(host);
        is_handled
    }

    fn settle_program(&mut self, switch: NodeId) {
        let now = self.network.now;
        let Some(program) = &mut self.programs[switch.index()] else { return };
        loop {
            let (pool, lent) = (&mut self.network.pool, &mut self.lent);
            let mut outbox = Lender { pool, src: switch, room: PROGRAM_BATCH, lent };
            program.machine.poll_transmit(now, &mut outbox);
            let batch = self.lent.len();
            self.network.stats.created_packets += batch as u64;
            for packet in self.lent.drain(..) {
                self.network.forward(switch, packet, None);
            }
            if batch < PROGRAM_BATCH {
                break;
            }
        }
        self.arm_timer(switch);
    }

    /// Asks a host's machine for a packet if its interface is free. Has it asked again as soon as the
    /// interface is free, if there is more.
    #[inline]
    fn pull(&mut self, host: NodeId) {
        if self.network.down[host.index()] {
            return;
        }
        let link = self.network.host_link(host);
        let now = self.network.now;
        let machine = &mut self.machines[host.index()];
        if !self.network.links[link.index()].is_idle(now) {
            return self.network.set_wants_pull(link, machine.has_backlog());
        }
        let (pool, lent) = (&mut self.network.pool, &mut self.lent);
        let mut outbox = Lender { pool, src: host, room: 1, lent };
        machine.poll_transmit(now, &mut outbox);
        let Some(packet) = self.lent.pop() else { return };
        self.network.stats.created_packets += 1;
        self.network.links[link.index()].wants_pull = machine.has_backlog();
        // Time must move on with every packet, whatever a machine says of its size.
        let meta = self.network.pool.meta_mut(packet);
        meta.wire_bytes = meta.wire_bytes.max(1);
        self.network.transmit(link, packet);
    }

    #[inline]
    fn poll_timeout(&self, node: NodeId) -> Time {
        if self.network.is_host(node) {
            return self.machines[node.index()].poll_timeout();
        }
        let program = self.programs[node.index()].as_ref();
        program.map_or(Time::NEVER, |program| program.machine.poll_timeout())
    }

    /// Only ever moves a wake-up forward. One that comes too early finds nothing due and is armed
    /// again, which is cheaper than moving it with every packet.
    #[inline]
    fn arm_timer(&mut self, node: NodeId) {
        let at = self.poll_timeout(node);
        if at < self.timers_armed[node.index()] {
            self.timers_armed[node.index()] = at;
            let source = self.timer_source(node);
            self.network.agenda.set(source, at.max(self.network.now));
        }
    }

    fn step_outage(&mut self, director: &mut impl Director<M>) {
        let edge = self.outages[self.next_outage];
        self.next_outage += 1;
        self.arm_outage();
        self.network.down[edge.node.index()] = edge.goes_down;
        if edge.goes_down {
            self.network.flush(edge.node);
            return;
        }
        self.restart(edge.node, director);
        self.touched.push(edge.node);
        self.settle(director);
    }

    fn restart(&mut self, node: NodeId, director: &mut impl Director<M>) {
        let now = self.network.now;
        if self.network.is_host(node) {
            let old = &self.machines[node.index()];
            if let Some(machine) = director.handle_restart(now, node, old) {
                self.machines[node.index()] = machine;
            }
        } else if self.programs[node.index()].is_some()
            && let Some(program) = director.handle_switch_restart(now, node)
        {
            self.programs[node.index()] = Some(program);
        }
    }

    fn arm_outage(&mut self) {
        let at = self.outages.get(self.next_outage).map_or(Time::NEVER, |edge| edge.at);
        self.network.agenda.set(self.director_source() + 1, at);
    }

    fn timer_source(&self, node: NodeId) -> u32 {
        self.network.links.len() as u32 + node.0
    }

    fn director_source(&self) -> u32 {
        self.network.links.len() as u32 + self.topology.nodes()
    }
}

/// Carries out a machine's verdict on a packet.
#[inline]
fn act(
    network: &mut Network,
    at: NodeId,
    packet: PacketRef,
    over: Option<LinkId>,
    verdict: Verdict<'_>,
) {
    match verdict {
        Verdict::Consume => {
            network.stats.consumed_packets += 1;
            network.pool.free(packet);
        }
        Verdict::Forward if network.pool.meta(packet).dst == at => {
            network.discard(packet, over, DropReason::NoRoute);
        }
        Verdict::Forward => network.forward(at, packet, over),
        Verdict::Multicast(targets) => {
            for &target in targets {
                let copy = network.pool.copy(packet);
                network.stats.copied_packets += 1;
                network.pool.meta_mut(copy).dst = target;
                network.forward(at, copy, over);
            }
            network.stats.consumed_packets += 1;
            network.pool.free(packet);
        }
    }
}

/// When nodes go down and come back.
fn outage_edges(outages: &[Outage]) -> Vec<OutageEdge> {
    let edges = |outage: &Outage| {
        let Outage { node, from, until } = *outage;
        [
            OutageEdge { at: from, node, goes_down: true },
            OutageEdge { at: until, node, goes_down: false },
        ]
    };
    let mut edges: Vec<_> = merged(outages).iter().flat_map(edges).collect();
    // Stable: of two at one moment, the one of the lower node happens first.
    edges.sort_by_key(|edge| edge.at);
    edges
}

/// The outages by node and time. Those of one node that overlap or touch become one.
fn merged(outages: &[Outage]) -> Vec<Outage> {
    let mut sorted = outages.to_vec();
    sorted.sort_by_key(|outage| (outage.node, outage.from));
    let mut merged: Vec<Outage> = Vec::new();
    for outage in sorted {
        match merged.last_mut() {
            Some(last) if last.node == outage.node && outage.from <= last.until => {
                last.until = last.until.max(outage.until);
            }
            _ => merged.push(outage),
        }
    }
    merged
}
