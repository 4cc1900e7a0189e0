//! Two endpoints joined by vectors: what a packet costs without a network.
//!
//! Prints nanoseconds per packet, data and acknowledgements together, for a few numbers of messages
//! at once. Times on a shared machine vary: the least of several runs counts.

use std::time::Instant;

use thalweg_core::{
    Body, BodySize, Bytes, HEADER_BYTES, Header, Machine, Meta, NodeId, Outbox, Packet, Purpose,
    Reports, Span, Time,
};
use thalweg_flow::{Config, Endpoint, Event, FlowTagger, Message, Payload};

const PACKETS: u64 = 2_000_000;
const RUNS: usize = 5;

/// Packets on a wire, lengths without bytes, in memory that is used again: the outbox for tests allocates for every
/// packet, which would be measured.
struct Wire {
    src: NodeId,
    room: usize,
    packets: Vec<(Meta, Header, u32)>,
}

impl Wire {
    fn new(src: NodeId, room: usize) -> Wire {
        Wire { src, room, packets: Vec::with_capacity(room) }
    }

    fn deliver(&mut self, now: Time, to: &mut Endpoint) {
        for (meta, header, bytes) in &mut self.packets {
            to.handle_packet(now, Packet { meta, header, body: Body::Length(*bytes) });
        }
        self.packets.clear();
    }
}

impl Outbox for Wire {
    fn room(&self) -> usize {
        self.room - self.packets.len()
    }

    fn lend(&mut self, body: BodySize, _: Purpose) -> Option<Packet<'_>> {
        if self.room() == 0 {
            return None;
        }
        let (BodySize::Length(bytes) | BodySize::Bytes(bytes)) = body;
        let meta = Meta { src: self.src, ..Meta::default() };
        self.packets.push((meta, [0; HEADER_BYTES], bytes));
        let (meta, header, bytes) = self.packets.last_mut()?;
        Some(Packet { meta, header, body: Body::Length(*bytes) })
    }
}

fn message(config: &Config, packets: u64) -> Message {
    Message {
        dst: NodeId(1),
        body: Payload::Length(Bytes::from(config.messages.segment_bytes) * packets),
        tagger: FlowTagger::default(),
        entropy: 7,
    }
}

/// Sends `messages` messages at once, `batch` packets at a time. Returns nanoseconds per packet.
fn run(messages: u64, batch: usize) -> f64 {
    let config = Config::default();
    let mut left = Endpoint::new(config.clone()).expect("defaults work");
    let mut right = Endpoint::new(config.clone()).expect("defaults work");
    let mut there = Wire::new(NodeId(0), batch);
    let mut back = Wire::new(NodeId(1), batch);
    let mut now = Time::ZERO;
    for _ in 0..messages {
        let packets = PACKETS / messages;
        left.start(now, message(&config, packets)).expect("short enough");
    }
    let mut sent = 0;
    #[allow(clippy::disallowed_methods)]
    let begin = Instant::now();
    while sent < messages {
        now += Span::from_us(1);
        left.poll_transmit(now, &mut there);
        there.deliver(now, &mut right);
        now += Span::from_us(1);
        right.poll_transmit(now, &mut back);
        back.deliver(now, &mut left);
        while let Some(event) = left.poll_event() {
            assert!(matches!(event, Event::Sent(end) if end.retransmissions == 0));
            sent += 1;
        }
        while right.poll_event().is_some() {}
        if left.poll_timeout() <= now {
            left.handle_timeout(now);
        }
    }
    begin.elapsed().as_nanos() as f64 / (2 * PACKETS) as f64
}

fn main() {
    for (messages, batch) in [(1, 64), (1, 1), (100, 64), (100, 1), (10_000, 64)] {
        let best = (0..RUNS).map(|_| run(messages, batch)).fold(f64::INFINITY, f64::min);
        println!("{messages:>7} messages at once, batches of {batch:>2}: {best:6.1} ns a packet");
    }
}
