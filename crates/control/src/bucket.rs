//! Rates that hold over time and allow bursts.
// spec: E-12

use thalweg_core::{Span, Time};

use crate::budget::CallRate;

/// A token bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    rate: CallRate,
    /// Calls that may come now, in millionths.
    left: u64,
    /// When that was so.
    at: Time,
}

const MILLION: u64 = 1_000_000;

impl Bucket {
    /// A full one.
    pub(crate) fn new(rate: CallRate, now: Time) -> Bucket {
        Bucket { rate, left: u64::from(rate.burst) * MILLION, at: now }
    }

    /// An empty one.
    pub(crate) fn empty(rate: CallRate, now: Time) -> Bucket {
        Bucket { left: 0, ..Bucket::new(rate, now) }
    }

    /// Returns whether one may come now.
    pub(crate) fn has_one(&mut self, now: Time) -> bool {
        self.fill(now);
        self.left >= MILLION
    }

    /// Takes one down. Returns false if none may come now.
    pub(crate) fn take(&mut self, now: Time) -> bool {
        self.take_many(now, 1)
    }

    /// Takes down what counts as several. Returns false if it may not come now.
    pub(crate) fn take_many(&mut self, now: Time, count: u32) -> bool {
        self.fill(now);
        let left = self.left.checked_sub(u64::from(count) * MILLION);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }

    /// Returns whether it says no more than a new one.
    pub(crate) fn is_full(&mut self, now: Time) -> bool {
        self.fill(now);
        self.left == u64::from(self.rate.burst) * MILLION
    }

    fn fill(&mut self, now: Time) {
        let most = u64::from(self.rate.burst) * MILLION;
        let passed_us = now.since(self.at).as_ps() / Span::from_us(1).as_ps();
        // What is less than a microsecond counts next time.
        self.at += Span::from_us(1) * passed_us;
        let more = u64::from(self.rate.per_s).saturating_mul(passed_us);
        self.left = self.left.saturating_add(more).min(most);
    }
}
