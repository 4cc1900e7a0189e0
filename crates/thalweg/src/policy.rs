//! Policies of operations.

use std::str::FromStr;

use thalweg_aggregate::Numeric as Bodies;
use thalweg_core::{Combine, OperationPolicy, Reduction, SumPath};
use thalweg_deliver::LossBound;
use thalweg_wire::aggregate::Scale;

use crate::error::Error;
use crate::tuning::LAYERS;

/// The way in which reductions are carried out: all of a session, or one. Every reduction is exact unless it asks
/// for something else.
///
/// ```
/// use thalweg::{Collective, Policy, Reliability};
///
/// let bounded = Reliability::bounded(0.1).expect("from 0 to less than 1");
/// let policy = Policy::default().collective(Collective::Ring).reliability(bounded);
/// assert_eq!(policy.collective, Collective::Ring);
/// ```
// spec: T-08
#[derive(Clone, Copy, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct Policy {
    /// Nodes that add.
    pub collective: Collective,
    /// Numbers that travel. One for all sums of a job.
    pub numeric: Numeric,
    /// Share of values that may be missing.
    pub reliability: Reliability,
    /// Priority of packets.
    pub priority: Priority,
}

impl Policy {
    /// The same policy, with these nodes that add.
    #[must_use]
    pub fn collective(self, collective: Collective) -> Policy {
        Policy { collective, ..self }
    }

    /// The same policy, with these numbers.
    #[must_use]
    pub fn numeric(self, numeric: Numeric) -> Policy {
        Policy { numeric, ..self }
    }

    /// The same policy, where this may be missing.
    #[must_use]
    pub fn reliability(self, reliability: Reliability) -> Policy {
        Policy { reliability, ..self }
    }

    /// The same policy, with this priority.
    #[must_use]
    pub fn priority(self, priority: Priority) -> Policy {
        Policy { priority, ..self }
    }

    /// The same policy, with a choice in place of [`Auto`](Collective::Auto).
    // spec: F-07
    pub(crate) fn resolved(self, has_switch: bool) -> Policy {
        match self.collective {
            Collective::Auto if has_switch => self.collective(Collective::Aggregate),
            Collective::Auto => self.collective(Collective::Direct),
            _ => self,
        }
    }

    /// The part of the policy that all ranks have to agree on. The numeric is the job's, and priorities may differ.
    pub(crate) fn agreement(&self) -> OperationPolicy {
        OperationPolicy {
            path: match self.collective {
                Collective::Auto | Collective::Aggregate => SumPath::Aggregate,
                Collective::Direct => SumPath::Direct,
                Collective::Server => SumPath::Server,
                Collective::Ring => SumPath::Ring,
            },
            loss_millionths: self.reliability.loss().map_or(0, LossBound::millionths),
        }
    }
}

/// Share of values that a sum may lack. All ranks give the same for an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Reliability {
    /// Everything is in it.
    #[default]
    Exact,
    /// At most this share of any rank's values is missing, for gradients that need not wait for the last
    /// packet. The sum comes to all ranks with the same bits.
    ///
    /// Every sum reports its [coverage](crate::Coverage), which is the same at all ranks, and a mean divides each
    /// value by the number of ranks that are in it. Parameter servers and rings carry their messages by deliveries, in
    /// which values that were lost read as zero, and send the coverage along, of which nothing is lost.
    Bounded(LossBound),
}

impl Reliability {
    /// At most this share of any rank's values is missing. `None` unless it is from 0 to less than 1.
    pub fn bounded(loss: f64) -> Option<Reliability> {
        LossBound::new(loss).map(Reliability::Bounded)
    }

    /// The bound, if there is one that allows anything.
    pub(crate) fn loss(self) -> Option<LossBound> {
        match self {
            Reliability::Bounded(loss) if loss != LossBound::EXACT => Some(loss),
            Reliability::Bounded(_) | Reliability::Exact => None,
        }
    }
}

/// Priority of the packets of a sum, at switches that have priorities.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Priority {
    /// All alike.
    #[default]
    Fixed,
    /// By the layer of the model: the next iteration needs the front first.
    Layer {
        /// The layer, from 0 at the front.
        index: u16,
        /// Number of layers.
        of: u16,
    },
}

impl Priority {
    /// The layer, on the scale of sessions.
    pub(crate) fn layer(self) -> Option<u16> {
        match self {
            Priority::Fixed => None,
            Priority::Layer { index, of } => {
                let of = u32::from(of.max(1));
                let index = u32::from(index).min(of - 1);
                // Below the scale's length.
                Some((index * u32::from(LAYERS) / of) as u16)
            }
        }
    }
}

/// Nodes that add up gradients.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Collective {
    /// The best choice: aggregation if a rank or the server names a switch, otherwise the hosts themselves.
    #[default]
    Auto,
    /// The switches along the path, where they have room, and the server.
    Aggregate,
    /// The hosts themselves, by the algorithm for the length of the tensor and the number of hosts: a ring where the
    /// tensor is long enough to fill one, otherwise parameter servers, which need two steps instead of two for each
    /// host. With a loss bound, parameter servers.
    Direct,
    /// The hosts themselves, each a parameter server for its share of the values.
    Server,
    /// The hosts themselves, in a ring.
    Ring,
}

impl Collective {
    /// All of them.
    pub const ALL: [Collective; 5] = [
        Collective::Auto,
        Collective::Aggregate,
        Collective::Direct,
        Collective::Server,
        Collective::Ring,
    ];

    /// Name in settings.
    pub const fn name(self) -> &'static str {
        match self {
            Collective::Auto => "auto",
            Collective::Aggregate => "aggregate",
            Collective::Direct => "direct",
            Collective::Server => "server",
            Collective::Ring => "ring",
        }
    }
}

impl FromStr for Collective {
    type Err = Error;

    fn from_str(text: &str) -> Result<Collective, Error> {
        Collective::ALL.into_iter().find(|collective| collective.name() == text).ok_or_else(|| {
            let names = Collective::ALL.map(Collective::name).join(", ");
            Error::config(format!("{text:?} is no collective: write one of {names}"))
        })
    }
}

/// Numbers that travel through aggregation.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
#[non_exhaustive]
pub enum Numeric {
    /// The best choice: floats, since switches in software add them as fast.
    #[default]
    Auto,
    /// `f32`: no range to overflow, NaN and infinity as they are.
    Float,
    /// `i32` in fixed point with this many steps to 1, for switches that add integers only. Values out
    /// of range travel as floats, through the server.
    Fixed {
        /// Steps to 1; positive and finite.
        scale: f32,
        /// Lowers the scale when values are often out of range.
        dynamic: bool,
    },
}

/// Combination of the values of all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Reduce {
    /// The sum.
    Sum,
    /// The sum, divided by the number of ranks that are in it.
    Mean,
    /// The least.
    Min,
    /// The largest.
    Max,
    /// The product.
    Product,
}

impl Reduce {
    /// The reduction that the other ranks have to agree on.
    pub(crate) fn reduction(self) -> Reduction {
        match self {
            Reduce::Sum => Reduction::Sum,
            Reduce::Mean => Reduction::Mean,
            Reduce::Min => Reduction::Min,
            Reduce::Max => Reduction::Max,
            Reduce::Product => Reduction::Product,
        }
    }

    /// The combination of two values; the division of a mean comes last.
    #[doc(hidden)]
    pub fn combine(self) -> Combine {
        match self {
            Reduce::Sum | Reduce::Mean => Combine::Sum,
            Reduce::Min => Combine::Min,
            Reduce::Max => Combine::Max,
            Reduce::Product => Combine::Product,
        }
    }
}

impl Numeric {
    /// Values that bodies hold; `None` if the scale is invalid.
    pub(crate) fn bodies(self) -> Option<Bodies> {
        Some(match self {
            Numeric::Auto | Numeric::Float => Bodies::Float,
            Numeric::Fixed { scale, dynamic } => {
                Bodies::Fixed { scale: Scale::new(scale)?, dynamic }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_told_apart_on_one_scale() {
        let layer = |index, of| Priority::Layer { index, of }.layer();
        assert_eq!([layer(0, 50), layer(25, 50), layer(49, 50)], [Some(0), Some(128), Some(250)]);
        assert_eq!([layer(9, 3), layer(0, 0)], [Some(170), Some(0)], "held within the model");
        assert_eq!(Priority::Fixed.layer(), None);
    }

    #[test]
    fn every_name_of_a_collective_is_read_again_and_others_are_refused() {
        for collective in Collective::ALL {
            assert_eq!(collective.name().parse::<Collective>().unwrap(), collective);
        }
        let error = "star".parse::<Collective>().unwrap_err().to_string();
        assert!(error.contains("write one of auto, aggregate, direct, server, ring"), "{error}");
    }

    // spec: F-07 machine
    #[test]
    fn without_a_switch_the_hosts_add_by_themselves() {
        let resolved = |collective, has_switch| {
            Policy::default().collective(collective).resolved(has_switch).collective
        };
        assert_eq!(resolved(Collective::Auto, true), Collective::Aggregate);
        assert_eq!(resolved(Collective::Auto, false), Collective::Direct);
        assert_eq!(resolved(Collective::Aggregate, false), Collective::Aggregate);
    }

    #[test]
    fn a_bound_of_nothing_is_exact() {
        assert_eq!(Reliability::bounded(0.0).unwrap().loss(), None);
        assert!(Reliability::bounded(0.1).unwrap().loss().is_some());
        assert_eq!([Reliability::bounded(1.0), Reliability::bounded(f64::NAN)], [None; 2]);
    }
}
