//! Operations cut into pieces that are numbered through, over all operations.
//!
//! Workers submit the same tensors in the same order, so a piece has the same number at all of them
//! without a word about it.

use std::collections::BTreeMap;
use std::ops::Range;

use thalweg_core::Operation;
use thalweg_deliver::LossBound;
use thalweg_values::Tensor;
use thalweg_wire::frame::CalledOperation;

use crate::block::Form;
use crate::call::{Care, SumCall};
use crate::delivery::{Contents, Delivery};
use crate::event::SubmitError;
use thalweg_values::Coverage;

/// Most values of an operation: their bytes can still be counted.
pub(crate) const MAX_VALUES: u64 = 1 << 60;

/// The operations that a worker has not finished.
pub(crate) struct Plan {
    /// By the number of their first piece.
    jobs: BTreeMap<u64, Job>,
    piece_values: u64,
    /// Number of pieces that an operation has at least, as far as each has this many values.
    divided: Option<(u64, u64)>,
    /// Number of pieces of all operations so far.
    pieces: u64,
    max_pieces: u64,
    /// Contents that tensors must have, if that matters.
    contents: Option<Contents>,
    /// Largest loss that the settings allow.
    loss: LossBound,
}

/// An operation that has its sum.
#[derive(PartialEq, Debug)]
pub(crate) struct Finished {
    pub operation: Operation,
    pub tensor: Tensor,
    pub coverage: Coverage,
}

/// The place of a piece.
#[derive(PartialEq, Debug)]
pub(crate) struct Found<'a> {
    pub tensor: &'a mut Tensor,
    pub range: Range<u64>,
    pub care: Care,
    pub called: CalledOperation,
    /// The form that its messages have.
    pub form: Form,
    /// Replacement for lost values of the result.
    pub older: Option<&'a Tensor>,
    /// Coverage of the parts of the sum that are there and lack something, in any order.
    pub lacking: &'a mut Vec<Coverage>,
}

/// An operation.
struct Job {
    operation: Operation,
    tensor: Tensor,
    care: Care,
    called: CalledOperation,
    older: Option<Tensor>,
    /// Coverage of the parts of the sum that are there and lack something, in any order.
    lacking: Vec<Coverage>,
    pieces: u64,
    open_pieces: u64,
}

impl Plan {
    /// No operations; pieces have at most `piece_values` and there may be `max_pieces` in all.
    pub fn new(piece_values: u64, max_pieces: u64) -> Plan {
        Plan {
            jobs: BTreeMap::new(),
            piece_values,
            divided: None,
            pieces: 0,
            max_pieces,
            contents: None,
            loss: LossBound::EXACT,
        }
    }

    /// The same, for tensors that travel by these deliveries, or by flows.
    pub fn with_delivery(self, delivery: Option<&Delivery>) -> Plan {
        let Some(Delivery { contents, loss, .. }) = delivery else { return self };
        Plan { contents: Some(*contents), loss: *loss, ..self }
    }

    /// The same, for operations of at least `pieces`, as far as each has `least_values`.
    pub fn divided(self, pieces: u64, least_values: u64) -> Plan {
        Plan { divided: Some((pieces, least_values.max(1))), ..self }
    }

    fn pieces_of(&self, values: u64) -> u64 {
        let full = values.div_ceil(self.piece_values);
        let divided = self.divided.map_or(1, |(pieces, least)| pieces.min(values / least));
        full.max(divided).max(1)
    }

    /// Adds an operation. An empty tensor has one piece too, so that it ends when everybody is there.
    pub fn add(&mut self, operation: Operation, call: SumCall) -> Result<(), SubmitError> {
        self.check(&call)?;
        let (care, called) = (call.care(), CalledOperation::new(operation, call.fingerprint()));
        let SumCall { tensor, older, .. } = call;
        let pieces = self.pieces_of(tensor.len());
        if pieces > self.max_pieces - self.pieces {
            return Err(SubmitError::Exhausted);
        }
        let (lacking, open_pieces) = (Vec::new(), pieces);
        let job = Job { operation, tensor, care, called, older, lacking, pieces, open_pieces };
        self.jobs.insert(self.pieces, job);
        self.pieces += pieces;
        Ok(())
    }

    fn check(&self, call: &SumCall) -> Result<(), SubmitError> {
        let SumCall { tensor, older, .. } = call;
        if tensor.len() > MAX_VALUES {
            return Err(SubmitError::TooLong(tensor.len()));
        }
        let Some(contents) = self.contents else { return Ok(()) };
        if !contents.fit(tensor) {
            return Err(SubmitError::Contents);
        }
        match older {
            Some(older) if older.len() != tensor.len() || !contents.fit(older) => {
                Err(SubmitError::Older { older: older.len(), values: tensor.len() })
            }
            _ => Ok(()),
        }
    }

    /// Number of pieces so far. The next operation begins with this one.
    pub fn pieces(&self) -> u64 {
        self.pieces
    }

    /// The tensor that a piece belongs to, and its place there. `None` if its operation has ended or
    /// did not begin.
    pub fn find(&mut self, piece: u64) -> Option<Found<'_>> {
        let (first, job) = self.jobs.range_mut(..=piece).next_back()?;
        let place = piece - first;
        if place >= job.pieces {
            return None;
        }
        let range = part(0..job.tensor.len(), job.pieces, place);
        let Job { tensor, care, called, older, lacking, .. } = job;
        let form = if self.contents.is_some() { Form::Tensor } else { Form::Bytes };
        let (care, called, older) = (*care, *called, older.as_ref());
        Some(Found { tensor, range, care, called, form, older, lacking })
    }

    /// Notes that a piece has its sum. Returns the operation if it was the last one.
    pub fn close(&mut self, piece: u64) -> Option<Finished> {
        let (&first, job) = self.jobs.range_mut(..=piece).next_back()?;
        job.open_pieces -= 1;
        if job.open_pieces > 0 {
            return None;
        }
        let Job { operation, tensor, care, lacking, .. } = self.jobs.remove(&first)?;
        let coverage = match self.contents {
            // Lengths travel without frames and coverage.
            Some(Contents::Lengths) => care.coverage(self.loss),
            Some(Contents::Values) | None => Coverage::joined(lacking),
        };
        Some(Finished { operation, tensor, coverage })
    }

    /// Panics where pieces of operations are counted twice or not at all.
    // spec: T-12
    pub fn check_pieces(&self) {
        let mut end = 0;
        for (&first, job) in &self.jobs {
            assert!(first >= end, "operations do not share pieces");
            end = first + job.pieces;
            let is_open = (1..=job.pieces).contains(&job.open_pieces);
            assert!(is_open, "{} of {} pieces are open", job.open_pieces, job.pieces);
        }
        assert!(end <= self.pieces, "the next operation begins behind the last");
    }

    /// Drops all operations and says which they were.
    pub fn abandon(&mut self) -> Vec<Operation> {
        let jobs = std::mem::take(&mut self.jobs);
        jobs.into_values().map(|job| job.operation).collect()
    }
}

impl Found<'_> {
    /// Notes the coverage of some values that have their sum, which begin at `first`.
    // spec: T-11
    pub fn cover(&mut self, first: u64, coverage: &Coverage) {
        if !coverage.is_exact() {
            self.lacking.push(coverage.clone().placed_at(first));
        }
    }
}

/// One of `count` parts of a range, which differ by at most one in length.
pub(crate) fn part(range: Range<u64>, count: u64, index: u64) -> Range<u64> {
    let length = u128::from(range.end - range.start);
    // A quotient of at most the length.
    let cut = |index: u64| (length * u128::from(index) / u128::from(count)) as u64;
    range.start + cut(index)..range.start + cut(index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_even_and_leave_nothing_out() {
        let parts: Vec<_> = (0..4).map(|index| part(100..110, 4, index)).collect();
        assert_eq!(parts, [100..102, 102..105, 105..107, 107..110]);
        assert_eq!(part(0..MAX_VALUES, 1 << 40, (1 << 40) - 1).end, MAX_VALUES);
        assert_eq!(part(5..6, 3, 0), 5..5);
    }

    #[test]
    fn pieces_are_numbered_through() {
        let mut plan = Plan::new(4, 100);
        for (operation, values) in [(0, 10), (1, 0), (2, 4)] {
            plan.add(Operation(operation), Tensor::Length(values).into()).expect("short enough");
        }
        let ranges: Vec<_> =
            (0..6).map(|piece| plan.find(piece).map(|found| found.range)).collect();
        let expected = [Some(0..3), Some(3..6), Some(6..10), Some(0..0), Some(0..4), None];
        assert_eq!(ranges, expected);
        let finished = |operation, values| {
            let (tensor, coverage) = (Tensor::Length(values), Coverage::Exact);
            Some(Finished { operation: Operation(operation), tensor, coverage })
        };
        assert_eq!(plan.close(1), None);
        assert_eq!(plan.close(4), finished(2, 4));
        assert_eq!(plan.close(0), None);
        assert_eq!(plan.close(2), finished(0, 10));
        assert_eq!(plan.find(2), None);
        assert_eq!(plan.abandon(), [Operation(1)]);
    }

    // spec: F-07 machine
    #[test]
    fn a_short_tensor_is_divided_as_far_as_its_pieces_are_long_enough() {
        let plan = Plan::new(100, 1_000).divided(8, 10);
        let pieces = [0, 5, 19, 20, 79, 80, 700, 801].map(|values| plan.pieces_of(values));
        assert_eq!(pieces, [1, 1, 1, 2, 7, 8, 8, 9]);
        assert_eq!(Plan::new(100, 1_000).pieces_of(99), 1);
    }

    #[test]
    fn what_cannot_be_numbered_is_refused() {
        let mut plan = Plan::new(4, 3);
        assert_eq!(plan.add(Operation(0), Tensor::Length(13).into()), Err(SubmitError::Exhausted));
        assert_eq!(plan.add(Operation(0), Tensor::Length(12).into()), Ok(()));
        assert_eq!(plan.add(Operation(1), Tensor::Length(0).into()), Err(SubmitError::Exhausted));
        let too_long = MAX_VALUES + 1;
        let error = plan.add(Operation(1), Tensor::Length(too_long).into());
        assert_eq!(error, Err(SubmitError::TooLong(too_long)));
    }
}
