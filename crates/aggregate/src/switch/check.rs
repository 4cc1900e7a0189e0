//! The laws of a switch's accounts.

use thalweg_core::{Check, Time};

use super::Switch;

// spec: T-12
impl Check for Switch {
    /// Looks at every aggregator.
    fn check(&self) {
        self.array.check();
        self.outgoing.check();
        self.results.check();
        self.servers.check();
        if let Some(shares) = &self.shares {
            shares.check(self.array.taken().map(|slot| slot.key.job()));
        }
        let queued = (0..self.array.len()).filter(|&place| self.array.queued(place).is_some());
        for place in queued {
            assert!(self.outgoing.has_sum(place), "a sum waits to be sent again and has no task");
        }
        let is_swept = self.array.occupied() == 0 || self.sweep.due() != Time::NEVER;
        assert!(is_swept, "an aggregator is taken and nobody looks whether it is stale");
    }
}
