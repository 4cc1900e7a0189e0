//! Messages that no honest rank sends.

use proptest::prelude::*;
use thalweg_collective::mesh::{Call, Mesh};
use thalweg_core::testing::TestOutbox;
use thalweg_core::{Combine, Element, Machine, NodeId, OperationKind as Kind, Reports, Time};
use thalweg_flow::{Endpoint, FlowTagger, Message, Payload};

use super::{meshes, tiny};

/// Delivers messages to rank 0 as another node would send them.
fn deliver(mesh: &mut Mesh, src: NodeId, messages: Vec<Payload>) {
    let mut endpoint = Endpoint::new(thalweg_flow::Config::default()).expect("defaults work");
    for body in messages {
        let message = Message { dst: NodeId(0), body, tagger: FlowTagger::default(), entropy: 0 };
        endpoint.start(Time::ZERO, message).expect("short enough");
        let mut outbox = TestOutbox::new(src);
        endpoint.poll_transmit(Time::ZERO, &mut outbox);
        for mut packet in outbox.packets {
            mesh.handle_packet(Time::ZERO, packet.lend());
        }
    }
}

/// A message whose last 64 bytes say something that can be read, most of the time.
fn forged() -> impl Strategy<Value = Payload> {
    let none = |codes: std::ops::Range<u8>| prop_oneof![Just(255u8), codes];
    let what = (0..11u8, none(0..13u8), none(0..6u8), 0..2u8, prop_oneof![Just(u32::MAX), 0..4u32]);
    let small = || prop_oneof![0..4u64, Just(16), Just(64), Just(u64::MAX), any::<u64>()];
    let words = (0..4u64, small(), Just(0u64), small(), small(), prop_oneof![Just(0), small()]);
    let body = prop_oneof![Just(0usize), Just(16), Just(64), 0..80usize];
    ((0..8u8, 0..4u8), what, words, body).prop_map(|((form, stream), what, words, body)| {
        let (kind, element, reduction, path, root) = what;
        let (number, length, options, total, chunk, tag) = words;
        let codes = u64::from_le_bytes([form, stream, 0, 0, 0, 0, 0, 0]);
        let [a, b, c, d] = root.to_le_bytes();
        let what = u64::from_le_bytes([kind, element, reduction, path, a, b, c, d]);
        let words = [codes, number, what, length, options, total, chunk, tag];
        let mut message = vec![1; body];
        message.extend_from_slice(words.map(u64::to_le_bytes).as_flattened());
        Payload::Bytes(message.into())
    })
}

/// A call of some kind at rank 0 of three.
fn call(kind: Kind) -> Call {
    let (element, how, data) = (Element::U8, Combine::Sum, vec![1; 64]);
    match kind {
        Kind::AllReduce => Call::AllReduce { element, how, data },
        Kind::ReduceScatter => Call::ReduceScatter { element, how, data, counts: vec![16, 32, 16] },
        Kind::Reduce => Call::Reduce { root: 1, element, how, data },
        Kind::Broadcast => Call::Broadcast { root: 1, data },
        Kind::AllGather => Call::AllGather { data },
        Kind::Gather => Call::Gather { root: 0, data },
        Kind::Scatter => Call::Scatter { root: 1, parts: vec![] },
        Kind::AllToAll => Call::AllToAll { parts: vec![data; 3] },
        Kind::Barrier => Call::Barrier,
        Kind::Transfer => unreachable!("not a collective"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn a_forging_rank_breaks_nothing_but_outcomes(
        messages in prop::collection::vec(forged(), 0..60),
        kinds in prop::collection::vec(prop::sample::select(Kind::COLLECTIVES.to_vec()), 0..4),
        receives in 0..3u64,
    ) {
        let mut mesh = meshes(3, |config| {
            tiny(config);
            config.max_bytes = 1 << 20;
        }).swap_remove(0);
        let count = kinds.len() as u64 + receives;
        kinds.into_iter().for_each(|kind| _ = mesh.submit(Time::ZERO, call(kind)));
        (0..receives).for_each(|tag| _ = mesh.receive(Time::ZERO, 1, tag));
        deliver(&mut mesh, NodeId(1), messages);
        let ended = std::iter::from_fn(|| mesh.poll_event()).count();
        prop_assert!(ended as u64 <= count, "something ended twice");
    }
}

#[test]
fn strangers_and_noise_are_refused() {
    let mut mesh = meshes(3, tiny).swap_remove(0);
    let stop: Vec<u8> = [3u64, 0, 0, 0, 0, 0, 0, 0].map(u64::to_le_bytes).concat();
    let real = |bytes: Vec<u8>| Payload::Bytes(bytes.into());
    // Somebody else, this rank itself, and a member that sends nothing that can be read.
    deliver(&mut mesh, NodeId(9), vec![real(stop.clone())]);
    deliver(&mut mesh, NodeId(0), vec![real(stop.clone())]);
    let length = Payload::Length(thalweg_core::Bytes::new(64));
    deliver(&mut mesh, NodeId(1), vec![real(vec![0; 63]), real(vec![9; 64]), length]);
    assert_eq!((mesh.counters().refused_messages, mesh.failure()), (5, None));
    deliver(&mut mesh, NodeId(2), vec![real(stop)]);
    let stopped = thalweg_collective::mesh::Failure::Stopped { rank: 2, culprit: 0 };
    assert_eq!(mesh.failure(), Some(stopped));
}
