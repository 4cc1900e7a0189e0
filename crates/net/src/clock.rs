//! The one clock of a driver.

use std::time::{Duration, Instant, SystemTime};

use thalweg_core::{Span, Time};

/// Counts from the full second of the system's clock before it was made, so that hosts whose clocks are
/// kept agree on when a second is full. Never goes back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    started: Instant,
    /// What it showed then.
    shown: Time,
}

impl Clock {
    /// A clock that shows less than a second.
    pub(crate) fn start() -> Clock {
        Clock { started: instant(), shown: Time::ZERO + since_full_second() }
    }

    /// The time.
    pub(crate) fn now(self) -> Time {
        let nanoseconds = instant().duration_since(self.started).as_nanos();
        self.shown + Span::from_ns(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
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

#[expect(clippy::disallowed_methods, reason = "the driver is where time enters")]
fn since_full_second() -> Span {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Span::from_ns(since_epoch.map_or(0, |since| since.subsec_nanos().into()))
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
