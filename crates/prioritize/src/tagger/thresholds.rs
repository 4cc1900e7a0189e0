//! From a number of bytes to a priority.

use thalweg_core::{Bytes, Dscp, Ecn, PRIORITIES, Tag};
use thiserror::Error;

use super::pias_table::{PublishedWorkload, published};

/// The lower edge of every priority, 0 for the highest.
// spec
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Thresholds {
    /// Rising; the first is 0. Those from `count` on mean nothing.
    edges: [Bytes; PRIORITIES],
    count: u8,
}

/// Why edges are none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ThresholdsError {
    /// More than there are queues for.
    #[error("{0} thresholds make too many priorities: give at most {max}", max = PRIORITIES - 1)]
    TooMany(usize),
    /// An edge is not above the one before it.
    #[error("threshold {found} does not rise above {before}: sort them, and give each once")]
    NotRising {
        /// The edge before.
        before: Bytes,
        /// The edge.
        found: Bytes,
    },
}

impl Default for Thresholds {
    /// Eight priorities, with the thresholds of PIAS's simulations for web search at a load of 0.8.
    /// QCLIMB uses "the same queue thresholds as the PIAS paper" for all workloads and does not say
    /// which of them; [`named`](super::named) has the others.
    // spec: Q-04
    fn default() -> Thresholds {
        published(PublishedWorkload::WebSearch, 80).expect("the table has this load")
    }
}

impl Thresholds {
    /// Priorities with these edges between them, the highest priority's first. None makes one
    /// priority.
    pub fn new(demotions: &[Bytes]) -> Result<Thresholds, ThresholdsError> {
        if demotions.len() >= PRIORITIES {
            return Err(ThresholdsError::TooMany(demotions.len()));
        }
        let mut edges = [Bytes::ZERO; PRIORITIES];
        edges[1..=demotions.len()].copy_from_slice(demotions);
        for pair in edges[..=demotions.len()].windows(2) {
            if pair[1] <= pair[0] {
                return Err(ThresholdsError::NotRising { before: pair[0], found: pair[1] });
            }
        }
        Ok(Thresholds { edges, count: demotions.len() as u8 + 1 })
    }

    /// Number of priorities.
    pub fn priorities(&self) -> u8 {
        self.count
    }

    /// The edges between priorities, the highest priority's first.
    pub fn demotions(&self) -> &[Bytes] {
        &self.edges[1..usize::from(self.count)]
    }

    /// The number of the least urgent priority.
    pub fn lowest(&self) -> u8 {
        self.count - 1
    }

    /// The priority that belongs to a number of bytes: from the lowest priority upwards the first whose
    /// edge is not above it.
    // spec: Q-03
    #[inline]
    pub fn priority_of(&self, bytes: Bytes) -> u8 {
        let edges = &self.edges[..usize::from(self.count)];
        edges.iter().rposition(|&edge| edge <= bytes).unwrap_or(0) as u8
    }
}

/// A packet of that priority.
pub(super) fn tag(priority: u8) -> Tag {
    Tag { dscp: Dscp::of_priority(priority), ecn: Ecn::Capable, rank: u32::from(priority) }
}
