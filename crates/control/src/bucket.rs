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

    /// Takes down what has been used, however much that is. What is more than was left is missing until as much has come.
    pub(crate) fn spend(&mut self, now: Time, count: u32) {
        self.fill(now);
        let used = u64::from(count) * MILLION;
        let owed = used.saturating_sub(self.left);
        self.left -= used - owed;
        self.at += Span::from_us(1) * (owed / u64::from(self.rate.per_s.max(1)));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_beyond_the_rate_is_missing_later() {
        let start = Time::ZERO + Span::from_s(9);
        let mut bucket = Bucket::new(CallRate { per_s: 10, burst: 20 }, start);
        bucket.spend(start, 5);
        assert!(bucket.has_one(start) && !bucket.is_full(start));
        bucket.spend(start, 65);
        for ms in [0, 1_000, 5_000, 5_090] {
            assert!(!bucket.has_one(start + Span::from_ms(ms)), "50 are owed: {ms} ms");
        }
        assert!(bucket.has_one(start + Span::from_ms(5_100)));
        assert!(bucket.is_full(start + Span::from_s(8)), "there is no more than the burst");
    }
}
