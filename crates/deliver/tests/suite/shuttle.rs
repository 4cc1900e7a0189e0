//! Endpoints by hand: packets in vectors, which a test may look at, keep back, change and repeat.
//!
//! The [shuttle](thalweg_core::testing::Shuttle) draws what becomes of a packet; here a test decides it for each one.

use thalweg_core::testing::TestOutbox;
use thalweg_core::{Checked, Machine, NodeId, Operation, Rng, Span, Time, Verdict};
use thalweg_deliver::{Completion, Config, Endpoint, LossBound, Lost, Name, ReceiveCall};
use thalweg_values::Tensor;
use thalweg_wire::deliver::{Control, Data, Verb};

pub use thalweg_core::testing::OwnedPacket as Owned;

/// Decoders of packets of deliveries.
pub trait Read {
    fn data(&self) -> Option<Data>;
    fn verb(&self) -> Option<Verb>;
}

impl Read for Owned {
    fn data(&self) -> Option<Data> {
        Data::decode(&self.header).ok()
    }

    fn verb(&self) -> Option<Verb> {
        Control::decode(&self.header).ok().map(|control| control.verb)
    }
}

/// Two nodes, 0 and 1, checked after every input, and the time.
pub struct Pair {
    pub nodes: [Checked<Endpoint>; 2],
    pub now: Time,
}

impl Pair {
    pub fn new(config: &Config) -> Pair {
        let endpoint = |seed| {
            let endpoint = Endpoint::new(config.clone(), Rng::new(seed));
            Checked::new(endpoint.expect("the settings work"))
        };
        Pair { nodes: [endpoint(1), endpoint(2)], now: Time::ZERO + Span::from_s(1) }
    }

    /// Packets that a node sends now, at most `room`.
    pub fn sends(&mut self, node: usize, room: usize) -> Vec<Owned> {
        let mut outbox = TestOutbox::with_room(NodeId(node as u32), room);
        self.nodes[node].poll_transmit(self.now, &mut outbox);
        outbox.take()
    }

    pub fn hand(&mut self, node: usize, packets: impl IntoIterator<Item = Owned>) {
        for mut packet in packets {
            let verdict = self.nodes[node].handle_packet(self.now, packet.lend());
            assert_eq!(verdict, Verdict::Consume);
        }
    }

    /// Lets time pass, and both do what is due.
    pub fn wait(&mut self, span: Span) {
        let until = self.now + span;
        while let Some(at) = self.nodes.iter().map(Machine::poll_timeout).min()
            && at <= until
        {
            self.now = self.now.max(at);
            let due = |node: &&mut Checked<Endpoint>| node.poll_timeout() <= at;
            self.nodes.iter_mut().filter(due).for_each(|node| node.handle_timeout(self.now));
        }
        self.now = until;
    }

    /// Lets both talk until nobody has anything to say, but for packets that `keeps_back` takes away.
    pub fn talk(&mut self, mut keeps_back: impl FnMut(&Owned) -> bool) {
        for _ in 0..100_000 {
            self.wait(Span::from_us(10));
            let mut packets = self.sends(0, 64);
            packets.append(&mut self.sends(1, 64));
            let is_silent = packets.is_empty();
            for packet in packets {
                if !keeps_back(&packet) {
                    let node = packet.meta.dst.index();
                    self.hand(node, [packet]);
                }
            }
            let is_over = self.nodes.iter().all(|node| node.outgoing() == 0);
            if is_silent && is_over {
                return;
            }
        }
        panic!("they talk without end");
    }

    pub fn ends(&mut self, node: usize) -> Vec<Completion> {
        std::iter::from_fn(|| self.nodes[node].poll_completion()).collect()
    }
}

/// The name of a tensor between this node and `peer`.
pub fn name(peer: u32, operation: u64) -> Name {
    Name { peer: NodeId(peer), operation: Operation(operation), tensor: 0 }
}

/// A buffer for a gradient of node 0.
pub fn buffer(operation: u64, values: usize, loss: f64) -> ReceiveCall {
    ReceiveCall {
        name: name(0, operation),
        buffer: Tensor::from(vec![-1.0; values]),
        loss: LossBound::new(loss).expect("a share"),
        lost: Lost::ReadsZero,
    }
}
