//! Sums have exactly the promised bits, in whatever order packets come and workers submit.

use proptest::prelude::*;
use thalweg_collective::{ring, server};
use thalweg_core::{Bytes, Rng};
use thalweg_flow::MessageConfig;
use thalweg_values::Tensor;

use crate::group::{Collective, rings, servers};
use crate::oracle::{bits, in_rank_order, in_ring_order, tensors};
use crate::shuttle::{Shuttle, Sums};

/// Parameters of a run.
#[derive(Clone, Debug)]
struct Scene {
    workers: u32,
    /// Values of each operation.
    lengths: Vec<usize>,
    chunk_values: usize,
    in_flight: u32,
    segment_bytes: u32,
    loss: f64,
    duplication: f64,
    seed: u64,
}

fn any_scene() -> impl Strategy<Value = Scene> {
    let faults = (prop::sample::select(vec![0.0, 0.01, 0.05, 0.2]), 0.0..0.1f64);
    let sizes = (prop::collection::vec(0..200usize, 1..6), 1..40usize, 1..5u32, 8..64u32);
    (1..=8u32, sizes, faults, any::<u64>()).prop_map(
        |(
            workers,
            (lengths, chunk_values, in_flight, segment_bytes),
            (loss, duplication),
            seed,
        )| {
            Scene {
                workers,
                lengths,
                chunk_values,
                in_flight,
                segment_bytes,
                loss,
                duplication,
                seed,
            }
        },
    )
}

impl Scene {
    fn flow(&self) -> thalweg_flow::Config {
        let first_message = self.seed % 1_000;
        let segment_bytes = self.segment_bytes;
        let messages = MessageConfig { segment_bytes, first_message, ..MessageConfig::default() };
        thalweg_flow::Config { messages, ..thalweg_flow::Config::default() }
    }

    fn configure_ring(&self, config: &mut ring::Config) {
        config.chunk_bytes = 4 * self.chunk_values as u64;
        config.pieces_in_flight = self.in_flight;
        config.flow = self.flow();
    }

    fn configure_server(&self, config: &mut server::Config) {
        config.chunk_bytes = 4 * self.chunk_values as u64;
        config.chunks_in_flight = self.in_flight;
        config.pushes_at_once = 1 + self.in_flight / 2;
        config.flow = self.flow();
    }

    /// Runs it, each worker submitting when it likes, and compares all sums with the oracle.
    fn check<M: Collective>(&self, machines: Vec<M>, oracle: impl Fn(&[Vec<f32>]) -> Vec<f32>) {
        let mut rng = Rng::new(self.seed).stream("scene");
        let mut shuttle = Shuttle::new(machines, self.seed);
        shuttle.loss = self.loss;
        shuttle.duplication = self.duplication;
        let inputs: Vec<Vec<Vec<f32>>> = (self.seed..)
            .zip(&self.lengths)
            .map(|(seed, &length)| tensors(seed, self.workers, length))
            .collect();
        let operations = self.lengths.len();
        let mut calls: Vec<usize> = (0..self.workers as usize * operations).collect();
        rng.shuffle(&mut calls);
        let mut submitted = vec![0; self.workers as usize];
        for call in calls {
            let worker = call % self.workers as usize;
            let operation = submitted[worker];
            submitted[worker] += 1;
            let named = shuttle.submit(worker, Tensor::from(inputs[operation][worker].clone()));
            assert_eq!(named.0, operation as u64);
            shuttle.run(rng.below(300));
        }
        assert!(!shuttle.run(10_000_000), "still busy");
        for worker in 0..self.workers as usize {
            let sums = shuttle.sums(worker);
            assert_eq!(sums.len(), operations, "every operation ends once");
            for ((operation, sum), input) in sums.iter().zip(&inputs) {
                let sum = sum.values().expect("values went in");
                assert_eq!(bits(sum), bits(&oracle(input)), "operation {operation}, {worker}");
            }
        }
        for machine in &shuttle.machines {
            assert_eq!((machine.counters().refused_messages, machine.failure()), (0, None));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    // spec: A-52 machine
    #[test]
    fn a_ring_sums_around_the_ring(scene in any_scene()) {
        let machines = rings(scene.workers, |config| scene.configure_ring(config));
        scene.check(machines, |input| in_ring_order(input, scene.chunk_values));
    }

    // spec: A-51 machine
    #[test]
    fn servers_sum_in_the_order_of_the_ranks(
        scene in any_scene(),
        count in 1..=8u32,
        place in 0..=8u32,
    ) {
        // Servers on hosts of workers, beside them, or both. All nodes have a role.
        let place = place.min(scene.workers);
        let machines = servers(scene.workers, place, count, |config| scene.configure_server(config));
        scene.check(machines, in_rank_order);
    }
}

#[test]
fn lengths_travel_without_values() {
    let mut shuttle = Shuttle::new(rings(3, |config| config.chunk_bytes = 400), 1);
    (0..3).for_each(|worker| _ = shuttle.submit(worker, Tensor::Length(1_000)));
    shuttle.run(1_000_000);
    let mut served = Shuttle::new(servers(3, 2, 2, |config| config.chunk_bytes = 400), 1);
    (0..3).for_each(|worker| _ = served.submit(worker, Tensor::Length(1_000)));
    served.run(1_000_000);
    for worker in 0..3 {
        assert_eq!(shuttle.sums(worker), [(0, Tensor::Length(1_000))]);
        assert_eq!(served.sums(worker), [(0, Tensor::Length(1_000))]);
    }
    // Every worker passes on 2(W − 1) of W segments.
    let sent: Bytes = shuttle.machines.iter().map(|machine| machine.counters().sent_bytes).sum();
    assert_eq!(sent, Bytes::new(4 * 4_000));
    // Ten chunks in turn: five of each server. Node 2 is a worker too, node 3 is not.
    let sent: Vec<u64> =
        served.machines.iter().map(|machine| machine.counters().sent_bytes.as_u64()).collect();
    assert_eq!(sent, [4_000, 4_000, 2_000 + 2 * 2_000, 3 * 2_000]);
    assert_eq!(served.machines[0].counters().finished_operations, 1);
}
