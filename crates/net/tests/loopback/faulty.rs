//! A machine in the middle that passes packets on badly.

use std::collections::VecDeque;

use thalweg_core::{
    Body, BodySize, Header, Machine, Meta, NodeId, Outbox, Packet, Purpose, Reports, Rng, Span,
    Time, Verdict,
};

/// A packet that is held back is overtaken by this many, or goes after the longest delay.
const OVERTAKEN_BY: u64 = 5;
const LONGEST_DELAY: Span = Span::from_us(500);

/// Passes packets of either end on to the other. Loses one in twenty, sends as many twice, and holds
/// as many back.
pub struct Faulty {
    ends: [NodeId; 2],
    rng: Rng,
    handled: u64,
    held: VecDeque<Held>,
    /// Nodes that the copies of a packet go to.
    copies: [NodeId; 2],
    pub lost: u64,
    pub duplicated: u64,
    pub delayed: u64,
}

struct Held {
    /// Goes when this many were handled, or at this time.
    after: u64,
    due: Time,
    meta: Meta,
    header: Header,
    body: Vec<u8>,
}

impl Faulty {
    pub fn new(ends: [NodeId; 2], seed: u64) -> Faulty {
        Faulty {
            ends,
            rng: Rng::new(seed).stream("faults"),
            handled: 0,
            held: VecDeque::new(),
            copies: ends,
            lost: 0,
            duplicated: 0,
            delayed: 0,
        }
    }

    fn hold(&mut self, now: Time, packet: &Packet<'_>) {
        let Body::Bytes(body) = &packet.body else { panic!("a network carries bytes") };
        self.held.push_back(Held {
            after: self.handled + OVERTAKEN_BY,
            due: now + LONGEST_DELAY,
            meta: *packet.meta,
            header: *packet.header,
            body: body.to_vec(),
        });
    }
}

impl Machine for Faulty {
    fn handle_packet(&mut self, now: Time, packet: Packet<'_>) -> Verdict<'_> {
        let [left, right] = self.ends;
        packet.meta.dst = if packet.meta.src == left { right } else { left };
        self.handled += 1;
        match self.rng.below(20) {
            0 => {
                self.lost += 1;
                Verdict::Consume
            }
            1 => {
                self.duplicated += 1;
                self.copies = [packet.meta.dst; 2];
                Verdict::Multicast(&self.copies)
            }
            2 => {
                self.delayed += 1;
                self.hold(now, &packet);
                Verdict::Consume
            }
            _ => Verdict::Forward,
        }
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, now: Time, outbox: &mut dyn Outbox) {
        while let Some(held) = self.held.front()
            && (held.after <= self.handled || held.due <= now)
        {
            let Some(packet) = outbox.lend(BodySize::Bytes(held.body.len() as u32), Purpose::Data)
            else {
                return;
            };
            *packet.meta = Meta { src: packet.meta.src, ..held.meta };
            *packet.header = held.header;
            let Body::Bytes(body) = packet.body else { panic!("bytes were asked for") };
            body.copy_from_slice(&held.body);
            self.held.pop_front();
        }
    }

    fn poll_timeout(&self) -> Time {
        self.held.front().map_or(Time::NEVER, |held| held.due)
    }
}

impl Reports for Faulty {
    type Event = ();

    fn poll_event(&mut self) -> Option<()> {
        None
    }
}
