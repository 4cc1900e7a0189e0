//! Two endpoints joined by vectors: what a packet costs without a network.
//!
//! Prints nanoseconds per packet, data and acknowledgements together, for a few numbers of messages
//! at once. Times on a shared machine vary: the least of several runs counts.

use std::time::Instant;

use thalweg_core::testing::TestOutbox;
use thalweg_core::{Bytes, Machine, NodeId, Reports, Span, Time};
use thalweg_flow::{Config, Endpoint, Event, FlowTagger, Message, Payload};

const PACKETS: u64 = 2_000_000;
const RUNS: usize = 5;

/// Hands over what was sent, and keeps the memory.
fn deliver(now: Time, sent: &mut TestOutbox, to: &mut Endpoint) {
    for packet in &mut sent.packets {
        to.handle_packet(now, packet.lend());
    }
    sent.packets.clear();
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
    let mut there = TestOutbox::with_room(NodeId(0), batch);
    let mut back = TestOutbox::with_room(NodeId(1), batch);
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
        deliver(now, &mut there, &mut right);
        now += Span::from_us(1);
        right.poll_transmit(now, &mut back);
        deliver(now, &mut back, &mut left);
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
