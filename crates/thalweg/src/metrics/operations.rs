//! Times that the operations of a session take.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::exposition::{Exposition, Kind};
use crate::handle::Handle;

/// Limits of the histogram, in seconds: four for every factor of ten, from 100 µs to 100 s.
const LIMITS_S: [f64; 26] = [
    1e-4,
    1.8e-4,
    3.2e-4,
    5.6e-4,
    1e-3,
    1.8e-3,
    3.2e-3,
    5.6e-3,
    0.01,
    0.018,
    0.032,
    0.056,
    0.1,
    0.18,
    0.32,
    0.56,
    1.0,
    1.8,
    3.2,
    5.6,
    10.0,
    18.0,
    32.0,
    56.0,
    100.0,
    f64::INFINITY,
];

/// Times from the call of an operation to its end, by kind.
#[derive(Clone, Default)]
pub(crate) struct OperationTimes {
    kinds: Arc<Mutex<BTreeMap<&'static str, Times>>>,
}

#[derive(Default)]
struct Times {
    counts: [u64; LIMITS_S.len()],
    sum_s: f64,
}

impl OperationTimes {
    /// Counts the time of an operation, which begins now, when it ends.
    #[expect(
        clippy::disallowed_methods,
        reason = "programs are told how long operations really took"
    )]
    pub fn watch<T>(&self, kind: &'static str, handle: Handle<T>) -> Handle<T> {
        let (times, began) = (self.clone(), Instant::now());
        handle.when_ready(move || times.record(kind, began.elapsed()));
        handle
    }

    fn record(&self, kind: &'static str, time: Duration) {
        let time_s = time.as_secs_f64();
        let at = LIMITS_S.partition_point(|limit| *limit < time_s);
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let times = kinds.entry(kind).or_default();
        times.counts[at] += 1;
        times.sum_s += time_s;
    }

    /// Adds the histograms.
    pub(super) fn add(&self, out: &mut Exposition, labels: &[(&str, &str)]) {
        let help = "Time from the call of an operation to its end.";
        out.family("thalweg_session_operation_seconds", Kind::Histogram, help);
        let kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        for (kind, times) in kinds.iter() {
            let labels: Vec<_> = labels.iter().copied().chain([("operation", *kind)]).collect();
            let counts: Vec<_> = LIMITS_S.into_iter().zip(times.counts).collect();
            out.histogram(&labels, &counts, times.sum_s);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::pair;
    use crate::metrics::assert_told;

    #[test]
    fn an_operation_is_counted_when_it_ends() {
        let times = OperationTimes::default();
        let (handle, reply) = pair(|(): ()| Ok(()));
        let handle = times.watch("barrier", handle);
        let text = |times: &OperationTimes| {
            let mut out = Exposition::default();
            times.add(&mut out, &[("rank", "3")]);
            out.finish()
        };
        assert!(!text(&times).contains("barrier"), "it has not ended");
        reply.end(Ok(()));
        handle.wait().unwrap();
        times.record("barrier", Duration::from_millis(10));
        times.record("barrier", Duration::from_secs(1_000));
        let name = "thalweg_session_operation_seconds";
        let labels = "rank=\"3\",operation=\"barrier\"";
        let lines = [
            format!("{name}_bucket{{{labels},le=\"0.01\"}} 2"),
            format!("{name}_bucket{{{labels},le=\"100\"}} 2"),
            format!("{name}_bucket{{{labels},le=\"+Inf\"}} 3"),
            format!("{name}_count{{{labels}}} 3"),
        ];
        assert_told(&text(&times), &lines.each_ref().map(String::as_str));
    }

    #[test]
    fn limits_rise() {
        assert!(LIMITS_S.is_sorted_by(|low, high| low < high));
    }
}
