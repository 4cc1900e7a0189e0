//! A network for tests: every node has one interface, which sends one packet at a time, and packets
//! take a while, get lost, come twice, or overtake each other. There may be a switch with strict
//! priorities along their path.
//!
//! The [shuttle](thalweg_core::testing::Shuttle) has neither rates nor delays, which congestion control is about. The
//! fabric has both, and no place where a test could look at single packets, drop some of them or make others up.

use std::collections::{BTreeMap, VecDeque};

pub use thalweg_core::testing::{OwnedBody, OwnedPacket as Owned, TestOutbox};
use thalweg_core::{Bytes, Checked, Ecn, Machine, NodeId, Rate, Reports, Rng, Span, Time, Verdict};
use thalweg_flow::{Config, Endpoint, Event, FlowId, FlowTagger, Message, Payload};
use thalweg_transport::Control;
use thalweg_transport::control::Delay;
use thalweg_wire::flow::{Ack, Data};

/// All controls that have a name, and a window by delay.
pub fn controls() -> Vec<Control> {
    let target = Span::from_us(50);
    let named = Control::NAMES.iter().filter_map(|name| Control::named(name));
    named.chain([Delay::to(target).into()]).map(|control| control.with_target(target)).collect()
}

/// One of the controls.
pub fn random_control(rng: &mut Rng) -> Control {
    let controls = controls();
    controls[rng.below(controls.len() as u64) as usize]
}

/// Faults of the network, each with a probability.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub loss: f64,
    pub duplication: f64,
    /// Arrives up to ten times as late.
    pub reordering: f64,
    pub mark: f64,
}

/// Decoders of packets of flows.
pub trait Read {
    fn data(&self) -> Option<Data>;
    fn ack(&self) -> Option<Ack>;
}

impl Read for Owned {
    fn data(&self) -> Option<Data> {
        Data::decode(&self.header).ok()
    }

    fn ack(&self) -> Option<Ack> {
        Ack::decode(&self.header).ok()
    }
}

/// Says whether a packet gets through, for losses that are not random.
pub type Filter = Box<dyn FnMut(Time, &Owned) -> bool>;

enum Happening {
    Arrival(Owned),
    Free(usize),
    AtSwitch(Owned),
    PortFree(usize),
}

/// The port of a switch that leads to a node.
#[derive(Default)]
struct Port {
    queues: [VecDeque<Owned>; 8],
    is_busy: bool,
}

pub struct Network {
    /// Checked after every input.
    pub nodes: Vec<Checked<Endpoint>>,
    pub now: Time,
    pub faults: Faults,
    pub delay: Span,
    pub rate: Rate,
    pub filter: Filter,
    pub events: Vec<(NodeId, Event)>,
    /// Everything that was put on the wire.
    pub sent_packets: u64,
    /// The rate of a switch's ports, if there is a switch.
    pub switch: Option<Rate>,
    /// Packets that wait between a node and its interface, at most, as in the send buffer of a socket.
    pub send_buffer_packets: usize,
    send_buffers: Vec<VecDeque<Owned>>,
    ports: Vec<Port>,
    free_at: Vec<Time>,
    agenda: BTreeMap<(Time, u64), Happening>,
    count: u64,
    rng: Rng,
}

impl Network {
    pub fn new(nodes: usize, config: &Config, seed: u64) -> Network {
        let endpoint = |node| {
            let seed = Rng::new(seed).substream("node", node).bits();
            let config = Config { seed, ..config.clone() };
            Checked::new(Endpoint::new(config).expect("the test's settings work"))
        };
        Network {
            nodes: (0..nodes as u64).map(endpoint).collect(),
            now: Time::ZERO,
            faults: Faults::default(),
            delay: Span::from_us(5),
            rate: Rate::from_gbps(10),
            filter: Box::new(|_, _| true),
            events: Vec::new(),
            sent_packets: 0,
            switch: None,
            send_buffer_packets: 1,
            send_buffers: (0..nodes).map(|_| VecDeque::new()).collect(),
            ports: (0..nodes).map(|_| Port::default()).collect(),
            free_at: vec![Time::ZERO; nodes],
            agenda: BTreeMap::new(),
            count: 0,
            rng: Rng::new(seed).stream("network"),
        }
    }

    pub fn start(&mut self, src: usize, dst: usize, body: Payload) -> FlowId {
        self.start_tagged(src, dst, body, FlowTagger::default())
    }

    pub fn start_tagged(
        &mut self,
        src: usize,
        dst: usize,
        body: Payload,
        tagger: FlowTagger,
    ) -> FlowId {
        let message = Message { dst: NodeId(dst as u32), body, tagger, entropy: 0x1234 };
        let flow = self.nodes[src].start(self.now, message).expect("short enough");
        self.drain(src);
        flow
    }

    /// Starts a message whose number the test chooses.
    pub fn start_numbered(&mut self, src: usize, dst: usize, number: u64, body: Payload) -> FlowId {
        let dst = NodeId(dst as u32);
        let message = Message { dst, body, tagger: FlowTagger::default(), entropy: 0x1234 };
        let started = self.nodes[src].start_numbered(self.now, number, message);
        self.drain(src);
        started.expect("short enough")
    }

    /// Goes on to the next thing that happens. Returns whether there was one.
    pub fn advance(&mut self) -> bool {
        let Some(at) = self.next() else { return false };
        self.step(at);
        true
    }

    /// Keeps a node's interface busy.
    pub fn block(&mut self, node: usize, span: Span) {
        self.free_at[node] = self.now + span;
        self.schedule(self.free_at[node], Happening::Free(node));
    }

    /// Runs until nothing happens any more, or panics after a time that nothing should take.
    pub fn run(&mut self, until: Time) {
        while let Some(at) = self.next() {
            assert!(at <= until, "still busy at {until:?}");
            self.step(at);
        }
    }

    /// Runs up to a moment.
    pub fn run_until(&mut self, until: Time) {
        while let Some(at) = self.next().filter(|&at| at <= until) {
            self.step(at);
        }
        self.now = until;
    }

    /// Number of packets that wait for a port of the switch.
    pub fn queued_packets(&self, port: usize) -> usize {
        self.ports[port].queues.iter().map(VecDeque::len).sum()
    }

    fn next(&self) -> Option<Time> {
        let timeout = self.nodes.iter().map(Machine::poll_timeout).min();
        let happening = self.agenda.keys().next().map(|&(at, _)| at);
        let next = timeout.into_iter().chain(happening).min();
        next.filter(|&at| at != Time::NEVER)
    }

    fn step(&mut self, at: Time) {
        self.now = self.now.max(at);
        if let Some(entry) = self.agenda.first_entry().filter(|entry| entry.key().0 <= self.now) {
            match entry.remove() {
                Happening::Arrival(packet) => self.arrive(packet),
                Happening::Free(node) => self.drain(node),
                Happening::AtSwitch(packet) => {
                    let port = packet.meta.dst.index();
                    let priority = usize::from(packet.meta.dscp.priority());
                    self.ports[port].queues[priority].push_back(packet);
                    self.serve(port);
                }
                Happening::PortFree(port) => {
                    self.ports[port].is_busy = false;
                    self.serve(port);
                }
            }
            return;
        }
        for node in 0..self.nodes.len() {
            if self.nodes[node].poll_timeout() <= self.now {
                self.nodes[node].handle_timeout(self.now);
                self.drain(node);
            }
        }
    }

    /// Hands a packet to its destination.
    pub fn arrive(&mut self, mut packet: Owned) {
        let node = packet.meta.dst.index();
        let verdict = self.nodes[node].handle_packet(self.now, packet.lend());
        assert_eq!(verdict, Verdict::Consume);
        self.drain(node);
    }

    fn drain(&mut self, node: usize) {
        let is_free = self.free_at[node] <= self.now;
        // An interface that is free takes a packet at once.
        let room = self.send_buffer_packets - usize::from(!is_free) - self.send_buffers[node].len();
        let mut tray = TestOutbox::with_room(NodeId(node as u32), room);
        self.nodes[node].poll_transmit(self.now, &mut tray);
        self.send_buffers[node].extend(tray.packets);
        if is_free && let Some(packet) = self.send_buffers[node].pop_front() {
            self.transmit(node, packet);
        }
        while let Some(event) = self.nodes[node].poll_event() {
            self.events.push((NodeId(node as u32), event));
        }
    }

    fn transmit(&mut self, node: usize, packet: Owned) {
        let wire_bytes = Bytes::from(packet.meta.wire_bytes);
        self.free_at[node] = self.now + self.rate.serialization(wire_bytes);
        self.sent_packets += 1;
        self.schedule(self.free_at[node], Happening::Free(node));
        let copies = 1 + u32::from(self.rng.chance(self.faults.duplication));
        for _ in 0..copies {
            self.fly(node, packet.clone());
        }
    }

    fn fly(&mut self, node: usize, mut packet: Owned) {
        if !(self.filter)(self.now, &packet) || self.rng.chance(self.faults.loss) {
            return;
        }
        if packet.meta.ecn == Ecn::Capable && self.rng.chance(self.faults.mark) {
            packet.meta.ecn = Ecn::Congested;
        }
        let late = self.rng.chance(self.faults.reordering);
        let factor = if late { 1 + self.rng.below(10) } else { 1 };
        let there = match self.switch {
            None => Happening::Arrival(packet),
            Some(_) => Happening::AtSwitch(packet),
        };
        self.schedule(self.free_at[node] + self.delay * factor, there);
    }

    /// Sends the most urgent packet of a switch's port, if it is free.
    fn serve(&mut self, port: usize) {
        let Some(rate) = self.switch.filter(|_| !self.ports[port].is_busy) else { return };
        let packet = self.ports[port].queues.iter_mut().find_map(VecDeque::pop_front);
        let Some(packet) = packet else { return };
        let free_at = self.now + rate.serialization(Bytes::from(packet.meta.wire_bytes));
        self.ports[port].is_busy = true;
        self.schedule(free_at, Happening::PortFree(port));
        self.schedule(free_at + self.delay, Happening::Arrival(packet));
    }

    fn schedule(&mut self, at: Time, happening: Happening) {
        self.agenda.insert((at, self.count), happening);
        self.count += 1;
    }
}

/// Bytes that differ from message to message and from place to place.
pub fn random_bytes(rng: &mut Rng, length: u64) -> Box<[u8]> {
    (0..length).map(|_| rng.bits() as u8).collect()
}
