//! How fast to send, by the time that echoes take.
//!
//! Losses are tolerated, so all that is left for a rate control is to keep the network from collapsing.
//! It starts at line rate, and every echo moves it a little.

use thalweg_core::delay::Base;
use thalweg_core::{Bytes, Pacer, Rate, Span, Time};
use thalweg_transport::DepartureClock;
use thiserror::Error;

/// Settings of a [`DelayControl`]. The defaults are the paper's (§4.2.3), except where it is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DelayConfig {
    /// The rate to start with, and the largest. Default 100 Gbps.
    pub line_rate: Rate,
    /// The least rate. Default 40 Mbps, one step: from nothing there would be no way back. Ours.
    pub floor: Rate,
    /// Below this round trip the rate grows. Default 12.5 µs.
    pub low: Span,
    /// Above this round trip the rate falls. Default 125 µs.
    pub high: Span,
    /// The two above hold for paths that take so long when they are empty, or less; they grow with paths
    /// that take longer. Default 8 µs. Ours.
    pub reference: Span,
    /// What the rate grows by. Default 40 Mbps.
    pub step: Rate,
    /// How much of the excess the rate falls by, in thousandths. Default 800.
    pub decrease_permille: u32,
    /// Which echoes may lower the rate. Default those of packets that left since it last fell. Ours.
    pub cuts: Cuts,
    /// How far packets may be behind their time and still make it up: hosts are not punctual. Default
    /// 10 µs. Ours.
    pub burst: Span,
}

/// Which echoes may lower the rate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cuts {
    /// All of them, as the paper has it. A full queue delays many packets, and each takes its share of the
    /// rate: it falls to the floor before the first packet at a lower rate has arrived.
    EveryEcho,
    /// Those of packets that left since the rate last fell: the others tell of what it was before.
    OnceARoundTrip,
}

impl Default for DelayConfig {
    fn default() -> DelayConfig {
        DelayConfig {
            line_rate: Rate::from_gbps(100),
            floor: STEP,
            low: Span::from_ns(12_500),
            high: Span::from_us(125),
            reference: Span::from_us(8),
            step: STEP,
            decrease_permille: 800,
            cuts: Cuts::OnceARoundTrip,
            burst: Span::from_us(10),
        }
    }
}

const STEP: Rate = Rate::from_mbps(40);

/// Why settings of a rate control cannot work. The configuration is at fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum DelayConfigError {
    /// Contradicting thresholds.
    #[error("low is {low}, not below high, {high}: swap or change them")]
    Thresholds {
        /// Below it the rate grows.
        low: Span,
        /// Above it the rate falls.
        high: Span,
    },
    /// A floor above the ceiling.
    #[error("floor is {floor}, above line_rate, {line_rate}: lower it")]
    Floor {
        /// The least rate.
        floor: Rate,
        /// The largest rate.
        line_rate: Rate,
    },
    /// More than the whole.
    #[error("decrease_permille is {0}: set it from 1 to 1,000")]
    Decrease(u32),
    /// A path that takes no time.
    #[error("reference is zero: set it to the round trip of an empty path")]
    Reference,
}

impl DelayConfig {
    /// Whether the settings can work together.
    pub fn check(&self) -> Result<(), DelayConfigError> {
        if self.low >= self.high {
            return Err(DelayConfigError::Thresholds { low: self.low, high: self.high });
        }
        if self.floor > self.line_rate {
            let (floor, line_rate) = (self.floor, self.line_rate);
            return Err(DelayConfigError::Floor { floor, line_rate });
        }
        if !(1..=1_000).contains(&self.decrease_permille) {
            return Err(DelayConfigError::Decrease(self.decrease_permille));
        }
        if self.reference == Span::ZERO {
            return Err(DelayConfigError::Reference);
        }
        Ok(())
    }
}

/// The rate towards one peer.
// spec: M-08
#[derive(Clone, Debug)]
pub struct DelayControl {
    config: DelayConfig,
    rate: Rate,
    /// What the last echo took.
    last: Option<Span>,
    base: Base,
    /// When the rate last fell.
    fell_at: Option<Time>,
    departures: DepartureClock,
}

impl DelayControl {
    /// At line rate.
    pub fn new(config: DelayConfig) -> DelayControl {
        DelayControl {
            rate: config.line_rate,
            config,
            last: None,
            base: Base::default(),
            fell_at: None,
            departures: DepartureClock::default(),
        }
    }

    /// The rate now.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// An echo came back after `round_trip`.
    pub fn on_echo(&mut self, now: Time, round_trip: Span) {
        self.base.learn(now, round_trip);
        let has_fallen = self.last.is_some_and(|last| round_trip < last);
        self.last = Some(round_trip);
        let (low, high) = self.thresholds();
        if round_trip < low || has_fallen {
            self.set(self.rate.as_bps().saturating_add(self.config.step.as_bps()));
        }
        let is_news = match (self.config.cuts, self.fell_at) {
            (Cuts::OnceARoundTrip, Some(fell_at)) => now.since(fell_at) >= round_trip,
            _ => true,
        };
        if round_trip > high && is_news {
            self.fell_at = Some(now);
            let excess = u128::from((round_trip - high).as_ps());
            self.fall(excess, u128::from(round_trip.as_ps()));
        }
    }

    /// A question found no answer in time: as if an echo had taken for ever.
    pub fn on_silence(&mut self) {
        self.fall(1, 1);
    }

    /// Below which round trip it grows, and above which it falls, on this path.
    fn thresholds(&self) -> (Span, Span) {
        let DelayConfig { low, high, reference, .. } = self.config;
        let base = self.base.shortest().unwrap_or(reference).max(reference);
        let scale = |span: Span| {
            let ps = u128::from(span.as_ps()) * u128::from(base.as_ps());
            Span::from_ps(u64::try_from(ps / u128::from(reference.as_ps())).unwrap_or(u64::MAX))
        };
        (scale(low), scale(high))
    }

    /// Falls by the share β · excess / whole.
    fn fall(&mut self, excess: u128, whole: u128) {
        let bps = u128::from(self.rate.as_bps());
        let cut = bps * u128::from(self.config.decrease_permille) * excess / (1_000 * whole);
        // The cut is at most the whole rate.
        self.set((bps - cut) as u64);
    }

    fn set(&mut self, bps: u64) {
        let rate = Rate::from_bps(bps).unwrap_or(self.config.floor);
        self.rate = rate.clamp(self.config.floor, self.config.line_rate);
    }
}

impl Pacer for DelayControl {
    #[inline]
    fn next_send(&self, _now: Time) -> Time {
        self.departures.next()
    }

    #[inline]
    fn on_send(&mut self, now: Time, wire_bytes: Bytes) {
        self.departures.advance(now, self.rate.serialization(wire_bytes), self.config.burst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mbps(mbps: u64) -> Rate {
        Rate::from_bps(mbps * 1_000_000).unwrap()
    }

    /// At line rate, after echoes with these round trips, by the published rule.
    fn rate_after(round_trips_us: &[u64]) -> Rate {
        rate_with(Cuts::EveryEcho, round_trips_us)
    }

    fn rate_with(cuts: Cuts, round_trips_us: &[u64]) -> Rate {
        let config = DelayConfig { line_rate: mbps(10_000), cuts, ..DelayConfig::default() };
        let mut control = DelayControl::new(config);
        let mut now = Time::ZERO;
        for &us in round_trips_us {
            now += Span::from_us(100);
            control.on_echo(now, Span::from_us(us));
        }
        control.rate()
    }

    // spec: M-08 machine
    #[test]
    fn the_rate_follows_the_rule() {
        assert_eq!(rate_after(&[]), mbps(10_000), "it starts at line rate");
        assert_eq!(rate_after(&[8]), mbps(10_000), "and does not pass it");
        assert_eq!(rate_after(&[8, 100]), mbps(10_000), "between the thresholds it stays");
        // 1 − 0.8 · (1 − 125/250) = 0.6.
        assert_eq!(rate_after(&[8, 250]), mbps(6_000));
        assert_eq!(rate_after(&[8, 250, 100]), mbps(6_040), "a falling round trip adds a step");
        assert_eq!(rate_after(&[8, 250, 300, 8]), rate_plus(&[8, 250, 300], 40));
        // Above the threshold and falling, both hold: (6,000 + 40) · (1 − 0.8 · (1 − 125/200)).
        assert_eq!(rate_after(&[8, 250, 200]), mbps(4_228));
    }

    /// Echoes come every 100 µs. What took longer than the time since the rate fell, left before it fell.
    // spec: M-08 machine
    #[test]
    fn one_full_queue_lowers_the_rate_once() {
        let once = |round_trips_us: &[u64]| rate_with(Cuts::OnceARoundTrip, round_trips_us);
        assert_eq!(once(&[8, 250]), mbps(6_000));
        assert_eq!(once(&[8, 250, 250, 250]), mbps(6_000), "they left at line rate");
        assert!(
            once(&[8, 250, 250, 250, 250]) < mbps(3_700),
            "at the lower rate it still takes long"
        );
        assert_eq!(once(&[8, 250, 249]), mbps(6_040), "steps up are not held back");
        assert_eq!(rate_after(&[8, 250, 250]), mbps(3_600), "as published it falls again");
    }

    fn rate_plus(round_trips_us: &[u64], more_mbps: u64) -> Rate {
        Rate::from_bps(rate_after(round_trips_us).as_bps() + more_mbps * 1_000_000).unwrap()
    }

    // spec: M-08 machine
    #[test]
    fn thresholds_grow_with_the_path() {
        // The empty path takes 80 µs, ten times the reference: the rate falls above 1,250 µs.
        assert_eq!(rate_after(&[80, 1_250]), mbps(10_000));
        assert_eq!(rate_after(&[80, 2_500]), mbps(6_000));
        assert_eq!(rate_after(&[80, 2_500, 2_600, 130, 131]), rate_plus(&[80, 2_500, 2_600], 40));
        assert_eq!(rate_after(&[80, 2_500, 2_600, 120, 121]), rate_plus(&[80, 2_500, 2_600], 80));
    }

    // spec: M-08 machine
    #[test]
    fn the_rate_has_a_floor() {
        assert_eq!(rate_after(&[[8].as_slice(), &[100_000; 60]].concat()), mbps(40));
        let mut control = DelayControl::new(DelayConfig::default());
        control.on_silence();
        assert_eq!(control.rate(), Rate::from_gbps(20));
        (0..60).for_each(|_| control.on_silence());
        assert_eq!(control.rate(), mbps(40));
    }

    #[test]
    fn packets_leave_at_the_rate() {
        let config =
            DelayConfig { line_rate: mbps(8), burst: Span::ZERO, ..DelayConfig::default() };
        let config = DelayConfig { floor: mbps(1), ..config };
        let mut control = DelayControl::new(config);
        let mut now = Time::ZERO;
        for _ in 0..3 {
            control.on_send(now, Bytes::new(1_000));
            assert_eq!(control.next_send(now), now + Span::from_ms(1));
            now = control.next_send(now);
        }
        // Who comes late loses the time, but for what a burst makes up.
        now += Span::from_ms(5);
        control.config.burst = Span::from_us(300);
        control.on_send(now, Bytes::new(1_000));
        assert_eq!(control.next_send(now), now + Span::from_us(700));
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let config = DelayConfig::default();
        assert_eq!(config.check(), Ok(()));
        let refused = |config: DelayConfig| config.check().unwrap_err().to_string();
        assert!(refused(DelayConfig { low: config.high, ..config }).contains("low"));
        assert!(refused(DelayConfig { line_rate: mbps(1), ..config }).contains("floor"));
        let wrong = DelayConfig { decrease_permille: 1_001, ..config };
        assert!(refused(wrong).contains("decrease_permille"));
        assert!(refused(DelayConfig { reference: Span::ZERO, ..config }).contains("reference"));
    }
}
