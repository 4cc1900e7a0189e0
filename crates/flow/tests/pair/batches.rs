//! One acknowledgement for a batch of packets.

use std::cell::RefCell;
use std::rc::Rc;

use thalweg_core::{Bytes, Rate, Span, Time};
use thalweg_flow::{Config, Event, MessageConfig, Payload, Sent};
use thalweg_transport::Control;
use thalweg_transport::control::Fixed;
use thalweg_wire::flow::{Ack, Data};

use crate::network::{Faults, Network, Read, controls};

const PACKETS: u64 = 667;

fn config(control: impl Into<Control>, ack_batch_packets: u32) -> Config {
    let messages = MessageConfig { ack_batch_packets, ..MessageConfig::default() };
    Config { messages, control: control.into(), ..Config::default() }
}

fn window(packets: u64) -> Fixed {
    Fixed { bytes: 1_460 * packets }
}

/// The packets of a message of [`PACKETS`], and how its sending ended.
struct Run {
    data: Vec<Data>,
    acks: Vec<Ack>,
    sent: Sent,
}

fn run(config: &Config, change: impl FnOnce(&mut Network)) -> Run {
    let mut network = Network::new(2, config, 3);
    network.rate = Rate::from_gbps(100);
    change(&mut network);
    let seen = Rc::new(RefCell::new((Vec::new(), Vec::new())));
    let (log, mut filter) =
        (Rc::clone(&seen), std::mem::replace(&mut network.filter, Box::new(|_, _| true)));
    network.filter = Box::new(move |now, packet| {
        let (data, acks) = &mut *log.borrow_mut();
        data.extend(packet.data());
        acks.extend(packet.ack());
        filter(now, packet)
    });
    network.start(0, 1, Payload::Length(Bytes::new(1_460 * PACKETS)));
    network.run(Time::ZERO + Span::from_s(10));
    let sent = network.events.iter().find_map(|(_, event)| match event {
        Event::Sent(sent) => Some(*sent),
        _ => None,
    });
    let (data, acks) = seen.take();
    Run { data, acks, sent: sent.expect("it was sent") }
}

fn took(run: &Run) -> Span {
    run.sent.finished.since(run.sent.started)
}

// spec: F-06 machine
#[test]
fn one_answer_leaves_for_a_batch_and_the_end_is_not_late() {
    let [single, batched] = [1, 32].map(|batch| run(&config(window(1_000), batch), |_| ()));
    assert_eq!(single.acks.len() as u64, PACKETS);
    assert_eq!(batched.acks.len() as u64, PACKETS.div_ceil(32));
    assert_eq!(took(&batched), took(&single), "the last packet is answered at once");
    assert_eq!(batched.sent.retransmissions, 0);
    assert!(single.data.iter().all(|data| !data.wants_ack));
}

// spec: F-06 machine
#[test]
fn a_small_window_is_answered_packet_by_packet() {
    let run = |packets, batch| run(&config(window(packets), batch), |_| ());
    for packets in 2..8 {
        let [single, batched] = [1, 32].map(|batch| run(packets, batch));
        assert_eq!(batched.acks.len() as u64, PACKETS, "a window of {packets}");
        assert_eq!(took(&batched), took(&single), "a window of {packets}");
    }
    // Four times a window, so that the next packets leave while others travel. The path holds 83 packets.
    let [single, batched] = [1, 32].map(|batch| run(40, batch));
    assert_eq!(batched.acks.len() as u64, PACKETS.div_ceil(10));
    assert!(took(&batched).as_ps() * 10 < took(&single).as_ps() * 13);
}

// spec: F-06 machine
#[test]
fn a_lost_packet_is_found_as_soon_as_without_batches() {
    let lose = |network: &mut Network| {
        let mut is_first = true;
        network.filter = Box::new(move |_, packet| {
            let is_lost = packet.data().is_some_and(|data| data.index == 100) && is_first;
            is_first &= !is_lost;
            !is_lost
        });
    };
    let [single, batched] = [1, 32].map(|batch| run(&config(window(1_000), batch), lose));
    for run in [&single, &batched] {
        let Sent { retransmissions, timeouts, .. } = run.sent;
        assert_eq!((retransmissions, timeouts), (1, 0));
    }
    let resend =
        |run: &Run| run.data.iter().rfind(|data| data.index == 100).map(|data| data.sent_at);
    assert_eq!(resend(&batched), resend(&single));
    assert!(batched.acks.len() < 50, "{} answers", batched.acks.len());
}

// spec: F-06 machine
#[test]
fn a_mark_is_that_of_one_packet() {
    let mark = |network: &mut Network| network.faults = Faults { mark: 0.1, ..Faults::default() };
    let batched = run(&config(window(1_000), 32), mark);
    let marked = |run: &Run| -> Vec<u32> {
        let marked = run.acks.iter().filter(|ack| ack.congested);
        marked.map(|ack| ack.index).collect()
    };
    assert!(marked(&batched).len() > 40);
    // Packets before a mark are answered before it, so that it does not count for them.
    let mut answered = 0;
    for ack in &batched.acks {
        if ack.congested {
            assert_eq!(answered, ack.index, "all before packet {} are answered", ack.index);
        }
        answered = answered.max(ack.cumulative);
    }
}

// spec: F-06 machine
#[test]
fn a_marked_packet_that_is_lost_does_not_keep_the_others_from_being_answered() {
    let lose_last = |network: &mut Network| {
        let mut is_first = true;
        network.filter = Box::new(move |_, packet| {
            let last = PACKETS as u32 - 1;
            let is_lost = packet.data().is_some_and(|data| data.index == last) && is_first;
            is_first &= !is_lost;
            !is_lost
        });
    };
    let run = run(&config(window(1_000), 200), lose_last);
    assert_eq!((run.sent.retransmissions, run.sent.timeouts), (1, 1), "the last packet alone");
    let trips = run.acks.iter().map(|ack| ack.sent_at);
    assert!(trips.clone().is_sorted(), "times that answers waited are no part of round trips");
}

#[test]
fn all_controls_fill_the_path_with_fewer_answers() {
    for control in controls() {
        let [single, batched] = [1, 32].map(|batch| run(&config(control, batch), |_| ()));
        assert!(2 * batched.acks.len() < single.acks.len(), "{control:?}");
        assert_eq!(batched.sent.retransmissions, 0, "{control:?}");
        assert!(took(&batched) < took(&single) * 2, "{control:?}");
    }
}
