//! Machines alone: workers, a switch and a server, with packets passed by hand in a queue.
//!
//! The [shuttle](thalweg_core::testing::Shuttle) runs machines of one type that keep every packet; here are three types,
//! and a switch that forwards packets and multicasts them.
#![allow(dead_code, reason = "each test program uses its part")]

use std::collections::VecDeque;
use std::sync::Arc;

use thalweg_aggregate::{
    JobParameters, Member, Numeric, Server, Setup, Switch, Tree, Worker, server, switch, worker,
};
use thalweg_core::testing::{OwnedBody, OwnedPacket, TestOutbox};
use thalweg_core::{
    Body, HEADER_BYTES, Header, JobId, Machine, Meta, NodeId, Packet, Rng, Span, Time, Verdict,
};
use thalweg_wire::tag::{Key, Secret};

/// Secret that the switch and the server share.
pub const SECRET: Secret = Secret([7; 16]);
pub const SERVER: NodeId = NodeId(100);
pub const SWITCH: NodeId = NodeId(101);

/// Between two packets.
const STEP: Span = Span::from_ns(200);

/// The node of a worker.
pub fn node(rank: u32) -> NodeId {
    NodeId(1 + rank)
}

/// Set-up that the workers of a job agree on: all of them below one switch.
pub fn setup(job: JobId, nodes: &[NodeId], numeric: Numeric, fragment_values: u16) -> Arc<Setup> {
    let member = |node: &NodeId| Member { node: *node, path: vec![SWITCH] };
    let members: Vec<Member> = nodes.iter().map(member).collect();
    let parameters = JobParameters {
        fragment_values,
        numeric,
        aggregators: AGGREGATORS,
        span_fragments: 512,
        ..JobParameters::default()
    };
    Arc::new(Setup {
        job,
        epoch: 1,
        trees: vec![Arc::new(Tree::build(SERVER, &members).expect("a tree"))],
        parameters: parameters.check().expect("valid"),
        resume_from: 0,
    })
}

/// Number of aggregators of the switch.
pub const AGGREGATORS: u32 = 1_024;

/// A packet that outlives its driver's memory. Its body is always bytes, for attackers to change.
#[derive(Clone, Debug)]
pub struct Owned {
    pub meta: Meta,
    pub header: Header,
    pub body: Vec<u8>,
}

impl Owned {
    /// To a node, with nothing in it.
    pub fn to(dst: NodeId) -> Owned {
        let meta = Meta { dst, wire_bytes: 200, ..Meta::default() };
        Owned { meta, header: [0; HEADER_BYTES], body: Vec::new() }
    }
}

impl From<OwnedPacket> for Owned {
    fn from(packet: OwnedPacket) -> Owned {
        assert!(!matches!(packet.body, OwnedBody::Length(1..)), "tensors have values here");
        Owned { meta: packet.meta, header: packet.header, body: packet.bytes().to_vec() }
    }
}

/// Faults that happen to packets between machines, each with its probability.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub loss: f64,
    pub copies: f64,
    pub overtaking: f64,
}

/// The machines of one rack, and the packets in flight between them.
pub struct Table {
    pub now: Time,
    pub switch: Switch,
    pub server: Server,
    pub workers: Vec<Worker>,
    pub faults: Faults,
    rng: Rng,
    /// Packets in flight.
    wire: VecDeque<Owned>,
}

impl Table {
    /// A job's workers with their set-up, and nothing to do.
    pub fn new(setup: &Arc<Setup>) -> Table {
        let config = server::Config { secrets: Some(SECRET.into()), ..server::Config::new(SERVER) };
        let mut server = Server::new(config).expect("the settings are right");
        server.adopt(Time::ZERO, Arc::clone(setup));
        let key = Key::derive(&SECRET, setup.job, setup.epoch);
        let worker = |rank| {
            let mut worker = Worker::new(worker::Config::default()).expect("the defaults work");
            worker.set_key(Some(key));
            assert!(worker.adopt(Time::ZERO, Arc::clone(setup), rank));
            worker
        };
        Table {
            now: Time::ZERO,
            switch: fresh_switch(),
            server,
            workers: (0..setup.trees[0].workers()).map(worker).collect(),
            faults: Faults::default(),
            rng: Rng::new(1),
            wire: VecDeque::new(),
        }
    }

    /// The switch starts again, and remembers nothing.
    pub fn restart_switch(&mut self) {
        self.switch = fresh_switch();
    }

    /// Passes on one packet, or lets time pass until somebody wants it. Whether there was anything.
    pub fn step(&mut self) -> bool {
        self.wake();
        self.collect();
        if let Some(packet) = self.wire.pop_front() {
            self.now += STEP;
            self.pass(packet);
            return true;
        }
        let next = self.next_timeout();
        self.now = self.now.max(next);
        next != Time::NEVER
    }

    /// Hands a packet to the machine that it is for, whichever machine sent it.
    pub fn deliver(&mut self, mut packet: Owned) {
        let dst = packet.meta.dst;
        let lent = Packet {
            meta: &mut packet.meta,
            header: &mut packet.header,
            body: Body::Bytes(&mut packet.body),
        };
        let verdict = match dst {
            SWITCH => self.switch.handle_packet(self.now, lent),
            SERVER => self.server.handle_packet(self.now, lent),
            NodeId(other) => match self.workers.get_mut((other as usize).wrapping_sub(1)) {
                Some(worker) => worker.handle_packet(self.now, lent),
                None => return,
            },
        };
        match verdict {
            Verdict::Consume => {}
            Verdict::Forward => self.wire.push_back(packet),
            Verdict::Multicast(nodes) => {
                let copy = |node: &NodeId| {
                    let mut copy = packet.clone();
                    copy.meta.dst = *node;
                    copy
                };
                self.wire.extend(nodes.iter().map(copy));
            }
        }
        self.collect();
    }

    /// The packet in flight that arrives next, for a test that listens.
    pub fn on_the_way(&self) -> Option<&Owned> {
        self.wire.front()
    }

    /// Number of packets in flight.
    pub fn queued(&self) -> usize {
        self.wire.len()
    }

    fn pass(&mut self, packet: Owned) {
        let Faults { loss, copies, overtaking } = self.faults;
        if self.rng.chance(loss) {
            return;
        }
        if self.rng.chance(overtaking) {
            return self.wire.push_back(packet);
        }
        if self.rng.chance(copies) {
            self.wire.push_back(packet.clone());
        }
        self.deliver(packet);
    }

    /// Takes what everybody wants to send.
    fn collect(&mut self) {
        let Table { now, switch, server, workers, wire, .. } = self;
        let mut send = |src: NodeId, machine: &mut dyn Machine| {
            let mut outbox = TestOutbox::new(src);
            machine.poll_transmit(*now, &mut outbox);
            wire.extend(outbox.packets.into_iter().map(Owned::from));
        };
        send(SWITCH, switch);
        send(SERVER, server);
        (0..).zip(workers).for_each(|(rank, worker)| send(node(rank), worker));
    }

    /// Tells everybody whose time has come.
    fn wake(&mut self) {
        if self.switch.poll_timeout() <= self.now {
            self.switch.handle_timeout(self.now);
        }
        for worker in &mut self.workers {
            if worker.poll_timeout() <= self.now {
                worker.handle_timeout(self.now);
            }
        }
    }

    fn next_timeout(&self) -> Time {
        let workers = self.workers.iter().map(Machine::poll_timeout);
        workers.fold(self.switch.poll_timeout(), Time::min)
    }
}

fn fresh_switch() -> Switch {
    let config = switch::Config {
        aggregators: AGGREGATORS,
        secrets: Some(SECRET.into()),
        holds_to_share: true,
        ..switch::Config::new(SWITCH)
    };
    Switch::new(config).expect("the settings are right")
}
