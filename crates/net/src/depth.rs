//! Depth of the send buffer, by the rate at which it drains.
//!
//! What waits in front of an interface delays everything behind it: resends, and the acknowledgements that other hosts
//! wait for. A buffer of fixed length holds 6 µs of a link of 100 Gbps and 9 ms of one of 100 Mbps. So its length follows
//! from the rate of the interface, which shows while the buffer is full: what it takes then is what has left.

use thalweg_core::{Span, Time};

/// Time that packets may wait in front of the interface: longer than a busy host takes to wake up a thread.
const DEPTH: Span = Span::from_ms(2);

/// Least time between two moments at which the buffer is full, for a sample. What the kernel takes beyond its limit, at
/// most a GSO batch, is little of what leaves in between.
const SAMPLE_LEAST: Span = Span::from_ms(10);

/// Longest time of a sample. When it is over, the machine had nothing to send for a while.
const SAMPLE_MOST: Span = Span::from_ms(40);

/// Samples that the largest is taken of: a link is idle in some of them.
const SAMPLES: usize = 8;

/// Least depth, in bytes: two packets of 8,192 bytes, so that one can leave while the next one is written. Where cores are
/// so busy that the buffer runs empty, samples are too small, and nothing else would keep the depth up.
const LEAST_BYTES: u64 = 16 << 10;

/// Share of a depth, as a divisor, by which it has to change to be set.
const STEP: u64 = 4;

/// The depth of a send buffer. `on_sent` and `on_full` take in what happens, in order.
#[derive(Clone, Debug)]
pub(crate) struct Depth {
    /// Depth without a rate, and the largest.
    most_bytes: u64,
    bytes: u64,
    /// Moment at which the buffer was full and the sample began.
    since: Option<Time>,
    sent_bytes: u64,
    /// Depths by the last samples, the oldest first.
    samples: [u64; SAMPLES],
}

impl Depth {
    /// A depth of at most `most_bytes`, which it has before anything is known.
    pub(crate) fn new(most_bytes: usize) -> Depth {
        let most_bytes = most_bytes as u64;
        Depth {
            most_bytes,
            bytes: most_bytes,
            since: None,
            sent_bytes: 0,
            samples: [most_bytes; SAMPLES],
        }
    }

    /// The kernel took bytes.
    #[inline]
    pub(crate) fn on_sent(&mut self, bytes: u64) {
        self.sent_bytes += bytes;
    }

    /// The kernel has no room. Returns the depth if that has changed.
    pub(crate) fn on_full(&mut self, now: Time) -> Option<usize> {
        let elapsed = self.since.map_or(Span::MAX, |since| now.since(since));
        if elapsed < SAMPLE_LEAST {
            return None;
        }
        let sent_bytes = std::mem::take(&mut self.sent_bytes);
        self.since = Some(now);
        if elapsed > SAMPLE_MOST {
            return None;
        }
        // At most some gigabytes leave in the time of a sample.
        let waiting =
            u128::from(sent_bytes) * u128::from(DEPTH.as_ps()) / u128::from(elapsed.as_ps());
        self.samples.rotate_left(1);
        self.samples[SAMPLES - 1] = u64::try_from(waiting).unwrap_or(u64::MAX);
        self.follow()
    }

    fn follow(&mut self) -> Option<usize> {
        let largest = self.samples.iter().max().copied().unwrap_or(self.most_bytes);
        let least = LEAST_BYTES.min(self.most_bytes);
        let bytes = largest.clamp(least, self.most_bytes);
        let is_same = bytes.abs_diff(self.bytes) < self.bytes / STEP;
        // The largest depth is reached, and not approached.
        if is_same && (bytes < self.most_bytes || bytes == self.bytes) {
            return None;
        }
        self.bytes = bytes;
        Some(self.bytes as usize)
    }
}

#[cfg(test)]
mod tests {
    use thalweg_core::Rate;

    use super::*;

    const MOST: usize = 80 << 10;

    const GAP: Span = Span::from_ms(12);

    /// A buffer that is full every 12 ms, 20 times, while the link carries this much.
    fn depth_at(depth: &mut Depth, now: &mut Time, rate: Rate) -> u64 {
        for _ in 0..20 {
            *now += GAP;
            depth.on_sent(rate.as_bps() / 8 * 12 / 1_000);
            depth.on_full(*now);
        }
        depth.bytes
    }

    // spec: F-07 machine
    #[test]
    fn it_holds_two_milliseconds_of_a_slow_link_and_all_that_it_may_of_a_fast_one() {
        let (mut depth, mut now) = (Depth::new(MOST), Time::ZERO);
        let rates = [1_000, 100, 10, 200, 25_000].map(Rate::from_mbps);
        let found = rates.map(|rate| depth_at(&mut depth, &mut now, rate));
        assert_eq!(found, [MOST as u64, 25_000, LEAST_BYTES, 50_000, MOST as u64]);
    }

    // spec: F-07 machine
    #[test]
    fn the_largest_of_some_samples_counts() {
        let (mut depth, mut now) = (Depth::new(MOST), Time::ZERO);
        assert_eq!(depth_at(&mut depth, &mut now, Rate::from_mbps(200)), 50_000);
        // The machine has little to send.
        let changes: Vec<_> = (0..SAMPLES)
            .map(|_| {
                now += GAP;
                depth.on_sent(1_000);
                depth.on_full(now)
            })
            .collect();
        let (last, before) = changes.split_last().expect("there are samples");
        assert_eq!(*last, Some(LEAST_BYTES as usize));
        assert!(before.iter().all(Option::is_none), "{before:?}: the one of before is larger");
    }

    // spec: F-07 machine
    #[test]
    fn short_and_long_samples_say_nothing() {
        let (mut depth, mut now) = (Depth::new(MOST), Time::ZERO);
        for _ in 0..2 * SAMPLES {
            now += SAMPLE_MOST + Span::from_ms(1);
            assert_eq!(depth.on_full(now), None, "the machine had nothing to send");
            now += Span::from_ms(1);
            assert_eq!(depth.on_full(now), None, "what the kernel takes at once is too much of it");
        }
        assert_eq!(depth.bytes, MOST as u64);
    }
}
