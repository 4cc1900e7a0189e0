//! Turns of jobs at work on all of their trees.
//!
//! A job can have thousands of switches in each of its trees, all of which are looked at when one may have changed. What that takes
//! counts against a rate of its token and of all tokens; jobs that come when one is used up wait for a later turn.
// spec: E-12

use std::collections::BTreeMap;

use thalweg_core::Time;

use crate::bucket::Bucket;
use crate::budget::CallRate;
use crate::caller::Holder;

/// Switches of trees that are looked at because of the jobs of one token, and of all.
const OF_TOKEN: CallRate = CallRate { per_s: 50_000, burst: 50_000 };
const OF_ALL: CallRate = CallRate { per_s: 200_000, burst: 150_000 };

/// Work on trees that may be done.
#[derive(Debug, Default)]
pub(super) struct Turns {
    left: BTreeMap<Holder, Bucket>,
    total: Option<Bucket>,
}

impl Turns {
    /// Takes down work on a job. Returns false if that has to wait.
    pub(super) fn take(&mut self, now: Time, owner: Holder, work: u32) -> bool {
        let total = self.total.get_or_insert_with(|| Bucket::new(OF_ALL, now));
        let left = self.left.entry(owner).or_insert_with(|| Bucket::new(OF_TOKEN, now));
        let has_turn = total.has_one(now) && left.has_one(now);
        if has_turn {
            total.spend(now, work);
            left.spend(now, work);
        }
        has_turn
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
    fn one_token_and_all_have_a_rate_of_work_on_trees() {
        let (mut turns, start) = (Turns::default(), Time::ZERO + Span::from_s(9));
        let count = |turns: &mut Turns, now, token, work| {
            (0..1_000_000).take_while(|_| turns.take(now, Holder::Token(token), work)).count()
        };
        assert_eq!(count(&mut turns, start, 1, 10), 5_000);
        assert_eq!(count(&mut turns, start, 2, 1), 50_000, "another token has its own");
        assert_eq!(count(&mut turns, start, 3, 75_000), 1, "a large job has a turn");
        assert_eq!(count(&mut turns, start, 4, 1), 0, "all have used up what there is");
        let later = start + Span::from_ms(200);
        assert!(turns.take(later, Holder::Token(1), 1));
        assert!(!turns.take(later, Holder::Token(3), 1), "it is owed first");
        assert_eq!(count(&mut turns, start + Span::from_s(1), 3, 75_000), 1);
        turns.tick(start + Span::from_s(9));
        assert!(turns.left.is_empty());
    }
}
