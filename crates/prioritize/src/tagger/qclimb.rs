//! QCLIMB: up to the lower bound, then down.

use thalweg_core::{Bytes, Tag, Tagger};

use super::thresholds::{Thresholds, tag};
use crate::bounds::Bounds;

/// Bytes that a flow may send at the highest priority beyond its lower bound, by default (QCLIMB §5.1).
// spec: Q-04
pub const SLACK: Bytes = Bytes::new(100_000);

/// Tags one flow whose size is bounded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Qclimb {
    /// The edges of the priorities.
    pub thresholds: Thresholds,
    /// Estimated bounds of the size.
    pub bounds: Bounds,
    /// Bytes that it may send at the highest priority beyond the lower bound.
    pub slack: Bytes,
}

impl Qclimb {
    /// Bounds with everything else by default.
    pub fn new(bounds: Bounds) -> Qclimb {
        Qclimb { thresholds: Thresholds::default(), bounds, slack: SLACK }
    }

    /// The priority of the packet before which `sent` bytes went: Algorithm 1.
    // spec: Q-03
    pub fn priority(&self, sent: Bytes) -> u8 {
        let Bounds { lower, upper } = self.bounds;
        if sent < lower {
            return self.thresholds.priority_of(lower - sent);
        }
        // The slack comes before the upper bound, even where it reaches beyond it.
        if sent - lower < self.slack {
            return 0;
        }
        if sent < upper {
            return self.thresholds.priority_of(sent);
        }
        self.thresholds.lowest()
    }
}

impl Tagger for Qclimb {
    fn tag(&mut self, sent: Bytes) -> Tag {
        tag(self.priority(sent))
    }
}
