//! Lengths of data that only two ranks have to agree on.
// spec: E-11

use super::call::{Call, Request};
use super::config::Place;

/// Lengths in bytes of the data between a rank and each other rank, where every two ranks have their own.
/// Empty where they do not, or where the length is unknown.
#[derive(Debug)]
pub(super) struct Lengths {
    given: Vec<u64>,
    expected: Vec<u64>,
}

impl Lengths {
    /// The lengths that a call states.
    pub fn of(place: &Place, request: &Request) -> Lengths {
        let expected = request.expected.clone().unwrap_or_default();
        let lengths = |parts: &[Vec<u8>]| parts.iter().map(|part| part.len() as u64).collect();
        match &request.call {
            Call::Gather { root, data } if place.is_other(*root) => {
                let given = vec![data.len() as u64; place.ranks as usize];
                Lengths { given, expected: Vec::new() }
            }
            Call::Scatter { root, parts } if *root == place.rank => {
                Lengths { given: lengths(parts), expected: Vec::new() }
            }
            Call::Gather { .. } | Call::Scatter { .. } => Lengths { given: Vec::new(), expected },
            Call::AllToAll { parts } if !expected.is_empty() => {
                Lengths { given: lengths(parts), expected }
            }
            _ => Lengths { given: Vec::new(), expected: Vec::new() },
        }
    }

    /// The length that a message to a rank states. The length of its data is in the message anyway, so it states
    /// the length that this rank expects: both ranks notice if one has more than the other expects.
    pub fn stated_to(&self, rank: u32) -> Option<u64> {
        self.expected_of(rank).or(length(&self.given, rank))
    }

    /// The length that a message from a rank has to state.
    pub fn required_of(&self, rank: u32) -> Option<u64> {
        length(&self.given, rank).or(self.expected_of(rank))
    }

    /// The length of the data that a rank has to send.
    pub fn expected_of(&self, rank: u32) -> Option<u64> {
        length(&self.expected, rank)
    }
}

fn length(lengths: &[u64], rank: u32) -> Option<u64> {
    lengths.get(rank as usize).copied()
}
