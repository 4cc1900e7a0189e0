//! Exact sums over links that lose packets.

use thalweg_values::Tensor;

use crate::group::{Collective, rings, servers};
use crate::oracle::{bits, in_rank_order, in_ring_order, tensors};
use crate::stage::play;

const LENGTHS: [usize; 4] = [30_000, 7, 0, 12_345];
const CHUNK_VALUES: usize = 1_500;

fn check<M: Collective>(
    machines: Vec<M>,
    workers: u32,
    loss: f64,
    oracle: impl Fn(&[Vec<f32>]) -> Vec<f32>,
) {
    let inputs = [0, 1, 2, 3].map(|seed| tensors(seed, workers, LENGTHS[seed as usize]));
    let script =
        |worker: usize| inputs.iter().map(|input| Tensor::from(input[worker].clone())).collect();
    let scripts = (0..workers as usize).map(script).collect();
    let played = play(machines, scripts, loss);
    assert_eq!(played.lost_packets > 0, loss > 0.0);
    for (input, operation) in inputs.iter().zip(0..) {
        let expected = bits(&oracle(input));
        for sums in &played.sums {
            assert_eq!(bits(sums[operation].values().expect("values went in")), expected);
        }
    }
}

// spec: A-52 simulator
#[test]
fn rings_are_exact_over_lossy_links() {
    for workers in 2..=8 {
        for loss in [0.0, 0.01, 0.05] {
            let machines = rings(workers, |config| config.chunk_bytes = 4 * CHUNK_VALUES as u64);
            check(machines, workers, loss, |input| in_ring_order(input, CHUNK_VALUES));
        }
    }
}

// spec: A-51 simulator
#[test]
fn servers_are_exact_over_lossy_links() {
    for workers in 1..=8 {
        for (place, count) in [(workers, 1), (0, workers), (workers - 1, 3)] {
            for loss in [0.0, 0.01, 0.05] {
                let machines = servers(workers, place, count, |config| {
                    config.chunk_bytes = 4 * CHUNK_VALUES as u64;
                });
                // Nobody is alone in a fabric.
                if machines.len() > 1 {
                    check(machines, workers, loss, in_rank_order);
                }
            }
        }
    }
}
