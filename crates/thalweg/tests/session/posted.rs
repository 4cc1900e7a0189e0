//! Deliveries that ranks post, over sockets that lose, repeat and reorder packets; and the classes and source ports of
//! their packets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use thalweg::internal::{Fate, Tap};
use thalweg::tagging::{Dscp, Ecn, Segment, Tag, Tagging};
use thalweg::{
    Collective, Delivered, ErrorKind, LossBound, Lost, Priority, ReceivePost, Reduce, SendPost,
    Session, SessionConfig,
};
use thalweg_wire::deliver::Data;
use thalweg_wire::{Kind, peek};

use crate::Cluster;
use crate::bounded::{RANKS, bounded, reduce};

const VALUES: usize = 352 * 400;

fn bound(share: f64) -> LossBound {
    LossBound::new(share).expect("a share")
}

/// Values of which half the packets are large.
fn uneven() -> Vec<f32> {
    let value =
        |at: usize| if (at / 352).is_multiple_of(2) { 100.0 } else { 1.0 } + (at % 50) as f32;
    (0..VALUES).map(value).collect()
}

/// Values that arrived are right, the others are `instead`, and no more of them than the bound allows.
fn check(delivered: &Delivered<Vec<f32>>, share: f64, instead: f32) -> usize {
    let mut expected = uneven();
    for range in &delivered.lost {
        expected[range.start as usize..range.end as usize].fill(instead);
    }
    assert!(delivered.values == expected, "{:?} were lost", delivered.lost);
    let lost: u64 = delivered.lost.iter().map(|range| range.end - range.start).sum();
    assert!(lost as f64 <= share * VALUES as f64, "{lost} of {VALUES} are lost");
    lost as usize
}

/// Rank 0 sends the same values once for each of these buffers of rank 1. Returns what rank 1 received, with its session's
/// and rank 0's counters.
fn deliver(
    change: impl Fn(&mut SessionConfig) + Sync,
    posts: &[(f64, Lost)],
) -> (Vec<Delivered<Vec<f32>>>, Vec<thalweg::Counters>) {
    let cluster = Cluster::losing(0.0);
    let results = cluster.run(2, change, |session| {
        let delivered = (0..).zip(posts).map(|(number, &(share, lost))| {
            if session.rank() == 0 {
                let handle = session.post_send(SendPost::new(1, number, uneven()));
                assert_eq!(handle.wait().expect("it ends"), uneven(), "the memory comes back");
                return None;
            }
            let buffer = ReceivePost::new(0, number, vec![-7.0_f32; VALUES]);
            let post = ReceivePost { loss: bound(share), lost, ..buffer };
            Some(session.post_receive(post).wait().expect("it ends"))
        });
        let delivered: Vec<_> = delivered.flatten().collect();
        session.barrier().wait().expect("it ends");
        (delivered, session.counters().expect("it runs"))
    });
    let (delivered, counters): (Vec<_>, Vec<_>) = results.into_iter().unzip();
    (delivered.into_iter().flatten().collect(), counters)
}

fn is_delivery(kind: Kind) -> bool {
    use Kind::*;
    matches!(
        kind,
        DeliverData
            | DeliverAck
            | DeliverOffer
            | DeliverAccept
            | DeliverProbe
            | DeliverBitmap
            | DeliverStop
    )
}

/// Of all packets of deliveries one in five is lost, one in seven comes late and one in eleven twice.
fn disturbed() -> Tap {
    let count = AtomicU64::new(0);
    Arc::new(move |_, header| {
        if !peek(header).is_ok_and(|prefix| is_delivery(prefix.kind())) {
            return Fate::Arrives;
        }
        match count.fetch_add(1, Ordering::Relaxed) {
            packet if packet % 5 == 0 => Fate::Lost,
            packet if packet % 7 == 0 => Fate::Late,
            packet if packet % 11 == 0 => Fate::Twice,
            _ => Fate::Arrives,
        }
    })
}

// spec: M-01, M-06, M-07, M-10 sockets
#[test]
fn values_arrive_within_their_bound_whatever_the_network_does() {
    let posts = [(0.1, Lost::ReadsZero), (0.1, Lost::KeepsValue), (0.0, Lost::ReadsZero)];
    let (delivered, counters) = deliver(|config| config.tap = Some(disturbed()), &posts);
    let instead = [0.0, -7.0, 0.0];
    let lost: Vec<usize> = delivered
        .iter()
        .zip(posts)
        .zip(instead)
        .map(|((delivered, (share, _)), instead)| check(delivered, share, instead))
        .collect();
    assert!(lost[0] > 0 && lost[1] > 0 && lost[2] == 0, "{lost:?}");
    let [sent, received] = [0, 1].map(|rank: usize| counters[rank].posted_delivery.transport);
    assert!(sent.probes > 0 && sent.bitmaps > 0 && sent.resent > 0, "{sent:?}");
    assert!(received.duplicates > 0 && received.late > 0, "{received:?}");
    assert_eq!(received.malformed + received.foreign + sent.malformed + sent.foreign, 0);
}

/// The first three packets of each kind of control packet are lost at both ranks.
// spec: M-09 sockets
#[test]
fn lost_control_packets_are_repeated() {
    let tap = || -> Tap {
        let (seen, data) = (Mutex::new(BTreeMap::new()), AtomicU64::new(0));
        Arc::new(move |meta, header| match peek(header).map(|prefix| prefix.kind()) {
            Ok(Kind::DeliverData) if data.fetch_add(1, Ordering::Relaxed) % 10 == 0 => Fate::Lost,
            Ok(Kind::DeliverData) => Fate::Arrives,
            Ok(kind) if is_delivery(kind) && kind != Kind::DeliverAck => {
                assert_eq!(meta.dscp.priority(), 0, "control has a class of its own");
                let mut seen = seen.lock().expect("nobody panics with it");
                let count = seen.entry(kind as u8).or_insert(0);
                *count += 1;
                if *count <= 3 { Fate::Lost } else { Fate::Arrives }
            }
            _ => Fate::Arrives,
        })
    };
    let change = |config: &mut SessionConfig| config.tap = Some(tap());
    let (delivered, counters) = deliver(change, &[(0.0, Lost::ReadsZero)]);
    assert_eq!(check(&delivered[0], 0.0, 0.0), 0);
    let sent = counters[0].posted_delivery.transport;
    assert!(sent.unanswered >= 3, "an offer was repeated three times at least: {sent:?}");
}

// spec: M-10 sockets
#[test]
fn both_ends_may_poll_and_a_buffer_of_another_length_is_refused() {
    let cluster = Cluster::losing(0.0);
    cluster.run(
        2,
        |_| {},
        |session: &Session| {
            let other = 1 - session.rank();
            // Both send and receive at once, and neither waits.
            let mut sent = session.post_send(SendPost::new(other, 5, uneven()));
            let buffer = ReceivePost::new(other, 5, vec![0.0_f32; VALUES]);
            let mut received = session.post_receive(buffer);
            let delivered = polled(&mut received).expect("it ends");
            assert_eq!(check(&delivered, 0.0, 0.0), 0);
            assert_eq!(polled(&mut sent).expect("it ends"), uneven());

            let again = session.post_send(SendPost::new(2, 6, vec![0.0_f32])).wait();
            assert_eq!(again.expect_err("no rank 2").kind(), ErrorKind::Call);
            let doubles = session.post_send(SendPost::new(other, 6, vec![0.0_f64])).wait();
            assert_eq!(doubles.expect_err("no doubles").kind(), ErrorKind::Call);

            let refused = if session.rank() == 0 {
                session.post_send(SendPost::new(1, 7, vec![1.0_f32; 100])).wait().map(drop)
            } else {
                session.post_receive(ReceivePost::new(0, 7, vec![1.0_f32; 99])).wait().map(drop)
            };
            assert_eq!(refused.expect_err("99 of 100").kind(), ErrorKind::Disagreement);
            // The session goes on.
            session.barrier().wait().expect("it ends");
        },
    );
}

/// The result of a handle, without waiting in it.
#[expect(clippy::disallowed_methods, reason = "a program that polls does something else meanwhile")]
fn polled<T>(handle: &mut thalweg::Handle<T>) -> Result<T, thalweg::Error> {
    loop {
        if let Some(result) = handle.poll() {
            return result;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Headers of packets of tensors that arrived.
#[derive(Default)]
struct Seen {
    /// Code points and ECN of the packets of each layer.
    classes: BTreeSet<(u16, u8, bool)>,
    /// Source ports, in the order of arrival.
    ports: Vec<u16>,
}

/// Looks at all packets of tensors.
fn looking(seen: &Arc<Mutex<Seen>>) -> Tap {
    let seen = Arc::clone(seen);
    Arc::new(move |meta, header| {
        if let Ok(data) = Data::decode(header) {
            let mut seen = seen.lock().expect("nobody panics with it");
            seen.classes.insert((data.layer, meta.dscp.code(), meta.ecn == Ecn::NotCapable));
            seen.ports.push(meta.entropy);
        }
        Fate::Arrives
    })
}

/// Rank 0 sends a tensor of each of these layers of 4 to rank 1, and allows it to lose this share.
fn send_layers(session: &Session, layers: &[u16], share: f64) {
    for (number, &index) in (0..).zip(layers) {
        if session.rank() == 0 {
            let priority = Priority::Layer { index, of: 4 };
            let post = SendPost { priority, ..SendPost::new(1, number, uneven()) };
            session.post_send(post).wait().expect("it ends");
        } else {
            let post = ReceivePost::new(0, number, vec![0.0_f32; VALUES]);
            let post = ReceivePost { loss: bound(share), ..post };
            session.post_receive(post).wait().expect("it ends");
        }
    }
    session.barrier().wait().expect("it ends");
}

// spec: M-03, M-04, M-14 sockets
#[test]
fn packets_have_the_class_of_their_layer_and_the_ecn_of_their_importance() {
    let cluster = Cluster::losing(0.0);
    let look = |change: &(dyn Fn(&mut SessionConfig) + Sync), share: f64| {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let change = |config: &mut SessionConfig| {
            config.tap = Some(looking(&seen));
            change(config);
        };
        cluster.run(2, change, |session| send_layers(session, &[0, 2, 3], share));
        let seen = seen.lock().expect("nobody panics with it");
        // The scale of sessions has 256 layers.
        let classes = seen
            .classes
            .iter()
            .map(|&(layer, dscp, is_lost)| (layer / 64, Dscp::new(dscp).priority(), is_lost));
        classes.collect::<Vec<_>>()
    };
    // Layers 0, 128 and 192 of 256, in seven priorities from 1 on: floor(i * 7 / 256) + 1.
    let both = |layer, priority| [(layer, priority, false), (layer, priority, true)];
    let expected = [both(0, 1), both(2, 4), both(3, 6)].concat();
    assert_eq!(look(&|_| {}, 0.5), expected, "half of the packets are important");
    let exact: Vec<_> = expected.iter().copied().filter(|(.., is_lost)| !is_lost).collect();
    assert_eq!(look(&|_| {}, 0.0), exact, "where nothing may be lost, all are");

    let ten = |config: &mut SessionConfig| {
        config.tagging = Tagging::new(|_: &Segment| Tag { dscp: Dscp::new(10), ..Tag::default() });
    };
    let ten_priority = Dscp::new(10).priority();
    let replaced = look(&ten, 0.5);
    assert!(replaced.iter().all(|&(_, priority, is_lost)| priority == ten_priority && !is_lost));
}

// spec: M-14 sockets
#[test]
fn another_policy_tags_bounded_sums() {
    let cluster = Cluster::losing(0.0);
    for collective in [Collective::Server, Collective::Ring] {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let change = |config: &mut SessionConfig| {
            config.tap = Some(looking(&seen));
            config.tagging =
                Tagging::new(|_: &Segment| Tag { dscp: Dscp::new(12), ..Tag::default() });
        };
        cluster.run(RANKS, change, |session| {
            reduce(session, Reduce::Sum, bounded(0.1, collective));
        });
        let seen = seen.lock().expect("nobody panics with it");
        let codes: BTreeSet<u8> = seen.classes.iter().map(|&(_, dscp, _)| dscp).collect();
        assert_eq!(codes, BTreeSet::from([12]), "{collective:?}");
    }
}

// spec: M-02, M-21 sockets
#[test]
fn batches_take_all_source_ports_in_turn() {
    let cluster = Cluster::losing(0.0);
    let seen = Arc::new(Mutex::new(Seen::default()));
    let change = |config: &mut SessionConfig| {
        config.paths = 4;
        if config.rank == 1 {
            config.tap = Some(looking(&seen));
        }
    };
    let counters = cluster.run(2, change, |session| {
        send_layers(session, &[0, 1, 2], 0.1);
        session.counters().expect("it runs").net
    });
    let seen = seen.lock().expect("nobody panics with it");
    let mut packets = BTreeMap::new();
    seen.ports.iter().for_each(|port| *packets.entry(*port).or_insert(0_usize) += 1);
    assert_eq!(packets.len(), 4, "{packets:?}");
    let (least, most) = (packets.values().min().unwrap(), packets.values().max().unwrap());
    assert!(2 * least > *most, "about as many each: {packets:?}");
    let runs = seen.ports.chunk_by(|one, other| one == other).count();
    assert!(8 * runs <= seen.ports.len(), "{runs} runs of {} packets", seen.ports.len());
    println!("{} packets in {} batches", counters[0].sent_packets, counters[0].sent_batches);
}
