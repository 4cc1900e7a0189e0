//! Round-trip time and retransmission timeout (RFC 6298), in whole picoseconds.

use crate::time::Span;

/// Between which limits waits for an answer lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waits {
    /// Before anything was measured.
    pub initial: Span,
    /// The least.
    pub min: Span,
    /// The longest, however often it was doubled.
    pub max: Span,
}

/// Estimates the round trip of one path and from it how long to wait for an answer.
#[derive(Clone, Debug)]
pub struct Rtt {
    /// Zero before the first sample.
    smoothed: Span,
    variation: Span,
    /// The timeout before backing off. Follows from the two above.
    base: Span,
    /// How often the timeout was doubled since the last answer.
    doublings: u32,
}

impl Rtt {
    /// Nothing is known yet. The least of `waits` must not be longer than the longest.
    pub fn new(waits: Waits) -> Rtt {
        Rtt {
            smoothed: Span::ZERO,
            variation: Span::ZERO,
            base: waits.initial.clamp(waits.min, waits.max),
            doublings: 0,
        }
    }

    /// Takes in one measured round trip.
    #[inline]
    pub fn sample(&mut self, waits: Waits, round_trip: Span) {
        // Beyond the largest timeout a sample says nothing more, and sums stay far from overflow.
        let round_trip = round_trip.min(waits.max);
        if self.smoothed == Span::ZERO {
            self.smoothed = round_trip;
            self.variation = round_trip / 2;
        } else {
            let difference = Span::from_ps(self.smoothed.as_ps().abs_diff(round_trip.as_ps()));
            self.variation = self.variation - self.variation / 4 + difference / 4;
            self.smoothed = self.smoothed - self.smoothed / 8 + round_trip / 8;
        }
        self.base = self.late_answer().clamp(waits.min, waits.max);
    }

    /// How long even a late answer takes, if anything was measured.
    #[inline]
    pub fn expected(&self) -> Option<Span> {
        (self.smoothed != Span::ZERO).then(|| self.late_answer())
    }

    #[inline]
    fn late_answer(&self) -> Span {
        self.smoothed + self.variation * 4
    }

    /// How long to wait for an answer.
    #[inline]
    pub fn timeout(&self, waits: Waits) -> Span {
        if self.doublings == 0 { self.base } else { self.backed_off(waits.max) }
    }

    fn backed_off(&self, max: Span) -> Span {
        (self.base * (1 << self.doublings)).min(max)
    }

    /// Nothing came back in time: wait twice as long.
    pub fn back_off(&mut self) {
        // Spans saturate long before the shift does.
        self.doublings = (self.doublings + 1).min(40);
    }

    /// Whether nothing new came back since the last timeout.
    pub fn is_backing_off(&self) -> bool {
        self.doublings > 0
    }

    /// Something new came back.
    #[inline]
    pub fn stop_backing_off(&mut self) {
        self.doublings = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAITS: Waits =
        Waits { initial: Span::from_ms(5), min: Span::from_us(10), max: Span::from_ms(100) };

    #[test]
    fn the_timeout_follows_the_samples() {
        let mut rtt = Rtt::new(WAITS);
        assert_eq!((rtt.timeout(WAITS), rtt.expected()), (Span::from_ms(5), None));
        // First sample: 80 + 4 · 40.
        rtt.sample(WAITS, Span::from_us(80));
        assert_eq!(rtt.timeout(WAITS), Span::from_us(240));
        // Second: variation 40 · 3/4 + 80/4 = 50, smoothed 80 · 7/8 + 160/8 = 90.
        rtt.sample(WAITS, Span::from_us(160));
        assert_eq!(rtt.timeout(WAITS), Span::from_us(290));
    }

    #[test]
    fn it_stays_between_its_limits() {
        let mut rtt = Rtt::new(WAITS);
        for _ in 0..100 {
            rtt.sample(WAITS, Span::from_ns(100));
        }
        assert_eq!(rtt.timeout(WAITS), Span::from_us(10));
        assert!(rtt.expected().is_some_and(|span| span < Span::from_us(1)));
        rtt.sample(WAITS, Span::MAX);
        assert_eq!(rtt.timeout(WAITS), Span::from_ms(100));
    }

    #[test]
    fn it_doubles_until_something_comes_back() {
        let mut rtt = Rtt::new(WAITS);
        let waits: Vec<Span> = (0..6)
            .map(|_| {
                let wait = rtt.timeout(WAITS);
                rtt.back_off();
                wait
            })
            .collect();
        assert_eq!(waits, [5, 10, 20, 40, 80, 100].map(Span::from_ms));
        (0..100).for_each(|_| rtt.back_off());
        assert_eq!(rtt.timeout(WAITS), Span::from_ms(100));
        rtt.stop_backing_off();
        assert_eq!(rtt.timeout(WAITS), Span::from_ms(5));
    }
}
