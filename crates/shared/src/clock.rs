//! The only clock: waiting for others takes real time.

use std::time::{Duration, Instant};

/// Says how much of a time limit is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch {
    started: Instant,
}

impl Stopwatch {
    /// A stopwatch that runs from now on.
    pub(crate) fn start() -> Stopwatch {
        Stopwatch { started: instant() }
    }

    /// The time since it was started.
    pub(crate) fn elapsed(self) -> Duration {
        instant().duration_since(self.started)
    }
}

#[expect(clippy::disallowed_methods, reason = "waiting for other processes takes real time")]
fn instant() -> Instant {
    Instant::now()
}
