//! Deliveries with every congestion control of the kit.

use std::sync::Arc;

use thalweg_core::{Bytes, Machine, NodeId, Operation, Rate, Span, Time};
use thalweg_deliver::{
    Completion, Config, Failure, LossBound, Lost, Name, ReceiveCall, Received, SendCall,
};
use thalweg_fabric::topology::Cable;
use thalweg_fabric::{Effect, Place, Rule, Topology};
use thalweg_transport::Control;
use thalweg_transport::control::{Delay, DelayRate, Fixed};
use thalweg_values::Tensor;

use crate::shuttle::{Pair, Read, buffer, name};
use crate::stage::{Post, Script, play};
use crate::swarm;
use crate::values::{Numbers, check, tensor};

const RATE: Rate = Rate::from_gbps(10);
/// Of the cable.
const DELAY: Span = Span::from_us(20);
/// About 80 packets.
const WINDOW_BYTES: u64 = 120_000;
const TENSORS: u64 = 3;
const VALUES: usize = 500_000;

fn controls() -> impl Iterator<Item = Control> {
    let others = [
        DelayRate { line_rate: RATE, ..DelayRate::default() }.into(),
        Delay::to(Span::from_us(50)).into(),
        Fixed { bytes: WINDOW_BYTES }.into(),
    ];
    Control::NAMES.iter().filter_map(|name| Control::named(name)).chain(others)
}

/// Tensors from host 0 to host 1 over a cable that loses a share of the packets both ways. Returns the buffers
/// and the time that it took.
fn deliver(control: Control, loss: f64, bound: f64) -> (Vec<Received>, Span) {
    let (a, b) = (NodeId(0), NodeId(1));
    let topology = Topology::new(2, 0, vec![Cable { a, b, rate: RATE, delay: DELAY }]);
    let effect = Effect::Loss(loss);
    let rule = Rule { place: Place::Everywhere, effect, from: Time::ZERO, until: Time::NEVER };
    let network = thalweg_fabric::Config { faults: vec![rule], ..Default::default() };
    let mut posts = Vec::new();
    for operation in 0..TENSORS {
        let name = |peer| Name { peer, operation: Operation(operation), tensor: 0 };
        let values = Arc::new(tensor(Numbers::Full, operation as u32, VALUES));
        posts.push((Time::ZERO, a, Post::Send(SendCall::new(name(b), values))));
        let receive = ReceiveCall {
            name: name(a),
            buffer: Tensor::from(vec![0.0; VALUES]),
            loss: LossBound::new(bound).expect("a share"),
            lost: Lost::ReadsZero,
        };
        posts.push((Time::ZERO, b, Post::Receive(receive)));
    }
    let mut script = Script::new(posts);
    let config = Config { control, ..Config::default() };
    play(topology.expect("two hosts"), &network, &config, 1, &mut script);
    let took = script.ends.iter().map(|(_, at, _)| at.since(Time::ZERO)).max();
    let received = script.ends.into_iter().filter_map(|(_, _, end)| match end {
        Completion::Received(received) => Some(received),
        Completion::Sent(_) => None,
        Completion::Failed(failed) => panic!("{control:?}: {failed:?}"),
    });
    (received.collect(), took.expect("calls have ended"))
}

// spec: M-06 simulator
#[test]
fn a_bounded_delivery_under_loss_completes_with_each_control() {
    let bound = LossBound::new(0.1).expect("a share");
    let allowed = bound.allowed_bytes(VALUES as u64 * 4);
    let at_line_rate = RATE.serialization(Bytes::new(TENSORS * VALUES as u64 * 4));
    for control in controls() {
        let (received, took) = deliver(control, 0.03, 0.1);
        println!(
            "{:.1} of the time at line rate: {control:?}",
            took.as_us_f64() / at_line_rate.as_us_f64()
        );
        assert_eq!(received.len() as u64, TENSORS, "{control:?}");
        for one in &received {
            let sent = tensor(Numbers::Full, one.name.operation.0 as u32, VALUES);
            let posted = Tensor::from(vec![0.0; VALUES]);
            let lost = check(&sent, &posted, one, Lost::ReadsZero);
            assert!(lost <= allowed, "{lost} of {allowed} bytes: {control:?}");
        }
        // Halving for every loss takes long at 3%, but nobody waits for timers.
        assert!(took < at_line_rate * 10, "{took} of {at_line_rate}: {control:?}");
    }
}

/// Without loss a window of 120 KB brings 120 KB over in a round trip, and no more.
#[test]
fn a_window_is_used_and_kept() {
    let (_, took) = deliver(Fixed { bytes: WINDOW_BYTES }.into(), 0.0, 0.0);
    let (_, half) = deliver(Fixed { bytes: 30_000 }.into(), 0.0, 0.0);
    let bytes = TENSORS * VALUES as u64 * 4;
    let least = DELAY * 2 * (bytes / 30_000);
    assert!(half > least && half < least * 2, "{half}, at least {least}");
    let at_line_rate = RATE.serialization(Bytes::new(bytes));
    assert!(took < at_line_rate * 3 / 2, "{took}, {at_line_rate} at line rate");
}

/// The window shrinks to a packet, and yet somebody notices that nobody answers.
#[test]
fn a_peer_that_has_fallen_silent_is_given_up() {
    let give_up_after = Span::from_s(2);
    for control in controls() {
        let config = Config { control, segment_bytes: 64, give_up_after, ..Config::default() };
        let mut pair = Pair::new(&config);
        let values = Arc::new(tensor(Numbers::Full, 1, 16 * 2_000));
        pair.nodes[0].post_send(pair.now, SendCall::new(name(1, 1), values)).expect("sound");
        pair.nodes[1].post_receive(pair.now, buffer(1, 16 * 2_000, 0.0)).expect("sound");
        let mut sent = 0;
        let began = pair.now;
        // Offers are answered, and data is not.
        let mut ends = Vec::new();
        while ends.is_empty() && pair.now.since(began) < give_up_after * 3 {
            pair.wait(Span::from_us(100));
            let packets = pair.sends(0, 64);
            sent += packets.iter().filter(|packet| packet.data().is_some()).count();
            let offers = packets.into_iter().filter(|packet| packet.verb().is_some() && sent == 0);
            let offers: Vec<_> = offers.collect();
            pair.hand(1, offers);
            let answers = pair.sends(1, 64);
            pair.hand(0, answers);
            ends = pair.ends(0);
        }
        assert!(sent > 2, "{sent} packets: {control:?}");
        let [Completion::Failed(failed)] = &ends[..] else { panic!("{ends:?}: {control:?}") };
        assert_eq!(failed.failure, Failure::Silent, "{control:?}");
        pair.wait(Span::from_s(1));
        assert_eq!(pair.nodes[0].poll_timeout(), Time::NEVER, "{control:?}");
    }
}

// spec: M-01, M-06, M-07 simulator
#[test]
fn any_loss_pattern_ends_within_the_bound_with_each_control() {
    for control in controls() {
        let mut met = swarm::Met::default();
        (0..300).for_each(|seed| swarm::run(seed, Some(control), &mut met));
    }
}
