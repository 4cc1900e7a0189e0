//! Answers about all jobs, from a copy that is made now and then.
//!
//! The copy is taken on the service's thread; counters and texts are made on others, so that heartbeats do not wait for
//! those who look.
// spec: E-12

use std::sync::Arc;
use std::time::Duration;

use thalweg_core::{Span, Time};
use tokio::sync::Mutex;
use tokio::{task, time};

use crate::plane::{Counters, DataPlane};
use crate::registry::View;

/// Shortest time between two copies.
const EVERY: Span = Span::from_ms(250);

/// Time that passes after a copy of all jobs, in times that it took: copies take a small share of the thread.
pub(super) const COPY_GAP: u64 = 20;

/// Time that the data plane has to count. One that takes longer is shown without counters.
const COUNT_WITHIN: Duration = Duration::from_secs(2);

/// All jobs and counters at one moment.
#[derive(Debug)]
pub(super) struct Snapshot {
    /// Time until which it is shown.
    until: Time,
    pub(super) view: View,
    pub(super) counters: Counters,
}

/// The last snapshot. Those who come while another is made wait for that one.
#[derive(Clone, Default)]
pub(super) struct Snapshots {
    last: Arc<Mutex<Option<Arc<Snapshot>>>>,
}

impl Snapshots {
    /// Returns a snapshot that is at most [`EVERY`] old, or more where copies take long. `take` copies the registry, at once, and
    /// says how long that took.
    pub(super) async fn get(
        &self,
        now: Time,
        plane: &Arc<dyn DataPlane>,
        take: impl FnOnce() -> (View, Span),
    ) -> Arc<Snapshot> {
        let mut last = self.last.lock().await;
        if let Some(last) = last.as_ref().filter(|last| now < last.until) {
            return Arc::clone(last);
        }
        let (view, took) = take();
        let until = shown_until(now, took);
        let plane = Arc::clone(plane);
        let counted = task::spawn_blocking(move || plane.counters());
        let counted = time::timeout(COUNT_WITHIN, counted).await;
        let counters = counted.ok().and_then(Result::ok).unwrap_or_default();
        let snapshot = Arc::new(Snapshot { until, view, counters });
        *last = Some(Arc::clone(&snapshot));
        snapshot
    }
}

/// Time until which a copy is shown that took this long: copies take a small share of the thread.
fn shown_until(now: Time, took: Span) -> Time {
    now + EVERY.max(took * COPY_GAP)
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: E-12 machine
    #[test]
    fn copies_that_take_long_are_shown_longer() {
        let shown = |took| shown_until(Time::ZERO, took).since(Time::ZERO);
        assert_eq!(shown(Span::from_ms(1)), EVERY);
        assert_eq!(shown(Span::from_ms(100)), Span::from_s(2));
    }
}
