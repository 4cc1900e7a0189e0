//! Delay before lost segments are sent again.

use std::sync::Arc;

use thalweg_core::{Machine, Rate, Span, Time};
use thalweg_deliver::{Config, SendCall, Start};
use thalweg_transport::RtoLimits;
use thalweg_transport::control::DelayRate;
use thalweg_wire::deliver::Verb;

use crate::shuttle::{Owned, Pair, Read, buffer, name};
use crate::values::{Numbers, tensor};

/// Values of a segment.
const SEGMENT: usize = 16;

fn config() -> Config {
    Config { segment_bytes: 64, start: Start::AtOnce, ..Config::default() }
}

/// Node 0 sends this number of segments to node 1, which has a buffer for all of them.
fn exchange(pair: &mut Pair, operation: u64, segments: usize) {
    let values = segments * SEGMENT;
    pair.nodes[1].post_receive(pair.now, buffer(operation, values, 0.0)).expect("a new name");
    let sent = Arc::new(tensor(Numbers::Full, 1, values));
    let call = SendCall::new(name(1, operation), sent);
    pair.nodes[0].post_send(pair.now, call).expect("the call is sound");
}

fn is_probe(packet: &Owned) -> bool {
    matches!(packet.verb(), Some(Verb::Probe { .. }))
}

fn operations(packets: &[Owned]) -> Vec<u64> {
    packets.iter().filter_map(Read::data).map(|data| data.name.operation).collect()
}

/// A receiver of a tensor has waited longest for its last segments.
// spec: M-03, M-11 machine
#[test]
fn what_is_sent_again_goes_before_what_was_posted_later() {
    let mut pair = Pair::new(&config());
    exchange(&mut pair, 1, 3);
    let mut packets = pair.sends(0, 99);
    let first = packets.iter().position(|packet| packet.data().is_some()).expect("data");
    packets.remove(first);
    exchange(&mut pair, 2, 100);
    // The offer, and some of the second tensor.
    packets.append(&mut pair.sends(0, 11));
    assert_eq!(operations(&packets), [vec![1; 2], vec![2; 10]].concat());
    for _ in 0..2 {
        // The echo of the last segment, then what has arrived; node 0 asks for it between.
        pair.hand(1, packets);
        let answers = pair.sends(1, 99);
        pair.hand(0, answers);
        packets = pair.sends(0, 4);
    }
    assert_eq!(operations(&packets)[0], 1, "{packets:?}");
    assert_eq!(operations(&packets)[1..], [2, 2, 2]);
}

/// The times at which node 0 asks what has arrived, when the first `lost_probes` of its probes are lost and nothing of
/// what it sent before them came through; and when it sent that again.
fn asked(config: &Config, lost_probes: usize) -> (Vec<Time>, Vec<Time>) {
    let mut pair = Pair::new(config);
    // An earlier tensor measures the path.
    exchange(&mut pair, 1, 20);
    pair.talk(|_| false);
    exchange(&mut pair, 2, 100);
    let (mut probes, mut again) = (Vec::new(), Vec::new());
    while pair.nodes[0].outgoing() > 0 {
        let packets = pair.sends(0, 64);
        probes.extend(packets.iter().filter(|packet| is_probe(packet)).map(|_| pair.now));
        let is_lost = |packet: &Owned| match packet.data() {
            Some(_) => probes.is_empty(),
            None => is_probe(packet) && probes.len() <= lost_probes,
        };
        let kept: Vec<Owned> = packets.into_iter().filter(|packet| !is_lost(packet)).collect();
        again.extend(kept.iter().filter_map(Read::data).map(|data| data.sent_at));
        pair.hand(1, kept);
        let answers = pair.sends(1, 64);
        pair.wait(Span::from_us(5));
        pair.hand(0, answers);
        pair.wait(Span::from_us(5));
    }
    (probes, again)
}

/// A question costs little, so that it need not wait as long as a retransmission.
// spec: M-09 machine
#[test]
fn a_lost_question_is_asked_again_after_round_trips() {
    let waits = RtoLimits { initial: Span::from_ms(10), ..Config::default().waits };
    let (probes, _) = asked(&Config { waits, ..config() }, 1);
    assert_eq!(probes.len(), 2);
    let gap = probes[1].since(probes[0]);
    assert!(gap >= waits.min && gap < Span::from_us(200), "{gap}");
}

/// One probe is lost by chance; three in a row mean that hardly anything comes through.
// spec: M-08 machine
#[test]
fn one_lost_probe_is_no_congestion() {
    let control = DelayRate { line_rate: Rate::from_gbps(1), ..DelayRate::default() }.into();
    let config = Config { control, ..config() };
    let took = |lost_probes| {
        let (_, again) = asked(&config, lost_probes);
        assert_eq!(again.len(), 100, "everything is sent again once");
        again[99].since(again[0])
    };
    let (none, one, three) = (took(0), took(1), took(3));
    assert!(one < none * 2, "{none}, {one}");
    assert!(three > none * 2, "{none}, {three}");
}

/// Round-trip time is unknown while all packets that ask for an echo are lost. It asks when a
/// congested path would have answered, not when a retransmission were due.
// spec: M-06 machine
#[test]
fn a_sender_without_an_echo_asks_when_one_would_be_late() {
    let waits = RtoLimits { initial: Span::from_ms(10), ..Config::default().waits };
    let config = Config { waits, ..config() };
    let mut pair = Pair::new(&config);
    exchange(&mut pair, 1, 5);
    let packets = pair.sends(0, 99);
    pair.hand(1, packets.into_iter().filter(|packet| packet.data().is_none()));
    let accept = pair.sends(1, 99);
    pair.hand(0, accept);
    let posted = pair.now;
    pair.now = pair.nodes[0].poll_timeout();
    pair.nodes[0].handle_timeout(pair.now);
    assert_eq!(pair.now.since(posted), config.settling);
    assert!(pair.sends(0, 99).iter().any(is_probe));
}
