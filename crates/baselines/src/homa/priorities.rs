//! Division of the priorities.

use thalweg_core::{Bytes, LAST_PRIORITY, PRIORITIES};
use thiserror::Error;

/// Most edges: two priorities of eight have none above them, the last for unscheduled packets and one
/// for scheduled ones.
const MAX_CUTOFFS: usize = PRIORITIES - 2;

/// Division of the eight priorities: the highest for unscheduled packets, by the size of their
/// message, the others for scheduled ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Priorities {
    cutoffs: [Bytes; MAX_CUTOFFS],
    /// Number of cutoffs in use.
    edges: u8,
}

/// Why cutoffs are none. The configuration is at fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum PrioritiesError {
    /// Nothing is left for scheduled packets.
    #[error(
        "{0} cutoffs leave no priority of eight for scheduled packets: give at most {MAX_CUTOFFS}"
    )]
    TooMany(usize),
    /// A priority that no message would have.
    #[error("cutoff {cutoff} does not lie above {before}: let them rise")]
    NotRising {
        /// The cutoff.
        cutoff: Bytes,
        /// The one before it, or zero.
        before: Bytes,
    },
}

impl Priorities {
    /// Messages of up to the first cutoff have the highest priority for their unscheduled packets, and
    /// so on. Those above the last cutoff have one more, and scheduled packets the rest.
    pub fn new(cutoffs: &[Bytes]) -> Result<Priorities, PrioritiesError> {
        if cutoffs.len() > MAX_CUTOFFS {
            return Err(PrioritiesError::TooMany(cutoffs.len()));
        }
        let before = [Bytes::ZERO].into_iter().chain(cutoffs.iter().copied());
        for (before, &cutoff) in before.zip(cutoffs) {
            if cutoff <= before {
                return Err(PrioritiesError::NotRising { cutoff, before });
            }
        }
        let mut priorities = Priorities { edges: cutoffs.len() as u8, ..Priorities::default() };
        priorities.cutoffs[..cutoffs.len()].copy_from_slice(cutoffs);
        Ok(priorities)
    }

    /// As published: unscheduled packets get the share of the priorities that they have of the bytes, and
    /// each of these priorities about the same share of their bytes. `sizes` is a sample of messages,
    /// of which at most `unscheduled` bytes each are not granted.
    pub fn balanced(sizes: &[Bytes], unscheduled: Bytes) -> Priorities {
        let mut sizes = sizes.to_vec();
        sizes.sort_unstable();
        let blind = |size: Bytes| u128::from(size.min(unscheduled).as_u64());
        let all: u128 = sizes.iter().map(|size| u128::from(size.as_u64())).sum();
        let unscheduled_bytes: u128 = sizes.iter().copied().map(blind).sum();
        let priorities = PRIORITIES as u128;
        let share = (2 * unscheduled_bytes * priorities + all).checked_div(2 * all).unwrap_or(1);
        let levels = share.clamp(1, u128::from(LAST_PRIORITY));
        let largest = sizes.last().copied().unwrap_or_default();
        let mut found = Priorities::default();
        let mut below = 0;
        for size in sizes {
            below += blind(size);
            let level = u128::from(found.edges) + 1;
            // A priority that no message would have is left out.
            let is_edge = found.last() < size && size < largest;
            if level < levels && below * levels >= unscheduled_bytes * level && is_edge {
                found.cutoffs[usize::from(found.edges)] = size;
                found.edges += 1;
            }
        }
        found
    }

    /// The priority of the unscheduled packets of a message of such a size.
    pub fn of_unscheduled(&self, size: Bytes) -> u8 {
        let smaller = self.cutoffs().iter().filter(|cutoff| **cutoff < size);
        smaller.count() as u8
    }

    /// Number of priorities for scheduled packets, and of messages that are granted at a time.
    pub fn scheduled(&self) -> u8 {
        LAST_PRIORITY - self.edges
    }

    /// The priority of the granted message with the `place`-th least left of `active`.
    pub(super) fn of_scheduled(&self, place: usize, active: usize) -> u8 {
        debug_assert!(place < active && active <= usize::from(self.scheduled()));
        LAST_PRIORITY - (active - 1 - place) as u8
    }

    /// The edges between the priorities of unscheduled packets.
    pub fn cutoffs(&self) -> &[Bytes] {
        &self.cutoffs[..usize::from(self.edges)]
    }

    fn last(&self) -> Bytes {
        self.cutoffs().last().copied().unwrap_or_default()
    }
}
