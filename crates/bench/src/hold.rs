//! A yardstick for the machine: the hold model on a plain binary heap.
//!
//! It takes the least of 4,096 keys and puts a larger one back. Its speed depends on the machine and
//! its load alone, so that a simulator's speed can be compared between moments.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;

use thalweg_core::Rng;

use crate::tools::now;

const PENDING_KEYS: usize = 4_096;
const OPERATIONS: u32 = 4_000_000;
const LARGEST_STEP: u64 = 1 << 20;

/// Hold operations (one take and one put) a second.
pub(super) fn ops_per_s() -> f64 {
    let mut rng = Rng::new(1);
    let keys = (0..PENDING_KEYS).map(|_| Reverse(rng.below(LARGEST_STEP)));
    let mut heap: BinaryHeap<Reverse<u64>> = keys.collect();
    let start = now();
    for _ in 0..OPERATIONS {
        let Some(Reverse(key)) = heap.pop() else { break };
        heap.push(Reverse(key + 1 + rng.below(LARGEST_STEP)));
    }
    black_box(&heap);
    f64::from(OPERATIONS) / start.elapsed().as_secs_f64()
}
