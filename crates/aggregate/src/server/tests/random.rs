//! Random trees, random parts, random bytes.

use proptest::prelude::*;

use super::*;

/// A part of a sum: a worker, how many levels above its entry the bitmap lies, and which bits of it.
type Part = (u32, u8, u32);

fn parts() -> impl Strategy<Value = Vec<(u64, Part)>> {
    prop::collection::vec((0..3_u64, (any::<u32>(), 0..4_u8, any::<u32>())), 0..60)
}

/// Workers below up to six racks, which lie below up to two further switches or the server.
fn members() -> impl Strategy<Value = Vec<Member>> {
    let racks = prop::collection::vec((0..6_u32, any::<bool>()), 1..50);
    (racks, prop::array::uniform6(0..3_u32)).prop_map(|(workers, above)| {
        let path = |(rack, is_bare): (u32, bool)| match (above[rack as usize], is_bare) {
            (0, true) => vec![],
            (0, false) => vec![100 + rack],
            (top, true) => vec![200 + top],
            (top, false) => vec![100 + rack, 200 + top],
        };
        (0..).zip(workers).map(|(node, worker)| member(node, &path(worker))).collect()
    })
}

impl Bench {
    /// A gradient with a part that the tree knows, and the ranks in it.
    fn part(&self, sequence: u64, part: Part) -> (Gradient, Vec<u32>) {
        let tree = self.setup.tree(sequence);
        let (rank, up, bits) = (part.0 % tree.workers(), part.1, part.2);
        let branch = tree.branch(rank);
        let level = (branch.entry() + up).min(branch.end() - 1);
        let bitmap = if bits & branch.full(level) == 0 { branch.full(level) } else { bits };
        let gradient = self.sum(rank, sequence, level, bitmap & branch.full(level));
        let positions = tree.positions(&branch, level, gradient.bitmap).unwrap().flatten();
        (gradient, positions.map(|position| tree.rank_at(position)).collect())
    }

    /// The parameter packets that go to the first top, by fragment.
    fn results(&mut self) -> Vec<(u64, Vec<u8>)> {
        let top = self.setup.trees[0].top_nodes()[0];
        let sent = self.drain();
        let to_top = sent.iter().filter(|sent| sent.meta.dst == top);
        to_top.map(|sent| (sent.parameter().identity.sequence, sent.body.clone())).collect()
    }
}

/// Contribution of a worker: no two sets have the same sum.
fn contribution(rank: u32, sequence: u64) -> [i32; 2] {
    [1 << (rank % 24), (rank as i32 + 1) * 1_000 + sequence as i32]
}

fn total(ranks: impl Iterator<Item = u32>, sequence: u64) -> Vec<u8> {
    let parts = ranks.map(|rank| contribution(rank, sequence));
    fixed(&parts.fold([0, 0], |[a, b], [c, d]| [a + c, b + d]))
}

proptest! {
    // spec, T-10 machine
    #[test]
    fn nothing_is_counted_twice_and_nothing_is_left_out(
        members in members(),
        parts in parts(),
        is_paper in any::<bool>(),
    ) {
        let recovery = if is_paper { Recovery::Paper } else { Recovery::Selective };
        let workers = members.len() as u32;
        let mut bench = Bench::new(setup(&members).with(|parameters| parameters.recovery = recovery));
        let mut results = Vec::new();
        for (sequence, part) in parts {
            let (gradient, ranks) = bench.part(sequence, part);
            bench.give(gradient, &total(ranks.into_iter(), sequence));
            results.extend(bench.results());
        }
        // Whatever has come, each worker's own contribution completes it.
        for sequence in 0..3 {
            for rank in 0..workers {
                bench.give(bench.own(rank, sequence), &total([rank].into_iter(), sequence));
            }
            results.extend(bench.results());
        }
        results.sort();
        let expected: Vec<_> = (0..3).map(|sequence| (sequence, total(0..workers, sequence))).collect();
        prop_assert_eq!(results, expected);
        prop_assert_eq!(bench.stats().completed, 3);
    }

    // spec: A-21, T-09 machine
    #[test]
    fn floats_have_the_same_bits_whenever_they_are_sent(
        members in members(),
        values in prop::collection::vec(prop::num::f32::ANY, 50),
        asking in any::<u32>(),
    ) {
        let workers = members.len() as u32;
        let mut bench = Bench::new(setup(&members).with(|parameters| parameters.numeric = Numeric::Float));
        for rank in 0..workers {
            bench.give(bench.own(rank, 0), &floats(&[values[rank as usize], 0.1]));
        }
        let first = bench.drain()[0].body.clone();
        bench.give_all(0, &floats(&[1.0, 2.0]));
        bench.wait_us(60);
        let asking = asking % workers;
        bench.ask(bench.query(asking, 0, false));
        let again = bench.drain();
        prop_assert_eq!(destinations(&again), [asking]);
        prop_assert_eq!(&again[0].body, &first);
        let sum = values[..workers as usize].iter().copied().reduce(|a, b| a + b).unwrap();
        prop_assert!(sum.is_nan() || first[..4] == sum.to_le_bytes(), "in the order of arrival");
    }

    /// Overflow anywhere, floats in any order, old packets in between.
    // spec: A-23 machine
    #[test]
    fn attempts_are_never_mixed(
        members in members(),
        parts in parts(),
        overflowing in any::<u32>(),
    ) {
        let workers = members.len() as u32;
        let mut bench = Bench::new(setup(&members));
        for rank in 0..workers {
            let overflow = rank == overflowing % workers;
            bench.give(Gradient { overflow, ..bench.own(rank, 0) }, &fixed(&[1]));
        }
        prop_assert!(bench.drain()[0].parameter().repeat);
        for (_, part) in parts {
            bench.wait_us(60);
            bench.give(bench.part(0, part).0, &fixed(&[1_000_000]));
            let repeats = bench.drain();
            prop_assert!(repeats.iter().all(|sent| sent.parameter().repeat) && !repeats.is_empty());
            let rank = part.0 % workers;
            if rank != overflowing % workers {
                bench.give(in_floats(bench.own(rank, 0)), &floats(&[0.5]));
            }
        }
        for rank in 0..workers {
            bench.give(in_floats(bench.own(rank, 0)), &floats(&[0.5]));
        }
        prop_assert_eq!(bench.drain()[0].body.clone(), floats(&[0.5 * workers as f32]));
    }

    /// Whatever was lost, and whatever came, those that are asked can complete it.
    // spec: T-10 machine
    #[test]
    fn a_sum_completes_even_if_no_switch_helps(members in members(), parts in parts()) {
        let mut bench = Bench::new(setup(&members));
        for (_, part) in parts {
            let (gradient, ranks) = bench.part(0, part);
            bench.give(gradient, &total(ranks.into_iter(), 0));
        }
        bench.drain();
        bench.ask(bench.query(0, 0, true));
        for asked in bench.drain() {
            if let Ok(request) = Request::decode(&asked.header) {
                prop_assert!(request.bypass && request.branch == bench.setup.tree(0).branch(asked.to()));
                let contribution = Gradient { resend: true, ..bench.own(asked.to(), 0) };
                bench.give(contribution, &total([asked.to()].into_iter(), 0));
            }
        }
        prop_assert_eq!(bench.stats().completed, 1);
        bench.wait_us(60);
        bench.ask(bench.query(0, 0, true));
        prop_assert_eq!(&bench.drain()[0].body, &total(0..members.len() as u32, 0));
    }

    #[test]
    fn no_packet_makes_it_panic_or_grow(
        packets in prop::collection::vec(
            (16..22_u8, any::<[u8; 40]>(), 0..5_u64, any::<u64>(), 0..8_usize, any::<bool>()),
            0..40,
        ),
    ) {
        let mut bench = Bench::new(setup(&side_by_side()));
        for (kind, noise, sequence, kept, values, is_real) in packets {
            let mut header = bench.own(sequence as u32, sequence).to_header();
            header[3] = kind;
            // Most bytes stay as they are: pure noise would not come far.
            for (at, (byte, noise)) in header[24..].iter_mut().zip(noise).enumerate() {
                if kept >> (at % 64) & 0b1111 == 0 {
                    *byte = noise;
                }
            }
            bench.wait_us(7);
            let mut body = vec![0; values * 4];
            let length = Body::Length(values as u32 * 4);
            let body = if is_real { Body::Bytes(&mut body) } else { length };
            bench.hand_in(header, body, Ecn::from_bits(noise[0]));
            prop_assert!(bench.drain().len() <= 20);
        }
    }
}
