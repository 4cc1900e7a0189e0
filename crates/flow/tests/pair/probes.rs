//! Timeouts that send one packet again, and leave the window to what its answer shows.

use std::cell::Cell;
use std::rc::Rc;

use thalweg_core::{Bytes, Rate, Span, Time};
use thalweg_flow::{Config, Event, MessageConfig, Payload, Sent};
use thalweg_transport::control::NewReno;

use crate::network::{Network, Read};

const PACKET: u64 = 1_000;

fn config(probes_first: bool) -> Config {
    let messages = MessageConfig { segment_bytes: PACKET as u32, ..MessageConfig::default() };
    Config {
        messages,
        probes_first,
        control: NewReno.into(),
        remembers_paths: true,
        ..Config::default()
    }
}

fn packets(count: u64) -> Payload {
    Payload::Length(Bytes::new(count * PACKET))
}

fn ends(network: &Network) -> Vec<Sent> {
    let end = |event: &Event| if let Event::Sent(sent) = event { Some(*sent) } else { None };
    network.events.iter().filter_map(|(_, event)| end(event)).collect()
}

/// A message whose answers take longer from some moment on than a timeout has waited until then.
fn with_late_answers(probes_first: bool) -> Sent {
    let mut network = Network::new(2, &config(probes_first), 0);
    network.start(0, 1, packets(2_000));
    network.run_until(Time::ZERO + Span::from_us(500));
    network.delay = Span::from_ms(2);
    network.run(Time::ZERO + Span::from_s(1));
    ends(&network)[0]
}

// spec: F-07 machine
#[test]
fn late_answers_cost_a_packet_and_not_the_window() {
    let (probed, plain) = (with_late_answers(true), with_late_answers(false));
    assert!(probed.timeouts >= 1 && plain.timeouts >= 1, "{probed:?}, {plain:?}");
    assert!(probed.retransmissions <= probed.timeouts, "{probed:?}");
    assert!(probed.finished < plain.finished, "{probed:?}, {plain:?}");
}

// spec: F-07 machine
#[test]
fn a_window_that_is_lost_whole_is_repaired() {
    for probes_first in [true, false] {
        let mut network = Network::new(2, &config(probes_first), 0);
        let until = Time::ZERO + Span::from_ms(2);
        network.filter = Box::new(move |now, packet| packet.data().is_none() || now > until);
        network.start(0, 1, packets(40));
        network.run(Time::ZERO + Span::from_s(1));
        let end = ends(&network)[0];
        assert_eq!(end.timeouts, 1, "the wait is 10 ms before anything was measured");
        assert_eq!(end.retransmissions, 10, "the initial window, {end:?}");
    }
}

/// Packets that a message sends at once after another one whose last packet was lost, or not.
fn window_after(is_lost: bool) -> u32 {
    let config = Config { initial_window_packets: 64, ..config(true) };
    let mut network = Network::new(2, &config, 0);
    network.rate = Rate::from_gbps(100);
    network.delay = Span::from_us(200);
    let mut loses = is_lost;
    let counted = Rc::new(Cell::new(0));
    let (count, begins) = (Rc::clone(&counted), Time::ZERO + Span::from_s(1));
    network.filter = Box::new(move |now, packet| {
        let Some(data) = packet.data() else { return true };
        if now >= begins && now < begins + Span::from_us(300) {
            count.set(count.get() + 1);
        }
        let is_tail = data.index == 63 && now < begins;
        !(is_tail && std::mem::take(&mut loses))
    });
    network.start(0, 1, packets(64));
    network.run_until(begins);
    assert_eq!(ends(&network)[0].timeouts, u32::from(is_lost));
    network.start(0, 1, packets(400));
    network.run(Time::ZERO + Span::from_s(2));
    counted.get()
}

// spec: F-07 machine
#[test]
fn a_loss_that_a_probe_repairs_halves_the_window() {
    let (before, after) = (window_after(false), window_after(true));
    assert!(before >= 64 && after >= before / 3 && after <= before * 2 / 3, "{before}, {after}");
}
