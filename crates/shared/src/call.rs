//! Calls of members, and the words of shared memory that announce them to the others.

use std::fmt;

use thalweg_core::{Combine, Element, Fingerprint, OperationKind};
use thalweg_wire::fingerprint;

/// An operation as one member called it. `None` is something that this version does not know: the shared memory was
/// overwritten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call(pub Option<Fingerprint>);

/// A call, and the operation of the application that it is a step of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The call.
    pub call: Call,
    /// The operation, where the application has stated it.
    pub operation: Option<Fingerprint>,
}

/// Number of words that a step takes.
pub(crate) const STEP_WORDS: usize = 6;

impl Call {
    /// A call that combines data of this length: for the root, or for everybody.
    pub fn reduction(root: Option<u32>, element: Element, how: Combine, bytes: usize) -> Call {
        let kind = root.map_or(OperationKind::AllReduce, |_| OperationKind::Reduce);
        let reduction = Some(how.into());
        Call::copy(kind, root, bytes).with(|call| Fingerprint {
            element: Some(element),
            reduction,
            ..call
        })
    }

    /// A call that copies data of this length: that of the root, or that of every member.
    pub fn copy(kind: OperationKind, root: Option<u32>, bytes: usize) -> Call {
        // The largest root stands for none, and no team has it.
        let root = root.map(|root| root.min(u32::MAX - 1));
        Call::bare(kind).with(|call| Fingerprint { root, bytes: Some(bytes as u64), ..call })
    }

    /// A call without data.
    pub fn bare(kind: OperationKind) -> Call {
        Call(Some(Fingerprint::new(kind)))
    }

    fn with(self, change: impl FnOnce(Fingerprint) -> Fingerprint) -> Call {
        Call(self.0.map(change))
    }
}

impl Step {
    /// The words of the call, then those of the operation.
    pub(crate) fn encode(&self) -> [u64; STEP_WORDS] {
        let [call, operation] = [self.call.0, self.operation].map(words);
        std::array::from_fn(|at| if at < 3 { call[at] } else { operation[at - 3] })
    }

    /// Decodes any words. Of invalid ones the call is unknown.
    pub(crate) fn decode([a, b, c, operation @ ..]: [u64; STEP_WORDS]) -> Step {
        match (fingerprint_of([a, b, c]), fingerprint_of(operation)) {
            (Some(call), Some(operation)) => Step { call: Call(call), operation },
            _ => Call(None).into(),
        }
    }

    /// Returns whether two members take the same step of the same operation.
    pub(crate) fn agrees(&self, other: &Step) -> bool {
        let is_same = match (&self.operation, &other.operation) {
            (Some(own), Some(theirs)) => own.agrees(theirs),
            (None, None) => true,
            _ => false,
        };
        is_same && self.call == other.call
    }
}

/// The words of a fingerprint. Those of none are zeros, which no fingerprint has.
fn words(fingerprint: Option<Fingerprint>) -> [u64; 3] {
    let encoded = fingerprint.map(|fingerprint| fingerprint::encode(&fingerprint));
    let words = encoded.as_ref().map_or(&[][..], |bytes| bytes.as_chunks().0);
    std::array::from_fn(|at| words.get(at).map_or(0, |word| u64::from_le_bytes(*word)))
}

/// The fingerprint of these words, if they have one. `None` if they are invalid.
fn fingerprint_of(words: [u64; 3]) -> Option<Option<Fingerprint>> {
    if words == [0; 3] {
        return Some(None);
    }
    let encoded = words.map(u64::to_le_bytes);
    fingerprint::decode(encoded.as_flattened().try_into().ok()?).ok().map(Some)
}

impl From<Call> for Step {
    fn from(call: Call) -> Step {
        Step { call, operation: None }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.operation {
            Some(operation) => write!(f, "{operation} ({})", self.call),
            None => self.call.fmt(f),
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(call) => call.fmt(f),
            None => f.write_str("an unknown call"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Step> {
        let mut calls = vec![
            Call::copy(OperationKind::Broadcast, Some(7), 12),
            Call::copy(OperationKind::AllGather, None, isize::MAX as usize),
            Call::bare(OperationKind::Barrier),
            Call(None),
        ];
        for element in Element::ALL {
            for how in [Combine::Sum, Combine::Product, Combine::Min, Combine::Max] {
                calls.push(Call::reduction(None, element, how, 1 << 40));
                calls.push(Call::reduction(Some(u32::MAX - 1), element, how, 0));
            }
        }
        calls.into_iter().map(Step::from).collect()
    }

    #[test]
    fn every_call_survives_its_words_and_none_are_alike() {
        for (index, call) in all().iter().enumerate() {
            assert_eq!(Step::decode(call.encode()), *call);
            for other in &all()[index + 1..] {
                assert_ne!(call.encode(), other.encode(), "{call} and {other}");
                assert!(!call.agrees(other), "{call} and {other}");
            }
        }
    }

    #[test]
    fn nonsense_is_unknown() {
        let [first, ..] = Step::from(Call::bare(OperationKind::Barrier)).encode();
        for words in [[u64::MAX; 3], [first, 0, 1 << 20], [first ^ 0x1100, 0, 0], [6, 0, 0]] {
            let [a, b, c] = words;
            let step = Step::decode([a, b, c, 0, 0, 0]);
            assert_eq!(step, Call(None).into(), "{words:x?}");
        }
    }

    #[test]
    fn a_root_that_no_team_has_is_still_a_root() {
        let step = Step::from(Call::copy(OperationKind::Broadcast, Some(u32::MAX), 12));
        assert_eq!(Step::decode(step.encode()), step);
    }

    #[test]
    fn a_step_says_which_operation_it_is_of() {
        let call = Call::bare(OperationKind::Barrier);
        let sum = Fingerprint::of_sum(Element::F32, 704);
        let step = Step { call, operation: Some(sum) };
        for step in [step, call.into()] {
            assert_eq!(Step::decode(step.encode()), step);
        }
        let other = Step { call, operation: Some(Fingerprint::of_sum(Element::F32, 705)) };
        assert!(step.agrees(&step) && !step.agrees(&other) && !step.agrees(&call.into()));
        let mut words = step.encode();
        words[3] = u64::MAX;
        assert_eq!(Step::decode(words), Call(None).into(), "no fingerprint");
    }

    #[test]
    fn calls_read_as_they_are_written() {
        let call = Call::reduction(Some(1), Element::Bf16, Combine::Max, 64);
        assert_eq!(call.to_string(), "reduce (max) with root 1 of 32 values of bf16, exact");
    }
}
