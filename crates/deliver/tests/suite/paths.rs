//! Batches of packets: which come first, and which path they take.

use std::sync::Arc;

use thalweg_core::{Ecn, Rng, Span};
use thalweg_deliver::{Completion, Config, Lost, SegmentOrder, SendCall};
use thalweg_transport::control::DelayRate;
use thalweg_values::Tensor;

use crate::shuttle::{Owned, Pair, Read, buffer, name};
use crate::values::check;

/// Packets of a batch.
const BATCH: u32 = 16;

/// 16 values a segment, batches over four paths, important packets first, and no waiting between packets.
fn config() -> Config {
    let control = DelayRate { burst: Span::from_s(1), ..DelayRate::default() }.into();
    Config {
        segment_bytes: 64,
        control,
        paths: 4,
        path_batch_packets: BATCH,
        leaves_lossy_paths: true,
        segments: SegmentOrder::ImportantFirst,
        ..Config::default()
    }
}

/// Values whose magnitude differs from segment to segment, in no order.
fn uneven(segments: usize) -> Arc<Tensor> {
    let value = |at: usize| ((at / 16 * 7_919) % 997 + 1) as f32 * (1.0 + (at % 7) as f32);
    Arc::new(Tensor::from((0..16 * segments).map(value).collect::<Vec<f32>>()))
}

/// Node 0 has offered values, and node 1 has accepted that this share of them is lost.
fn agreed(config: &Config, sent: &Arc<Tensor>, loss: f64) -> Pair {
    let mut pair = Pair::new(config);
    pair.nodes[1].post_receive(pair.now, buffer(7, sent.len() as usize, loss)).expect("sound");
    pair.nodes[0].post_send(pair.now, SendCall::new(name(1, 7), Arc::clone(sent))).expect("sound");
    let offer = pair.sends(0, 9);
    pair.hand(1, offer);
    let accept = pair.sends(1, 9);
    pair.hand(0, accept);
    pair
}

/// The segment that a packet carries.
fn segment(packet: &Owned) -> Option<u32> {
    packet.data().map(|data| (data.offset.as_u64() / 64) as u32)
}

/// Runs of equal values, with their lengths.
fn runs<T: PartialEq + Copy>(all: &[T]) -> Vec<(T, usize)> {
    let chunks = all.chunk_by(|one, other| one == other);
    chunks.map(|run| (run[0], run.len())).collect()
}

// spec: M-04, M-21 machine
#[test]
fn important_packets_leave_first_and_the_bound_cuts_off_others() {
    let sent = uneven(200);
    let mut pair = agreed(&config(), &sent, 0.2);
    let packets = pair.sends(0, 500);
    let marks: Vec<Ecn> = packets.iter().map(|packet| packet.meta.ecn).collect();
    let [(Ecn::Capable, important), (Ecn::NotCapable, _)] = runs(&marks)[..] else {
        panic!("two batches: {:?}", runs(&marks));
    };
    assert!((60..=140).contains(&important), "{important} of 200");
    let large: Vec<u32> = packets[..important].iter().filter_map(segment).collect();
    pair.hand(1, packets);
    let [Completion::Received(end)] = &pair.ends(1)[..] else { panic!("it is enough") };
    assert_eq!(check(&sent, &Tensor::from(vec![-1.0; 3_200]), end, Lost::ReadsZero), 40 * 64);
    assert_eq!(large.len(), important);
    assert!(large.iter().all(|&segment| end.arrived.contains(segment)), "none of them is lost");
}

// spec: M-04 machine
#[test]
fn packets_between_important_ones_are_not_missing_before_they_leave() {
    let sent = uneven(400);
    let is_capable = |packet: &&Owned| packet.meta.ecn == Ecn::Capable;
    let at_once = agreed(&config(), &sent, 0.2).sends(0, 500);
    let important = at_once.iter().filter(is_capable).count();
    let mut pair = agreed(&config(), &sent, 0.2);
    let mut capable = 0;
    loop {
        let packets = pair.sends(0, 20);
        if packets.is_empty() {
            break;
        }
        capable += packets.iter().filter(is_capable).count();
        pair.hand(1, packets);
        let echoes = pair.sends(1, 99);
        pair.hand(0, echoes);
        pair.wait(Span::from_us(1));
    }
    assert_eq!(capable, important, "nothing is lost, so that nothing else has become important");
}

/// Sends a tensor whose packets are lost by their path, by these chances in percent. Returns the packets of each path in
/// its first pass.
fn pass(pair: &mut Pair, operation: u64, lost_percent: [u64; 4], rng: &mut Rng) -> [u32; 4] {
    let sent = uneven(1_000);
    pair.nodes[1].post_receive(pair.now, buffer(operation, 16_000, 0.0)).expect("sound");
    let call = SendCall::new(name(1, operation), Arc::clone(&sent));
    pair.nodes[0].post_send(pair.now, call).expect("sound");
    let (mut taken, mut first_pass) = ([0; 4], 1_000);
    pair.talk(|packet: &Owned| {
        let path = usize::from(packet.meta.entropy) % 4;
        if packet.data().is_some() && first_pass > 0 {
            first_pass -= 1;
            taken[path] += 1;
        }
        packet.data().is_some() && rng.below(100) < lost_percent[path]
    });
    let ends = (pair.ends(0), pair.ends(1));
    assert!(matches!(&ends.1[..], [Completion::Received(end)] if end.buffer == *sent));
    taken
}

// spec: M-02, M-21 machine
#[test]
fn a_path_that_loses_more_than_the_others_is_left() {
    let mut rng = Rng::new(3);
    let mut pair = Pair::new(&config());
    let even = pass(&mut pair, 1, [1; 4], &mut rng);
    assert!(even.iter().all(|packets| (200..=300).contains(packets)), "{even:?}");
    assert_eq!(pair.nodes[0].stats().left_paths, 0, "all lose alike");
    for operation in 2..5 {
        pass(&mut pair, operation, [1, 25, 1, 1], &mut rng);
    }
    assert_eq!(pair.nodes[0].stats().left_paths, 1);
    let [_, lossy, ..] = pass(&mut pair, 5, [1, 25, 1, 1], &mut rng);
    assert!(lossy <= 50, "{lossy} of 1,000 packets took the path that loses");

    let mut pair = Pair::new(&Config { leaves_lossy_paths: false, ..config() });
    for operation in 1..5 {
        pass(&mut pair, operation, [1, 25, 1, 1], &mut rng);
    }
    let [_, lossy, ..] = pass(&mut pair, 5, [1, 25, 1, 1], &mut rng);
    assert!(lossy >= 200, "published: all paths alike, {lossy}");
}
