//! Coverage of a completed sum: the ranks whose values are in it.

use std::ops::Range;

#[cfg(test)]
mod tests;

/// Coverage of a completed sum.
///
/// A sum without a loss bound is [`Exact`](Coverage::Exact), whatever the network lost meanwhile. There
/// is no default: the code that completes a sum states its coverage.
// spec: T-11
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Coverage {
    /// Every value of the sum has the contributions of all ranks.
    Exact,
    /// The sum lacks contributions: exactly these, and the same at every rank that holds the same sum.
    Partial(Missing),
    /// Values may lack contributions, within the loss bound of the operation, and nothing reports
    /// which: contributions that are missing read as zero.
    ///
    /// Parameter servers and rings complete operations with a bound in this way where a simulation carries
    /// the lengths of tensors and no values.
    Unreported,
}

/// Contributions that a sum lacks. At least one.
// spec: T-02
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing {
    parts: Vec<Part>,
}

/// A part of a tensor that lacks the values of some ranks.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Part {
    /// Range of the values.
    pub values: Range<u64>,
    /// Ranks whose values are missing, in order. All ranks where nothing has arrived: then the values are zero, or
    /// older ones that the caller gave.
    pub ranks: Vec<u32>,
}

impl Part {
    /// A range of values, and the ranks whose values are missing there, in order.
    pub fn new(values: Range<u64>, ranks: Vec<u32>) -> Part {
        Part { values, ranks }
    }
}

impl Coverage {
    /// Coverage of a sum that lacks these parts, which are in order and do not overlap. Without any,
    /// the sum is exact. Parts that lack nothing are left out.
    pub fn lacking(parts: impl IntoIterator<Item = Part>) -> Coverage {
        let lacks = |part: &Part| part.values.start < part.values.end && !part.ranks.is_empty();
        let parts: Vec<Part> = parts.into_iter().filter(lacks).collect();
        assert!(
            parts.windows(2).all(|pair| pair[0].values.end <= pair[1].values.start),
            "parts are in order and do not overlap: {parts:?}"
        );
        if parts.is_empty() { Coverage::Exact } else { Coverage::Partial(Missing { parts }) }
    }

    /// Returns whether all contributions are known to be in the sum.
    pub fn is_exact(&self) -> bool {
        *self == Coverage::Exact
    }

    /// Parts that lack contributions, in order: none where the sum is exact. `None` where that is
    /// unreported.
    pub fn missing(&self) -> Option<&[Part]> {
        match self {
            Coverage::Exact => Some(&[]),
            Coverage::Partial(missing) => Some(missing.parts()),
            Coverage::Unreported => None,
        }
    }

    /// Number of values that lack a rank's contribution. `None` where that is unreported.
    pub fn missing_of(&self, rank: u32) -> Option<u64> {
        let lacks = |part: &&Part| part.ranks.contains(&rank);
        let length = |part: &Part| part.values.end - part.values.start;
        self.missing().map(|parts| parts.iter().filter(lacks).map(length).sum())
    }

    /// Coverage of some of the values, counted from the first of these.
    pub fn within(&self, values: &Range<u64>) -> Coverage {
        let cut = |part: &Part| {
            let from = part.values.start.max(values.start);
            let to = part.values.end.min(values.end).max(from);
            Part { values: from - values.start..to - values.start, ranks: part.ranks.clone() }
        };
        match self.missing() {
            Some(parts) => Coverage::lacking(parts.iter().map(cut)),
            None => Coverage::Unreported,
        }
    }

    /// Coverage of a sum whose parts have these coverages, in any order. Parts do not overlap.
    pub fn joined(coverages: impl IntoIterator<Item = Coverage>) -> Coverage {
        let mut parts = Vec::new();
        for coverage in coverages {
            match coverage {
                Coverage::Exact => {}
                Coverage::Partial(missing) => parts.extend(missing.parts),
                Coverage::Unreported => return Coverage::Unreported,
            }
        }
        parts.sort_unstable_by_key(|part: &Part| part.values.start);
        Coverage::lacking(parts)
    }

    /// Coverage of a sum that lacks what both lack. Unreported if one of both is.
    pub fn and(self, other: Coverage) -> Coverage {
        match (self, other) {
            (Coverage::Unreported, _) | (_, Coverage::Unreported) => Coverage::Unreported,
            (Coverage::Exact, lacking) | (lacking, Coverage::Exact) => lacking,
            (Coverage::Partial(one), Coverage::Partial(other)) => {
                Coverage::Partial(Missing { parts: union(&one.parts, &other.parts) })
            }
        }
    }

    /// Coverage of the same values in a larger tensor, where they begin at `first`.
    pub fn placed_at(mut self, first: u64) -> Coverage {
        if let Coverage::Partial(missing) = &mut self {
            for part in &mut missing.parts {
                part.values = part.values.start + first..part.values.end + first;
            }
        }
        self
    }
}

/// Parts that lack what either side lacks. Neighbours that lack the same ranks become one.
fn union(one: &[Part], other: &[Part]) -> Vec<Part> {
    let mut union: Vec<Part> = Vec::new();
    let (mut sides, mut at) = ([one, other], 0);
    loop {
        for side in &mut sides {
            while side.first().is_some_and(|part| part.values.end <= at) {
                *side = &side[1..];
            }
        }
        let heads = sides.map(<[Part]>::first);
        let starts = heads.into_iter().flatten().map(|part| part.values.start.max(at));
        let Some(from) = starts.min() else { return union };
        let is_here = |part: &&Part| part.values.start <= from;
        // Nothing changes before the next part begins or ends.
        let edge = |part: &Part| if is_here(&part) { part.values.end } else { part.values.start };
        let to = heads.into_iter().flatten().map(edge).min().unwrap_or(from);
        let here = heads.into_iter().flatten().filter(is_here);
        let mut ranks: Vec<u32> = here.flat_map(|part| part.ranks.iter().copied()).collect();
        ranks.sort_unstable();
        ranks.dedup();
        match union.last_mut() {
            Some(last) if last.values.end == from && last.ranks == ranks => last.values.end = to,
            _ => union.push(Part { values: from..to, ranks }),
        }
        at = to;
    }
}

impl Missing {
    /// Parts that lack contributions, in order. At least one.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }
}
