//! How operations are carried out.

use thalweg_aggregate::Numeric as Bodies;
use thalweg_core::Combine;
use thalweg_wire::aggregate::Scale;

/// How the sums of a session are carried out. Every collective is exact (T-08).
// spec: T-08
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Policy {
    /// Who adds.
    pub collective: Collective,
    /// What travels.
    pub numeric: Numeric,
}

/// Who adds up gradients.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Collective {
    /// What is best: aggregation.
    #[default]
    Auto,
    /// The switches on the way, where they have room, and the server.
    Aggregate,
    /// The hosts themselves, each a parameter server for its share of the values.
    Server,
    /// The hosts themselves, in a ring.
    Ring,
}

/// What travels through aggregation.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Numeric {
    /// What is best: floats, since switches in software add them as fast.
    #[default]
    Auto,
    /// `f32`: no range to overflow, NaN and infinity as they are.
    Float,
    /// `i32` in fixed point with this many steps to 1, for switches that add integers only. Values out
    /// of range take the way of floats, through the server.
    Fixed {
        /// Steps to 1; positive and finite.
        scale: f32,
        /// Whether the scale is lowered when values are often out of range.
        dynamic: bool,
    },
}

/// How values of all ranks become one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reduce {
    /// The sum.
    Sum,
    /// The sum, divided by the number of ranks.
    Mean,
    /// The least.
    Min,
    /// The largest.
    Max,
    /// The product.
    Product,
}

impl Reduce {
    /// What is done value by value; the mean's division comes last.
    pub(crate) fn combine(self) -> Combine {
        match self {
            Reduce::Sum | Reduce::Mean => Combine::Sum,
            Reduce::Min => Combine::Min,
            Reduce::Max => Combine::Max,
            Reduce::Product => Combine::Product,
        }
    }
}

impl Numeric {
    /// What bodies hold, if there is such a scale.
    pub(crate) fn bodies(self) -> Option<Bodies> {
        Some(match self {
            Numeric::Auto | Numeric::Float => Bodies::Float,
            Numeric::Fixed { scale, dynamic } => {
                Bodies::Fixed { scale: Scale::new(scale)?, dynamic }
            }
        })
    }
}
