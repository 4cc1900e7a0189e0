//! Queue lengths over time.

use thalweg_core::{Span, Time};

/// Most samples that are kept. When there are more, every other one goes and the interval doubles,
/// so that a run of any length fits a picture.
const MAX_SAMPLES: usize = 2_000;
const FIRST_INTERVAL: Span = Span::from_ns(500);

/// Bytes that waited in the switches at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueSample {
    /// When.
    pub at: Time,
    /// In the fullest port.
    pub fullest_bytes: u64,
    /// In all ports.
    pub total_bytes: u64,
}

/// Samples at an interval that adapts to the length of the run.
#[derive(Clone, Debug)]
pub(crate) struct Samples {
    pub(crate) taken: Vec<QueueSample>,
    interval: Span,
    next: Time,
}

impl Default for Samples {
    fn default() -> Samples {
        Samples { taken: Vec::new(), interval: FIRST_INTERVAL, next: Time::ZERO }
    }
}

impl Samples {
    /// When the next one is due.
    pub(crate) fn next(&self) -> Time {
        self.next
    }

    pub(crate) fn push(&mut self, sample: QueueSample) {
        self.taken.push(sample);
        if self.taken.len() >= MAX_SAMPLES {
            let mut index = 0;
            self.taken.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.interval = self.interval * 2;
        }
        // From the last one that was kept, so that they stay evenly spaced.
        let last = self.taken.last().map_or(sample.at, |last| last.at);
        self.next = last + self.interval;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_keeps_evenly_spaced_samples() {
        let mut samples = Samples::default();
        for _ in 0..20_000 {
            samples.push(QueueSample { at: samples.next(), fullest_bytes: 0, total_bytes: 0 });
        }
        assert!(samples.taken.len() < MAX_SAMPLES);
        let gaps: Vec<Span> =
            samples.taken.windows(2).map(|pair| pair[1].at.since(pair[0].at)).collect();
        assert!(
            gaps.iter().all(|gap| *gap == gaps[0]),
            "{:?} to {:?}",
            gaps.iter().min(),
            gaps.iter().max()
        );
    }
}
