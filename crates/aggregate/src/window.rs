//! How much a worker may have on the way.

mod look;

use thalweg_core::delay::{Delay, Judgement};
use thalweg_core::{Span, Time};

use self::look::Look;

/// How the window moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Control {
    /// Additive increase, multiplicative decrease.
    Aimd {
        /// The window to begin with. Default 60 KB: the paper's 200 packets of 300 bytes, about the
        /// bandwidth-delay product of 100 Gbps.
        initial_bytes: u64,
        /// What it never exceeds. Default 16 MB: 400 Gbps for 320 µs.
        max_bytes: u64,
    },
    /// By the time that answers take: a lost packet alone does not halve it. Marks do.
    Delay {
        /// The window to begin with.
        initial_bytes: u64,
        /// What it never exceeds.
        max_bytes: u64,
        /// How long packets may wait in queues.
        target: Span,
    },
    /// Always so many bytes.
    Fixed(u64),
}

impl Default for Control {
    fn default() -> Control {
        Control::Aimd { initial_bytes: 60_000, max_bytes: 16_000_000 }
    }
}

impl Control {
    /// What real networks begin with: hosts that sleep between packets need more than a millisecond of
    /// them on the way. Much more makes longer bursts, which cost more than they bring.
    pub const DELAY: Control = Control::Delay {
        initial_bytes: 120_000,
        max_bytes: 16_000_000,
        target: Span::from_us(1_500),
    };
}

/// What the window grows by: one packet of an Ethernet.
const STEP_BYTES: u64 = 1_500;

/// The floor: with fewer packets on the way, nothing would overtake a lost one.
const FLOOR_PACKETS: u64 = 2;

/// The window of one worker. Signals name the transmission that they are about, so that those of one
/// round count once.
// spec: A-34
#[derive(Clone, Debug)]
pub(crate) struct Window {
    bytes: u64,
    floor_bytes: u64,
    /// `None`: the window does not move.
    max_bytes: Option<u64>,
    /// Below, the window grows with every answer.
    threshold_bytes: u64,
    /// Answered since the last step above the threshold.
    answered_bytes: u64,
    /// The first transmission after the last halving. What befell earlier ones, it has answered.
    round_from: u64,
    /// What decides in place of losses.
    delay: Option<Delay>,
    look: Look,
}

/// An answer to a transmission.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub now: Time,
    pub transmission: u64,
    pub next_transmission: u64,
    pub packet_bytes: u64,
    /// Unless it was repeated.
    pub round_trip: Option<Span>,
    pub congested: bool,
}

impl Window {
    /// The window to begin with, for packets of this size.
    pub fn new(control: Control, packet_bytes: u32) -> Window {
        let floor_bytes = FLOOR_PACKETS * u64::from(packet_bytes);
        let (bytes, max_bytes) = match control {
            Control::Aimd { initial_bytes, max_bytes }
            | Control::Delay { initial_bytes, max_bytes, .. } => {
                (initial_bytes.min(max_bytes), Some(max_bytes))
            }
            Control::Fixed(bytes) => (bytes, None),
        };
        Window {
            bytes: bytes.max(floor_bytes),
            floor_bytes,
            max_bytes,
            threshold_bytes: u64::MAX,
            answered_bytes: 0,
            round_from: 0,
            delay: match control {
                Control::Delay { target, .. } => Some(Delay::new(target)),
                _ => None,
            },
            look: Look::default(),
        }
    }

    /// Probes the base round trip at the moments of a clock that other hosts share and that showed this at
    /// [`Time::ZERO`]; never with `None`.
    pub fn with_shared_phase(self, shared_phase: Option<Span>) -> Window {
        Window { look: Look::new(shared_phase), ..self }
    }

    /// How much may be on the way.
    #[inline]
    pub fn bytes(&self) -> u64 {
        if self.look.is_looking() { self.floor_bytes } else { self.bytes }
    }

    /// A packet was answered. Says whether its mark halved the window.
    #[inline]
    pub fn on_answer(&mut self, answer: &Answer) -> bool {
        let &Answer { now, transmission, next_transmission, packet_bytes, round_trip, .. } = answer;
        if let Some(delay) = &mut self.delay
            && let Some(judgement) =
                delay.on_answer(now, transmission, next_transmission, round_trip)
            && !self.look.is_looking()
        {
            self.obey(judgement);
        }
        if self.delay.is_some() {
            self.look.on_answer(now);
        }
        if answer.congested {
            return self.on_congestion(transmission, next_transmission);
        }
        self.grow(packet_bytes);
        false
    }

    /// A fragment was lost. Says whether that halved the window.
    pub fn on_loss(&mut self, transmission: u64, next_transmission: u64) -> bool {
        match &mut self.delay {
            Some(delay) => {
                delay.on_loss();
                false
            }
            None => self.on_congestion(transmission, next_transmission),
        }
    }

    /// Whether a lost packet makes room for another one before it is repaired.
    #[inline]
    pub fn forgives_losses(&self) -> bool {
        self.delay.is_some()
    }

    /// Panics where the window is narrower than its floor or wider than its limit.
    // spec: T-12
    pub fn check(&self) {
        let most = self.max_bytes.map_or(u64::MAX, |most| most.max(self.floor_bytes));
        let is_within = (self.floor_bytes..=most).contains(&self.bytes);
        assert!(is_within, "a window of {} bytes, not {} to {most}", self.bytes, self.floor_bytes);
        assert!(self.floor_bytes > 0, "a window of nothing stays closed");
    }

    fn obey(&mut self, judgement: Judgement) {
        let share = match judgement {
            Judgement::Empty => return,
            Judgement::Filling => {
                // It has been found how much fits: from here on slowly, so that windows become alike.
                self.threshold_bytes = self.threshold_bytes.min(self.bytes);
                return;
            }
            // Halving is enough for one round.
            Judgement::Crowded(share) => share.max(500),
            Judgement::Lossy => 500,
        };
        self.bytes = (self.bytes / 1_000 * share).max(self.floor_bytes);
        self.threshold_bytes = self.bytes;
        self.answered_bytes = 0;
    }

    #[inline]
    fn grow(&mut self, packet_bytes: u64) {
        let Some(max_bytes) = self.max_bytes else { return };
        if self.bytes >= self.threshold_bytes {
            self.answered_bytes += packet_bytes;
            if self.answered_bytes < self.bytes {
                return;
            }
            self.answered_bytes -= self.bytes;
        }
        self.bytes = (self.bytes + STEP_BYTES).min(max_bytes.max(self.floor_bytes));
    }

    /// Halves the window, unless that was done since the transmission left; says whether it did.
    fn on_congestion(&mut self, transmission: u64, next_transmission: u64) -> bool {
        if self.max_bytes.is_none() || transmission < self.round_from {
            return false;
        }
        self.bytes = (self.bytes / 2).max(self.floor_bytes);
        self.threshold_bytes = self.bytes;
        self.answered_bytes = 0;
        self.round_from = next_transmission;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(window: &mut Window, packets: u32) -> u64 {
        (0..packets).for_each(|_| window.grow(1_500));
        window.bytes()
    }

    // spec: A-34 machine
    #[test]
    fn it_grows_by_packets_then_by_windows() {
        let mut window = Window::new(Control::default(), 1_500);
        assert_eq!(window.bytes(), 60_000);
        assert_eq!(answered(&mut window, 1), 61_500);
        assert_eq!(answered(&mut window, 9), 75_000);
        assert!(window.on_congestion(3, 60));
        assert_eq!(window.bytes(), 37_500);
        // A window of 37,500 bytes is 25 packets.
        assert_eq!(answered(&mut window, 24), 37_500);
        assert_eq!(answered(&mut window, 1), 39_000);
        assert_eq!(answered(&mut window, 25), 39_000);
        assert_eq!(answered(&mut window, 1), 40_500);
    }

    // spec: A-34 machine
    #[test]
    fn one_round_halves_it_once() {
        let mut window = Window::new(Control::default(), 1_500);
        assert!(window.on_congestion(10, 40));
        assert!(!window.on_congestion(11, 41), "sent before the halving");
        assert!(!window.on_congestion(39, 80));
        assert_eq!(window.bytes(), 30_000);
        assert!(window.on_congestion(40, 80), "sent after it");
        assert_eq!(window.bytes(), 15_000);
        assert!(window.on_congestion(80, 90) && window.on_congestion(90, 91));
        assert_eq!(window.bytes(), 3_750);
        assert!(window.on_congestion(91, 92) && window.on_congestion(92, 93));
        assert_eq!(window.bytes(), 3_000, "two packets are left");
    }

    #[test]
    fn limits_hold() {
        let control = Control::Aimd { initial_bytes: 10_000, max_bytes: 12_000 };
        assert_eq!(answered(&mut Window::new(control, 1_500), 5), 12_000);
        assert_eq!(Window::new(control, 9_000).bytes(), 18_000);
        let mut fixed = Window::new(Control::Fixed(50_000), 1_500);
        assert!(!fixed.on_congestion(0, 1));
        assert_eq!(answered(&mut fixed, 100), 50_000);
        assert_eq!(Window::new(Control::Fixed(0), 1_500).bytes(), 3_000);
    }

    /// So many answers with this round trip; eight are a round.
    fn rounds(window: &mut Window, from: u64, count: u64, round_trip: Span) -> u64 {
        for transmission in from..from + count {
            window.on_answer(&Answer {
                now: Time::ZERO,
                transmission,
                next_transmission: transmission + 1,
                packet_bytes: 1_500,
                round_trip: Some(round_trip),
                congested: false,
            });
        }
        window.bytes()
    }

    #[test]
    fn waiting_ends_the_growth_and_losses_do_not() {
        let target = Span::from_ms(4);
        let control = Control::Delay { initial_bytes: 60_000, max_bytes: 900_000, target };
        let mut window = Window::new(control, 1_500);
        assert_eq!(rounds(&mut window, 0, 16, Span::from_ms(1)), 84_000, "quickly at first");
        assert!(!window.on_loss(16, 17), "by chance");
        assert_eq!(rounds(&mut window, 17, 16, Span::from_ms(1)), 108_000);
        // Nine milliseconds instead of five: down to five ninths, then slowly up.
        assert_eq!(rounds(&mut window, 33, 8, Span::from_ms(9)), 65_490);
        assert_eq!(rounds(&mut window, 41, 8, Span::from_ms(1)), 65_490);
        assert_eq!(rounds(&mut window, 49, 800, Span::from_ms(2)), 87_990);
        // Some waiting does not keep it from growing: so windows of two jobs become alike.
        assert!(rounds(&mut window, 849, 160, Span::from_ms(4)) > 89_000);
    }
}
