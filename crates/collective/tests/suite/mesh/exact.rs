//! Every call of every kind, in groups of several sizes.

use proptest::prelude::*;
use thalweg_collective::mesh::{Config, TransferOrder};
use thalweg_core::{Combine, Element, OperationKind as Kind, Rng};

use super::script::Script;
use super::{meshes, oracle, tiny};
use crate::shuttle::Shuttle;

const RANKS: [u32; 5] = [1, 2, 3, 4, 8];
/// Around the lengths where chunks and slices begin to differ.
const LENGTHS: [usize; 7] = [0, 1, 3, 8, 17, 64, 301];

#[test]
fn every_call_keeps_its_promise() {
    for ranks in RANKS {
        for (seed, loss) in [(1, 0.0), (2, 0.05)] {
            let mut rng = Rng::new(seed).stream("mesh");
            let mut script = Script::new(ranks);
            for &kind in Kind::COLLECTIVES {
                LENGTHS.iter().for_each(|&length| script.submit_kind(&mut rng, kind, length));
            }
            let mut shuttle = Shuttle::new(meshes(ranks, tiny), seed);
            (shuttle.loss, shuttle.duplication) = (loss, loss);
            script.check(&mut shuttle, &mut rng, 200);
        }
    }
}

#[test]
fn every_type_is_combined_in_every_way() {
    for ranks in RANKS {
        let mut rng = Rng::new(3).stream("mesh");
        let mut script = Script::new(ranks);
        for element in Element::ALL {
            for how in [Combine::Sum, Combine::Product, Combine::Min, Combine::Max] {
                for kind in [Kind::AllReduce, Kind::ReduceScatter, Kind::Reduce] {
                    script.submit_reduction(&mut rng, kind, 29, element, how);
                }
            }
        }
        script.check(&mut Shuttle::new(meshes(ranks, tiny), 3), &mut rng, 300);
    }
}

#[test]
fn the_usual_settings_work_on_long_data() {
    let mut rng = Rng::new(4).stream("mesh");
    let mut script = Script::new(3);
    for &kind in Kind::COLLECTIVES {
        script.submit_reduction(&mut rng, kind, 1_234_567, Element::F32, Combine::Sum);
    }
    script.transfer(2, 0, 0, oracle::bytes(&mut rng, 6_000_001));
    script.check(&mut Shuttle::new(meshes(3, |_| ()), 4), &mut rng, 5_000);
}

#[test]
fn a_rank_alone_is_done_at_once() {
    let mut rng = Rng::new(5).stream("mesh");
    let mut script = Script::new(1);
    Kind::COLLECTIVES.iter().for_each(|&kind| script.submit_kind(&mut rng, kind, 100));
    let mut shuttle = Shuttle::new(meshes(1, tiny), 5);
    // Nothing is delivered between the calls, and there is nothing to deliver.
    script.check(&mut shuttle, &mut rng, 1);
    assert_eq!(shuttle.machines[0].counters().sent_bytes.as_u64(), 0);
    assert_eq!(shuttle.machines[0].counters().finished_operations, 9);
}

#[test]
fn no_link_carries_a_broadcast_twice() {
    let mut rng = Rng::new(6).stream("mesh");
    let mut script = Script::new(8);
    script.submit_kind(&mut rng, Kind::Broadcast, 7 << 20);
    let mut shuttle = Shuttle::new(meshes(8, |_| ()), 6);
    script.check(&mut shuttle, &mut rng, 1);
    for mesh in &shuttle.machines {
        let sent = mesh.counters().sent_bytes.as_u64();
        // A rank other than the root passes on its seventh to six others, in chunks of 64 KiB, each with a trailer of
        // 64 bytes. One more to the root says that it has called, and one from the root that all
        // have.
        let slice = (1 << 20) + 16 * 64;
        assert_eq!(sent, if sent > 7 << 20 { 7 * (slice + 64) } else { 6 * slice + 64 });
    }
}

/// Parameters of a run of a random program.
#[derive(Clone, Debug)]
struct Scene {
    ranks: u32,
    steps: u32,
    chunk_bytes: u64,
    chunks_at_once: u32,
    order: TransferOrder,
    direct_bytes: u64,
    eager_bytes: u64,
    segment_bytes: u32,
    loss: f64,
    seed: u64,
}

prop_compose! {
    fn any_scene()(
        ranks in 1..=8u32,
        steps in 1..12u32,
        chunk_words in 1..10u64,
        chunks_at_once in 1..4u32,
        order in prop::sample::select(vec![TransferOrder::InTurn, TransferOrder::ShortestFirst]),
        direct_bytes in 0..100u64,
        eager_bytes in 0..200u64,
        segment_bytes in 16..100u32,
        loss in prop::sample::select(vec![0.0, 0.02, 0.1]),
        seed in any::<u64>(),
    ) -> Scene {
        let chunk_bytes = 8 * chunk_words;
        Scene {
            ranks, steps, chunk_bytes, chunks_at_once, order, direct_bytes, eager_bytes, segment_bytes,
            loss, seed,
        }
    }
}

impl Scene {
    fn configure(&self, config: &mut Config) {
        config.chunk_bytes = self.chunk_bytes;
        config.chunks_at_once = self.chunks_at_once;
        config.order = self.order;
        config.direct_bytes = self.direct_bytes;
        config.eager_bytes = self.eager_bytes;
        config.flow.messages.segment_bytes = self.segment_bytes;
        config.flow.messages.first_message = self.seed % 1_000;
    }

    fn program(&self, rng: &mut Rng) -> Script {
        let mut script = Script::new(self.ranks);
        for _ in 0..self.steps {
            let length = [0, 1, 5, 40, 300][rng.below(5) as usize];
            let (from, to) = (rng.below(self.ranks.into()), rng.below(self.ranks.into()));
            if from != to && rng.chance(0.4) {
                let bytes = oracle::bytes(rng, length);
                script.transfer(from as u32, to as u32, rng.below(2), bytes);
            } else {
                let kind = Kind::COLLECTIVES[rng.below(9) as usize];
                script.submit_kind(rng, kind, length);
            }
        }
        script
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn programs_end_with_what_they_should(scene in any_scene()) {
        let mut rng = Rng::new(scene.seed).stream("program");
        let script = scene.program(&mut rng);
        let machines = meshes(scene.ranks, |config| scene.configure(config));
        let mut shuttle = Shuttle::new(machines, scene.seed);
        (shuttle.loss, shuttle.duplication) = (scene.loss, scene.loss);
        script.check(&mut shuttle, &mut rng, 100);
    }
}
