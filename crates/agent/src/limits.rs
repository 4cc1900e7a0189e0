//! The rate of a flow at a moment.

use std::time::Duration;

/// A flow that waits may still send at this rate: the kernel knows no rate of nothing, and looks at the rate
/// only between two pieces, of which the shortest (two packets) takes 3 ms so.
pub(super) const WAITING_BPS: u64 = 8_000_000;

/// The most that a flow is sped up to make up for a late start: after a piece that was sent at a low rate
/// nothing leaves for a while, whatever the new rate is.
const CATCH_UP: u64 = 2;

/// Grant of a flow. Moments are counted from any fixed one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Limit {
    idle_bps: u64,
    bps: u64,
    /// Bytes that may have left in total when it has to wait.
    stop_at: Option<u64>,
    until: Option<Duration>,
}

impl Limit {
    /// A flow without a grant.
    pub(super) fn new(idle_bps: u64) -> Limit {
        Limit { idle_bps, bps: idle_bps, stop_at: None, until: None }
    }

    /// Sets the rules that hold from now on, when `sent` bytes have left.
    pub(super) fn grant(
        &mut self,
        now: Duration,
        sent: u64,
        bps: u64,
        bytes: Option<u64>,
        within: Option<Duration>,
    ) {
        self.bps = bps;
        self.stop_at = bytes.map(|bytes| sent.saturating_add(bytes));
        self.until = within.map(|within| now.saturating_add(within));
    }

    /// The rate at a moment when `sent` bytes have left.
    pub(super) fn bps(&self, now: Duration, sent: u64) -> u64 {
        if self.until.is_some_and(|until| until <= now) {
            return self.idle_bps;
        }
        let is_used_up = self.stop_at.is_some_and(|stop_at| stop_at <= sent);
        if is_used_up { WAITING_BPS } else { self.in_time(now, sent).max(WAITING_BPS) }
    }

    /// The granted rate, or more where the granted bytes would not leave in time.
    fn in_time(&self, now: Duration, sent: u64) -> u64 {
        let (Some(stop_at), Some(until)) = (self.stop_at, self.until) else { return self.bps };
        let left_us = until.saturating_sub(now).as_micros().max(1);
        let needed = u128::from(stop_at.saturating_sub(sent)) * 8_000_000 / left_us;
        let needed = u64::try_from(needed).unwrap_or(u64::MAX);
        self.bps.max(needed.min(self.bps.saturating_mul(CATCH_UP)))
    }

    /// When the rate will change if it is kept until then.
    pub(super) fn next_change(&self, now: Duration, sent: u64) -> Option<Duration> {
        let end = self.until.filter(|until| *until > now);
        let left =
            self.stop_at.map(|stop_at| stop_at.saturating_sub(sent)).filter(|left| *left > 0);
        let used_up = left.map(|left| {
            let bps = self.in_time(now, sent).max(WAITING_BPS);
            let ns = u128::from(left) * 8_000_000_000 / u128::from(bps);
            now + Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
        });
        end.into_iter().chain(used_up).min()
    }
}

#[cfg(test)]
mod tests {
    use thalweg_core::{Bytes, Rate, Rng, Span, Time};
    use thalweg_pace::testing::Trail;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_grant_holds_until_it_is_used_up_or_over() {
        let mut limit = Limit::new(62_000_000);
        assert_eq!(limit.bps(Duration::ZERO, 0), 62_000_000);
        // 1 MB at 800 Mbps: 10 ms.
        limit.grant(5 * MS, 100, 800_000_000, Some(1_000_000), Some(60 * MS));
        assert_eq!(limit.bps(6 * MS, 100), 800_000_000);
        assert_eq!(limit.next_change(5 * MS, 100), Some(15 * MS));
        assert_eq!(limit.next_change(10 * MS, 500_100), Some(15 * MS));
        assert_eq!(limit.bps(15 * MS, 1_000_100), WAITING_BPS);
        assert_eq!(limit.next_change(15 * MS, 1_000_100), Some(65 * MS));
        assert_eq!(limit.bps(65 * MS, 1_000_100), 62_000_000);
        // Half of the slot has passed, and nothing has left of what would take all of it.
        limit.grant(100 * MS, 0, 100_000_000, Some(750_000), Some(60 * MS));
        assert_eq!(limit.bps(130 * MS, 0), 200_000_000);
        assert_eq!(limit.bps(150 * MS, 0), 200_000_000, "not without an end");
        assert_eq!(limit.bps(130 * MS, 375_000), 100_000_000, "in time");
        limit.grant(70 * MS, 0, 0, Some(0), Some(60 * MS));
        assert_eq!(limit.bps(71 * MS, 0), WAITING_BPS, "to wait");
    }

    /// Bytes that leave a connection that the kernel paces as the limit says, looked at every 3 ms or when a rate
    /// changes, and up to half a millisecond late. Every slot has another rate, between 50 Mbps and 1 Gbps.
    fn granted_anew(seed: u64) -> Trail {
        let slot = 60 * MS;
        let mut rng = Rng::new(seed).stream("rates");
        let mut trail = Trail::new(Span::from_ms(60));
        let mut limit = Limit::new(62_500_000);
        let (mut now, mut sent) = (Duration::ZERO, 0);
        for number in 0..60 {
            let end = slot * (number + 1);
            let rate = Rate::from_bps(50_000_000 + rng.below(950_000_001)).expect("a rate");
            let volume = rate.bytes_in(Span::from_ms(60));
            trail.grant(volume);
            let left = end.saturating_sub(now);
            limit.grant(now, sent, rate.as_bps(), Some(volume.as_u64()), Some(left));
            while now < end {
                let bps = limit.bps(now, sent);
                let change = limit.next_change(now, sent).unwrap_or(end);
                let late = Duration::from_nanos(rng.below(500_000));
                let until = change.min(now + 3 * MS).min(end) + late;
                // In pieces, as the kernel does.
                while now < until {
                    now += Duration::from_micros(100);
                    let bytes = bps / 80_000;
                    sent += bytes;
                    let moment = Time::ZERO + Span::from_ns(now.as_nanos() as u64);
                    trail.leave(moment, Bytes::new(bytes));
                }
            }
        }
        trail
    }

    // spec: C-09 machine
    #[test]
    fn rates_that_change_every_slot_are_kept_over_any_ten() {
        for seed in 0..20 {
            // What leaves before it is seen that the volume is used up: 0.6 ms at twice 1 Gbps.
            let excess = Bytes::new(150_000);
            assert_eq!(granted_anew(seed).check(excess), Ok(()), "seed {seed}");
        }
    }
}
