//! The one clock of a driver.

use std::time::{Duration, Instant, SystemTime};

use thalweg_core::{Span, Time};

/// Time that the system's clock shows at [`Time::ZERO`] of every driver, modulo one second: the *shared phase* that
/// machines are given which act at the same moments on several hosts. It is as good as the clocks of the
/// hosts are kept.
pub const SHARED_PHASE: Span = Span::ZERO;

/// Counts from the full second of the system's clock before it was made, which is what [`SHARED_PHASE`] says.
/// Never goes back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    started: Instant,
    /// Time that it showed then.
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

    /// The clock's part of a second lies between two readings of the system's clock, unless a second became
    /// full between them or somebody set that clock.
    #[test]
    fn its_epoch_has_the_shared_phase() {
        let phase_of = |time: Time| (time.since(Time::ZERO) + SHARED_PHASE).as_ps() % S_PS;
        let is_between = |_| {
            let before = since_full_second().as_ps();
            let shown = phase_of(Clock::start().now());
            let after = since_full_second().as_ps();
            // The two clocks of the system may run at slightly different rates.
            (before..=after + S_PS / 1_000_000).contains(&shown)
        };
        assert!((0..100).any(is_between));
    }

    const S_PS: u64 = Span::from_s(1).as_ps();

    #[test]
    fn sleeps_round_up() {
        assert_eq!(duration(Span::from_ps(1)), Duration::from_nanos(1));
        assert_eq!(duration(Span::from_us(3)), Duration::from_micros(3));
    }
}
