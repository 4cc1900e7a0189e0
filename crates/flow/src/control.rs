//! Congestion controls: how much may be on the way.
//!
//! All of them count payload bytes in `f64` and use only `+ − × ÷` and `libm`, so that a run gives
//! the same windows on every machine. A window grows only while at least half of it is in use:
//! what a flow did not try, the network did not allow. BBR alone has no such window: it goes by the rate at
//! which packets arrive, and says when the next one may leave.

mod bbr;
mod cubic;
mod dctcp;
mod delay;
mod newreno;
mod window;

use thalweg_core::{Acked, Bytes, CongestionControl, Rng, Time};

use crate::config::{Config, Control};
use bbr::Bbr;
use cubic::Cubic;
use dctcp::Dctcp;
use delay::DelayRule;
use newreno::NewReno;
use window::Window;

/// The control of one flow, without a box around those that most flows have.
#[derive(Clone, Debug)]
pub(crate) enum Controller {
    Dctcp(Windowed<Dctcp>),
    NewReno(Windowed<NewReno>),
    Cubic(Windowed<Cubic>),
    Delay(Windowed<DelayRule>),
    /// In a box, since its model of the way is larger than all others together.
    Bbr(Box<Bbr>),
}

impl Controller {
    /// The control of the message with this number.
    pub fn new(config: &Config, number: u64) -> Controller {
        let segment = Bytes::from(config.segment_bytes);
        let window = Window::new(segment, config.initial_window_packets);
        match config.control {
            Control::Dctcp { gain, initial_alpha } => {
                Controller::Dctcp(Windowed { window, rule: Dctcp::new(gain, initial_alpha) })
            }
            Control::NewReno => Controller::NewReno(Windowed { window, rule: NewReno }),
            Control::Cubic => Controller::Cubic(Windowed { window, rule: Cubic::default() }),
            Control::Delay { target } => {
                Controller::Delay(Windowed { window, rule: DelayRule::new(target) })
            }
            Control::Bbr { seed } => {
                let rng = bbr_rng(seed, number);
                Controller::Bbr(Box::new(Bbr::new(segment, config.initial_window_packets, rng)))
            }
        }
    }

    /// For another flow to the same node, the message with this number, whose transmissions are numbered
    /// from 0.
    pub fn restart(&mut self, config: &Config, number: u64) {
        match self {
            Controller::Dctcp(control) => restart(control),
            Controller::NewReno(control) => restart(control),
            Controller::Cubic(control) => restart(control),
            Controller::Delay(control) => restart(control),
            Controller::Bbr(control) => {
                if let Control::Bbr { seed } = config.control {
                    control.restart(bbr_rng(seed, number));
                }
            }
        }
    }

    /// A packet left that might at `may_send_at`, with so much on the way before it. Returns when the next
    /// one may: at once, unless the control paces.
    #[inline]
    pub fn on_send(&mut self, now: Time, may_send_at: Time, in_flight_packets: u32) -> Time {
        match self {
            Controller::Bbr(control) => control.on_send(now, may_send_at, in_flight_packets),
            _ => Time::ZERO,
        }
    }
}

impl CongestionControl for Controller {
    #[inline]
    fn on_ack(&mut self, acked: &Acked) {
        match self {
            Controller::Dctcp(control) => control.on_ack(acked),
            Controller::NewReno(control) => control.on_ack(acked),
            Controller::Cubic(control) => control.on_ack(acked),
            Controller::Delay(control) => control.on_ack(acked),
            Controller::Bbr(control) => control.on_ack(acked),
        }
    }

    fn on_loss(&mut self, now: Time) {
        match self {
            Controller::Dctcp(control) => control.on_loss(now),
            Controller::NewReno(control) => control.on_loss(now),
            Controller::Cubic(control) => control.on_loss(now),
            Controller::Delay(control) => control.on_loss(now),
            Controller::Bbr(control) => control.on_loss(now),
        }
    }

    fn on_timeout(&mut self, now: Time) {
        match self {
            Controller::Dctcp(control) => control.on_timeout(now),
            Controller::NewReno(control) => control.on_timeout(now),
            Controller::Cubic(control) => control.on_timeout(now),
            Controller::Delay(control) => control.on_timeout(now),
            Controller::Bbr(control) => control.on_timeout(now),
        }
    }

    #[inline]
    fn window(&self) -> Bytes {
        match self {
            Controller::Dctcp(control) => control.window(),
            Controller::NewReno(control) => control.window(),
            Controller::Cubic(control) => control.window(),
            Controller::Delay(control) => control.window(),
            Controller::Bbr(control) => control.window(),
        }
    }
}

/// The draws of one message: independent of all others of the endpoint.
fn bbr_rng(seed: u64, number: u64) -> Rng {
    Rng::new(seed).substream("bbr", number)
}

/// What one control does its own way. [`Windowed`] does what all of them do.
trait Rule {
    /// What loss leaves of the window.
    const LOSS_FACTOR: f64;

    /// What a mark leaves of the window.
    fn mark_factor(&self) -> f64 {
        Self::LOSS_FACTOR
    }

    /// What loss leaves of it now.
    fn loss_factor(&self) -> f64 {
        Self::LOSS_FACTOR
    }

    /// Sees every acknowledgement before it changes the window.
    #[inline]
    fn observe(&mut self, _acked: &Acked) {}

    /// Grows the window, if it may, for an acknowledgement that does not cut it.
    #[inline]
    fn grow(&mut self, window: &mut Window, acked: &Acked) {
        window.grow_as_reno(acked);
    }

    /// Sees the window before loss or a mark cuts it.
    fn before_cut(&mut self, _window: &Window) {}

    /// Sees the window before a timeout leaves one packet of it.
    fn before_collapse(&mut self, _window: &Window) {}

    /// Keeps what holds for another flow to the same node, whose transmissions are numbered from 0.
    fn restart(&mut self) {}
}

/// A window that follows a rule. Answers marks once per window of data.
#[derive(Clone, Debug)]
pub(crate) struct Windowed<R> {
    window: Window,
    rule: R,
}

/// Keeps what holds for another flow to the same node.
fn restart<R: Rule>(control: &mut Windowed<R>) {
    control.window.restart();
    control.rule.restart();
}

impl<R: Rule> CongestionControl for Windowed<R> {
    #[inline]
    fn on_ack(&mut self, acked: &Acked) {
        self.rule.observe(acked);
        if self.window.is_marked_anew(acked) {
            self.rule.before_cut(&self.window);
            self.window.cut_for_mark(acked, self.rule.mark_factor());
        } else {
            self.rule.grow(&mut self.window, acked);
        }
    }

    fn on_loss(&mut self, _now: Time) {
        self.rule.before_cut(&self.window);
        self.window.cut(self.rule.loss_factor());
    }

    fn on_timeout(&mut self, _now: Time) {
        self.rule.before_collapse(&self.window);
        self.window.collapse(R::LOSS_FACTOR);
    }

    #[inline]
    fn window(&self) -> Bytes {
        self.window.whole_bytes()
    }
}

#[cfg(test)]
mod testing {
    use thalweg_core::{Acked, Bytes, CongestionControl, Span, Time};

    use super::{Rule, Window, Windowed};

    /// Acknowledges one full packet of 1,000 bytes at a time, with a full window on the way, and
    /// numbers transmissions as if every acknowledgement let one packet out.
    pub struct Feeder {
        pub now: Time,
        pub transmission: u64,
        pub round_trip: Span,
    }

    pub const SEGMENT: Bytes = Bytes::new(1_000);

    pub fn windowed<R: Rule>(rule: R, initial_packets: u32) -> Windowed<R> {
        Windowed { window: Window::new(SEGMENT, initial_packets), rule }
    }

    impl Default for Feeder {
        fn default() -> Feeder {
            Feeder { now: Time::ZERO, transmission: 0, round_trip: Span::from_us(100) }
        }
    }

    impl Feeder {
        pub fn ack(&mut self, control: &mut impl CongestionControl, congested: bool) {
            let window_packets = control.window().as_u64() / 1_000;
            control.on_ack(&Acked {
                now: self.now,
                bytes: SEGMENT,
                congested,
                round_trip: self.round_trip,
                in_flight: control.window(),
                in_recovery: false,
                transmission: self.transmission,
                next_transmission: self.transmission + window_packets,
            });
            self.transmission += 1;
        }

        /// One window of acknowledgements, the first `marked` of them congested.
        pub fn round(&mut self, control: &mut impl CongestionControl, marked: u64) {
            let packets = control.window().as_u64() / 1_000;
            for packet in 0..packets {
                self.ack(control, packet < marked);
            }
            self.now += self.round_trip;
        }
    }
}

#[cfg(test)]
mod tests {
    use thalweg_core::Span;

    use super::*;

    fn acked(in_flight: u64, in_recovery: bool) -> Acked {
        Acked {
            now: Time::ZERO,
            bytes: Bytes::new(1_000),
            congested: false,
            round_trip: Span::from_us(10),
            in_flight: Bytes::new(in_flight),
            in_recovery,
            transmission: 0,
            next_transmission: 10,
        }
    }

    #[test]
    fn a_window_that_is_not_used_does_not_grow() {
        for control in [Control::default(), Control::NewReno, Control::Cubic] {
            let config = Config { control, segment_bytes: 1_000, ..Config::default() };
            let mut control = Controller::new(&config, 0);
            control.on_ack(&acked(4_999, false));
            assert_eq!(control.window(), Bytes::new(10_000));
            control.on_ack(&acked(10_000, true));
            assert_eq!(control.window(), Bytes::new(10_000));
            control.on_ack(&acked(5_000, false));
            assert_eq!(control.window(), Bytes::new(11_000));
        }
    }

    #[test]
    fn a_timeout_leaves_one_packet_and_a_second_one_keeps_the_threshold() {
        for (control, threshold) in
            [(Control::default(), 5_000), (Control::NewReno, 5_000), (Control::Cubic, 7_000)]
        {
            let config = Config { control, segment_bytes: 1_000, ..Config::default() };
            let mut control = Controller::new(&config, 0);
            control.on_timeout(Time::ZERO);
            control.on_timeout(Time::ZERO);
            assert_eq!(control.window(), Bytes::new(1_000));
            // Slow start goes on exactly up to the threshold.
            let mut feeder = testing::Feeder::default();
            while control.window().as_u64() < threshold {
                let before = control.window().as_u64();
                feeder.ack(&mut control, false);
                assert_eq!(control.window().as_u64(), before + 1_000);
            }
            feeder.ack(&mut control, false);
            assert!(control.window().as_u64() < threshold + 1_000);
        }
    }

    #[test]
    fn no_reduction_goes_below_two_packets() {
        for control in [Control::default(), Control::NewReno, Control::Cubic] {
            let config = Config { control, segment_bytes: 1_000, ..Config::default() };
            let mut control = Controller::new(&config, 0);
            for _ in 0..20 {
                control.on_loss(Time::ZERO);
            }
            assert_eq!(control.window(), Bytes::new(2_000));
        }
    }
}
