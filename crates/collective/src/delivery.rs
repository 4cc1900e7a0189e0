//! Settings of collectives that may lose a part of what they carry.

use std::fmt;
use std::sync::Arc;

use thalweg_core::{Rng, Tag, TrafficClass};
use thalweg_deliver::{FrontFirst, Importance, LossBound, Policy, Segment};
use thalweg_values::Tensor;

/// Has messages travel as tensors of which a bounded part may be lost, in place of flows. All nodes need
/// the same settings, except for the randomness.
///
/// Gradients that were lost read as zero. For every worker at most [`loss`](Delivery::loss) of what it
/// contributes is missing from a sum: a ring divides that among the hops on which it can be lost.
#[derive(Clone)]
pub struct Delivery {
    /// The transport.
    pub endpoint: thalweg_deliver::Config,
    /// The largest share of a gradient that may be missing. Default nothing.
    pub loss: LossBound,
    /// Number of layers of the model. Default 1.
    pub layers: u16,
    /// Contents of tensors. Default values. A server does not see it from what arrives.
    pub contents: Contents,
    /// Losses that results may have. Default none.
    pub results: Results,
    /// Rule that makes packets of a gradient important.
    pub importance: Importance,
    /// Gives packets their classes. Default the paper's, in the class of training.
    pub policy: Arc<dyn Policy>,
    /// Paths are drawn from it. Different at every node.
    pub rng: Rng,
}

/// The delivery of sums over a number of ranks.
pub(crate) struct SumDelivery {
    pub delivery: Delivery,
    pub ranks: u32,
    /// Number of nodes that send gradients to the same node at the same time.
    pub senders: u32,
}

/// Contents of tensors.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Contents {
    /// Values.
    Values,
    /// Nothing: a simulation need not carry values.
    Lengths,
}

/// Losses that results may have.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Results {
    /// Nothing of them, so that all workers end with the same bits: all their packets are important.
    Exact,
    /// As much as of gradients, at workers that have [older](crate::SumCall::older) values. Only of
    /// parameter servers: what one worker of a ring loses, all after it would lose as well.
    MayBeLost,
}

impl Delivery {
    /// The default settings.
    pub fn new(rng: Rng) -> Delivery {
        Delivery {
            endpoint: thalweg_deliver::Config::default(),
            loss: LossBound::EXACT,
            layers: 1,
            contents: Contents::Values,
            results: Results::Exact,
            importance: Importance::default(),
            policy: Arc::new(in_training),
            rng,
        }
    }

    /// The settings with the loss divided among a number of hops. Each adds to what is missing of those
    /// before it.
    pub(crate) fn divided(mut self, hops: u64) -> Delivery {
        self.loss = self.loss.divided(hops);
        self
    }
}

fn in_training(segment: &Segment) -> Tag {
    let tag = FrontFirst::default().tag(segment);
    Tag { dscp: tag.dscp.in_class(TrafficClass::Training), ..tag }
}

impl Contents {
    /// True if a tensor has these contents.
    pub(crate) fn fit(self, tensor: &Tensor) -> bool {
        matches!(tensor, Tensor::Length(_)) == (self == Contents::Lengths)
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("endpoint", &self.endpoint)
            .field("loss", &self.loss)
            .field("layers", &self.layers)
            .field("contents", &self.contents)
            .field("results", &self.results)
            .field("importance", &self.importance)
            .finish_non_exhaustive()
    }
}
