//! Sums in the order in which the collectives promise them.

use thalweg_core::Rng;

/// A tensor for each worker, of values whose sum depends on the order.
pub fn tensors(seed: u64, workers: u32, values: usize) -> Vec<Vec<f32>> {
    let rng = Rng::new(seed);
    let tensor = |worker: u32| {
        let mut rng = rng.substream("worker", worker.into());
        let mut value = || (rng.uniform() as f32 - 0.5) * [1.0, 1e4, 1e8][rng.below(3) as usize];
        (0..values).map(|_| value()).collect()
    };
    (0..workers).map(tensor).collect()
}

/// Rank after rank.
pub fn in_rank_order(tensors: &[Vec<f32>]) -> Vec<f32> {
    let sum = |index: usize| tensors[1..].iter().fold(tensors[0][index], |sum, t| sum + t[index]);
    (0..tensors[0].len()).map(sum).collect()
}

/// Around the ring, from the worker that each value's segment begins at.
pub fn in_ring_order(tensors: &[Vec<f32>], chunk_values: usize) -> Vec<f32> {
    let workers = tensors.len();
    let values = tensors[0].len();
    let pieces = values.div_ceil(chunk_values * workers).max(1);
    let mut sums = Vec::new();
    for piece in 0..pieces {
        let (start, end) = (values * piece / pieces, values * (piece + 1) / pieces);
        for segment in 0..workers {
            let cut = |index: usize| start + (end - start) * index / workers;
            let sum = |index: usize| {
                let others = (1..workers).map(|step| tensors[(segment + step) % workers][index]);
                others.fold(tensors[segment][index], |sum, value| sum + value)
            };
            sums.extend((cut(segment)..cut(segment + 1)).map(sum));
        }
    }
    sums
}

/// Equal floats can have different bits.
pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}
