//! Departure times of packets that leave at a rate.

use thalweg_core::{Span, Time};

/// The earliest time at which the next packet may leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DepartureClock {
    next: Time,
}

impl DepartureClock {
    /// Returns the earliest departure of the next packet. It may lie in the past.
    #[inline]
    pub fn next(&self) -> Time {
        self.next
    }

    /// Moves on by the gap of a packet that leaves now. A packet that left late, because its host or its
    /// interface was busy, lets the next ones make up for at most `slack`.
    #[inline]
    pub fn advance(&mut self, now: Time, gap: Span, slack: Span) {
        let earliest = Time::from_ps(now.as_ps().saturating_sub(slack.as_ps()));
        self.next = self.next.max(earliest) + gap;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Time {
        Time::ZERO + Span::from_us(us)
    }

    #[test]
    fn packets_leave_one_gap_apart_and_make_up_for_the_slack_only() {
        let (gap, slack) = (Span::from_us(10), Span::from_us(15));
        let mut clock = DepartureClock::default();
        clock.advance(at(0), gap, slack);
        assert_eq!(clock.next(), at(10));
        clock.advance(at(10), gap, slack);
        assert_eq!(clock.next(), at(20), "on time: one gap later");
        clock.advance(at(28), gap, slack);
        assert_eq!(clock.next(), at(30), "8 µs late: no time is lost");
        clock.advance(at(100), gap, slack);
        assert_eq!(clock.next(), at(95), "70 µs late: 15 µs are made up for");
    }
}
