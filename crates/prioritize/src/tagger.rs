//! Priorities of the packets of a flow.
//!
//! All of these are [`Tagger`]s of one flow. [`of_flow`] picks between QCLIMB and
//! PIAS, by whether the flow's size is bounded.

mod packets;
mod pias_table;
mod qclimb;
mod thresholds;
mod variants;

pub use packets::{CarriedFlow, PacketRule, Segment};
pub use pias_table::{PUBLISHED_LOADS_PERCENT, PublishedWorkload, named, of_testbed, published};
pub use qclimb::{Qclimb, SLACK};
pub use thresholds::{Thresholds, ThresholdsError};
pub use variants::{FixedPriority, Pias, PreciseSizes, Promotion, Resumed};

use thalweg_core::{Bytes, Tagger};

use crate::bounds::Bounds;

/// The tagger of a flow that starts: QCLIMB where its size is bounded, PIAS where it is unknown. Both
/// use the same queues at the same time.
// spec: Q-05
pub fn of_flow(
    bounds: Option<Bounds>,
    thresholds: Thresholds,
    slack: Bytes,
) -> Box<dyn Tagger + Send> {
    match bounds {
        Some(bounds) => Box::new(Qclimb { thresholds, bounds, slack }),
        None => Box::new(Pias { thresholds }),
    }
}

#[cfg(test)]
mod tests;
