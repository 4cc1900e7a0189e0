//! Machines and one heap of packets, from which a seed picks what arrives next. No clock runs while
//! there are packets, so messages end in orders that no real network would find.

use thalweg_collective::Event;
use thalweg_core::{
    Body, BodySize, Check, HEADER_BYTES, Header, Machine, Meta, NodeId, Operation, Outbox, Packet,
    Rng, Time,
};
use thalweg_values::{Coverage, Tensor};
use thalweg_wire::deliver::Data;

use crate::group::Collective;

pub struct Shuttle<M: Machine> {
    pub machines: Vec<M>,
    pub events: Vec<(NodeId, M::Event)>,
    pub now: Time,
    pub loss: f64,
    pub duplication: f64,
    /// Nobody hears from or reaches it.
    pub dead: Option<NodeId>,
    /// Data of deliveries from this offset on arrives with other bytes.
    pub garbled_from: Option<u64>,
    heap: Vec<Owned>,
    rng: Rng,
}

/// A packet that somebody owns.
#[derive(Clone)]
pub struct Owned {
    meta: Meta,
    header: Header,
    body: Result<Vec<u8>, u32>,
}

/// Puts packets on a heap.
pub struct Tray<'a> {
    pub src: NodeId,
    pub heap: &'a mut Vec<Owned>,
}

impl<M: Machine + Check> Shuttle<M> {
    pub fn new(machines: Vec<M>, seed: u64) -> Shuttle<M> {
        Shuttle {
            machines,
            events: Vec::new(),
            now: Time::ZERO,
            loss: 0.0,
            duplication: 0.0,
            dead: None,
            garbled_from: None,
            heap: Vec::new(),
            rng: Rng::new(seed).stream("shuttle"),
        }
    }

    /// Has a machine do something.
    pub fn command<T>(&mut self, node: usize, command: impl FnOnce(&mut M, Time) -> T) -> T {
        let result = command(&mut self.machines[node], self.now);
        self.drain(node);
        result
    }

    /// Delivers up to so many packets, or lets time pass where there are none. Returns whether there
    /// is more to do.
    pub fn run(&mut self, steps: u64) -> bool {
        (0..steps).all(|_| self.step())
    }

    fn step(&mut self) -> bool {
        if self.heap.is_empty() {
            return self.pass_time();
        }
        let picked = self.rng.below(self.heap.len() as u64) as usize;
        let mut packet = self.heap.swap_remove(picked);
        let Meta { src, dst, .. } = packet.meta;
        let is_cut_off = self.dead.is_some_and(|dead| dead == src || dead == dst);
        if is_cut_off || self.rng.chance(self.loss) {
            return true;
        }
        if self.rng.chance(self.duplication) {
            self.heap.push(packet.clone());
        }
        if let Some(from) = self.garbled_from {
            packet.garble(from);
        }
        self.machines[dst.index()].handle_packet(self.now, packet.lend());
        self.drain(dst.index());
        true
    }

    fn pass_time(&mut self) -> bool {
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

    /// Checks what an input did, and takes what the machine has to send and to tell.
    fn drain(&mut self, node: usize) {
        self.machines[node].check();
        let mut tray = Tray { src: NodeId(node as u32), heap: &mut self.heap };
        self.machines[node].poll_transmit(self.now, &mut tray);
        self.machines[node].check();
        while let Some(event) = self.machines[node].poll_event() {
            self.events.push((NodeId(node as u32), event));
        }
    }
}

impl<M: Collective> Shuttle<M> {
    pub fn submit(&mut self, node: usize, tensor: Tensor) -> Operation {
        self.command(node, |machine, now| machine.submit(now, tensor)).expect("it is a worker")
    }

    /// The sums that a node got, by operation.
    pub fn sums(&self, node: usize) -> Vec<(u64, Tensor)> {
        let results = self.results(node).into_iter();
        results.map(|(operation, tensor, _)| (operation, tensor)).collect()
    }

    /// The sums that a node got, by operation, with their coverages.
    pub fn results(&self, node: usize) -> Vec<(u64, Tensor, Coverage)> {
        let own = self.events.iter().filter(|(at, _)| at.index() == node);
        let result = |(_, event): &(NodeId, Event)| match event {
            Event::Finished { operation, tensor, coverage } => {
                (operation.0, tensor.clone(), coverage.clone())
            }
            Event::Failed { operation, failure } => panic!("{operation:?} failed: {failure}"),
        };
        let mut results: Vec<_> = own.map(result).collect();
        results.sort_by_key(|(operation, _, _)| *operation);
        results
    }
}

impl Owned {
    /// Changes the bytes of a segment that begins at `from` or behind it.
    fn garble(&mut self, from: u64) {
        let is_behind = |data: Data| data.offset.as_u64() >= from;
        if let (Ok(bytes), true) = (&mut self.body, Data::decode(&self.header).is_ok_and(is_behind))
        {
            bytes.iter_mut().for_each(|byte| *byte = !*byte);
        }
    }

    pub fn lend(&mut self) -> Packet<'_> {
        let body = match &mut self.body {
            Ok(bytes) => Body::Bytes(bytes),
            Err(length) => Body::Length(*length),
        };
        Packet { meta: &mut self.meta, header: &mut self.header, body }
    }
}

impl Outbox for Tray<'_> {
    fn room(&self) -> usize {
        usize::MAX
    }

    fn lend(&mut self, body: BodySize) -> Option<Packet<'_>> {
        let meta = Meta { src: self.src, ..Meta::default() };
        let body = match body {
            BodySize::Length(length) => Err(length),
            BodySize::Bytes(length) => Ok(vec![0; length as usize]),
        };
        self.heap.push(Owned { meta, header: [0; HEADER_BYTES], body });
        self.heap.last_mut().map(Owned::lend)
    }
}
