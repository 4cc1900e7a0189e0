//! The one clock of a driver.

use std::time::{Duration, Instant};

use thalweg_core::{Span, Time};

/// Counts from the moment it is made. Never goes back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    started: Instant,
}

impl Clock {
    /// A clock that stands at [`Time::ZERO`].
    pub(crate) fn start() -> Clock {
        Clock { started: instant() }
    }

    /// The time since then.
    pub(crate) fn now(self) -> Time {
        let nanoseconds = instant().duration_since(self.started).as_nanos();
        Time::ZERO + Span::from_ns(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }
}

/// A span for the operating system, rounded up: a sleep may end late, never early.
pub(crate) fn duration(span: Span) -> Duration {
    Duration::from_nanos(span.as_ps().div_ceil(1_000))
}

#[expect(clippy::disallowed_methods, reason = "the driver is where time enters")]
fn instant() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_round_up() {
        assert_eq!(duration(Span::from_ps(1)), Duration::from_nanos(1));
        assert_eq!(duration(Span::from_us(3)), Duration::from_micros(3));
    }
}
