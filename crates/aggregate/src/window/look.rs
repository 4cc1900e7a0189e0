//! How a worker finds out how long the way is when nobody waits.
//!
//! Who begins beside another job meets a queue, takes it for the length of the way, and adds a queue of
//! its own. To the other job that is a crowd: it would give way until little is left of it. So from time
//! to time all jobs let through what is on the way, at the same moment as far as their clocks agree, and
//! see how long the way is without a queue. Then all mean the same by a crowd, and get the same share.

use thalweg_core::{Span, Time};

/// How often to look.
const EVERY: Span = Span::from_ms(500);

/// For how long. Longer than queues are, and than clocks that are kept by NTP differ.
const LASTS: Span = Span::from_ms(4);

/// Who comes later than this after the moment would look alone.
const MARGIN: Span = Span::from_ms(20);

/// Whether the way is being looked at.
#[derive(Clone, Debug, Default)]
pub(super) struct Look {
    /// When the latest began.
    began: Time,
    is_looking: bool,
}

impl Look {
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
        } else if now.since(self.began) > MARGIN {
            let past_moment = Span::from_ps(now.since(Time::ZERO).as_ps() % EVERY.as_ps());
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
        let mut look = Look::default();
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
}
