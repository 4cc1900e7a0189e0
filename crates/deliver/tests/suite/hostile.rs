//! Packets that no honest endpoint sends.

use std::sync::Arc;

use proptest::prelude::*;
use thalweg_core::testing::OwnedBody;
use thalweg_core::{Bytes, HEADER_BYTES, JobId, Meta, NodeId, Time};
use thalweg_deliver::{Completion, Config, SendCall};
use thalweg_transport::Credentials;
use thalweg_values::Tensor;
use thalweg_wire::deliver::{Ack, Control, Data, Refusal, TensorName, Verb, bitmap_bytes};
use thalweg_wire::tag::{Key, seal};

use crate::shuttle::{Owned, Pair, Read, buffer, name};
use crate::values::{Numbers, tensor};

/// Packet about one of a few tensors, true or not.
#[derive(Clone, Debug)]
enum Forged {
    Data { offset: u64, payload_bytes: u16, echo: bool },
    Echo { sent_at: u64 },
    Control(Verb),
}

fn verbs() -> impl Strategy<Value = Verb> {
    let lengths = prop_oneof![Just(400u64), Just(404), Just(0), any::<u64>()];
    let segments = prop_oneof![Just(64u16), Just(68), Just(1_408), any::<u16>()];
    let small = || prop_oneof![0..9u32, Just(8_192), any::<u32>()];
    prop_oneof![
        (lengths, segments, 0..1_000_000u32, small()).prop_map(
            |(bytes, segment_bytes, loss, trailer_bytes)| {
                let tensor_bytes = Bytes::new(bytes);
                Verb::Offer { tensor_bytes, segment_bytes, loss, layer: 0, trailer_bytes }
            }
        ),
        any::<u32>().prop_map(|loss| Verb::Accept { loss }),
        Just(Verb::Hold),
        small().prop_map(|first| Verb::Probe { first }),
        (small(), small()).prop_map(|(first, count)| Verb::Bitmap { first, count }),
        Just(Verb::Stop),
        Just(Verb::Refuse(Refusal::Length)),
    ]
}

fn forged() -> impl Strategy<Value = Forged> {
    let offsets = prop_oneof![(0..9u64).prop_map(|at| at * 64), any::<u64>()];
    let lengths = prop_oneof![Just(64u16), Just(16), any::<u16>()];
    prop_oneof![
        (offsets, lengths, any::<bool>()).prop_map(|(offset, payload_bytes, echo)| Forged::Data {
            offset,
            payload_bytes,
            echo
        }),
        any::<u64>().prop_map(|sent_at| Forged::Echo { sent_at }),
        verbs().prop_map(Forged::Control),
    ]
}

/// A body of this number of bytes.
fn body_of(bytes: u16) -> OwnedBody {
    match bytes {
        0 => OwnedBody::Length(0),
        _ => OwnedBody::Bytes(vec![0x7f; usize::from(bytes)]),
    }
}

fn packet(src: u32, job: u64, operation: u64, forged: &Forged, body_bytes: u16) -> Owned {
    let tensor = TensorName { job: JobId(job), epoch: 0, operation, tensor: 0 };
    let mut header = [0; HEADER_BYTES];
    let honest_bytes = match *forged {
        Forged::Data { offset, payload_bytes, echo } => {
            let (sent_at, offset) = (Time::ZERO, Bytes::new(offset));
            Data { name: tensor, sent_at, offset, layer: 0, payload_bytes, echo }
                .encode(&mut header);
            payload_bytes
        }
        Forged::Echo { sent_at } => {
            let sent_at = Time::from_ps(sent_at);
            let ack = Ack {
                name: tensor,
                sent_at,
                congested: true,
                is_spent: true,
                class: 3,
                arrived_bytes: u64::MAX,
                arrived_at: sent_at,
            };
            ack.encode(&mut header);
            0
        }
        Forged::Control(verb) => {
            Control { name: tensor, verb }.encode(&mut header);
            if let Verb::Bitmap { count, .. } = verb { bitmap_bytes(count) as u16 } else { 0 }
        }
    };
    // Most bodies are as long as they should be.
    let bytes = if body_bytes < 60_000 { honest_bytes } else { body_bytes };
    let meta = Meta { src: NodeId(src), ..Meta::default() };
    Owned::made_of(meta, header, body_of(bytes))
}

fn config() -> Config {
    Config { segment_bytes: 64, early_memory: 4, ended_memory: 4, ..Config::default() }
}

/// Node 1 awaits a tensor of node 0 and sends one to it.
fn busy() -> (Pair, Arc<Tensor>) {
    let mut pair = Pair::new(&config());
    let sent = Arc::new(tensor(Numbers::Full, 1, 100));
    for (node, peer) in [(0, 1), (1, 0)] {
        let mut call = buffer(7, 100, 0.0);
        call.name = name(peer, 7);
        pair.nodes[node].post_receive(pair.now, call).expect("sound");
        let call = SendCall::new(name(peer, 7), Arc::clone(&sent));
        pair.nodes[node].post_send(pair.now, call).expect("sound");
    }
    (pair, sent)
}

fn received(ends: &[Completion]) -> Vec<&Tensor> {
    let buffers = ends.iter().filter_map(|end| match end {
        Completion::Received(received) => Some(&received.buffer),
        Completion::Sent(_) | Completion::Failed(_) => None,
    });
    buffers.collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    /// Another node of the job, whatever it says, and another job, even with the peer's address, change
    /// nothing about what two others do.
    #[test]
    fn strangers_touch_nothing(
        packets in prop::collection::vec((forged(), 6..9u64, any::<u16>(), any::<bool>()), 0..100),
        rounds in 1..6usize,
    ) {
        let (mut pair, sent) = busy();
        for part in packets.chunks(packets.len().div_ceil(rounds).max(1)) {
            for (forged, operation, body_bytes, is_other_job) in part {
                let (src, job) = if *is_other_job { (0, 99) } else { (5, 0) };
                pair.hand(1, [packet(src, job, *operation, forged, *body_bytes)]);
            }
            for (from, to) in [(0, 1), (1, 0)] {
                let packets = pair.sends(from, 2);
                pair.hand(to, packets.into_iter().filter(|packet| packet.meta.dst.0 == to as u32));
            }
        }
        pair.talk(|packet| packet.meta.dst.0 > 1);
        for node in [0, 1] {
            let ends = pair.ends(node);
            prop_assert_eq!(ends.len(), 2, "{:?}", ends);
            prop_assert_eq!(received(&ends), [&*sent]);
        }
    }

    /// A peer that lies harms what it takes part in, and no call ends twice.
    #[test]
    fn a_lying_peer_ends_nothing_twice(
        packets in prop::collection::vec((forged(), 6..9u64, any::<u16>()), 0..200),
    ) {
        let (mut pair, _) = busy();
        let mut answers = 0;
        for (forged, operation, body_bytes) in &packets {
            pair.hand(1, [packet(0, 0, *operation, forged, *body_bytes)]);
            answers += pair.sends(1, 1).len();
        }
        prop_assert!(answers <= packets.len(), "one packet makes one packet at most");
        prop_assert!(pair.ends(1).len() <= 2);
        prop_assert!(pair.nodes[1].incoming() <= 1 && pair.nodes[1].outgoing() <= 1);
    }

    /// Any bytes at all.
    #[test]
    fn noise_is_dropped(headers in prop::collection::vec(any::<[u8; HEADER_BYTES]>(), 1..20)) {
        let (mut pair, _) = busy();
        let meta = Meta { src: NodeId(0), ..Meta::default() };
        let count = headers.len() as u64;
        for mut header in headers {
            // Half of them get past the first look.
            if header[63] < 128 {
                header[..3].copy_from_slice(&[0x54, 0x57, 0x22]);
                header[3] = 32 + header[3] % 9;
                header[4..16].fill(0);
            }
            pair.hand(1, [Owned::made_of(meta, header, OwnedBody::Length(0))]);
        }
        let stats = pair.nodes[1].stats();
        prop_assert!(stats.foreign + stats.malformed + stats.late <= count);
        prop_assert_eq!(pair.ends(1), []);
    }
}

#[test]
fn without_the_key_no_packet_is_taken() {
    let key = Key(*b"the key of a job");
    let mut pair = Pair::new(&Config {
        credentials: Credentials { key: Some(key), ..config().credentials },
        ..config()
    });
    let sent = Arc::new(tensor(Numbers::Full, 1, 100));
    pair.nodes[1].post_receive(pair.now, buffer(7, 100, 0.0)).unwrap();
    pair.nodes[0].post_send(pair.now, SendCall::new(name(1, 7), Arc::clone(&sent))).unwrap();
    let mut stop = packet(1, 0, 7, &Forged::Control(Verb::Stop), 0);
    pair.hand(0, [stop.clone()]);
    assert_eq!((pair.ends(0), pair.nodes[0].stats().foreign), (Vec::new(), 1));
    pair.talk(|_| false);
    assert_eq!(received(&pair.ends(1)), [&*sent]);
    assert_eq!(pair.ends(0).len(), 1);
    // The same packet, sealed, is taken.
    pair.nodes[0].post_send(pair.now, SendCall::new(name(1, 8), sent)).unwrap();
    stop = packet(1, 0, 8, &Forged::Control(Verb::Stop), 0);
    seal(&mut stop.header, &key);
    pair.hand(0, [stop]);
    assert!(matches!(pair.ends(0)[..], [Completion::Sent(_)]));
}

/// Offers of tensors that nobody wants are forgotten, and answers do not pile up.
#[test]
fn memory_is_bounded_whatever_is_offered() {
    let config = Config { max_waiting_answers: 8, ..config() };
    let mut pair = Pair::new(&config);
    let verb = |values: u64| Verb::Offer {
        tensor_bytes: Bytes::new(4 * values),
        segment_bytes: 64,
        loss: 0,
        layer: 0,
        trailer_bytes: 0,
    };
    for operation in 0..1_000 {
        pair.hand(1, [packet(0, 0, operation, &Forged::Control(verb(1 << 30)), 0)]);
    }
    assert_eq!(pair.nodes[1].stats().no_room, 1_000 - 8);
    assert_eq!(pair.sends(1, 2_000).len(), 8);
    // The last four are remembered, the first ones not.
    for (operation, is_known) in [(3, false), (999, true)] {
        pair.nodes[1].post_receive(pair.now, buffer(operation, 100, 0.0)).unwrap();
        let refused = pair
            .sends(1, 9)
            .iter()
            .any(|packet| packet.verb() == Some(Verb::Refuse(Refusal::Length)));
        assert_eq!(refused, is_known, "another length was offered");
    }
}
