//! Messages that go around a ring while packets are lost.
//!
//! As in a session: 8 nodes with links of 100 Mbps, pieces of 8 segments, 64 KiB in a message, the oldest first.

use thalweg_core::{Bytes, FRAME_BODY_BYTES, FRAME_OVERHEAD_BYTES, Rate, Span, Time};
use thalweg_flow::{Config, Event, MessageConfig, MessageOrder, Payload};

use crate::network::{Faults, Network};

const NODES: usize = 8;
const PIECES: u64 = 8;
/// Messages of a piece that a node sends: reduce-scatter and all-gather.
const ROUNDS: u64 = 2 * (NODES as u64 - 1);
const MESSAGE_BYTES: u64 = 64 << 10;
const RATE: Rate = Rate::from_mbps(100);

fn config() -> Config {
    Config {
        messages: MessageConfig {
            segment_bytes: FRAME_BODY_BYTES.into(),
            overhead_bytes: FRAME_OVERHEAD_BYTES,
            ack_wire_bytes: FRAME_OVERHEAD_BYTES,
            ack_batch_packets: 32,
            ack_delay: Span::from_ms(1),
            ..MessageConfig::default()
        },
        remembers_paths: true,
        min_rto: Span::from_ms(10),
        initial_rto: Span::from_ms(50),
        order: MessageOrder::Started,
        probes_first: true,
        ..Config::default()
    }
}

struct Outcome {
    took: Span,
    /// Share of the resent packets that a timer found.
    by_timer: f64,
}

/// One sum of 4 MiB, with this share of packets lost and at most this many packets in front of each interface.
fn sum(loss: f64, send_buffer_packets: usize, seed: u64) -> Outcome {
    let mut network = Network::new(NODES, &config(), seed);
    (network.rate, network.switch, network.delay) = (RATE, Some(RATE), Span::from_us(50));
    network.send_buffer_packets = send_buffer_packets;
    network.faults = Faults { loss, ..Faults::default() };
    let send = |network: &mut Network, node: usize, number: u64| {
        let body = Payload::Length(Bytes::new(MESSAGE_BYTES));
        network.start_numbered(node, (node + 1) % NODES, number, body);
    };
    for node in 0..NODES {
        (0..PIECES).for_each(|piece| send(&mut network, node, piece * ROUNDS));
    }
    let (mut seen, mut ended, mut last) = (0, 0, Time::ZERO);
    while ended < NODES as u64 * PIECES {
        assert!(network.advance(), "{ended} pieces have ended");
        while let Some((node, event)) = network.events.get(seen).cloned() {
            seen += 1;
            let Event::Received(received) = event else { continue };
            let number = received.flow.number();
            if number % ROUNDS + 1 < ROUNDS {
                send(&mut network, node.index(), number + 1);
            } else {
                (ended, last) = (ended + 1, received.finished);
            }
        }
    }
    let (mut resent, mut timeouts) = (0, 0);
    for (_, event) in &network.events {
        if let Event::Sent(sent) = event {
            (resent, timeouts) = (resent + sent.retransmissions, timeouts + sent.timeouts);
        }
    }
    let by_timer = f64::from(timeouts) / f64::from(resent.max(1));
    Outcome { took: last.since(Time::ZERO), by_timer }
}

/// Time of sums that lose 1% of their packets, as a multiple of that of a sum that loses none, and the largest share of
/// resent packets that timers found.
fn slowdown(send_buffer_packets: usize) -> (f64, f64) {
    let clean = sum(0.0, send_buffer_packets, 0).took.as_s_f64();
    let lossy = [1, 2, 3].map(|seed| sum(0.01, send_buffer_packets, seed));
    let mean = lossy.iter().map(|one| one.took.as_s_f64()).sum::<f64>() / lossy.len() as f64;
    (mean / clean, lossy.iter().map(|one| one.by_timer).fold(0.0, f64::max))
}

// spec: F-07 machine
#[test]
fn what_waits_in_front_of_interfaces_makes_losses_costly_and_timers_hardly_do() {
    // 2 ms at this rate, and 15 ms.
    let ((short, by_timer), (deep, _)) = (slowdown(17), slowdown(120));
    assert!(short < 1.06, "{short}");
    assert!(by_timer < 0.2, "{by_timer}");
    assert!(deep > short + 0.03, "{deep} and {short}");
}
