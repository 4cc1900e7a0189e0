//! Calls of members, and the words of shared memory that announce them to the others.

use std::fmt;

use thalweg_core::{Combine, Element, Fingerprint};
use thalweg_wire::fingerprint;

/// An operation as one member called it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// [`Team::all_reduce`](crate::Team::all_reduce).
    AllReduce {
        /// The type of the values.
        element: Element,
        /// How they become one.
        how: Combine,
        /// The length of the data.
        bytes: u64,
    },
    /// [`Team::reduce_to`](crate::Team::reduce_to).
    ReduceTo {
        /// Who gets the combination.
        root: u32,
        /// The type of the values.
        element: Element,
        /// How they become one.
        how: Combine,
        /// The length of the data.
        bytes: u64,
    },
    /// [`Team::broadcast`](crate::Team::broadcast).
    Broadcast {
        /// Whose data everybody gets.
        root: u32,
        /// The length of the data.
        bytes: u64,
    },
    /// [`Team::all_gather`](crate::Team::all_gather).
    AllGather {
        /// The length of one member's data.
        bytes: u64,
    },
    /// [`Team::barrier`](crate::Team::barrier).
    Barrier,
    /// Something that this version does not know: the shared memory was overwritten.
    Unknown,
}

/// A call, and the operation of the application that it is a step of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The call.
    pub call: Call,
    /// The operation, where the application has stated it.
    pub operation: Option<Fingerprint>,
}

/// Number of words that a step takes.
pub(crate) const STEP_WORDS: usize = 5;

impl Step {
    /// The words of the call, then those of the operation. No operation has only zeros.
    pub(crate) fn encode(&self) -> [u64; STEP_WORDS] {
        let mut words = [0; STEP_WORDS];
        words[..2].copy_from_slice(&self.call.encode());
        if let Some(operation) = &self.operation {
            let encoded = fingerprint::encode(operation);
            for (word, bytes) in words[2..].iter_mut().zip(encoded.as_chunks().0) {
                *word = u64::from_le_bytes(*bytes);
            }
        }
        words
    }

    /// Decodes any words. Invalid ones are [`Call::Unknown`].
    pub(crate) fn decode([what, bytes, rest @ ..]: [u64; STEP_WORDS]) -> Step {
        let call = Call::decode([what, bytes]);
        if rest == [0; 3] {
            return Step { call, operation: None };
        }
        let encoded = rest.map(u64::to_le_bytes);
        let operation = encoded.as_flattened().try_into().ok();
        let operation = operation.and_then(|bytes| fingerprint::decode(bytes).ok());
        let call = if operation.is_some() { call } else { Call::Unknown };
        Step { call, operation }
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

const COMBINES: [Combine; 4] = [Combine::Sum, Combine::Product, Combine::Min, Combine::Max];

const ALL_REDUCE: u8 = 1;
const REDUCE_TO: u8 = 2;
const BROADCAST: u8 = 3;
const ALL_GATHER: u8 = 4;
const BARRIER: u8 = 5;

impl Call {
    /// Two words: what (operation, element, way of combining, root), and how many bytes.
    pub(crate) fn encode(&self) -> [u64; 2] {
        let what = |kind: u8, element: u8, how: u8, root: u32| {
            u64::from(kind) | u64::from(element) << 8 | u64::from(how) << 16 | u64::from(root) << 32
        };
        match *self {
            Call::AllReduce { element, how, bytes } => {
                [what(ALL_REDUCE, element_code(element), how_code(how), 0), bytes]
            }
            Call::ReduceTo { root, element, how, bytes } => {
                [what(REDUCE_TO, element_code(element), how_code(how), root), bytes]
            }
            Call::Broadcast { root, bytes } => [what(BROADCAST, 0, 0, root), bytes],
            Call::AllGather { bytes } => [what(ALL_GATHER, 0, 0, 0), bytes],
            Call::Barrier => [what(BARRIER, 0, 0, 0), 0],
            Call::Unknown => [0, 0],
        }
    }

    /// What two words say, whatever they are.
    pub(crate) fn decode([what, bytes]: [u64; 2]) -> Call {
        let [kind, element, how, _, root @ ..] = what.to_le_bytes();
        let root = u32::from_le_bytes(root);
        let element = Element::ALL.get(usize::from(element)).copied();
        let how = COMBINES.get(usize::from(how)).copied();
        let call = match (kind, element, how) {
            (ALL_REDUCE, Some(element), Some(how)) => Call::AllReduce { element, how, bytes },
            (REDUCE_TO, Some(element), Some(how)) => Call::ReduceTo { root, element, how, bytes },
            (BROADCAST, ..) => Call::Broadcast { root, bytes },
            (ALL_GATHER, ..) => Call::AllGather { bytes },
            (BARRIER, ..) => Call::Barrier,
            _ => Call::Unknown,
        };
        if call.encode() == [what, bytes] { call } else { Call::Unknown }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Call::AllReduce { element, how, bytes } => {
                write!(f, "all_reduce of {bytes} bytes of {} by {}", element.name(), name(how))
            }
            Call::ReduceTo { root, element, how, bytes } => {
                let (element, how) = (element.name(), name(how));
                write!(f, "reduce_to member {root} of {bytes} bytes of {element} by {how}")
            }
            Call::Broadcast { root, bytes } => {
                write!(f, "broadcast from member {root} of {bytes} bytes")
            }
            Call::AllGather { bytes } => write!(f, "all_gather of {bytes} bytes each"),
            Call::Barrier => write!(f, "barrier"),
            Call::Unknown => write!(f, "an unknown call"),
        }
    }
}

fn element_code(element: Element) -> u8 {
    Element::ALL.iter().position(|known| *known == element).map_or(u8::MAX, |at| at as u8)
}

fn how_code(how: Combine) -> u8 {
    COMBINES.iter().position(|known| *known == how).map_or(u8::MAX, |at| at as u8)
}

fn name(how: Combine) -> &'static str {
    match how {
        Combine::Sum => "sum",
        Combine::Product => "product",
        Combine::Min => "min",
        Combine::Max => "max",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Call> {
        let mut calls = vec![
            Call::Broadcast { root: 7, bytes: 12 },
            Call::AllGather { bytes: u64::MAX },
            Call::Barrier,
            Call::Unknown,
        ];
        for element in Element::ALL {
            for how in COMBINES {
                calls.push(Call::AllReduce { element, how, bytes: 1 << 40 });
                calls.push(Call::ReduceTo { root: u32::MAX, element, how, bytes: 0 });
            }
        }
        calls
    }

    #[test]
    fn every_call_survives_its_words_and_none_are_alike() {
        for (index, call) in all().iter().enumerate() {
            assert_eq!(Call::decode(call.encode()), *call);
            for other in &all()[index + 1..] {
                assert_ne!(call.encode(), other.encode(), "{call} and {other}");
            }
        }
    }

    #[test]
    fn nonsense_is_unknown() {
        for words in [[u64::MAX; 2], [6, 0], [5, 1], [0xff01, 4], [0x0f_0001, 4], [0x0103, 4]] {
            assert_eq!(Call::decode(words), Call::Unknown, "{words:x?}");
        }
    }

    #[test]
    fn a_step_says_which_operation_it_is_of() {
        let call = Call::Barrier;
        let sum = Fingerprint::of_sum(Element::F32, 704);
        let step = Step { call, operation: Some(sum) };
        for step in [step, call.into()] {
            assert_eq!(Step::decode(step.encode()), step);
        }
        let other = Step { call, operation: Some(Fingerprint::of_sum(Element::F32, 705)) };
        assert!(step.agrees(&step) && !step.agrees(&other) && !step.agrees(&call.into()));
        let mut words = step.encode();
        words[2] = u64::MAX;
        assert_eq!(Step::decode(words), Call::Unknown.into(), "no fingerprint");
    }

    #[test]
    fn calls_read_as_they_are_written() {
        let call = Call::ReduceTo { root: 1, element: Element::Bf16, how: Combine::Max, bytes: 64 };
        assert_eq!(call.to_string(), "reduce_to member 1 of 64 bytes of bf16 by max");
    }
}
