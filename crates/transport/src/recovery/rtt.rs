//! Round-trip time and retransmission timeout (RFC 6298), in whole picoseconds.

use thalweg_core::Span;

use super::Backoff;

/// Limits of the retransmission timeout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RtoLimits {
    /// Timeout before the first sample.
    pub initial: Span,
    /// Shortest timeout.
    pub min: Span,
    /// Longest timeout, however often it was doubled.
    pub max: Span,
}

/// Estimates the round trip of one path, and from it how long to wait for an answer.
#[derive(Clone, Debug)]
pub struct RttEstimator {
    /// Smoothed round trip. Zero before the first sample.
    smoothed: Span,
    variation: Span,
    /// Timeout before backing off. Follows from the two above.
    base: Span,
    backoff: Backoff,
}

impl RttEstimator {
    /// An estimator without samples. The shortest timeout must not be longer than the longest.
    pub fn new(limits: RtoLimits) -> RttEstimator {
        RttEstimator {
            smoothed: Span::ZERO,
            variation: Span::ZERO,
            base: limits.initial.clamp(limits.min, limits.max),
            backoff: Backoff::default(),
        }
    }

    /// Takes in one measured round trip.
    #[inline]
    pub fn sample(&mut self, limits: RtoLimits, round_trip: Span) {
        // Beyond the largest timeout a sample says nothing more, and sums stay far from overflow.
        let round_trip = round_trip.min(limits.max);
        if self.smoothed == Span::ZERO {
            self.smoothed = round_trip;
            self.variation = round_trip / 2;
        } else {
            let difference = Span::from_ps(self.smoothed.as_ps().abs_diff(round_trip.as_ps()));
            self.variation = self.variation - self.variation / 4 + difference / 4;
            self.smoothed = self.smoothed - self.smoothed / 8 + round_trip / 8;
        }
        self.base = self.late_answer().clamp(limits.min, limits.max);
    }

    /// Smoothed round trip. Zero before the first sample.
    #[inline]
    pub fn smoothed(&self) -> Span {
        self.smoothed
    }

    /// Returns how long even a late answer takes, if anything was measured.
    #[inline]
    pub fn expected(&self) -> Option<Span> {
        (self.smoothed != Span::ZERO).then(|| self.late_answer())
    }

    #[inline]
    fn late_answer(&self) -> Span {
        self.smoothed + self.variation * 4
    }

    /// Returns how long to wait for an answer.
    #[inline]
    pub fn timeout(&self, limits: RtoLimits) -> Span {
        if self.is_backing_off() { self.backoff.wait(self.base, limits.max) } else { self.base }
    }

    /// Doubles the timeout: nothing came back in time.
    pub fn back_off(&mut self) {
        self.backoff.back_off();
    }

    /// Halves a doubled timeout: an answer came that may be to an earlier transmission.
    pub fn ease_off(&mut self) {
        self.backoff.ease_off();
    }

    /// Returns whether nothing new came back since the last timeout.
    #[inline]
    pub fn is_backing_off(&self) -> bool {
        self.backoff.doublings() > 0
    }

    /// Ends the back-off: something new came back.
    #[inline]
    pub fn stop_backing_off(&mut self) {
        self.backoff.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: RtoLimits =
        RtoLimits { initial: Span::from_ms(5), min: Span::from_us(10), max: Span::from_ms(100) };

    #[test]
    fn the_timeout_follows_the_samples() {
        let mut rtt = RttEstimator::new(LIMITS);
        assert_eq!((rtt.timeout(LIMITS), rtt.expected()), (Span::from_ms(5), None));
        // First sample: 80 + 4 · 40.
        rtt.sample(LIMITS, Span::from_us(80));
        assert_eq!(rtt.timeout(LIMITS), Span::from_us(240));
        // Second: variation 40 · 3/4 + 80/4 = 50, smoothed 80 · 7/8 + 160/8 = 90.
        rtt.sample(LIMITS, Span::from_us(160));
        assert_eq!(rtt.timeout(LIMITS), Span::from_us(290));
    }

    #[test]
    fn it_stays_between_its_limits() {
        let mut rtt = RttEstimator::new(LIMITS);
        for _ in 0..100 {
            rtt.sample(LIMITS, Span::from_ns(100));
        }
        assert_eq!(rtt.timeout(LIMITS), Span::from_us(10));
        assert!(rtt.expected().is_some_and(|span| span < Span::from_us(1)));
        rtt.sample(LIMITS, Span::MAX);
        assert_eq!(rtt.timeout(LIMITS), Span::from_ms(100));
    }

    #[test]
    fn it_doubles_until_something_comes_back() {
        let mut rtt = RttEstimator::new(LIMITS);
        let waits: Vec<Span> = (0..6)
            .map(|_| {
                let wait = rtt.timeout(LIMITS);
                rtt.back_off();
                wait
            })
            .collect();
        assert_eq!(waits, [5, 10, 20, 40, 80, 100].map(Span::from_ms));
        (0..100).for_each(|_| rtt.back_off());
        assert_eq!(rtt.timeout(LIMITS), Span::from_ms(100));
        rtt.stop_backing_off();
        assert_eq!(rtt.timeout(LIMITS), Span::from_ms(5));
    }
}
