//! Adjustment of a flow to the flows it depends on: Algorithm 2.
//!
//! *F* is a flow's volume in this iteration up to the end of the current slot: what it has sent, and
//! what it plans for the slot.

/// Dependency of a flow on others of its job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relation {
    /// Nothing depends on it, nor it on anything.
    Alone,
    /// Brings gradients to a parameter server; the others are what that server broadcasts.
    Aggregation,
    /// Brings parameters from a server; the others are what that server aggregates.
    Broadcast,
    /// Brings gradients to the aggregator that sums them inside the network; the others are those of all other workers.
    Summed {
        /// Lead, in bytes, that a worker can have over the slowest.
        window: u64,
    },
    /// A member's flow in a ring; the other is its predecessor's.
    Ring {
        /// The chunk that the member has from itself, and sends before it has received anything.
        own_chunk: u64,
    },
}

impl Relation {
    // spec: C-05
    /// Bytes by which a flow with volume `own` lags behind, given the others' volumes. Zero without others.
    pub fn behind(self, own: u64, others: impl Iterator<Item = u64>) -> u64 {
        let target = match self {
            Relation::Alone => None,
            Relation::Aggregation | Relation::Summed { .. } => others.max(),
            Relation::Broadcast | Relation::Ring { .. } => others.min(),
        };
        target.map_or(0, |target| target.saturating_sub(own))
    }

    // spec: C-06
    /// Part of `own` that must wait: the excess over what the flows it depends on allow.
    pub fn ahead(self, own: u64, others: impl Iterator<Item = u64>) -> u64 {
        let limit = match self {
            Relation::Alone | Relation::Aggregation => None,
            Relation::Broadcast => others.min(),
            Relation::Summed { window } => {
                others.min().map(|slowest| slowest.saturating_add(window))
            }
            Relation::Ring { own_chunk } => {
                others.min().map(|before| before.saturating_add(own_chunk))
            }
        };
        limit.map_or(0, |limit| own.saturating_sub(limit))
    }
}

/// Limits of a flow that is raised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The largest volume of its last four slots.
    pub own_recent: u64,
    /// Bytes that are free in the current slot.
    pub free: u64,
    /// Bytes that the flow has left to send.
    pub remaining: u64,
}

// spec: C-05
/// The volume of the current slot, raised from what was planned as far as the limits allow. It is
/// never less than planned: what was slow of late need not be.
pub fn raised(planned: u64, by: u64, limits: Limits) -> u64 {
    let most = limits.own_recent.min(limits.free).min(limits.remaining);
    planned.max(planned.saturating_add(by).min(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RING: Relation = Relation::Ring { own_chunk: 10 };

    // spec: C-05 machine
    #[test]
    fn flows_follow_what_depends_on_them() {
        let behind =
            |relation: Relation, own, others: &[u64]| relation.behind(own, others.iter().copied());
        assert_eq!(behind(Relation::Aggregation, 50, &[20, 70]), 20, "the fastest broadcast");
        assert_eq!(behind(Relation::Broadcast, 50, &[90, 70]), 20, "the slowest aggregation");
        assert_eq!(behind(RING, 50, &[70]), 20);
        let summed = Relation::Summed { window: 10 };
        assert_eq!(behind(summed, 50, &[20, 70]), 20, "the fastest waits for it");
        for relation in [Relation::Aggregation, Relation::Broadcast, RING] {
            assert_eq!(behind(relation, 50, &[40]), 0, "never less than zero");
            assert_eq!(behind(relation, 50, &[]), 0);
        }
        assert_eq!(behind(Relation::Alone, 50, &[99]), 0);
    }

    // spec: C-05 machine
    #[test]
    fn a_raise_has_limits() {
        let limits = Limits { own_recent: 80, free: 90, remaining: 100 };
        let table = [
            (30, 0, limits, 30),
            (30, 20, limits, 50),
            (30, 60, limits, 80),
            (30, 60, Limits { free: 70, ..limits }, 70),
            (30, 60, Limits { remaining: 40, ..limits }, 40),
            (30, 60, Limits { own_recent: 0, ..limits }, 30),
            (30, u64::MAX, limits, 80),
        ];
        for (planned, by, limits, expected) in table {
            assert_eq!(raised(planned, by, limits), expected, "{planned} by {by}, {limits:?}");
        }
    }

    // spec: C-06 machine
    #[test]
    fn flows_that_run_ahead_are_slowed_by_the_difference() {
        let ahead =
            |relation: Relation, own, others: &[u64]| relation.ahead(own, others.iter().copied());
        assert_eq!(ahead(Relation::Broadcast, 50, &[90, 45]), 5);
        assert_eq!(ahead(Relation::Broadcast, 50, &[90, 60]), 0);
        assert_eq!(ahead(RING, 50, &[30]), 10, "ten of it are its own chunk");
        assert_eq!(ahead(RING, 10, &[0]), 0, "the first chunk depends on nobody");
        assert_eq!(ahead(Relation::Aggregation, 50, &[0]), 0, "workers have their gradients");
        assert_eq!(ahead(Relation::Broadcast, 50, &[]), 0);
        let summed = Relation::Summed { window: 10 };
        assert_eq!(ahead(summed, 50, &[90, 30]), 10, "sums wait for the slowest");
        assert_eq!(ahead(summed, 50, &[90, 40]), 0);
    }
}
