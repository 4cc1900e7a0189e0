//! CUBIC: grow as a cubic function of the time since the last reduction (RFC 9438).

use thalweg_core::{Span, Time};

use super::window::Window;
use super::windowed::{Rule, Windowed};
use super::{Acked, ControlStart, Settings};

/// Steepness of the cubic function, in segments per second cubed (RFC 9438, 5).
const C: f64 = 0.4;

/// Share of the window that a reduction leaves (RFC 9438, 4.6).
const BETA: f64 = 0.7;

/// Additive increase that, with [`BETA`], is as fast on average as Reno (RFC 9438, 4.3).
const RENO_INCREASE: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// CUBIC with fast convergence and the Reno-friendly region. Marks count as loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cubic;

impl Settings for Cubic {
    type Running = Windowed<CubicRule>;

    fn start(&self, start: &ControlStart) -> Windowed<CubicRule> {
        Windowed::begin(start, CubicRule::default())
    }
}

/// Growth of a window as a cubic function.
#[derive(Clone, Debug, Default)]
pub(super) struct CubicRule {
    /// Window, in segments, at which the last reduction came. Zero before the first.
    max_segments: f64,
    /// Window before the last reduction, where Reno's own increase begins again.
    prior_segments: f64,
    /// The current stage of congestion avoidance; none in slow start and after a reduction.
    epoch: Option<Epoch>,
}

/// A stage of congestion avoidance.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// Moved on while the flow does not use its window.
    start: Time,
    last_ack: Time,
    /// Level of the cubic function, and the time that it takes to get there.
    plateau_segments: f64,
    plateau_after_s: f64,
    /// Window that Reno would have by now.
    reno_segments: f64,
}

impl CubicRule {
    fn avoid_congestion(&mut self, window: &mut Window, acked: &Acked) {
        let segments = window.segments();
        let acked_segments = acked.bytes.as_u64() as f64 / window.segment;
        let max_segments = self.max_segments;
        let epoch = self.epoch.get_or_insert_with(|| Epoch::new(acked.now, segments, max_segments));
        epoch.last_ack = acked.now;
        let increase = if epoch.reno_segments < self.prior_segments { RENO_INCREASE } else { 1.0 };
        epoch.reno_segments += increase * acked_segments / segments;
        let elapsed = acked.now.since(epoch.start);
        let grown = if epoch.cubic_segments(elapsed) < epoch.reno_segments {
            epoch.reno_segments.max(segments)
        } else {
            let ahead = epoch.cubic_segments(elapsed + acked.round_trip.unwrap_or(Span::ZERO));
            let target = ahead.clamp(segments, 1.5 * segments);
            segments + (target - segments) * acked_segments / segments
        };
        window.bytes = grown * window.segment;
    }

    /// Lets the clock of the epoch stand still while the flow does not try its window.
    fn pause(&mut self, now: Time) {
        if let Some(epoch) = &mut self.epoch {
            epoch.start += now.since(epoch.last_ack);
            epoch.last_ack = now;
        }
    }
}

impl Epoch {
    fn new(now: Time, segments: f64, max_segments: f64) -> Epoch {
        // A window that is past the last maximum, or that never had one, starts on the plateau.
        let plateau_segments = max_segments.max(segments);
        let plateau_after_s = libm::cbrt((plateau_segments - segments) / C);
        Epoch {
            start: now,
            last_ack: now,
            plateau_segments,
            plateau_after_s,
            reno_segments: segments,
        }
    }

    /// W_cubic of RFC 9438, 4.2.
    fn cubic_segments(&self, elapsed: Span) -> f64 {
        let from_plateau_s = elapsed.as_s_f64() - self.plateau_after_s;
        C * from_plateau_s * from_plateau_s * from_plateau_s + self.plateau_segments
    }
}

impl Rule for CubicRule {
    const BETA: f64 = BETA;

    #[inline]
    fn grow(&mut self, window: &mut Window, acked: &Acked) {
        if !window.may_grow(acked) {
            self.pause(acked.now);
        } else if window.in_slow_start() {
            window.grow_by_slow_start(acked);
        } else {
            self.avoid_congestion(window, acked);
        }
    }

    fn before_cut(&mut self, window: &Window) {
        let segments = window.segments();
        // Fast convergence: who had to stop earlier than last time leaves room to others.
        let converging = segments < self.max_segments;
        self.max_segments = if converging { segments * (1.0 + BETA) / 2.0 } else { segments };
        self.prior_segments = segments;
        self.epoch = None;
    }

    fn before_collapse(&mut self, window: &Window) {
        if window.bytes > window.segment {
            self.prior_segments = window.segments();
        }
        // The next stage starts level, wherever slow start ends (RFC 9438, 4.8).
        self.max_segments = 0.0;
        self.epoch = None;
    }
}

#[cfg(test)]
mod tests {
    use thalweg_core::Bytes;

    use super::super::Controller;
    use super::super::testing::{Feeder, lost, windowed};
    use super::*;

    #[test]
    fn the_function_goes_through_its_points() {
        // From 700 segments with a maximum of 1,000: K = cbrt(300 / 0.4) = 9.0856 s.
        let epoch = Epoch::new(Time::ZERO, 700.0, 1_000.0);
        assert!((epoch.plateau_after_s - 9.085_602_964_160_698).abs() < 1e-12);
        let at = |ms: u64| epoch.cubic_segments(Span::from_ms(ms));
        assert!((at(0) - 700.0).abs() < 1e-9);
        // 1000 + 0.4 · (5 − 9.0856…)³
        assert!((at(5_000) - 972.720_998).abs() < 1e-5, "{}", at(5_000));
        // 1000 + 0.4 · (20 − 9.0856…)³
        assert!((at(20_000) - 1520.066927).abs() < 1e-5, "{}", at(20_000));
        assert!((epoch.cubic_segments(Span::from_s_f64(9.085_602_964_16)) - 1e3).abs() < 1e-6);
    }

    #[test]
    fn on_a_long_path_the_window_follows_the_function() {
        let mut feeder = Feeder { round_trip: Span::from_ms(100), ..Feeder::default() };
        let mut cubic = windowed(CubicRule::default(), 1_000);
        cubic.on_loss(&lost(0, 1));
        assert_eq!(cubic.window(), Bytes::new(700_000));
        while feeder.now < Time::ZERO + Span::from_s(5) {
            feeder.round(&mut cubic, 0);
        }
        // The target is what the function says one round trip later, and each round gets there.
        let segments = cubic.window().as_u64() as f64 / 1_000.0;
        assert!((segments - 972.721).abs() < 2.0, "{segments}");
    }

    #[test]
    fn on_a_short_path_it_is_as_fast_as_reno() {
        let mut feeder = Feeder::default();
        let mut cubic = windowed(CubicRule::default(), 100);
        cubic.on_loss(&lost(0, 1));
        for _ in 0..20 {
            feeder.round(&mut cubic, 0);
        }
        // 0.5294 segments a round from 70, less what rounding down to whole packets loses.
        let segments = cubic.window().as_u64() as f64 / 1_000.0;
        assert!(segments > 79.5 && segments <= 80.6, "{segments}");
    }

    #[test]
    fn fast_convergence_lowers_the_maximum() {
        let mut cubic = windowed(CubicRule::default(), 100);
        cubic.on_loss(&lost(0, 1));
        assert_eq!(cubic.rule.max_segments, 100.0);
        cubic.on_loss(&lost(1, 2));
        assert_eq!(cubic.rule.max_segments, 70.0 * 0.85);
        assert_eq!(cubic.window(), Bytes::new(49_000));
    }

    #[test]
    fn a_pause_does_not_count() {
        let mut feeder = Feeder { round_trip: Span::from_ms(10), ..Feeder::default() };
        let mut cubic = windowed(CubicRule::default(), 1_000);
        cubic.on_loss(&lost(0, 1));
        feeder.round(&mut cubic, 0);
        let epoch = cubic.rule.epoch.expect("in congestion avoidance");
        let (elapsed, idle) = (feeder.now.since(epoch.start), Span::from_s(60));
        cubic.rule.pause(feeder.now + idle);
        let epoch = cubic.rule.epoch.expect("still in congestion avoidance");
        let elapsed_after = (feeder.now + idle).since(epoch.start);
        assert!(elapsed_after <= elapsed, "{elapsed_after} {elapsed}");
    }
}
