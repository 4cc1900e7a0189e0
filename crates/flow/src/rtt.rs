//! Round-trip time and retransmission timeout (RFC 6298), in whole picoseconds.

use thalweg_core::Span;

use crate::config::Config;

/// Estimates the round trip of one flow and from it how long to wait for an answer.
#[derive(Clone, Debug)]
pub(crate) struct Rtt {
    /// Zero before the first sample.
    smoothed: Span,
    variation: Span,
    /// The timeout before backing off. Follows from the two above.
    base: Span,
    /// How often the timeout was doubled since the last answer.
    doublings: u32,
}

impl Rtt {
    pub fn new(config: &Config) -> Rtt {
        Rtt {
            smoothed: Span::ZERO,
            variation: Span::ZERO,
            base: config.initial_rto.clamp(config.min_rto, config.max_rto),
            doublings: 0,
        }
    }

    /// Takes in one measured round trip.
    #[inline]
    pub fn sample(&mut self, config: &Config, round_trip: Span) {
        // Beyond the largest timeout a sample says nothing more, and sums stay far from overflow.
        let round_trip = round_trip.min(config.max_rto);
        if self.smoothed == Span::ZERO {
            self.smoothed = round_trip;
            self.variation = round_trip / 2;
        } else {
            let difference = Span::from_ps(self.smoothed.as_ps().abs_diff(round_trip.as_ps()));
            self.variation = self.variation - self.variation / 4 + difference / 4;
            self.smoothed = self.smoothed - self.smoothed / 8 + round_trip / 8;
        }
        let timeout = self.smoothed + self.variation * 4;
        self.base = timeout.clamp(config.min_rto, config.max_rto);
    }

    /// How long to wait for an answer.
    #[inline]
    pub fn timeout(&self, config: &Config) -> Span {
        if self.doublings == 0 { self.base } else { self.backed_off(config.max_rto) }
    }

    fn backed_off(&self, max_rto: Span) -> Span {
        (self.base * (1 << self.doublings)).min(max_rto)
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

    fn config() -> Config {
        Config {
            min_rto: Span::from_us(10),
            initial_rto: Span::from_ms(5),
            max_rto: Span::from_ms(100),
            ..Config::default()
        }
    }

    #[test]
    fn the_timeout_follows_the_samples() {
        let config = config();
        let mut rtt = Rtt::new(&config);
        assert_eq!(rtt.timeout(&config), Span::from_ms(5));
        // First sample: 80 + 4 · 40.
        rtt.sample(&config, Span::from_us(80));
        assert_eq!(rtt.timeout(&config), Span::from_us(240));
        // Second: variation 40 · 3/4 + 80/4 = 50, smoothed 80 · 7/8 + 160/8 = 90.
        rtt.sample(&config, Span::from_us(160));
        assert_eq!(rtt.timeout(&config), Span::from_us(290));
    }

    #[test]
    fn it_stays_between_its_limits() {
        let config = config();
        let mut rtt = Rtt::new(&config);
        for _ in 0..100 {
            rtt.sample(&config, Span::from_ns(100));
        }
        assert_eq!(rtt.timeout(&config), Span::from_us(10));
        rtt.sample(&config, Span::MAX);
        assert_eq!(rtt.timeout(&config), Span::from_ms(100));
    }

    #[test]
    fn it_doubles_until_something_comes_back() {
        let config = config();
        let mut rtt = Rtt::new(&config);
        let waits: Vec<Span> = (0..6)
            .map(|_| {
                let wait = rtt.timeout(&config);
                rtt.back_off();
                wait
            })
            .collect();
        assert_eq!(waits, [5, 10, 20, 40, 80, 100].map(Span::from_ms));
        (0..100).for_each(|_| rtt.back_off());
        assert_eq!(rtt.timeout(&config), Span::from_ms(100));
        rtt.stop_backing_off();
        assert_eq!(rtt.timeout(&config), Span::from_ms(5));
    }
}
