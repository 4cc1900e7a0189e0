//! Distribution of round-trip times.

use thalweg_core::Span;

/// Number of classes: up to 1 µs, 2 µs, 4 µs and so on to 4.2 s, and above.
const CLASSES: usize = 24;

/// Round-trip times of fragments that were sent once, by powers of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RoundTrips {
    counts: [u64; CLASSES],
    sum: Span,
}

impl RoundTrips {
    pub(super) fn record(&mut self, round_trip: Span) {
        let us = round_trip.as_ps().div_ceil(1_000_000);
        // The power of two that is at least as large.
        let class = us.saturating_sub(1).checked_ilog2().map_or(0, |log| log as usize + 1);
        self.counts[class.min(CLASSES - 1)] += 1;
        self.sum += round_trip;
    }

    /// The largest round-trip time of each class, in seconds, and the number of round trips in it. That of the last
    /// class is infinite.
    pub fn classes(&self) -> impl Iterator<Item = (f64, u64)> {
        let limit_s = |class: usize| match class {
            class if class + 1 == CLASSES => f64::INFINITY,
            class => (1u64 << class) as f64 / 1e6,
        };
        self.counts.into_iter().enumerate().map(move |(class, count)| (limit_s(class), count))
    }

    /// Sum of all round-trip times.
    pub fn sum(&self) -> Span {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_trip_is_in_the_class_that_just_holds_it() {
        let mut round_trips = RoundTrips::default();
        let spans = [0, 1, 2, 3, 4, 5, 1_024, 1_025, u64::MAX / 1_000_000];
        for us in spans {
            round_trips.record(Span::from_us(us));
        }
        let found: Vec<_> = round_trips.classes().filter(|(_, count)| *count > 0).collect();
        let us = |us: f64| us / 1e6;
        let expected = [
            (us(1.0), 2),
            (us(2.0), 1),
            (us(4.0), 2),
            (us(8.0), 1),
            (us(1_024.0), 1),
            (us(2_048.0), 1),
            (f64::INFINITY, 1),
        ];
        assert_eq!(found, expected);
    }
}
