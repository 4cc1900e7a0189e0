//! Evaluation of bounds against real sizes.

use thalweg_core::Bytes;

use crate::bounds::{Bounds, Model};
use crate::features::NewFlow;
use crate::forest::Scratch;

/// Flows up to it are small (QCLIMB §5.1).
pub const SMALL_UP_TO: Bytes = Bytes::new(100_000);
/// Flows beyond it are large. The paper does not say where it draws the line; PIAS does so here.
pub const MEDIUM_UP_TO: Bytes = Bytes::new(10_000_000);

/// Small, medium or large.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Up to [`SMALL_UP_TO`].
    Small,
    /// Up to [`MEDIUM_UP_TO`].
    Medium,
    /// Beyond.
    Large,
}

impl Class {
    /// All of them, the smallest first.
    pub const ALL: [Class; 3] = [Class::Small, Class::Medium, Class::Large];

    /// The class of a size.
    pub fn of(bytes: Bytes) -> Class {
        match bytes {
            small if small <= SMALL_UP_TO => Class::Small,
            medium if medium <= MEDIUM_UP_TO => Class::Medium,
            _ => Class::Large,
        }
    }

    /// Name of the class.
    pub fn name(self) -> &'static str {
        match self {
            Class::Small => "small",
            Class::Medium => "medium",
            Class::Large => "large",
        }
    }
}

/// A flow, and the bounds that were predicted for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Judged {
    /// Size of the flow.
    pub bytes: Bytes,
    /// Bounds that were predicted; `None` for a flow that is unknown to the model.
    pub bounds: Option<Bounds>,
}

/// Bounds every flow.
pub fn judge(model: &Model, flows: &[(NewFlow, Bytes)]) -> Vec<Judged> {
    let mut scratch = Scratch::default();
    let judge = |(flow, bytes): &(NewFlow, Bytes)| Judged {
        bytes: *bytes,
        bounds: model.bounds(flow, &mut scratch),
    };
    flows.iter().map(judge).collect()
}

/// Sums over flows that were judged.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Summary {
    /// Flows that the model knows.
    pub known: usize,
    /// Flows that it does not.
    pub unknown: usize,
    /// Known flows that are smaller than their lower bound.
    pub below: usize,
    /// Known flows that are larger than their upper bound.
    pub above: usize,
    /// Sums over known flows of each class, in the order of [`Class::ALL`].
    pub classes: [ClassSummary; 3],
}

/// Sums over the known flows of one class.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct ClassSummary {
    /// Number of flows.
    pub flows: usize,
    /// The sum of their lower bounds.
    pub lower_sum: f64,
    /// The sum of the distances between sizes and lower bounds.
    pub gap_sum: f64,
}

impl Summary {
    /// Sums up.
    pub fn of(judged: &[Judged]) -> Summary {
        let mut summary = Summary::default();
        for flow in judged {
            let Some(bounds) = flow.bounds else {
                summary.unknown += 1;
                continue;
            };
            summary.known += 1;
            summary.below += usize::from(flow.bytes < bounds.lower);
            summary.above += usize::from(flow.bytes > bounds.upper);
            let class = &mut summary.classes[Class::of(flow.bytes) as usize];
            class.flows += 1;
            class.lower_sum += bounds.lower.as_u64() as f64;
            class.gap_sum += flow.bytes.as_u64().abs_diff(bounds.lower.as_u64()) as f64;
        }
        summary
    }

    /// The share of known flows within their bounds; `None` without any.
    pub fn bounded_share(&self) -> Option<f64> {
        let out = self.below + self.above;
        (self.known > 0).then(|| (self.known - out) as f64 / self.known as f64)
    }

    /// The sums of one class.
    pub fn class(&self, class: Class) -> &ClassSummary {
        &self.classes[class as usize]
    }
}

impl ClassSummary {
    /// The mean lower bound; `None` without flows.
    pub fn mean_lower(&self) -> Option<f64> {
        (self.flows > 0).then(|| self.lower_sum / self.flows as f64)
    }

    /// The mean distance between a size and its lower bound; `None` without flows.
    pub fn mean_gap(&self) -> Option<f64> {
        (self.flows > 0).then(|| self.gap_sum / self.flows as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(bytes: u64, bounds: Option<(u64, u64)>) -> Judged {
        let bounds = bounds
            .map(|(lower, upper)| Bounds { lower: Bytes::new(lower), upper: Bytes::new(upper) });
        Judged { bytes: Bytes::new(bytes), bounds }
    }

    #[test]
    fn sums_by_hand() {
        let summary = Summary::of(&[
            judged(100, Some((40, 100))),
            judged(30, Some((40, 100))),
            judged(100_001, Some((1, 100_000))),
            judged(10_000_001, Some((9_000_000, 20_000_000))),
            judged(5, None),
        ]);
        assert_eq!((summary.known, summary.unknown), (4, 1));
        assert_eq!((summary.below, summary.above), (1, 1));
        assert_eq!(summary.bounded_share(), Some(0.5));
        let small = summary.class(Class::Small);
        assert_eq!((small.mean_lower(), small.mean_gap()), (Some(40.0), Some(35.0)));
        assert_eq!(summary.class(Class::Medium).flows, 1);
        assert_eq!(summary.class(Class::Large).mean_gap(), Some(1_000_001.0));
    }

    #[test]
    fn nothing_has_no_mean() {
        let summary = Summary::of(&[judged(5, None)]);
        assert_eq!(summary.bounded_share(), None);
        assert_eq!(summary.class(Class::Small).mean_lower(), None);
        assert_eq!(summary.class(Class::Small).mean_gap(), None);
    }

    #[test]
    fn edges_of_classes() {
        for (bytes, class) in [
            (1, Class::Small),
            (100_000, Class::Small),
            (100_001, Class::Medium),
            (10_000_000, Class::Medium),
            (10_000_001, Class::Large),
        ] {
            assert_eq!(Class::of(Bytes::new(bytes)), class);
        }
    }
}
