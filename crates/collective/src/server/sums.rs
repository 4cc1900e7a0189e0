//! The server's role: contributions in, sums out.

use thalweg_core::{Fingerprint, Mismatch};
use thalweg_values::Coverage;
use thalweg_wire::frame::CalledOperation;

use crate::block::Block;
use crate::carrier::NumberedMessage;
use crate::window::Window;

/// The sums of one server, by the chunk's number here.
///
/// It knows no operations: workers agree on the chunks, so a chunk is complete when each of them
/// has pushed it. No worker pushes one that is further ahead of a chunk that is not complete than
/// its window, which bounds what has to be kept.
pub(super) struct Sums {
    workers: usize,
    chunks_in_flight: u64,
    sums: Window<Sum>,
}

/// One chunk.
#[derive(Default)]
struct Sum {
    /// Contributions that came before one of a lower rank, by rank.
    waiting: Vec<Option<Block>>,
    /// The sum of the ranks below `next_rank`, once there is one, until it is complete.
    sum: Option<Block>,
    /// Coverage of all contributions that came.
    coverage: Option<Coverage>,
    next_rank: usize,
    /// The first contribution: the others must have its length and operation. `None` until it is received.
    first: Option<First>,
}

/// The first contribution to a chunk.
#[derive(Clone, Copy)]
struct First {
    rank: usize,
    called: Option<CalledOperation>,
    bytes: u64,
}

/// Outcome of a contribution.
pub(super) enum Intake {
    /// Nobody waited for it.
    Unexpected,
    /// It is of another operation than the others.
    Differs(Mismatch),
    /// It has another length or other contents than the others.
    Mismatch,
    /// It was taken in.
    Taken,
    /// It was the last one; these are the sum and its coverage.
    Complete(Block, Coverage),
}

impl Sums {
    pub fn new(workers: usize, chunks_in_flight: u32) -> Sums {
        let chunks_in_flight = chunks_in_flight.into();
        Sums { workers, chunks_in_flight, sums: Window::default() }
    }

    /// Panics where a contribution is counted twice.
    // spec: T-12
    pub fn check(&self) {
        self.sums.check(self.chunks_in_flight, |sum| sum.next_rank == self.workers);
        for sum in self.sums.iter() {
            let (added, workers) = (sum.next_rank, self.workers);
            assert!(added <= workers, "{added} contributions of {workers} workers");
            let is_once = sum.waiting.iter().take(sum.next_rank).all(Option::is_none);
            assert!(is_once, "what is in a sum does not wait to be added");
            let has_sum = sum.next_rank > 0 && sum.next_rank < workers;
            assert_eq!(sum.sum.is_some(), has_sum, "a sum is there until it is complete");
        }
    }

    /// True if it waits for a worker's contribution to the chunk with this number.
    pub fn wants(&mut self, rank: usize, number: u64) -> bool {
        let sum = self.sums.slot(number, self.chunks_in_flight);
        let has = |sum: &Sum| sum.waiting.get(rank).is_some_and(Option::is_some);
        sum.is_some_and(|sum| rank >= sum.next_rank && !has(sum))
    }

    /// Takes in what a worker contributes to the chunk with this number.
    pub fn take(
        &mut self,
        rank: usize,
        number: u64,
        push: NumberedMessage,
        called: Option<CalledOperation>,
    ) -> Intake {
        let workers = self.workers;
        let Some(sum) = self.sums.slot(number, self.chunks_in_flight) else {
            return Intake::Unexpected;
        };
        sum.waiting.resize(workers, None);
        if rank < sum.next_rank || sum.waiting[rank].is_some() {
            return Intake::Unexpected;
        }
        let bytes = push.block.value_bytes(called.is_some());
        let first = *sum.first.get_or_insert(First { rank, called, bytes });
        if let Some(refusal) = first.refuse(rank, called, bytes) {
            return refusal;
        }
        // Places have 32 bits.
        let coverage = push.arrived_coverage(&[rank as u32]);
        sum.coverage = Some(sum.coverage.take().map_or(coverage.clone(), |own| own.and(coverage)));
        sum.waiting[rank] = Some(push.block);
        sum.add_waiting();
        if sum.next_rank < workers {
            return Intake::Taken;
        }
        let complete = sum.sum.take().zip(sum.coverage.take());
        self.sums.slide(|sum| sum.next_rank == workers);
        complete.map_or(Intake::Taken, |(sum, coverage)| Intake::Complete(sum, coverage))
    }
}

impl First {
    /// Why a contribution of another rank is not one to the same sum.
    // spec: E-11
    fn refuse(&self, rank: usize, called: Option<CalledOperation>, bytes: u64) -> Option<Intake> {
        if let (Some(first), Some(called)) = (self.called, called) {
            if first.number != called.number {
                return Some(Intake::Unexpected);
            }
            // Places have 32 bits.
            let one = (self.rank as u32, &first.fingerprint);
            let other = (rank as u32, &called.fingerprint);
            if let Err(mismatch) = Fingerprint::compare(one, other) {
                return Some(Intake::Differs(mismatch));
            }
        }
        let is_alike = self.called.is_some() == called.is_some() && self.bytes == bytes;
        (!is_alike).then_some(Intake::Mismatch)
    }
}

impl Sum {
    /// Adds the contributions that are next in order.
    fn add_waiting(&mut self) {
        while let Some(block) = self.waiting.get_mut(self.next_rank).and_then(Option::take) {
            self.next_rank += 1;
            match &mut self.sum {
                Some(sum) => sum.add(&block),
                None => self.sum = Some(block),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use thalweg_values::{Part, Tensor};

    use super::*;
    use crate::block::Form;

    fn one(value: f32) -> Block {
        Block::copy(&Tensor::from(vec![value]), 0..1, Form::Bytes)
    }

    fn push(block: Block) -> NumberedMessage {
        NumberedMessage::new(0, block)
    }

    fn complete(intake: Intake) -> Option<Block> {
        match intake {
            Intake::Complete(sum, Coverage::Exact) => Some(sum),
            _ => None,
        }
    }

    #[test]
    fn the_sum_is_in_the_order_of_the_ranks() {
        // (1e8 + 1) − 1e8 is 0 in 32 bits, (1e8 − 1e8) + 1 is not.
        let values = [1e8, 1.0, -1e8];
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]] {
            let mut sums = Sums::new(3, 1);
            let mut last = None;
            for rank in order {
                assert_eq!(last, None);
                last = complete(sums.take(rank, 0, push(one(values[rank])), None));
            }
            assert_eq!(last, Some(one(0.0)), "{order:?}");
        }
    }

    #[test]
    fn nothing_is_counted_twice() {
        let mut sums = Sums::new(2, 2);
        assert!(matches!(sums.take(1, 0, push(one(2.0)), None), Intake::Taken));
        assert!(matches!(sums.take(1, 0, push(one(2.0)), None), Intake::Unexpected));
        assert_eq!(complete(sums.take(0, 0, push(one(1.0)), None)), Some(one(3.0)));
        assert!(matches!(sums.take(0, 0, push(one(1.0)), None), Intake::Unexpected));
        // The first that is not complete is number 1 now.
        assert!(matches!(sums.take(0, 3, push(one(1.0)), None), Intake::Unexpected));
        assert!(matches!(sums.take(0, 2, push(one(1.0)), None), Intake::Taken));
        assert_eq!(complete(sums.take(1, 2, push(one(1.0)), None)), Some(one(2.0)));
        assert!(matches!(sums.take(0, 2, push(one(1.0)), None), Intake::Unexpected));
    }

    #[test]
    fn contributions_have_one_length() {
        let mut sums = Sums::new(2, 1);
        assert!(matches!(sums.take(0, 0, push(one(2.0)), None), Intake::Taken));
        let other = Block::copy(&Tensor::Length(2), 0..2, Form::Bytes);
        assert!(matches!(sums.take(1, 0, push(other), None), Intake::Mismatch));
    }

    // spec: T-11 machine
    #[test]
    fn a_sum_lacks_what_was_lost_of_every_contribution() {
        let mut sums = Sums::new(3, 1);
        let lost = [vec![0..2, 5..6], vec![], vec![1..3, 5..6]];
        for (rank, lost) in lost.into_iter().enumerate() {
            let block = Block::copy(&Tensor::from(vec![1.0; 6]), 0..6, Form::Tensor);
            let push = NumberedMessage { lost, ..push(block) };
            let Intake::Complete(_, coverage) = sums.take(rank, 0, push, None) else { continue };
            let part = |values, ranks: &[u32]| Part::new(values, ranks.to_vec());
            let parts =
                [part(0..1, &[0]), part(1..2, &[0, 2]), part(2..3, &[2]), part(5..6, &[0, 2])];
            assert_eq!(coverage, Coverage::lacking(parts));
            return;
        }
        panic!("the third contribution completes the sum");
    }
}
