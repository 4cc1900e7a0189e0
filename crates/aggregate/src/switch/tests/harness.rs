//! Packets that own their memory, and switches that are wired by their groups.

use std::collections::{BTreeMap, VecDeque};

use thalweg_core::testing::OwnedPacket;
pub(super) use thalweg_core::testing::{OwnedBody as Content, TestOutbox};
use thalweg_core::{
    Body, Checked, Ecn, HEADER_BYTES, Header, JobId, Machine, Meta, NodeId, Packet, Span, Time,
    Verdict,
};
use thalweg_wire::aggregate::{
    Announcement, Branch, Gradient, Identity, Numbers, Parameter, Scale, StationBytes,
};

use crate::switch::{Config, Switch};
use crate::tree::Group;

pub(super) const ME: NodeId = NodeId(100);
pub(super) const PARENT: NodeId = NodeId(101);
pub(super) const SERVER: NodeId = NodeId(102);
pub(super) const OVERHEAD: u32 = 130;

/// A packet that owns its body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Sent {
    pub(super) meta: Meta,
    pub(super) header: Header,
    pub(super) body: Content,
}

impl From<OwnedPacket> for Sent {
    fn from(OwnedPacket { meta, header, body, .. }: OwnedPacket) -> Sent {
        Sent { meta, header, body }
    }
}

/// A [`Verdict`] that owns its nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    Consumed,
    Forwarded,
    Multicast(Vec<NodeId>),
}

impl Sent {
    pub(super) fn gradient(dst: NodeId, gradient: &Gradient, values: &[i32]) -> Sent {
        let body = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Sent { header: gradient.to_header(), ..Sent::new(dst, Content::Bytes(body)) }
    }

    /// A packet for the switch that has no body.
    pub(super) fn bare(header: Header) -> Sent {
        Sent { header, ..Sent::new(ME, Content::Length(0)) }
    }

    pub(super) fn new(dst: NodeId, body: Content) -> Sent {
        let bytes = match &body {
            Content::Length(bytes) => *bytes,
            Content::Bytes(bytes) => bytes.len() as u32,
        };
        let wire_bytes = bytes + OVERHEAD;
        let meta = Meta { dst, wire_bytes, ecn: Ecn::Capable, ..Meta::default() };
        Sent { meta, header: [0; HEADER_BYTES], body }
    }

    pub(super) fn lend(&mut self) -> Packet<'_> {
        let body = match &mut self.body {
            Content::Length(bytes) => Body::Length(*bytes),
            Content::Bytes(bytes) => Body::Bytes(bytes),
        };
        Packet { meta: &mut self.meta, header: &mut self.header, body }
    }

    pub(super) fn read(&self) -> Gradient {
        Gradient::decode(&self.header).unwrap()
    }

    pub(super) fn values(&self) -> Vec<i32> {
        let Content::Bytes(bytes) = &self.body else { panic!("only a length") };
        bytes.as_chunks().0.iter().map(|value| i32::from_le_bytes(*value)).collect()
    }
}

/// Fragment 500 of worker 0 of two, below one of two switches that are below the last.
pub(super) fn gradient(worker: u8) -> Gradient {
    let identity = Identity { job: JobId(7), epoch: 3, sequence: 500, attempt: 0, operation: 70 };
    let numbers = Numbers::Fixed(Scale::new(1e8).unwrap());
    let branch = branch_of(2.max(worker + 1), worker);
    Gradient { watermark_distance: 10, ..Gradient::fresh(identity, 5, numbers, SERVER, branch) }
}

/// Branch below the second of two switches, as one of `fan_in`.
pub(super) fn branch_of(fan_in: u8, worker: u8) -> Branch {
    Branch::new([fan_in, 2, 0, 0], [worker, 1, 0, 0]).unwrap()
}

/// The gradient of one of three workers.
pub(super) fn of_three(worker: u8) -> Gradient {
    Gradient { branch: branch_of(3, worker), ..gradient(worker) }
}

pub(super) fn parameter(gradient: &Gradient) -> Sent {
    let Gradient { identity, aggregator, numbers, server, .. } = *gradient;
    let header = Parameter::sum(identity, aggregator, numbers, server, 4).to_header();
    Sent { header, ..Sent::new(ME, Content::Length(8)) }
}

/// A switch, checked after every input, and the time.
pub(super) struct Bench {
    pub(super) switch: Checked<Switch>,
    pub(super) now: Time,
}

impl Bench {
    /// A switch that knows no group.
    pub(super) fn new() -> Bench {
        Bench::with(|_| {})
    }

    pub(super) fn with(change: impl FnOnce(&mut Config)) -> Bench {
        let mut config = Config { aggregators: 16, values_max: 4, ..Config::new(ME) };
        change(&mut config);
        let switch = Checked::new(Switch::new(config).unwrap());
        Bench { switch, now: Time::ZERO + Span::from_ms(1) }
    }

    /// A switch that knows the group of [`gradient`].
    pub(super) fn knowing() -> Bench {
        let mut bench = Bench::new();
        let announcement = Announcement {
            job: JobId(7),
            epoch: 3,
            server: SERVER,
            parent: PARENT,
            level: 0,
            stations: 1,
            switches: [0; 4],
        };
        let station = StationBytes::new([0, 1, 0, 0], &[NodeId(1), NodeId(2)]);
        assert_eq!(bench.announce(&announcement, &[station]), Fate::Consumed);
        bench
    }

    pub(super) fn announce(&mut self, what: &Announcement, stations: &[StationBytes]) -> Fate {
        self.handle(&mut announcement(ME, what, stations))
    }

    pub(super) fn handle(&mut self, sent: &mut Sent) -> Fate {
        handle(&mut self.switch, self.now, sent)
    }

    /// Handles a gradient with these values.
    pub(super) fn send(&mut self, gradient: &Gradient, values: &[i32]) -> (Fate, Sent) {
        let mut sent = Sent::gradient(ME, gradient, values);
        let fate = self.handle(&mut sent);
        (fate, sent)
    }

    pub(super) fn transmit(&mut self) -> Vec<Sent> {
        let mut outbox = TestOutbox::new(ME);
        self.switch.poll_transmit(self.now, &mut outbox);
        outbox.packets.into_iter().map(Sent::from).collect()
    }
}

/// Tells a switch that it is the first level of job 1, for all racks, and the second of job 2.
pub(super) fn announce_both(bench: &mut Bench, racks: u8, workers: u8) {
    let nodes = |count: u8| (0..u32::from(count)).map(NodeId).collect::<Vec<_>>();
    let rack = |rack| StationBytes::new([0, rack, 0, 0], &nodes(workers));
    let first: Vec<StationBytes> = (0..racks).map(rack).collect();
    let second = [StationBytes::new([0; 4], &nodes(racks))];
    let announced: [(u64, u8, &[StationBytes]); 2] = [(1, 0, &first), (2, 1, &second)];
    for (job, level, stations) in announced {
        let what = Announcement {
            job: JobId(job),
            epoch: 2,
            server: SERVER,
            parent: PARENT,
            level,
            stations: stations.len() as u8,
            switches: [0; 4],
        };
        bench.announce(&what, stations);
    }
}

pub(super) fn handle(switch: &mut Checked<Switch>, now: Time, sent: &mut Sent) -> Fate {
    match switch.handle_packet(now, sent.lend()) {
        Verdict::Consume => Fate::Consumed,
        Verdict::Forward => Fate::Forwarded,
        Verdict::Multicast(nodes) => Fate::Multicast(nodes.to_vec()),
    }
}

pub(super) fn announcement(dst: NodeId, what: &Announcement, stations: &[StationBytes]) -> Sent {
    let body = stations.iter().flat_map(zerocopy_bytes).collect();
    let mut sent = Sent::new(dst, Content::Bytes(body));
    what.encode(&mut sent.header);
    sent
}

/// A station's bytes, as they are drawn in the description of the headers.
fn zerocopy_bytes(station: &StationBytes) -> Vec<u8> {
    let mut bytes = station.places.to_vec();
    bytes.extend(station.count.get().to_le_bytes());
    bytes.extend(station.children.iter().flat_map(|child| child.get().to_le_bytes()));
    bytes
}

/// Switches that pass packets to each other without delay or loss.
pub(super) struct Net {
    pub(super) switches: BTreeMap<NodeId, Checked<Switch>>,
    pub(super) now: Time,
    under_way: VecDeque<Sent>,
    /// Packets that came out at hosts.
    pub(super) arrived: Vec<Sent>,
}

impl Net {
    pub(super) fn new(groups: &[Group], job: JobId, epoch: u32, server: NodeId) -> Net {
        let mut net = Net {
            switches: BTreeMap::new(),
            now: Time::ZERO,
            under_way: VecDeque::new(),
            arrived: Vec::new(),
        };
        for group in groups {
            let config = Config { aggregators: 1_024, values_max: 4, ..Config::new(group.switch) };
            net.switches.insert(group.switch, Checked::new(Switch::new(config).unwrap()));
            let Group { parent, level, ref stations, .. } = *group;
            let stations: Vec<StationBytes> = stations
                .iter()
                .map(|station| StationBytes::new(station.upper_places, &station.children))
                .collect();
            let count = stations.len() as u8;
            let switches = [0; 4];
            let what =
                Announcement { job, epoch, server, parent, level, stations: count, switches };
            net.send(announcement(group.switch, &what, &stations));
        }
        net
    }

    /// Carries a packet and all that follow from it to where they go.
    pub(super) fn send(&mut self, sent: Sent) {
        self.under_way.push_back(sent);
        while let Some(mut sent) = self.under_way.pop_front() {
            let Some(switch) = self.switches.get_mut(&sent.meta.dst) else {
                self.arrived.push(sent);
                continue;
            };
            match handle(switch, self.now, &mut sent) {
                Fate::Consumed => {}
                Fate::Forwarded => self.under_way.push_back(sent),
                Fate::Multicast(nodes) => {
                    for dst in nodes {
                        let mut copy = sent.clone();
                        copy.meta.dst = dst;
                        self.under_way.push_back(copy);
                    }
                }
            }
            let mut outbox = TestOutbox::new(ME);
            switch.poll_transmit(self.now, &mut outbox);
            self.under_way.extend(outbox.packets.into_iter().map(Sent::from));
        }
    }

    pub(super) fn occupied(&self) -> u32 {
        self.switches.values().map(|switch| switch.occupied()).sum()
    }
}
