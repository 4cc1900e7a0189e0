//! DCTCP: reduce in proportion to how much was marked (RFC 8257).

use super::window::Window;
use super::windowed::{Rule, Windowed};
use super::{Acked, ControlError, ControlStart, Settings};

/// Less than this cuts nothing. Without a mark alpha would shrink for ever, down to numbers that
/// processors are slow with.
const NEGLIGIBLE_ALPHA: f64 = 1e-12;

/// Settings of DCTCP.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Dctcp {
    /// Weight of the last window in the estimated share of marks, g. Default 1/16.
    pub gain: f64,
    /// Estimate to begin with. Default 1, as in Linux: the first mark halves the window.
    pub initial_alpha: f64,
}

impl Default for Dctcp {
    fn default() -> Dctcp {
        Dctcp { gain: 1.0 / 16.0, initial_alpha: 1.0 }
    }
}

impl Settings for Dctcp {
    type Running = Windowed<DctcpRule>;

    fn start(&self, start: &ControlStart) -> Windowed<DctcpRule> {
        Windowed::begin(start, DctcpRule::new(self.gain, self.initial_alpha))
    }

    fn check(&self) -> Result<(), ControlError> {
        for (name, value) in [("gain", self.gain), ("initial_alpha", self.initial_alpha)] {
            if !(0.0..=1.0).contains(&value) {
                return Err(ControlError::Share { control: "DCTCP", name, value });
            }
        }
        Ok(())
    }
}

/// Estimates the share of marked bytes, window by window, and cuts by half of it.
///
/// As in Linux, the cut comes with the first mark of a window and uses the estimate of the windows
/// before it. Loss halves the window, as it does without ECN (RFC 8257, 3.5).
#[derive(Clone, Debug)]
pub(super) struct DctcpRule {
    /// Estimated share of marked bytes, 0 to 1.
    alpha: f64,
    gain: f64,
    /// The window that it had when packets began to leave in the last class.
    kept: f64,
    acked_bytes: u64,
    marked_bytes: u64,
    /// The observed window ends with the first answer to this transmission or a later one.
    observation_end: u64,
}

impl DctcpRule {
    /// A rule with gain g and the alpha to start from.
    pub fn new(gain: f64, initial_alpha: f64) -> DctcpRule {
        DctcpRule {
            alpha: initial_alpha,
            gain,
            kept: 0.0,
            acked_bytes: 0,
            marked_bytes: 0,
            observation_end: 0,
        }
    }

    fn end_observation(&mut self, next_end: u64) {
        // Nothing was observed before the first acknowledgement.
        if self.acked_bytes > 0 {
            let marked_share = self.marked_bytes as f64 / self.acked_bytes as f64;
            let alpha = (1.0 - self.gain) * self.alpha + self.gain * marked_share;
            self.alpha = if alpha < NEGLIGIBLE_ALPHA { 0.0 } else { alpha };
        }
        self.acked_bytes = 0;
        self.marked_bytes = 0;
        self.observation_end = next_end;
    }
}

impl Rule for DctcpRule {
    const BETA: f64 = 0.5;

    fn mark_factor(&self) -> f64 {
        1.0 - self.alpha / 2.0
    }

    fn demote(&mut self, window: &Window) {
        self.kept = window.bytes;
    }

    // spec: C-16
    fn promote(&mut self, window: &mut Window) {
        window.resume(self.kept);
        self.on_rise();
    }

    fn on_rise(&mut self) {
        self.alpha = 0.0;
        (self.acked_bytes, self.marked_bytes) = (0, 0);
    }

    #[inline]
    fn observe(&mut self, acked: &Acked) {
        if acked.transmission >= self.observation_end {
            self.end_observation(acked.next_transmission);
        }
        self.acked_bytes += acked.bytes.as_u64();
        if acked.congested {
            self.marked_bytes += acked.bytes.as_u64();
        }
    }
}

#[cfg(test)]
mod tests {
    use thalweg_core::{Bytes, Rng};

    use super::super::Controller;
    use super::super::testing::{Feeder, acked, lost, windowed};
    use super::*;

    fn dctcp() -> DctcpRule {
        DctcpRule::new(1.0 / 16.0, 1.0)
    }

    /// Goes through whole observed windows of ten packets, some of them marked.
    fn observe_rounds(dctcp: &mut DctcpRule, marked: &[u64]) {
        for (round, &marked) in (0..).zip(marked) {
            for packet in 0..10 {
                dctcp.observe(&Acked {
                    congested: packet < marked,
                    transmission: round * 10 + packet,
                    next_transmission: round * 10 + packet + 10,
                    ..acked()
                });
            }
        }
        dctcp.end_observation(u64::MAX);
    }

    #[test]
    fn alpha_follows_the_share_of_marks() {
        // 1 → 15/16 → (15/16)² + 1/16 · 1/2 → … by hand, all exact in binary.
        let after = |marked: &[u64]| {
            let mut dctcp = dctcp();
            observe_rounds(&mut dctcp, marked);
            dctcp.alpha
        };
        assert_eq!(after(&[0]), 0.9375);
        assert_eq!(after(&[0, 5]), 0.910_156_25);
        assert_eq!(after(&[0, 5, 0]), 0.853_271_484_375);
        assert_eq!(after(&[0, 5, 0, 10]), 0.862_442_016_601_562_5);
        assert_eq!(after(&[10, 10]), 1.0);
    }

    // spec: C-16 machine
    #[test]
    fn the_caution_of_the_last_class_ends_with_the_turn_of_others() {
        let mut control = windowed(dctcp(), 10);
        for transmission in 0..100 {
            let next_transmission = transmission + 100;
            control.on_ack(
                &Acked {
                    transmission,
                    next_transmission,
                    in_flight: Bytes::new(1 << 20),
                    ..acked()
                },
                &mut Rng::new(0),
            );
        }
        let in_turn = control.window();
        control.demote();
        for transmission in [200, 400, 600] {
            let next_transmission = transmission + 100;
            let acked = Acked { congested: true, transmission, next_transmission, ..acked() };
            assert!(control.on_ack(&acked, &mut Rng::new(0)), "a mark cuts");
        }
        assert!(control.window().as_u64() * 4 < in_turn.as_u64());
        control.promote();
        assert_eq!(control.rule.alpha, 0.0);
        // Slow start: every acknowledged packet adds one, up to what the window was.
        let mut acks = 0;
        while control.window() < in_turn {
            let transmission = 800 + acks;
            let next_transmission = 900 + acks;
            let in_flight = Bytes::new(1 << 20);
            let acked = Acked { transmission, next_transmission, in_flight, ..acked() };
            control.on_ack(&acked, &mut Rng::new(0));
            acks += 1;
        }
        assert!(acks <= in_turn.as_u64() / acked().bytes.as_u64(), "{acks}");
    }

    #[test]
    fn a_more_urgent_priority_leaves_congestion_avoidance() {
        let mut feeder = Feeder::default();
        let mut control = windowed(dctcp(), 10);
        feeder.round(&mut control, 10);
        let cut = control.window();
        feeder.round(&mut control, 0);
        feeder.round(&mut control, 0);
        let before = control.window();
        assert!(before < cut * 2, "a packet a round trip: {before} after {cut}");
        control.on_rise();
        feeder.round(&mut control, 0);
        assert!(control.window().as_u64() * 2 > before.as_u64() * 3, "{}", control.window());
        assert_eq!(control.rule.alpha, 0.0);
    }

    #[test]
    fn a_loss_that_was_none_is_undone() {
        let mut control = windowed(dctcp(), 10);
        let before = control.extent();
        assert!(control.on_loss(&lost(3, 10)));
        assert_eq!(control.window() * 2, before.window);
        control.undo_loss(before);
        assert_eq!(control.extent(), before, "and it is in slow start again");
    }

    #[test]
    fn alpha_settles_at_a_steady_share() {
        let mut dctcp = dctcp();
        observe_rounds(&mut dctcp, &[2; 300]);
        assert!((dctcp.alpha - 0.2).abs() < 1e-6, "{}", dctcp.alpha);
    }

    #[test]
    fn the_first_mark_halves_and_ends_slow_start() {
        let mut feeder = Feeder::default();
        let mut dctcp = windowed(dctcp(), 10);
        feeder.round(&mut dctcp, 0);
        assert_eq!(dctcp.window(), Bytes::new(20_000));
        feeder.ack(&mut dctcp, true);
        // The second round has just begun: alpha is 15/16 of 1.
        assert_eq!(dctcp.window(), Bytes::new(10_625));
        feeder.ack(&mut dctcp, true);
        assert_eq!(dctcp.window(), Bytes::new(10_625), "once per window");
        feeder.ack(&mut dctcp, false);
        assert_eq!(dctcp.window(), Bytes::new(10_625), "and held for the rest of it");
    }

    #[test]
    fn a_small_alpha_cuts_a_little() {
        let mut dctcp = windowed(DctcpRule::new(1.0 / 16.0, 0.125), 100);
        Feeder::default().ack(&mut dctcp, true);
        assert_eq!(dctcp.window(), Bytes::new(93_750));
    }

    #[test]
    fn a_share_outside_its_range_is_refused() {
        let nan = Dctcp { gain: f64::NAN, ..Dctcp::default() };
        assert!(matches!(nan.check(), Err(ControlError::Share { name: "gain", .. })));
        assert_eq!(Dctcp::default().check(), Ok(()));
    }
}
