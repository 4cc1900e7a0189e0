//! The source of time.

use thalweg_core::{Span, Time};
use tokio::time::Instant;

/// Time that a clock shows when it starts: a day, so that earlier times do not all become zero.
const START: Time = Time::from_ps(24 * 3_600 * 1_000_000_000_000);

/// Counts from the moment it is made. Never goes back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    started: Instant,
}

impl Clock {
    /// A clock that begins now.
    pub(crate) fn start() -> Clock {
        Clock { started: Instant::now() }
    }

    /// Returns the time.
    pub(crate) fn now(self) -> Time {
        START + self.elapsed()
    }

    /// Returns the time since the start.
    pub(crate) fn elapsed(self) -> Span {
        let nanoseconds = self.started.elapsed().as_nanos();
        Span::from_ns(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }
}

/// A span in whole milliseconds, as it travels.
pub(crate) fn milliseconds(span: Span) -> u64 {
    span.as_ps() / Span::from_ms(1).as_ps()
}
