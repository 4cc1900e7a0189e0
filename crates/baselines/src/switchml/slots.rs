//! The slots of one job in a switch.

use thalweg_core::{Body, NodeId};
use thalweg_values::sum;
use thalweg_wire::aggregate::{Gradient, Numbers};

use super::place;

/// Slots and workers of one job in a switch.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) workers: Vec<NodeId>,
    /// Both versions of each slot, side by side.
    sums: Vec<Sum>,
}

/// One version of a slot.
#[derive(Clone, Debug, Default)]
struct Sum {
    /// The fragment that is in it; `None` when it was never used.
    fragment: Option<Fragment>,
    /// Workers that have contributed.
    bitmap: u32,
    /// Little-endian `i32`; empty where only lengths travel. Keeps its memory.
    values: Vec<u8>,
}

/// Properties that the packets of one fragment share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Fragment {
    sequence: u64,
    numbers: Numbers,
    body_bytes: usize,
    is_real: bool,
}

/// Outcome of a contribution.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// Added, or there already; others are missing.
    Kept { is_new: bool },
    /// It was the last one: the body holds the sum.
    Complete,
    /// The sum was complete before: the body holds it.
    Again,
    /// Of a fragment that is over, or unlike the others of its fragment.
    Refused,
}

impl Pool {
    pub(super) fn new(slots: u32, workers: Vec<NodeId>) -> Pool {
        Pool { workers, sums: vec![Sum::default(); slots as usize * 2] }
    }

    pub(super) fn slots(&self) -> u32 {
        (self.sums.len() / 2) as u32
    }

    /// Adds a contribution that names one worker of this job. Says with `saturated` whether a sum left
    /// the range of its numbers.
    pub(super) fn add(
        &mut self,
        gradient: &Gradient,
        body: &mut Body<'_>,
        saturated: &mut bool,
    ) -> Outcome {
        let sequence = gradient.identity.sequence;
        let (slot, version) = place(sequence, self.slots());
        let full = gradient.branch.full(0);
        let Some(sum) = self.sums.get_mut(slot as usize * 2 + usize::from(version)) else {
            return Outcome::Refused;
        };
        let fragment = Fragment {
            sequence,
            numbers: gradient.numbers,
            body_bytes: body.len(),
            is_real: matches!(body, Body::Bytes(_)),
        };
        match sum.fragment {
            Some(there) if there == fragment => {}
            // A worker is in a version again when it has the result of the other, to which all have
            // contributed, and did so when they had what was here.
            Some(there) if there.sequence >= sequence => return Outcome::Refused,
            _ => sum.begin(fragment),
        }
        if sum.bitmap & gradient.bitmap != 0 {
            if sum.bitmap != full {
                return Outcome::Kept { is_new: false };
            }
            sum.copy_to(body);
            return Outcome::Again;
        }
        *saturated |= sum.merge(gradient.bitmap, body);
        if sum.bitmap != full {
            return Outcome::Kept { is_new: true };
        }
        sum.copy_to(body);
        Outcome::Complete
    }
}

impl Sum {
    fn begin(&mut self, fragment: Fragment) {
        self.fragment = Some(fragment);
        self.bitmap = 0;
        self.values.clear();
    }

    /// Adds with saturation. Says whether a sum left the range.
    fn merge(&mut self, bit: u32, body: &Body<'_>) -> bool {
        let is_first = self.bitmap == 0;
        self.bitmap |= bit;
        let Body::Bytes(bytes) = body else { return false };
        if is_first {
            self.values.extend_from_slice(bytes);
            return false;
        }
        sum::add_fixed(&mut self.values, bytes)
    }

    fn copy_to(&self, body: &mut Body<'_>) {
        if let Body::Bytes(bytes) = body {
            bytes.copy_from_slice(&self.values);
        }
    }
}
