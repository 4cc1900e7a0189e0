//! Random scenes: everything that a fabric can be and suffer, drawn from one seed.

use std::collections::VecDeque;

use thalweg_core::{
    Body, BodySize, Digest, Dscp, Ecn, Machine, NodeId, Outbox, Packet, Purpose, Rate, Reports,
    Rng, Span, Time, Verdict,
};
use thalweg_fabric::topology::{CableSpec, Dumbbell, LeafSpine, OneSwitch, ThreeTier};
use thalweg_fabric::{
    Buffer, Config, Director, Discipline, Effect, Fabric, FabricStats, Hosts, Intercept, LinkId,
    LinkStats, Marking, Outage, Place, Program, Rule, Spread, Topology,
};

use super::pair;

/// Everything begins within this time, and faults and outages end within it.
const BUSY_TIME: Span = Span::from_us(200);
/// Most times a packet is passed on or multiplied.
const HOPS_MAX: u8 = 3;

/// A configuration, and what it takes to run it from the start.
pub struct Scene {
    topology: Topology,
    config: Config,
    /// Switches with a chatter in them.
    programs: Vec<(NodeId, Intercept)>,
}

impl Scene {
    /// The scene of a seed.
    pub fn draw(seed: u64) -> Scene {
        let rng = &mut Rng::new(seed).stream("scene");
        let topology = draw_topology(rng);
        let config = draw_config(rng, &topology);
        let switches = (topology.hosts()..topology.nodes()).map(NodeId);
        let intercepts = [None, Some(Intercept::Addressed), Some(Intercept::Everything)];
        let programs =
            switches.filter_map(|switch| Some((switch, pick(rng, &intercepts)?))).collect();
        Scene { topology, config, programs }
    }

    /// A fabric at time zero, with chatters of a seed on its hosts and in its switches, and a
    /// director for them.
    pub fn stage(&self, seed: u64) -> (Fabric<Chatter>, Crowd) {
        let nodes = self.topology.nodes();
        let chatter = |node| Chatter::new(node, nodes, 60, &Rng::new(seed));
        let mut fabric = Fabric::new(self.topology.clone(), &self.config, seed, chatter);
        for &(switch, intercept) in &self.programs {
            fabric.install(switch, Program { machine: Box::new(chatter(switch)), intercept });
        }
        (fabric, Crowd::new(nodes, seed))
    }
}

/// Result of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    pub digest: Digest,
    /// Of the events that the director received.
    pub events: Digest,
    pub now: Time,
    pub stats: FabricStats,
    pub links: Vec<LinkStats>,
}

impl Outcome {
    pub fn of(fabric: &mut Fabric<Chatter>, crowd: &Crowd) -> Outcome {
        let links = 0..2 * fabric.topology().cables().len() as u32;
        Outcome {
            digest: fabric.digest(),
            events: crowd.events,
            now: fabric.now(),
            stats: fabric.stats(),
            links: links.map(|link| fabric.link_stats(LinkId(link))).collect(),
        }
    }
}

/// Sends packets of all kinds at random times to random nodes, and answers, passes on, multiplies
/// or keeps what it gets.
pub struct Chatter {
    rng: Rng,
    nodes: u32,
    now: Time,
    /// Packets that it has yet to send of its own accord.
    unsent_packets: u32,
    next_send: Time,
    /// Nodes that it owes an answer.
    owed: VecDeque<NodeId>,
    targets: Vec<NodeId>,
    reports: VecDeque<u64>,
}

impl Chatter {
    fn new(me: NodeId, nodes: u32, unsent_packets: u32, rng: &Rng) -> Chatter {
        let mut rng = rng.substream("chatter", me.0.into());
        let next_send = Time::ZERO + draw_span(&mut rng, BUSY_TIME);
        Chatter {
            rng,
            nodes,
            now: Time::ZERO,
            unsent_packets,
            next_send,
            owed: VecDeque::new(),
            targets: Vec::new(),
            reports: VecDeque::new(),
        }
    }

    /// Often host 0, so that queues fill. Beyond the last node there is nobody, which happens too.
    fn anybody(&mut self) -> NodeId {
        if self.rng.chance(0.4) {
            return NodeId(0);
        }
        NodeId(self.rng.below(u64::from(self.nodes) + 1) as u32)
    }

    fn fill(&mut self, packet: Packet<'_>, dst: NodeId) {
        let rng = &mut self.rng;
        packet.meta.dst = dst;
        // Equal sizes make ties.
        let odd_bytes = 64 + rng.below(1_437) as u32;
        packet.meta.wire_bytes = pick(rng, &[750, 1_500, 1_500, odd_bytes]);
        packet.meta.entropy = rng.bits() as u16;
        packet.meta.dscp = Dscp::of_priority(rng.below(8) as u8);
        packet.meta.ecn = Ecn::from_bits(rng.below(2) as u8 * 2);
        if let Body::Bytes(bytes) = packet.body {
            bytes.fill(rng.bits() as u8);
        }
    }

    fn draw_body(&mut self) -> BodySize {
        let bytes = self.rng.below(100) as u32;
        if self.rng.chance(0.5) { BodySize::Length(bytes) } else { BodySize::Bytes(bytes) }
    }
}

impl Machine for Chatter {
    fn handle_packet(&mut self, now: Time, packet: Packet<'_>) -> Verdict<'_> {
        self.now = now;
        if self.rng.chance(0.1) {
            let first = if let Body::Bytes([first, ..]) = &packet.body { *first } else { 0 };
            self.reports.push_back(u64::from(first) << 32 | u64::from(packet.meta.wire_bytes));
        }
        let hops = &mut packet.header[0];
        *hops += 1;
        if *hops > HOPS_MAX {
            return Verdict::Consume;
        }
        match self.rng.below(8) {
            0 => {
                self.owed.push_back(packet.meta.src);
                Verdict::Consume
            }
            1 | 2 => {
                packet.meta.dst = self.anybody();
                if let Body::Bytes([first, ..]) = packet.body {
                    *first ^= 0x55;
                }
                Verdict::Forward
            }
            3 => {
                let count = self.rng.below(4);
                self.targets = (0..count).map(|_| self.anybody()).collect();
                Verdict::Multicast(&self.targets)
            }
            // Where it stands, or, at its destination, back to itself.
            4 => Verdict::Forward,
            _ => Verdict::Consume,
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.now = now;
    }

    fn poll_transmit(&mut self, now: Time, outbox: &mut dyn Outbox) {
        self.now = now;
        while outbox.room() > 0 {
            let dst = match self.owed.pop_front() {
                Some(dst) => dst,
                None if self.unsent_packets > 0 && self.next_send <= now => {
                    self.unsent_packets -= 1;
                    // Often at once: bursts fill queues.
                    let gap = if self.rng.chance(0.7) { Span::ZERO } else { Span::from_us(5) };
                    self.next_send = now + self.rng.exponential(gap);
                    if self.rng.chance(0.1) {
                        self.reports.push_back(now.as_ps());
                    }
                    self.anybody()
                }
                None => return,
            };
            let body = self.draw_body();
            let packet = outbox.lend(body, Purpose::Data).expect("there was room");
            self.fill(packet, dst);
        }
    }

    fn poll_timeout(&self) -> Time {
        let wants_later = self.unsent_packets > 0 && self.next_send > self.now;
        if wants_later { self.next_send } else { Time::NEVER }
    }
}

impl Reports for Chatter {
    type Event = u64;

    fn poll_event(&mut self) -> Option<u64> {
        self.reports.pop_front()
    }
}

/// A director that gives hosts more to send now and then, and replaces some that restart.
pub struct Crowd {
    rng: Rng,
    nodes: u32,
    next_wake: Time,
    events: Digest,
}

impl Crowd {
    fn new(nodes: u32, seed: u64) -> Crowd {
        let mut rng = Rng::new(seed).stream("crowd");
        let next_wake = Time::ZERO + draw_span(&mut rng, BUSY_TIME);
        Crowd { rng, nodes, next_wake, events: Digest::default() }
    }

    fn note(&mut self, now: Time, node: NodeId, what: u64) {
        [now.as_ps(), node.0.into(), what].into_iter().for_each(|value| self.events.add(value));
    }
}

impl Director<Chatter> for Crowd {
    fn next_wake(&mut self) -> Time {
        self.next_wake
    }

    fn handle_wake(&mut self, now: Time, hosts: &mut Hosts<'_, Chatter>) {
        self.note(now, NodeId(0), 1);
        for _ in 0..2 {
            let host = NodeId(self.rng.below(hosts.len() as u64) as u32);
            hosts.machine(host).unsent_packets += 5;
        }
        let is_over = now.since(Time::ZERO) > BUSY_TIME;
        let gap = self.rng.exponential(Span::from_us(20));
        self.next_wake = if is_over { Time::NEVER } else { now + gap };
    }

    fn handle_event(
        &mut self,
        now: Time,
        node: NodeId,
        event: u64,
        hosts: &mut Hosts<'_, Chatter>,
    ) {
        self.note(now, node, event);
        if node.index() < hosts.len() && self.rng.chance(0.2) {
            hosts.machine(node).owed.push_back(NodeId(0));
        }
    }

    fn handle_restart(&mut self, now: Time, host: NodeId, _old: &Chatter) -> Option<Chatter> {
        self.note(now, host, 2);
        let keeps_memory = self.rng.chance(0.3);
        (!keeps_memory).then(|| Chatter::new(host, self.nodes, 10, &self.rng))
    }
}

fn pick<T: Copy>(rng: &mut Rng, choices: &[T]) -> T {
    choices[rng.below(choices.len() as u64) as usize]
}

fn draw_span(rng: &mut Rng, below: Span) -> Span {
    Span::from_ps(rng.below(below.as_ps()))
}

fn draw_topology(rng: &mut Rng) -> Topology {
    let mut cable = || CableSpec {
        rate: pick(rng, &[Rate::from_gbps(10), Rate::from_gbps(25), Rate::from_gbps(7)]),
        delay: pick(rng, &[Span::ZERO, Span::from_ns(500), Span::from_us(3)]),
    };
    let (host_cable, trunk) = (cable(), cable());
    let core_cable = cable();
    let mut few = || 1 + rng.below(3) as u32;
    let (some, more, other) = (few(), few(), few());
    let built = match rng.below(5) {
        0 => return pair(host_cable),
        1 => OneSwitch { hosts: 1 + some * more, host_cable }.build(),
        2 => Dumbbell { hosts_per_side: some, host_cable, trunk }.build(),
        3 => {
            let (racks, hosts_per_rack, spines) = (some, 1 + more, other);
            let uplinks_per_spine = 1 + rng.below(2) as u32;
            let uplink = trunk;
            LeafSpine { racks, hosts_per_rack, spines, host_cable, uplink, uplinks_per_spine }
                .build()
        }
        _ => {
            let three_tier = ThreeTier {
                pods: 2,
                racks_per_pod: some,
                hosts_per_rack: more,
                aggregations_per_pod: 2,
                cores: 2,
                host_cable,
                aggregation_cable: trunk,
                core_cable,
            };
            three_tier.build()
        }
    };
    built.expect("valid by construction")
}

fn draw_config(rng: &mut Rng, topology: &Topology) -> Config {
    let threshold_bytes = rng.below(10_000);
    let marking = Marking { threshold_bytes, drop_unmarkable: rng.chance(0.5) };
    let disciplines = [
        Discipline::default(),
        Discipline::Fifo(marking),
        Discipline::strict_per_queue([marking; 8]),
        Discipline::strict_per_port(marking),
    ];
    let bytes = 3_000 + rng.below(60_000);
    let alpha = pick(rng, &[0.25, 1.0, 8.0]);
    Config {
        discipline: pick(rng, &disciplines),
        buffer: pick(rng, &[Buffer::PerPort { bytes }, Buffer::Shared { bytes, alpha }]),
        spread: pick(rng, &[Spread::PerFlow, Spread::PerPacket, Spread::Explicit]),
        faults: (0..rng.below(5)).map(|_| draw_rule(rng, topology)).collect(),
        outages: (0..rng.below(4)).map(|_| draw_outage(rng, topology)).collect(),
    }
}

fn draw_rule(rng: &mut Rng, topology: &Topology) -> Rule {
    let cables = topology.cables().len() as u64;
    let node = NodeId(rng.below(topology.nodes().into()) as u32);
    let places = [
        Place::Everywhere,
        Place::HostCables,
        Place::SwitchCables,
        Place::Cable(rng.below(cables) as u32),
        Place::Link(LinkId(rng.below(2 * cables) as u32)),
        Place::Into(node),
        Place::OutOf(node),
    ];
    let probability = rng.uniform() * 0.3;
    let effects = [
        Effect::Loss(probability),
        Effect::Bursts { begin: probability, end: 0.3 },
        Effect::Duplicate(probability),
        Effect::Reorder { probability, by: draw_span(rng, Span::from_us(20)) },
        Effect::Jitter(draw_span(rng, Span::from_us(10))),
        Effect::Down,
    ];
    let (from, until) = draw_window(rng);
    Rule { place: pick(rng, &places), effect: pick(rng, &effects), from, until }
}

fn draw_outage(rng: &mut Rng, topology: &Topology) -> Outage {
    let node = NodeId(rng.below(topology.nodes().into()) as u32);
    let (from, until) = draw_window(rng);
    Outage { node, from, until }
}

fn draw_window(rng: &mut Rng) -> (Time, Time) {
    let from = Time::ZERO + draw_span(rng, BUSY_TIME);
    (from, from + draw_span(rng, BUSY_TIME))
}
