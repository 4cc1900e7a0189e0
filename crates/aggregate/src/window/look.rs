//! How a worker finds out how long the way is when nobody waits.
//!
//! Who begins beside another job meets a queue, takes it for the length of the way, and adds a queue of
//! its own. To the other job that is a crowd: it would give way until little is left of it. So from time
//! to time all jobs let through what is on the way, at the same moment as far as their clocks agree, and
//! see how long the way is without a queue. Then all mean the same by a crowd, and get the same share.
//!
//! Times of different hosts have different epochs, so the moment is one of the clock that hosts share. Without
//! such a clock nobody looks: a worker that looks alone sees the queues of the others, and loses its share
//! for nothing.

use thalweg_core::{Span, Time};

/// Interval between base-RTT probes. It divides one second, since a shared phase is known modulo one second.
const EVERY: Span = Span::from_ms(500);
const _: () = assert!(Span::from_s(1).as_ps().is_multiple_of(EVERY.as_ps()));

/// For how long. Longer than queues are, and than clocks that are kept by NTP differ.
const LASTS: Span = Span::from_ms(4);

/// Who comes later than this after the moment would look alone.
const MARGIN: Span = Span::from_ms(20);

/// Whether the way is being looked at.
#[derive(Clone, Debug, Default)]
pub(super) struct Look {
    /// Time that the clock of all hosts showed at [`Time::ZERO`]. `None` if hosts share no clock.
    shared_phase: Option<Span>,
    /// When the latest began.
    began: Time,
    is_looking: bool,
}

impl Look {
    pub fn new(shared_phase: Option<Span>) -> Look {
        Look { shared_phase, ..Look::default() }
    }

    /// Whether to have as little on the way as possible.
    #[inline]
    pub fn is_looking(&self) -> bool {
        self.is_looking
    }

    /// Something was answered.
    #[inline]
    pub fn on_answer(&mut self, now: Time) {
        if self.is_looking {
            self.is_looking = now.since(self.began) < LASTS;
        } else if now.since(self.began) > MARGIN
            && let Some(phase) = self.shared_phase
        {
            let shared = now.since(Time::ZERO) + phase;
            let past_moment = Span::from_ps(shared.as_ps() % EVERY.as_ps());
            self.is_looking = past_moment < MARGIN;
            if self.is_looking {
                self.began = now;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_looks_at_the_full_half_second() {
        let mut look = Look::new(Some(Span::ZERO));
        let mut looking = |ms: u64| {
            look.on_answer(Time::ZERO + Span::from_ms(ms));
            look.is_looking()
        };
        assert!(!looking(700) && !looking(999));
        assert!(looking(1_002) && looking(1_005));
        assert!(!looking(1_009), "it was seen");
        assert!(!looking(1_015) && !looking(1_019), "once is enough");
        assert!(!looking(2_050), "too late");
        assert!(looking(3_000));
    }

    /// The moments of a clock that hosts share at which one of them looks, in milliseconds. Its driver began
    /// when that clock showed `epoch_ms`.
    fn moments(epoch_ms: u64, shared_phase: Option<Span>) -> Vec<u64> {
        let mut look = Look::new(shared_phase);
        let mut is_looking = |ms: u64| {
            let was_looking = look.is_looking();
            look.on_answer(Time::ZERO + Span::from_ms(ms - epoch_ms));
            look.is_looking() && !was_looking
        };
        (3_000..6_000).filter(|&ms| is_looking(ms)).collect()
    }

    #[test]
    fn hosts_whose_epochs_differ_look_together() {
        for epoch_ms in [0, 120, 999, 2_250] {
            let phase = Span::from_ms(epoch_ms % 1_000);
            let expected = [3_000, 3_500, 4_000, 4_500, 5_000, 5_500];
            assert_eq!(moments(epoch_ms, Some(phase)), expected, "{epoch_ms}");
        }
    }

    #[test]
    fn nobody_looks_without_a_shared_clock() {
        assert_eq!(moments(120, None), []);
    }
}
