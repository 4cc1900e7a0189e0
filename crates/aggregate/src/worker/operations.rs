//! The tensors of a worker, and which fragments they are cut into.

use std::collections::{BTreeMap, VecDeque};

use thalweg_core::{Body, Element, Fingerprint, Operation};
use thalweg_values::importance::{Importance, Threshold};
use thalweg_values::{Fixed, Tensor, TensorSlice, TensorSliceMut};
use thalweg_wire::aggregate::{Absent, Bounded, Numbers, Parameter};
use thalweg_wire::fingerprint;

use super::Event;
use super::fragments::Fragments;
use crate::parameters::JobParameters;
use crate::reliability::{Absences, Reliability, SumOptions};

/// All operations whose memory is still held.
#[derive(Clone, Debug)]
pub(super) struct Operations {
    /// `None` before the first set-up: fragments have no numbers yet.
    cut: Option<Cut>,
    /// Number of workers of the job; 0 before the first set-up.
    workers: u32,
    /// Rule that tells important fragments of bounded operations apart.
    importance: Importance,
    held: VecDeque<Entry>,
    /// The number of the first one held.
    first: u64,
    /// The sequence number after the last fragment.
    end: u64,
    /// All fragments below are complete at every worker.
    job_watermark: u64,
    /// Number of those held that end at or below `job_watermark`.
    settled: usize,
}

/// The way in which tensors become fragments, the same in all epochs of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cut {
    /// Bytes of a full fragment.
    body_bytes: usize,
    /// True if values of 16 bits travel as such.
    has_halves: bool,
}

impl Cut {
    pub fn of(parameters: &JobParameters) -> Cut {
        Cut { body_bytes: parameters.body_bytes(), has_halves: parameters.sends_halves() }
    }

    /// Floats that a tensor of these elements is sent in.
    // spec: F-02
    fn floats(self, element: Element) -> Numbers {
        match element {
            Element::F16 if self.has_halves => Numbers::F16,
            Element::Bf16 if self.has_halves => Numbers::Bf16,
            _ => Numbers::Float,
        }
    }
}

#[derive(Clone, Debug)]
struct Entry {
    /// The first fragment.
    first: u64,
    /// The one after the last.
    end: u64,
    /// Number of fragments that are not complete.
    left: u64,
    /// One after the last that is complete without result; `first` without such a fragment.
    missing_end: u64,
    is_finished: bool,
    is_released: bool,
    /// Number of values.
    values: u64,
    /// Floats that its values are sent in, where they are sent in floats. Means nothing before fragments have numbers.
    floats: Numbers,
    /// Values of a full fragment; 0 before fragments have numbers.
    fragment_values: u64,
    held: Held,
    options: SumOptions,
    fingerprint: Fingerprint,
    /// The digest of `fingerprint`, the operation's number and `first`. Means nothing before fragments have numbers.
    digest: u32,
    /// Ranks whose contributions sums lack, by fragment.
    absent: BTreeMap<u64, Absent>,
    /// Number of these that lack the worker's own contribution.
    left_out: u32,
    /// Threshold of important fragments. `None` where all are alike.
    threshold: Option<Threshold>,
}

/// A fragment of an operation that is held: found once for every packet, in either direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Located {
    pub sequence: u64,
    operation: Operation,
    /// The first value of its operation that it has, and the one after the last.
    from: u64,
    to: u64,
    /// Floats that its values are sent in, where they are sent in floats.
    pub floats: Numbers,
}

impl Located {
    /// Length of its values in a packet. Those of fixed point are as long as those of the floats in its place.
    #[inline]
    pub fn body_bytes(&self) -> u64 {
        self.floats.value_bytes() as u64 * (self.to - self.from)
    }

    /// Returns whether sums of these numbers belong to it.
    #[inline]
    fn takes(&self, numbers: Numbers) -> bool {
        numbers == self.floats || numbers.is_fixed() && self.floats == Numbers::Float
    }
}

/// Part of an operation's values that is held.
#[derive(Clone, Debug)]
enum Held {
    /// All of them.
    All(Tensor),
    /// The application has them. Those from this fragment on are kept: not every worker has them.
    From(u64, Tensor),
    /// None: nobody needs them any more.
    Nothing,
}

impl Operations {
    pub fn new(first: Operation, first_sequence: u64, importance: Importance) -> Operations {
        Operations {
            cut: None,
            workers: 0,
            importance,
            held: VecDeque::new(),
            first: first.0,
            end: first_sequence,
            job_watermark: 0,
            settled: 0,
        }
    }

    /// The sequence number after the last fragment.
    #[inline]
    pub fn end(&self) -> u64 {
        self.end
    }

    pub fn job_watermark(&self) -> u64 {
        self.job_watermark
    }

    /// Takes in a tensor. An empty one is finished.
    pub fn submit(&mut self, tensor: Tensor, options: SumOptions) -> Operation {
        let operation = Operation(self.first + self.held.len() as u64);
        self.held.push_back(Entry {
            first: self.end,
            end: self.end,
            left: 0,
            missing_end: self.end,
            is_finished: tensor.is_empty(),
            is_released: false,
            values: tensor.len(),
            floats: Numbers::Float,
            fragment_values: 0,
            fingerprint: options.fingerprint.unwrap_or_else(|| sum_of(&tensor)),
            digest: 0,
            held: Held::All(tensor),
            options,
            absent: BTreeMap::new(),
            left_out: 0,
            threshold: None,
        });
        self.number_fragments(self.held.len() - 1);
        operation
    }

    /// Learns how tensors become fragments. `false` if that would be a change.
    pub fn cut(&mut self, cut: Cut, workers: u32) -> bool {
        if self.cut.is_none() {
            self.cut = Some(cut);
            self.workers = workers;
            (0..self.held.len()).for_each(|index| self.number_fragments(index));
        }
        self.cut == Some(cut)
    }

    // spec: A-30, F-02
    fn number_fragments(&mut self, index: usize) {
        let Some(cut) = self.cut else { return };
        let operation = Operation(self.first + index as u64);
        let importance = self.importance;
        let entry = &mut self.held[index];
        entry.first = self.end;
        entry.missing_end = self.end;
        if let Held::All(tensor) = &entry.held {
            entry.floats = cut.floats(tensor.element());
        }
        entry.fragment_values = (cut.body_bytes / entry.floats.value_bytes()) as u64;
        entry.left = entry.values.div_ceil(entry.fragment_values);
        self.end += entry.left;
        entry.end = self.end;
        entry.digest = fingerprint::digest(&entry.fingerprint, operation, entry.first);
        entry.threshold = entry.threshold(importance, operation);
    }

    /// Finds a fragment, as long as its operation is held.
    #[inline]
    pub fn locate(&self, sequence: u64) -> Option<Located> {
        let index = self.held.partition_point(|entry| entry.end <= sequence);
        let entry = self.held.get(index).filter(|entry| entry.first <= sequence)?;
        let (from, to) = entry.range(sequence);
        let operation = Operation(self.first + index as u64);
        Some(Located { sequence, operation, from, to, floats: entry.floats })
    }

    /// The digest of a fragment's operation.
    // spec: E-11
    #[inline]
    pub fn digest(&self, at: Located) -> Option<u32> {
        self.entry(at).map(|entry| entry.digest)
    }

    /// The values of a fragment, as long as they are held: the worker's own, or the sum once it is
    /// complete. `None` also for one that is complete without result.
    #[inline]
    pub fn piece(&self, at: Located) -> Option<TensorSlice<'_>> {
        let entry = self.entry(at)?;
        if at.sequence < entry.missing_end {
            return None;
        }
        match &entry.held {
            Held::All(tensor) => Some(tensor.slice(at.from..at.to)),
            Held::From(first, rest) => {
                let (begin, _) = entry.range(*first);
                Some(rest.slice(at.from.checked_sub(begin)?..at.to - begin))
            }
            Held::Nothing => None,
        }
    }

    /// Returns whether the values of a fragment are held.
    pub fn has_values(&self, sequence: u64) -> bool {
        self.locate(sequence).is_some_and(|at| self.piece(at).is_some())
    }

    /// Writes a sum where it belongs. `false`, and nothing is written, if it has another length or other numbers.
    // spec
    pub fn write(&mut self, at: Located, parameter: &Parameter, body: &Body<'_>) -> bool {
        if body.len() as u64 != at.body_bytes() || !at.takes(parameter.numbers) {
            return false;
        }
        let Some(entry) = self.entry_mut(at) else { return false };
        let Held::All(tensor) = &mut entry.held else { return false };
        match (tensor, body) {
            (Tensor::Length(_), _) => true,
            (tensor, Body::Bytes(bytes)) => {
                decode(parameter.numbers, bytes, tensor.slice_mut(at.from..at.to));
                true
            }
            (_, Body::Length(_)) => false,
        }
    }

    /// A fragment that was not complete is now. Says if that finishes the operation.
    #[inline]
    pub fn complete(&mut self, at: Located, has_result: bool) -> Option<Event> {
        let sequence = at.sequence;
        let entry = self.entry_mut(at)?;
        assert!(entry.left > 0, "fragment {sequence} completes once");
        entry.left -= 1;
        if !has_result {
            entry.missing_end = entry.missing_end.max(sequence + 1);
        }
        if entry.left > 0 {
            return None;
        }
        entry.is_finished = true;
        let missing_below = entry.missing_end - entry.first;
        let incomplete = entry.absent.iter().map(|(at, who)| (at - entry.first, *who)).collect();
        // Twice the most values of a fragment is less than 16 bits hold.
        let fragment_values = entry.fragment_values as u16;
        let absences = Absences { workers: self.workers, fragment_values, incomplete };
        Some(Event::Finished { operation: at.operation, missing_below, absences })
    }

    /// A sum lacks contributions, perhaps that of the worker of this rank, which is its own.
    pub fn lack(&mut self, at: Located, absent: Absent, own: u32) {
        let workers = self.workers;
        if let Some(entry) = self.entry_mut(at) {
            entry.absent.insert(at.sequence, absent);
            entry.left_out += u32::from(absent.ranks(workers).any(|rank| rank == own));
        }
    }

    /// Ranks whose contributions a sum lacks.
    pub fn lacks(&self, at: Located) -> Option<Absent> {
        self.entry(at)?.absent.get(&at.sequence).copied()
    }

    /// Returns whether the worker's own values of a fragment are important. `None` where all are alike.
    // spec: M-04, M-20
    pub fn is_important(&self, at: Located) -> Option<bool> {
        let entry = self.entry(at)?;
        let threshold = entry.threshold?;
        Some(threshold.is_important(self.piece(at)?, at.operation, at.sequence - entry.first))
    }

    /// Returns whether the worker was left out of as many sums of an operation as it may be.
    pub fn is_spent(&self, at: Located) -> bool {
        let share = self.bounded(at).map(|bounded| bounded.share.of(bounded.fragments));
        share.zip(self.entry(at)).is_none_or(|(allowed, entry)| entry.left_out >= allowed)
    }

    /// Description of a fragment's operation for a query, if that need not be exact.
    pub fn bounded(&self, at: Located) -> Option<Bounded> {
        let entry = self.entry(at)?;
        let Reliability::Bounded(share) = entry.options.reliability else { return None };
        let fragments = u32::try_from(entry.end - entry.first).ok()?;
        let first_distance = (at.sequence - entry.first) as u32;
        (fragments <= Bounded::FRAGMENTS_MAX).then_some(Bounded {
            first_distance,
            fragments,
            share,
        })
    }

    /// The layer of a fragment's operation, if it has one, and how many there are.
    #[inline]
    pub fn layer(&self, at: Located) -> Option<(u16, u16)> {
        self.entry(at).and_then(|entry| entry.options.layer)
    }

    /// The first operation that is not finished.
    pub fn first_unfinished(&self) -> Option<Operation> {
        // Those below the job watermark are finished.
        let rest = self.held.iter().skip(self.settled);
        let index = rest.take_while(|entry| entry.is_finished).count() + self.settled;
        (index < self.held.len()).then(|| Operation(self.first + index as u64))
    }

    /// The result of a finished operation, until it is taken, or released and below the job watermark.
    pub fn tensor(&self, operation: Operation) -> Option<&Tensor> {
        let entry = self.held.get(self.index(operation)?)?;
        match &entry.held {
            Held::All(tensor) if entry.is_finished => Some(tensor),
            _ => None,
        }
    }

    /// Hands the result of a finished operation out, and keeps a copy of what others may lack: little
    /// of a long tensor, since they cannot be further behind than a window.
    // spec: A-41
    pub fn take(&mut self, operation: Operation) -> Option<Tensor> {
        let index = self.index(operation)?;
        let entry = self.held.get(index).filter(|entry| entry.is_finished)?;
        let kept_from = self.job_watermark.clamp(entry.first, entry.end);
        let (begin, _) = entry.range(kept_from);
        let Held::All(tensor) = &entry.held else { return None };
        let kept = Held::From(kept_from, tensor.copy_from(begin.min(entry.values)));
        let taken = std::mem::replace(&mut self.held[index].held, kept);
        self.release(operation);
        match taken {
            Held::All(tensor) => Some(tensor),
            Held::From(..) | Held::Nothing => None,
        }
    }

    /// The application is done with an operation.
    pub fn release(&mut self, operation: Operation) {
        let Some(index) = self.index(operation) else { return };
        let Some(entry) = self.held.get_mut(index) else { return };
        entry.is_released = true;
        if index < self.settled {
            entry.held = Held::Nothing;
            self.drop_unneeded();
        }
    }

    /// All fragments below are complete at every worker, this one too.
    #[inline]
    pub fn settle(&mut self, job_watermark: u64) {
        if job_watermark > self.job_watermark {
            self.job_watermark = job_watermark;
            self.settle_operations();
        }
    }

    fn settle_operations(&mut self) {
        let is_past =
            |entry: &mut Entry, job_watermark| entry.is_finished && entry.end <= job_watermark;
        while let Some(entry) = self.held.get_mut(self.settled)
            && is_past(entry, self.job_watermark)
        {
            if entry.is_released {
                entry.held = Held::Nothing;
            }
            self.settled += 1;
        }
        self.drop_unneeded();
    }

    fn drop_unneeded(&mut self) {
        let is_needless = |entry: &Entry| matches!(entry.held, Held::Nothing);
        while self.settled > 0 && self.held.front().is_some_and(is_needless) {
            self.held.pop_front();
            self.first += 1;
            self.settled -= 1;
        }
    }

    /// Recounts what is not complete. Panics where fragments are counted twice or not at all.
    // spec: T-12
    pub fn check(&self, fragments: &Fragments) {
        let watermark = fragments.watermark();
        assert!(self.job_watermark <= watermark, "no rank is behind the job watermark");
        assert!(self.settled <= self.held.len(), "those that are settled are held");
        let mut next = self.held.front().map_or(self.end, |entry| entry.first);
        for entry in &self.held {
            assert_eq!(entry.first, next, "fragments are numbered without gaps");
            next = entry.end;
            let open = (entry.first.max(watermark)..entry.end)
                .filter(|&sequence| !fragments.is_complete(sequence));
            assert_eq!(entry.left, open.count() as u64, "fragments that are not complete");
            let is_numbered = self.cut.is_some();
            let is_over = if is_numbered { entry.left == 0 } else { entry.values == 0 };
            assert_eq!(entry.is_finished, is_over, "an operation ends with its last fragment");
        }
        assert_eq!(next, self.end, "fragments of all operations");
    }

    fn index(&self, operation: Operation) -> Option<usize> {
        operation.0.checked_sub(self.first).map(|index| index as usize)
    }

    /// The operation of a fragment, as long as it is held.
    #[inline]
    fn entry(&self, at: Located) -> Option<&Entry> {
        self.held.get(self.index(at.operation)?)
    }

    #[inline]
    fn entry_mut(&mut self, at: Located) -> Option<&mut Entry> {
        let index = self.index(at.operation)?;
        self.held.get_mut(index)
    }
}

impl Entry {
    /// Threshold of important fragments, from the worker's own values. `None` in an exact operation.
    // spec: M-20
    fn threshold(&self, importance: Importance, operation: Operation) -> Option<Threshold> {
        let Held::All(tensor) = &self.held else { return None };
        let is_bounded = matches!(self.options.reliability, Reliability::Bounded(_));
        let count = u32::try_from(self.end - self.first).ok()?;
        (is_bounded && importance != Importance::All).then(|| {
            Threshold::sampled(importance, count, operation, |index| {
                let (from, to) = self.range(self.first + u64::from(index));
                tensor.slice(from..to)
            })
        })
    }

    /// The first value that a fragment has, and the one after the last.
    #[inline]
    fn range(&self, sequence: u64) -> (u64, u64) {
        let from = (sequence - self.first) * self.fragment_values;
        (from, self.values.min(from + self.fragment_values))
    }
}

/// The operation, if the caller gives values alone.
fn sum_of(tensor: &Tensor) -> Fingerprint {
    Fingerprint::of_sum(tensor.element(), tensor.len())
}

fn decode(numbers: Numbers, bytes: &[u8], sums: TensorSliceMut<'_>) {
    match numbers {
        Numbers::Fixed(scale) => {
            let fixed = Fixed::new(scale.value()).expect("a scale is positive and finite");
            fixed.decode_slice_le(bytes, sums);
        }
        Numbers::Float => sums.round_le(bytes),
        // They have the type of the tensor.
        Numbers::F16 | Numbers::Bf16 => sums.read_le(bytes),
    }
}
