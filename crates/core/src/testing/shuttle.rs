//! Machines, and the packets in flight between them.

use crate::check::Check;
use crate::id::NodeId;
use crate::machine::{Reports, Verdict};
use crate::packet::Meta;
use crate::rng::Rng;
use crate::testing::{OwnedPacket, TestOutbox};
use crate::time::Time;

/// Carries packets between machines, and keeps their clock.
///
/// A seed decides what is lost, duplicated or overtaken. The clock stands while packets are in flight, so
/// that packets arrive in orders that no real network would find; then it moves to the next timeout. Every
/// machine is [checked](Check) after every input. Machines are the nodes 0, 1, 2 and so on.
pub struct Shuttle<M: Reports> {
    /// The machines, by node.
    pub machines: Vec<M>,
    /// Events of the machines so far, in order.
    pub events: Vec<(NodeId, M::Event)>,
    /// The time.
    pub now: Time,
    /// Probability that a packet is lost.
    pub loss: f64,
    /// Probability that a packet arrives once more, later.
    pub duplication: f64,
    /// True if packets arrive in the order they were sent in; false if in any order.
    pub keeps_order: bool,
    /// A node that is cut off.
    pub dead: Option<NodeId>,
    /// Changes every packet before it arrives.
    pub alter: Option<fn(&mut OwnedPacket)>,
    in_flight: Vec<OwnedPacket>,
    rng: Rng,
}

impl<M: Reports + Check> Shuttle<M> {
    /// Machines at time zero, with no packet in flight. Packets will arrive once each, in any order.
    pub fn new(machines: Vec<M>, seed: u64) -> Shuttle<M> {
        Shuttle {
            machines,
            events: Vec::new(),
            now: Time::ZERO,
            loss: 0.0,
            duplication: 0.0,
            keeps_order: false,
            dead: None,
            alter: None,
            in_flight: Vec::new(),
            rng: Rng::new(seed).stream("shuttle"),
        }
    }

    /// Gives a machine a command.
    pub fn command<T>(&mut self, node: usize, command: impl FnOnce(&mut M, Time) -> T) -> T {
        let result = command(&mut self.machines[node], self.now);
        self.drain(node);
        result
    }

    /// Takes this number of steps: each delivers a packet or, where none is in flight, moves the clock.
    /// Returns false if there was nothing left to do.
    pub fn run(&mut self, steps: u64) -> bool {
        (0..steps).all(|_| self.step())
    }

    fn step(&mut self) -> bool {
        if self.in_flight.is_empty() {
            return self.move_clock();
        }
        let packet = if self.keeps_order {
            self.in_flight.remove(0)
        } else {
            let picked = self.rng.below(self.in_flight.len() as u64) as usize;
            self.in_flight.swap_remove(picked)
        };
        let Meta { src, dst, .. } = packet.meta;
        let is_cut_off = self.dead.is_some_and(|dead| dead == src || dead == dst);
        if is_cut_off || self.rng.chance(self.loss) {
            return true;
        }
        if self.rng.chance(self.duplication) {
            self.in_flight.push(packet.clone());
        }
        self.deliver(packet);
        true
    }

    fn deliver(&mut self, mut packet: OwnedPacket) {
        let node = packet.meta.dst.index();
        if let Some(alter) = self.alter {
            alter(&mut packet);
        }
        let targets = match self.machines[node].handle_packet(self.now, packet.lend()) {
            Verdict::Consume => Vec::new(),
            Verdict::Forward => vec![None],
            Verdict::Multicast(nodes) => nodes.iter().copied().map(Some).collect(),
        };
        for target in targets {
            let mut copy = packet.clone();
            copy.meta.dst = target.unwrap_or(copy.meta.dst);
            self.in_flight.push(copy);
        }
        self.drain(node);
    }

    fn move_clock(&mut self) -> bool {
        let timeouts = self.machines.iter().map(M::poll_timeout);
        let Some(next) = timeouts.min().filter(|&next| next != Time::NEVER) else { return false };
        self.now = self.now.max(next);
        for node in 0..self.machines.len() {
            if self.machines[node].poll_timeout() <= self.now {
                self.machines[node].handle_timeout(self.now);
                self.drain(node);
            }
        }
        true
    }

    fn drain(&mut self, node: usize) {
        let id = NodeId(node as u32);
        let machine = &mut self.machines[node];
        machine.check();
        let mut outbox = TestOutbox::new(id);
        machine.poll_transmit(self.now, &mut outbox);
        machine.check();
        self.in_flight.extend(outbox.packets);
        self.events.extend(std::iter::from_fn(|| machine.poll_event()).map(|event| (id, event)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Machine, Outbox};
    use crate::packet::{BodySize, Packet, Purpose};

    /// Sends a number of packets to node 1, and reports the numbers of those that arrive.
    #[derive(Default)]
    struct Counter {
        sends: u8,
        sent: u8,
        arrived: Vec<u8>,
    }

    impl Machine for Counter {
        fn handle_packet(&mut self, _now: Time, packet: Packet<'_>) -> Verdict<'_> {
            self.arrived.push(packet.header[0]);
            Verdict::Consume
        }

        fn handle_timeout(&mut self, _now: Time) {}

        fn poll_transmit(&mut self, _now: Time, outbox: &mut dyn Outbox) {
            while self.sent < self.sends
                && let Some(packet) = outbox.lend(BodySize::Length(0), Purpose::Data)
            {
                packet.meta.dst = NodeId(1);
                packet.header[0] = self.sent;
                self.sent += 1;
            }
        }

        fn poll_timeout(&self) -> Time {
            Time::NEVER
        }
    }

    impl Reports for Counter {
        type Event = u8;

        fn poll_event(&mut self) -> Option<u8> {
            self.arrived.pop()
        }
    }

    impl Check for Counter {
        fn check(&self) {
            assert!(self.sent <= self.sends, "it sends no more than it should");
        }
    }

    fn pair(seed: u64) -> Shuttle<Counter> {
        Shuttle::new(vec![Counter::default(), Counter::default()], seed)
    }

    /// Numbers of the packets that arrive, of 100.
    fn arrivals(mut shuttle: Shuttle<Counter>) -> Vec<u8> {
        shuttle.command(0, |machine, _| machine.sends = 100);
        assert!(!shuttle.run(10_000), "it ends");
        assert!(shuttle.events.iter().all(|(node, _)| *node == NodeId(1)));
        shuttle.events.iter().map(|(_, number)| *number).collect()
    }

    #[test]
    fn faults_are_those_of_the_seed() {
        let in_order: Vec<u8> = (0..100).collect();
        assert_eq!(arrivals(Shuttle { keeps_order: true, ..pair(1) }), in_order);
        let mut mixed = arrivals(pair(1));
        assert_ne!(mixed, in_order);
        assert_eq!(mixed, arrivals(pair(1)), "the same seed");
        assert_ne!(mixed, arrivals(pair(2)), "another seed");
        mixed.sort_unstable();
        assert_eq!(mixed, in_order);
        let left = arrivals(Shuttle { loss: 0.5, ..pair(1) }).len();
        assert!((20..80).contains(&left), "{left}");
        let doubled = arrivals(Shuttle { duplication: 0.5, ..pair(1) }).len();
        assert!(doubled > 120, "{doubled}");
    }

    #[test]
    fn nobody_reaches_a_node_that_is_cut_off() {
        let mut shuttle = pair(1);
        shuttle.dead = Some(NodeId(1));
        shuttle.command(0, |machine, _| machine.sends = 3);
        assert!(!shuttle.run(10) && shuttle.events.is_empty());
    }
}
