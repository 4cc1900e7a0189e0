//! Anything may arrive, and anything may be lost.

use std::collections::BTreeSet;

use proptest::prelude::*;
use thalweg_core::Rng;

use super::*;

/// A server without switches in between, and one worker. Packets are lost both ways.
fn run(recovery: Recovery, loss: f64, seed: u64) -> Bench {
    let tree = Tree::build(SERVER, &[Member { node: NodeId(0), path: vec![] }]).unwrap();
    let setup = Setup { trees: vec![Arc::new(tree)], ..setup() }
        .with(|parameters| parameters.recovery = recovery);
    let mut bench = Bench::new(setup);
    let values: Vec<f32> = (0..203).map(|value| value as f32).collect();
    bench.submit(&values);
    let mut rng = Rng::new(seed);
    let mut arrived = BTreeSet::new();
    for _ in 0..100_000 {
        let sent = bench.sent();
        if bench.worker.watermark() == 51 {
            break;
        }
        if sent.is_empty() {
            bench.expire();
        }
        bench.wait(Span::from_us(1));
        for packet in sent {
            if rng.chance(loss) {
                continue;
            }
            let sequence = packet.sequence();
            if packet.kind() == Kind::AggregateGradient {
                arrived.insert(sequence);
            }
            if rng.chance(loss) {
                continue;
            }
            let first = sequence as usize * 4;
            match arrived.contains(&sequence) {
                true => bench.answer_values(sequence, &values[first..values.len().min(first + 4)]),
                false => bench.ask(Request { bypass: true, ..bench.request(sequence) }),
            }
        }
    }
    bench
}

// spec: A-33, T-10 machine
#[test]
fn everything_completes_through_losses() {
    for recovery in [Recovery::Selective, Recovery::Paper] {
        for seed in 0..20 {
            let mut bench = run(recovery, 0.3, seed);
            assert_eq!(bench.finished(), [(0, 0)], "{recovery:?}, seed {seed}");
            let result = bench.worker.tensor(Operation(0)).unwrap().values().unwrap();
            assert!(result.iter().enumerate().all(|(index, value)| *value == index as f32));
            let stats = bench.worker.stats();
            assert_eq!(stats.fragments_sent, 51);
            match recovery {
                Recovery::Selective => assert!(stats.queries > 0 && stats.resent == 0, "{stats:?}"),
                Recovery::Paper => assert!(stats.resent > stats.queries, "{stats:?}"),
            }
        }
    }
    let stats = run(Recovery::Selective, 0.0, 0).worker.stats();
    assert_eq!((stats.queries, stats.timeouts, stats.losses, stats.duplicates), (0, 0, 0, 0));
}

proptest! {
    #[test]
    fn no_packet_makes_it_panic(
        packets in prop::collection::vec(
            (prop::array::uniform32(any::<u8>()), any::<u64>(), 0..4_u8, 0..20_u64, 0..40_usize),
            1..40,
        ),
        numeric in prop_oneof![Just(Numeric::Float), Just(fixed(100.0, true))],
    ) {
        let mut bench = Bench::new(setup().with(|parameters| parameters.numeric = numeric));
        bench.submit(&[1.0; 4 * 12]);
        for (noise, word, kind, sequence, body) in packets {
            bench.sent();
            let mut header = [0; HEADER_BYTES];
            match kind {
                0 => bench.parameter(sequence).encode(&mut header),
                1 => bench.request(sequence).encode(&mut header),
                2 => Parameter { repeat: true, ..bench.parameter(sequence) }.encode(&mut header),
                _ => header[..32].copy_from_slice(&noise),
            }
            // A few fields of what could be meant become noise.
            let is_noisy = word >> 60 & 3 == 0;
            for (bit, (field, noise)) in header[32..].iter_mut().zip(noise).enumerate() {
                if is_noisy && word >> bit & 1 == 1 {
                    *field = noise;
                }
            }
            bench.deliver(header, Body::Bytes(&mut vec![noise[0]; body]), Ecn::from_bits(noise[1]));
            bench.wait(Span::from_us(word % 1_000));
            if bench.worker.poll_timeout() <= bench.now {
                bench.worker.handle_timeout(bench.now);
            }
            prop_assert!(bench.worker.watermark() <= 12);
        }
    }
}
