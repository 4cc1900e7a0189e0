//! Messages that no honest member sends, under any number and of any length.

use proptest::prelude::*;
use thalweg_core::testing::TestOutbox;
use thalweg_core::{Bytes, Element, Fingerprint, Machine, NodeId, Time};
use thalweg_flow::{Endpoint, FlowId, FlowTagger, Message, Payload};
use thalweg_values::Tensor;
use thalweg_wire::fingerprint;

use crate::group::{Collective, rings, servers};

/// A message of one packet: its number and length in bytes, and whether they are real.
type Forged = (u64, u32, bool);

fn forged() -> impl Strategy<Value = Vec<Forged>> {
    let number = prop_oneof![0..40u64, 0..FlowId::NUMBERS, Just(FlowId::NUMBERS / 2 - 1)];
    let bytes = prop_oneof![Just(4u32), Just(8u32), 0..100u32];
    prop::collection::vec((number, bytes, any::<bool>()), 0..200)
}

/// Delivers forged messages to a machine, as its peer or as a stranger would send them.
fn deliver<M: Collective>(machine: &mut M, src: NodeId, messages: &[Forged]) {
    let mut endpoint = Endpoint::new(thalweg_flow::Config::default()).expect("defaults work");
    for &(number, bytes, is_real) in messages {
        let body = match is_real {
            true => Payload::Bytes(framed(number, bytes as usize)),
            false => Payload::Length(Bytes::from(bytes)),
        };
        let message = Message { dst: NodeId(0), body, tagger: FlowTagger::default(), entropy: 0 };
        endpoint.start_numbered(Time::ZERO, number, message).expect("short enough");
        let mut outbox = TestOutbox::new(src);
        endpoint.poll_transmit(Time::ZERO, &mut outbox);
        for mut packet in outbox.packets {
            machine.handle_packet(Time::ZERO, packet.lend());
        }
    }
}

/// Values, and a frame that can be read most of the time: of an operation, or of a stop.
fn framed(number: u64, bytes: usize) -> Box<[u8]> {
    let mut message = vec![0x3f; bytes];
    let sum = |values| fingerprint::encode(&Fingerprint::of_sum(Element::F32, values));
    if number % 7 == 6 {
        let (one, other) = (sum(1), sum(2));
        message.extend([2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0]);
        message.extend(one.into_iter().chain(other));
    } else if !number.is_multiple_of(7) {
        message.extend([1, 0, 0, 0, (number % 5) as u8, 0, 0, 0]);
        message.extend(sum(number % 5));
        message.extend([0; 32]);
    }
    message.into()
}

/// Number of operations that have ended.
fn ended<M: Collective>(machine: &mut M) -> usize {
    std::iter::from_fn(|| machine.poll_event()).count()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn a_forging_peer_breaks_nothing_but_sums(
        messages in forged(),
        submitted in 0..6usize,
        src in 1..3u32,
    ) {
        let mut ring = rings(3, |config| config.chunk_bytes = 8).swap_remove(0);
        let mut node = servers(3, 0, 2, |config| config.chunk_bytes = 8).swap_remove(0);
        for values in 0..submitted {
            ring.submit(Time::ZERO, Tensor::from(vec![1.0; values])).expect("it goes on");
            node.submit(Time::ZERO, Tensor::from(vec![1.0; values])).expect("it goes on");
        }
        deliver(&mut ring, NodeId(src), &messages);
        deliver(&mut node, NodeId(src), &messages);
        prop_assert!(ended(&mut ring) <= submitted, "an operation ended twice");
        prop_assert!(ended(&mut node) <= submitted, "an operation ended twice");
    }
}

#[test]
fn strangers_are_refused() {
    let messages = [(0, 4, true), (1, 4, true), (2, 8, false), (FlowId::NUMBERS - 1, 0, true)];
    let mut ring = rings(3, |_| ()).swap_remove(0);
    // Node 1 comes after node 0, not before it.
    deliver(&mut ring, NodeId(1), &messages);
    let mut node = servers(3, 0, 2, |_| ()).swap_remove(0);
    deliver(&mut node, NodeId(9), &messages);
    assert_eq!(ring.counters().refused_messages, 4);
    assert_eq!(node.counters().refused_messages, 4);
    assert_eq!((ring.failure(), node.failure()), (None, None));
}

// spec: A-51 machine
#[test]
fn a_sum_comes_from_the_server_of_its_chunk_alone() {
    let mut node = servers(3, 0, 2, |config| config.chunk_bytes = 8).swap_remove(0);
    node.submit(Time::ZERO, Tensor::from(vec![1.0; 4])).expect("it goes on");
    // Message 3 is the sum of chunk 1, which node 1 adds.
    deliver(&mut node, NodeId(2), &[(3, 8, true)]);
    assert_eq!(node.counters().refused_messages, 1);
    deliver(&mut node, NodeId(1), &[(3, 8, true)]);
    assert_eq!(node.counters().refused_messages, 1);
}

#[test]
fn what_lies_too_far_ahead_is_refused() {
    let mut ring = rings(3, |config| config.pieces_in_flight = 2).swap_remove(0);
    // Four rounds a piece. Nobody can be four pieces ahead, and no sum is there before this rank's values are in it.
    deliver(&mut ring, NodeId(2), &[(4 * 3 + 1, 4, false), (4 * 4, 4, false), (2, 4, false)]);
    assert_eq!(ring.counters().refused_messages, 2);
    let mut node = servers(3, 0, 2, |config| config.chunks_in_flight = 2).swap_remove(0);
    // Pushes have even numbers, and every other chunk is for another server.
    deliver(&mut node, NodeId(2), &[(2 * 2, 4, false), (2 * 4, 4, false), (2, 4, false)]);
    assert_eq!(node.counters().refused_messages, 2);
}

/// A peer cannot have a member keep more than chunks: nothing else is known of a message that comes early.
// spec: E-12 machine
#[test]
fn what_is_longer_than_a_chunk_is_not_kept() {
    // Two values and a frame of 64 bytes.
    for (bytes, is_taken) in [(8 + 64, true), (8 + 68, false)] {
        let mut ring = rings(3, |config| config.chunk_bytes = 8).swap_remove(0);
        deliver(&mut ring, NodeId(2), &[(0, bytes, false)]);
        assert_eq!((ring.counters().refused_messages, ring.failure().is_none()), (0, is_taken));
        let mut node = servers(3, 0, 2, |config| config.chunk_bytes = 8).swap_remove(0);
        deliver(&mut node, NodeId(2), &[(0, bytes, false)]);
        assert_eq!((node.counters().refused_messages, node.failure().is_none()), (0, is_taken));
    }
}
