//! Packets that tests look at, lose or delay before a session or a switch receives them.

use std::sync::Arc;

use thalweg_core::{Body, Header, Machine, Meta, Outbox, Packet, Reports, Span, Time, Verdict};

/// Time for which a delayed packet is kept: many others arrive meanwhile.
const DELAY: Span = Span::from_ms(5);

/// Decides what becomes of a packet that arrives.
pub type Tap = Arc<dyn Fn(&Meta, &Header) -> Fate + Send + Sync>;

/// Fate of a packet that arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It arrives.
    Arrives,
    /// It is lost.
    Lost,
    /// It arrives after others that were sent later.
    Late,
    /// It arrives twice, the second time after others that were sent later.
    Twice,
}

/// A machine behind a tap, if there is one.
pub struct Tapped<M> {
    machine: M,
    tap: Option<Tap>,
    /// Packets that arrive later, by time.
    delayed: Vec<Delayed>,
}

/// A packet that arrives later.
struct Delayed {
    at: Time,
    meta: Meta,
    header: Header,
    body: Vec<u8>,
}

impl<M> Tapped<M> {
    /// A machine behind a tap.
    pub fn new(machine: M, tap: Option<Tap>) -> Tapped<M> {
        Tapped { machine, tap, delayed: Vec::new() }
    }

    /// The machine.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// The machine, to call commands on.
    pub fn machine_mut(&mut self) -> &mut M {
        &mut self.machine
    }
}

impl<M: Machine> Machine for Tapped<M> {
    #[inline]
    fn handle_packet(&mut self, now: Time, packet: Packet<'_>) -> Verdict<'_> {
        let Some(tap) = &self.tap else { return self.machine.handle_packet(now, packet) };
        let fate = tap(packet.meta, packet.header);
        if let (Fate::Late | Fate::Twice, Body::Bytes(body)) = (fate, &packet.body) {
            let (meta, header, body) = (*packet.meta, *packet.header, body.to_vec());
            self.delayed.push(Delayed { at: now + DELAY, meta, header, body });
        }
        match fate {
            Fate::Arrives | Fate::Twice => self.machine.handle_packet(now, packet),
            Fate::Lost | Fate::Late => Verdict::Consume,
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        let due = self.delayed.partition_point(|delayed| delayed.at <= now);
        // The latest first, so that they are in another order as well.
        for Delayed { mut meta, mut header, mut body, .. } in self.delayed.drain(..due).rev() {
            let body = Body::Bytes(&mut body);
            self.machine.handle_packet(now, Packet { meta: &mut meta, header: &mut header, body });
        }
        if self.machine.poll_timeout() <= now {
            self.machine.handle_timeout(now);
        }
    }

    fn poll_transmit(&mut self, now: Time, outbox: &mut dyn Outbox) {
        self.machine.poll_transmit(now, outbox);
    }

    fn has_backlog(&self) -> bool {
        self.machine.has_backlog()
    }

    fn poll_timeout(&self) -> Time {
        let delayed = self.delayed.first().map_or(Time::NEVER, |delayed| delayed.at);
        self.machine.poll_timeout().min(delayed)
    }
}

impl<M: Reports> Reports for Tapped<M> {
    type Event = M::Event;

    fn poll_event(&mut self) -> Option<M::Event> {
        self.machine.poll_event()
    }
}
