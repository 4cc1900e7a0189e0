//! Priorities of ordinary flows: joins the transport and the priority plane.

use thalweg_core::Bytes;
use thalweg_flow::FlowTagger;
use thalweg_prioritize::tagger::{
    FixedPriority, Pias, PreciseSizes, Promotion, Resumed, SLACK, Thresholds, of_flow,
};
use thalweg_prioritize::{Bounds, Model, NewFlow, Scratch};

/// Rule by which the flows of a host get their priorities. Flows of which nothing is known follow
/// [`Scheme::Pias`], whatever the scheme.
// spec: Q-05
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tagging {
    /// By what.
    pub scheme: Scheme,
    /// The edges of the priorities.
    pub thresholds: Thresholds,
    /// Bytes that a flow may send at the highest priority beyond its lower bound.
    pub slack: Bytes,
}

/// Quantity that decides the priority of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// Bytes sent.
    Pias,
    /// Bounds on the size.
    Qclimb,
    /// Bytes left, where the size is known.
    PreciseSizes,
    /// An estimate of the size, once for all packets.
    FixedPriority,
    /// Bytes left of an estimate of the size.
    Promotion,
}

/// Facts that are known of a flow when it starts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Known {
    /// Between what its size lies, if flows like it have been seen.
    pub bounds: Option<Bounds>,
    /// Estimate of its size from flows like it, if any have been seen.
    pub estimate: Option<Bytes>,
    /// Bytes that its connection sent before it, where [`Scheme::Pias`] counts connections.
    pub before: Bytes,
}

impl Known {
    /// Facts that a model knows of a flow.
    pub fn by(model: &Model, flow: &NewFlow, scratch: &mut Scratch) -> Known {
        Known {
            bounds: model.bounds(flow, scratch),
            estimate: model.estimate(flow),
            before: Bytes::ZERO,
        }
    }
}

impl Tagging {
    /// A scheme with everything else by default.
    pub fn new(scheme: Scheme) -> Tagging {
        Tagging { scheme, thresholds: Thresholds::default(), slack: SLACK }
    }

    /// The tagger of a flow of `size` bytes, which only [`Scheme::PreciseSizes`] looks at.
    pub fn of_flow(&self, size: Bytes, known: Known) -> FlowTagger {
        let Tagging { scheme, thresholds, slack } = *self;
        FlowTagger::Custom(match (scheme, known.estimate) {
            (Scheme::Qclimb, _) => of_flow(known.bounds, thresholds, slack),
            (Scheme::PreciseSizes, _) => Box::new(PreciseSizes { thresholds, size }),
            (Scheme::FixedPriority, Some(estimate)) => {
                Box::new(FixedPriority { thresholds, estimate })
            }
            (Scheme::Promotion, Some(estimate)) => Box::new(Promotion { thresholds, estimate }),
            (Scheme::Pias, _) => {
                Box::new(Resumed { tagger: Pias { thresholds }, before: known.before })
            }
            (Scheme::FixedPriority | Scheme::Promotion, None) => Box::new(Pias { thresholds }),
        })
    }
}

#[cfg(test)]
mod tests {
    use thalweg_core::Tagger;

    use super::*;

    fn priorities(scheme: Scheme, known: Known) -> Vec<u8> {
        let thresholds = Thresholds::new(&[Bytes::new(3), Bytes::new(6)]).unwrap();
        let tagging = Tagging { scheme, thresholds, slack: Bytes::new(1) };
        let mut tagger = tagging.of_flow(Bytes::new(7), known);
        (0..8).map(|sent| tagger.tag(Bytes::new(sent)).dscp.priority()).collect()
    }

    // spec: Q-05 machine
    #[test]
    fn flows_that_nothing_is_known_of_are_for_pias() {
        let pias = [0, 0, 0, 1, 1, 1, 2, 2];
        for scheme in [Scheme::Pias, Scheme::Qclimb, Scheme::FixedPriority, Scheme::Promotion] {
            assert_eq!(priorities(scheme, Known::default()), pias, "{scheme:?}");
        }
    }

    #[test]
    fn what_a_connection_sent_before_counts_for_pias() {
        let known = Known { before: Bytes::new(4), ..Known::default() };
        assert_eq!(priorities(Scheme::Pias, known), [1, 1, 2, 2, 2, 2, 2, 2]);
        assert_eq!(priorities(Scheme::Qclimb, known), [0, 0, 0, 1, 1, 1, 2, 2]);
    }

    #[test]
    fn what_is_known_decides() {
        let bounds = Bounds { lower: Bytes::new(4), upper: Bytes::new(9) };
        let known =
            Known { bounds: Some(bounds), estimate: Some(Bytes::new(6)), ..Known::default() };
        for (scheme, expected) in [
            (Scheme::Pias, [0, 0, 0, 1, 1, 1, 2, 2]),
            (Scheme::Qclimb, [1, 1, 0, 0, 0, 1, 2, 2]),
            (Scheme::PreciseSizes, [2, 2, 1, 1, 1, 0, 0, 0]),
            (Scheme::FixedPriority, [2, 2, 2, 2, 2, 2, 2, 2]),
            (Scheme::Promotion, [2, 1, 1, 1, 0, 0, 2, 2]),
        ] {
            assert_eq!(priorities(scheme, known), expected, "{scheme:?}");
        }
    }
}
