//! Work of welcoming all ranks of a job again.
//!
//! When a rank comes back as another process, every rank gets the places of all, and takes part in a set-up of every tree. One call
//! brings that about, so that the rate of calls does not bound it: each token has a rate of such work. What comes beyond it waits,
//! and ranks that come meanwhile are welcomed with it.
// spec: E-12

use std::collections::BTreeMap;

use thalweg_core::Time;

use crate::bucket::Bucket;
use crate::budget::CallRate;
use crate::caller::Holder;

/// Places of ranks that are sent because of one token: those of the largest job at once, and of one of 1,000 ranks a second.
const PLACES: CallRate = CallRate { per_s: 1_000_000, burst: 4_096 * 4_096 };

/// Places that the part of a rank in the set-up of a tree counts as.
const PLACES_OF_SET_UP: u32 = 20;

/// Work of each token that has done much of it lately.
#[derive(Debug, Default)]
pub(super) struct Welcomes {
    left: BTreeMap<Holder, Bucket>,
}

impl Welcomes {
    /// Takes down that a job is welcomed again. Returns false if that has to wait.
    pub(super) fn take(&mut self, now: Time, owner: Holder, (ranks, trees): (u32, u32)) -> bool {
        let set_ups = PLACES_OF_SET_UP.saturating_mul(trees);
        let places = ranks.saturating_mul(ranks.saturating_add(set_ups)).min(PLACES.burst);
        let left = self.left.entry(owner).or_insert_with(|| Bucket::new(PLACES, now));
        left.take_many(now, places)
    }

    pub(super) fn tick(&mut self, now: Time) {
        self.left.retain(|_, left| !left.is_full(now));
    }
}

#[cfg(test)]
mod tests {
    use thalweg_core::Span;

    use super::*;

    // spec: E-12 machine
    #[test]
    fn one_token_has_jobs_welcomed_again_at_a_rate() {
        let (mut welcomes, mut now) = (Welcomes::default(), Time::ZERO);
        let count = |welcomes: &mut Welcomes, now, token, job| {
            (0..100_000).take_while(|_| welcomes.take(now, Holder::Token(token), job)).count()
        };
        assert_eq!(count(&mut welcomes, now, 1, (1_000, 1)), 16);
        assert_eq!(count(&mut welcomes, now, 2, (4_096, 32)), 1, "another token has its own");
        now += Span::from_s(10);
        assert_eq!(count(&mut welcomes, now, 1, (1_000, 1)), 10);
        assert_eq!(count(&mut welcomes, now, 3, (8, 1)), 74_898, "small jobs do not notice");
        welcomes.tick(now + Span::from_s(60));
        assert!(welcomes.left.is_empty());
    }
}
