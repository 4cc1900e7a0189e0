//! Machines, shapes and runs that the tests share.
#![allow(dead_code, reason = "every test file uses its own part of this")]

pub mod scene;

use std::collections::VecDeque;

use thalweg_core::{
    BodySize, Bytes, Dscp, Ecn, Header, Machine, NodeId, Outbox, Packet, Purpose, Rate, Reports,
    Span, Time, Verdict,
};
use thalweg_fabric::topology::{Cable, CableSpec, LeafSpine, OneSwitch, ThreeTier};
use thalweg_fabric::{
    Bystander, Config, Director, Effect, Fabric, Limit, LinkId, Pause, Place, Rule, Topology,
};

/// One packet of a plan.
#[derive(Clone, Copy, Debug)]
pub struct Shot {
    /// Not before this moment.
    pub at: Time,
    pub dst: NodeId,
    pub bytes: u32,
    pub priority: u8,
    pub ecn: Ecn,
    pub entropy: u16,
}

impl Shot {
    /// A full-sized packet of the least urgent class, as soon as the interface is free.
    pub fn to(dst: NodeId) -> Shot {
        Shot { at: Time::ZERO, dst, bytes: 1_500, priority: 7, ecn: Ecn::Capable, entropy: 0 }
    }
}

/// A packet as its receiver saw it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    pub at: Time,
    pub src: NodeId,
    /// Position in the sender's plan.
    pub number: u64,
    pub sent: Time,
    pub bytes: u32,
    pub ecn: Ecn,
}

/// Sends by a plan, keeps what arrives, and reports the number of each arrival. Serves as a host
/// and, where packets have to enter a switch's queue at exact times, as a program.
#[derive(Debug, Default)]
pub struct Probe {
    plan: VecDeque<Shot>,
    now: Time,
    sent_packets: u64,
    unreported: VecDeque<u64>,
    pub arrivals: Vec<Arrival>,
}

impl Probe {
    /// Sends `plan`, which is in order of time.
    pub fn new(plan: impl IntoIterator<Item = Shot>) -> Probe {
        Probe { plan: plan.into_iter().collect(), ..Probe::default() }
    }

    /// Sends one more, after what it already has to send.
    pub fn send(&mut self, shot: Shot) {
        self.plan.push_back(shot);
    }

    /// The numbers of what arrived, in order.
    pub fn numbers(&self) -> Vec<u64> {
        self.arrivals.iter().map(|arrival| arrival.number).collect()
    }
}

impl Machine for Probe {
    fn handle_packet(&mut self, now: Time, packet: Packet<'_>) -> Verdict<'_> {
        let (number, sent) = read_stamp(packet.header);
        self.now = now;
        self.unreported.push_back(number);
        self.arrivals.push(Arrival {
            at: now,
            src: packet.meta.src,
            number,
            sent,
            bytes: packet.meta.wire_bytes,
            ecn: packet.meta.ecn,
        });
        Verdict::Consume
    }

    fn handle_timeout(&mut self, now: Time) {
        self.now = now;
    }

    fn poll_transmit(&mut self, now: Time, outbox: &mut dyn Outbox) {
        self.now = now;
        while let Some(shot) = self.plan.front().filter(|shot| shot.at <= now) {
            let Some(packet) = outbox.lend(BodySize::Length(0), Purpose::Data) else { return };
            stamp(packet.header, self.sent_packets, now);
            packet.meta.dst = shot.dst;
            packet.meta.wire_bytes = shot.bytes;
            packet.meta.dscp = Dscp::of_priority(shot.priority);
            packet.meta.ecn = shot.ecn;
            packet.meta.entropy = shot.entropy;
            self.sent_packets += 1;
            self.plan.pop_front();
        }
    }

    /// Time of the next planned shot; an overdue one waits for room, not for a timer.
    fn poll_timeout(&self) -> Time {
        let later = self.plan.front().filter(|shot| shot.at > self.now);
        later.map_or(Time::NEVER, |shot| shot.at)
    }
}

impl Reports for Probe {
    type Event = u64;

    fn poll_event(&mut self) -> Option<u64> {
        self.unreported.pop_front()
    }
}

/// Writes number and moment of sending into a header.
pub fn stamp(header: &mut Header, number: u64, sent: Time) {
    header[..8].copy_from_slice(&number.to_le_bytes());
    header[8..16].copy_from_slice(&sent.as_ps().to_le_bytes());
}

/// Reads what [`stamp`] wrote.
pub fn read_stamp(header: &Header) -> (u64, Time) {
    let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("8 bytes"));
    (word(0), Time::from_ps(word(8)))
}

/// 10 Gbps and half a microsecond: a full-sized packet takes 1.2 µs to send.
pub const TEN_GBPS: CableSpec = CableSpec { rate: Rate::from_gbps(10), delay: Span::from_ns(500) };

/// Hosts around one switch, whose number is that of the hosts.
pub fn star(hosts: u32) -> Topology {
    OneSwitch { hosts, host_cable: TEN_GBPS }.build().expect("valid")
}

/// Two hosts on one cable.
pub fn pair(spec: CableSpec) -> Topology {
    let CableSpec { rate, delay } = spec;
    Topology::new(2, 0, vec![Cable { a: NodeId(0), b: NodeId(1), rate, delay }]).expect("valid")
}

/// Two racks of `hosts_per_rack` under `spines`.
pub fn leaf_spine(hosts_per_rack: u32, spines: u32, spec: CableSpec) -> Topology {
    let shape = LeafSpine {
        racks: 2,
        hosts_per_rack,
        spines,
        host_cable: spec,
        uplink: spec,
        uplinks_per_spine: 1,
    };
    shape.build().expect("valid")
}

/// Two pods with two racks of one host each.
pub fn three_tier(spec: CableSpec) -> Topology {
    let shape = ThreeTier {
        pods: 2,
        racks_per_pod: 2,
        hosts_per_rack: 1,
        aggregations_per_pod: 2,
        cores: 2,
        host_cable: spec,
        aggregation_cable: spec,
        core_cable: spec,
    };
    shape.build().expect("valid")
}

/// The link between two neighbours.
pub fn link(topology: &Topology, from: u32, to: u32) -> LinkId {
    let links = topology.links();
    let ends = (NodeId(from), NodeId(to));
    links.into_iter().find(|&link| topology.link_ends(link) == ends).expect("neighbours")
}

/// Time that a packet occupies a link, worked out apart from the code under test.
pub fn serialization(bytes: u32, rate: Rate) -> Span {
    let ps = (u128::from(bytes) * 8_000_000_000_000).div_ceil(u128::from(rate.as_bps()));
    Span::from_ps(u64::try_from(ps).expect("short"))
}

/// A rule that always holds.
pub fn always(place: Place, effect: Effect) -> Rule {
    Rule { place, effect, from: Time::ZERO, until: Time::NEVER }
}

/// A moment in microseconds.
pub fn us(us: u64) -> Time {
    Time::ZERO + Span::from_us(us)
}

/// Runs until nothing is pending; everything must then be accounted for.
pub fn finish<M: Reports>(fabric: &mut Fabric<M>, director: &mut impl Director<M>) {
    // Enough for the longest test. A run that goes on for ever is to fail, not to hang.
    let limit = Limit { until: Time::NEVER, events: 20_000_000 };
    assert_eq!(fabric.run(director, limit), Pause::Quiet);
    check_drained(fabric);
}

/// Every packet that was made has ended.
pub fn check_drained<M: Reports>(fabric: &Fabric<M>) {
    fabric.check().expect("the laws of the simulator hold");
    let stats = fabric.stats();
    assert_eq!(
        stats.created_packets + stats.copied_packets,
        stats.consumed_packets + stats.dropped(),
        "{stats:?}"
    );
}

/// Runs probes that send `count` packets from host 0 to the last host, to the end.
pub fn run_train(topology: &Topology, config: &Config, count: u64) -> Fabric<Probe> {
    let last = NodeId(topology.hosts() - 1);
    let shots = (0..count).map(|number| Shot { entropy: number as u16, ..Shot::to(last) });
    run_plan(topology, config, shots)
}

/// Runs probes of which host 0 sends `plan`, to the end.
pub fn run_plan(
    topology: &Topology,
    config: &Config,
    plan: impl IntoIterator<Item = Shot>,
) -> Fabric<Probe> {
    let mut sender = Some(Probe::new(plan));
    let mut fabric = Fabric::new(topology.clone(), config, 7, |host| match host {
        NodeId(0) => sender.take().expect("one host 0"),
        _ => Probe::default(),
    });
    finish(&mut fabric, &mut Bystander);
    fabric
}

/// The probe at the last host of a train.
pub fn last_host(fabric: &Fabric<Probe>) -> &Probe {
    fabric.machine(NodeId(fabric.topology().hosts() - 1))
}

/// Bytes as a number of full-sized packets.
pub const fn packets(count: u64) -> Bytes {
    Bytes::new(1_500 * count)
}
