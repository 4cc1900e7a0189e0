//! Division of examples among steps and ranks.

use std::ops::Range;

use thalweg_core::Rng;

/// One rank's part of every batch.
///
/// Parts are runs of the batch, in the order of the ranks: put one after the other they are the
/// batch, whatever the number of workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shard {
    rank: usize,
    workers: usize,
}

impl Shard {
    /// All of the batch, for a run in one process.
    pub const WHOLE: Shard = Shard { rank: 0, workers: 1 };

    /// The part of one of the workers.
    ///
    /// # Panics
    ///
    /// If the rank is not below the number of workers.
    pub fn new(rank: usize, workers: usize) -> Shard {
        assert!(rank < workers, "rank {rank} of {workers} workers");
        Shard { rank, workers }
    }

    /// Range of the part in a batch. The lengths of two ranks differ by one at most.
    pub fn range(self, batch: usize) -> Range<usize> {
        let start = |rank| (rank as u128 * batch as u128 / self.workers as u128) as usize;
        start(self.rank)..start(self.rank + 1)
    }
}

/// The batches of a run: every epoch goes through the examples in a new order, without what is left
/// over when they do not divide into batches.
#[derive(Clone, Debug)]
pub struct Batches {
    batch: usize,
    rng: Rng,
    /// The epoch that `order` belongs to.
    epoch: usize,
    order: Vec<usize>,
}

impl Batches {
    /// Batches of `batch` examples, or of all of them where there are fewer.
    ///
    /// # Panics
    ///
    /// If there are no examples, or none in a batch.
    pub fn new(examples: usize, batch: usize, seed: u64) -> Batches {
        assert!(examples > 0 && batch > 0, "a batch has examples");
        let rng = Rng::new(seed).stream("batches");
        let order = order(&rng, examples, 0);
        Batches { batch: batch.min(examples), rng, epoch: 0, order }
    }

    /// The examples that a rank takes in a step, counted from 0. Steps may come in any order; going
    /// back and forth between epochs costs a shuffle each time.
    pub fn indices(&mut self, step: usize, shard: Shard) -> &[usize] {
        let steps_per_epoch = self.order.len() / self.batch;
        let (epoch, step) = (step / steps_per_epoch, step % steps_per_epoch);
        if epoch != self.epoch {
            self.order = order(&self.rng, self.order.len(), epoch);
            self.epoch = epoch;
        }
        &self.order[step * self.batch..][..self.batch][shard.range(self.batch)]
    }
}

/// Depends on the epoch alone, not on the epochs before: a worker may start in the middle of a run.
fn order(rng: &Rng, examples: usize, epoch: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..examples).collect();
    rng.substream("epoch", epoch as u64).shuffle(&mut order);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_the_batch_one_after_the_other() {
        let mut batches = Batches::new(1_000, 64, 5);
        let whole = batches.indices(3, Shard::WHOLE).to_vec();
        assert_eq!(whole.len(), 64);
        for workers in [1, 2, 3, 7, 64, 100] {
            let parts: Vec<usize> = (0..workers)
                .flat_map(|rank| batches.indices(3, Shard::new(rank, workers)).to_vec())
                .collect();
            assert_eq!(parts, whole, "{workers} workers");
        }
    }

    #[test]
    fn ranks_take_equally_many() {
        let ranges = |batch| [0, 1, 2, 3].map(|rank| Shard::new(rank, 4).range(batch));
        assert_eq!(ranges(256), [0..64, 64..128, 128..192, 192..256]);
        assert_eq!(ranges(6), [0..1, 1..3, 3..4, 4..6]);
        assert_eq!(ranges(1), [0..0, 0..0, 0..0, 0..1]);
    }

    #[test]
    fn an_epoch_visits_no_example_twice_and_the_next_has_another_order() {
        let mut batches = Batches::new(105, 10, 1);
        let mut epoch = |first: usize| -> Vec<usize> {
            (first..first + 10)
                .flat_map(|step| batches.indices(step, Shard::WHOLE).to_vec())
                .collect()
        };
        let (first, second) = (epoch(0), epoch(10));
        assert_ne!(first, second);
        assert_eq!(epoch(0), first, "a step's batch does not depend on the steps before");
        for mut visited in [first, second] {
            visited.sort_unstable();
            visited.dedup();
            assert_eq!((visited.len(), visited.iter().all(|&index| index < 105)), (100, true));
        }
    }

    #[test]
    fn a_batch_is_at_most_all_examples() {
        let mut batches = Batches::new(3, 10, 1);
        assert_eq!(batches.indices(7, Shard::WHOLE).len(), 3);
    }
}
