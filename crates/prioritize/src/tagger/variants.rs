//! Variants to compare QCLIMB with, and PIAS, its fallback.

use thalweg_core::{Bytes, Tag, Tagger};

use super::thresholds::{Thresholds, tag};

/// PIAS: knows nothing of the size. A flow starts at the highest priority and sinks as it sends.
// spec: Q-05
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pias {
    /// The edges of the priorities.
    pub thresholds: Thresholds,
}

impl Tagger for Pias {
    fn tag(&mut self, sent: Bytes) -> Tag {
        tag(self.thresholds.priority_of(sent))
    }
}

/// A flow that takes over a connection: what was sent on it before also counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resumed<T> {
    /// Tagger of the connection.
    pub tagger: T,
    /// Bytes that the connection sent before this flow.
    pub before: Bytes,
}

impl<T: Tagger> Tagger for Resumed<T> {
    fn tag(&mut self, sent: Bytes) -> Tag {
        self.tagger.tag(self.before + sent)
    }
}

/// PS: knows the size, and climbs by what is left.
// spec: Q-12
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PreciseSizes {
    /// The edges of the priorities.
    pub thresholds: Thresholds,
    /// Size of the flow.
    pub size: Bytes,
}

impl Tagger for PreciseSizes {
    fn tag(&mut self, sent: Bytes) -> Tag {
        tag(self.thresholds.priority_of(self.size.saturating_sub(sent)))
    }
}

/// FP: takes an estimate for the size, and one priority for life from it.
// spec: Q-12
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FixedPriority {
    /// The edges of the priorities.
    pub thresholds: Thresholds,
    /// Estimated size of the flow.
    pub estimate: Bytes,
}

impl Tagger for FixedPriority {
    fn tag(&mut self, _sent: Bytes) -> Tag {
        tag(self.thresholds.priority_of(self.estimate))
    }
}

/// PP: takes an estimate for the size and climbs towards it. A flow that goes on beyond it is sent to
/// the lowest priority.
// spec: Q-12
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Promotion {
    /// The edges of the priorities.
    pub thresholds: Thresholds,
    /// Estimated size of the flow.
    pub estimate: Bytes,
}

impl Tagger for Promotion {
    fn tag(&mut self, sent: Bytes) -> Tag {
        tag(if sent < self.estimate {
            self.thresholds.priority_of(self.estimate - sent)
        } else {
            self.thresholds.lowest()
        })
    }
}
