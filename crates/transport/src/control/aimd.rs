//! Additive increase, multiplicative decrease in whole packets.

mod probe;

use thalweg_core::{Bytes, Rng, Span, Time};

use self::probe::BaseRttProbe;
use super::queueing::{QueueState, RoundJudge};
use super::{
    Acked, ControlStart, Controller, DelaySettings, Lost, PacketInfo, SampledClasses, SentPacket,
    Settings,
};

/// Settings of a window by additive increase and multiplicative decrease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Aimd {
    /// Window to begin with. Default 60 KB: the paper's 200 packets of 300 bytes, about the bandwidth-delay
    /// product of 100 Gbps.
    pub initial_bytes: u64,
    /// Largest window. Default 16 MB: 400 Gbps for 320 µs.
    pub max_bytes: u64,
    /// Events that decrease the window, beside marks. Default losses, as published.
    pub decrease: Decrease,
}

/// Events that decrease a window, beside marks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decrease {
    /// Each round with a loss halves the window.
    OnLoss,
    /// Queueing delay above a target decreases the window, as far as it is above. A loss alone does not.
    OnDelay {
        /// Time that packets may wait in queues.
        target: Span,
        /// Classes whose round trips are read.
        classes: SampledClasses,
        /// The time that a clock that all hosts share showed at [`Time::ZERO`], modulo one second: all senders
        /// probe the base round trip at the same moments of it, which they need to share a link fairly. Without
        /// such a clock none probes: one that probes alone measures the queues of the others.
        shared_phase: Option<Span>,
    },
}

impl Default for Aimd {
    fn default() -> Aimd {
        Aimd { initial_bytes: 60_000, max_bytes: 16_000_000, decrease: Decrease::OnLoss }
    }
}

impl Aimd {
    /// Settings for real networks: hosts that sleep between packets need more than a millisecond of them in
    /// flight. Much more makes longer bursts, which cost more than they bring.
    pub const DELAY: Aimd = Aimd {
        initial_bytes: 120_000,
        max_bytes: 16_000_000,
        decrease: Decrease::OnDelay {
            target: Span::from_us(1_500),
            classes: SampledClasses::All,
            shared_phase: None,
        },
    };
}

impl Settings for Aimd {
    type Running = AimdWindow;

    fn start(&self, start: &ControlStart) -> AimdWindow {
        AimdWindow::new(self, floor_bytes(start))
    }

    fn by_delay(&mut self) -> DelaySettings<'_> {
        match &mut self.decrease {
            Decrease::OnLoss => DelaySettings::default(),
            Decrease::OnDelay { target, classes, shared_phase } => DelaySettings {
                target: Some(target),
                classes: Some(classes),
                shared_phase: Some(shared_phase),
                base: None,
            },
        }
    }
}

/// Step by which the window grows: one packet of an Ethernet.
const STEP_BYTES: u64 = 1_500;

/// Part of the window that it may grow by quickly after a round in which nothing waited.
const REGROWTH: u64 = 4;

/// Packets that the window never goes below: with fewer in flight, none would overtake a lost one.
const FLOOR_PACKETS: u64 = 2;

/// Least window for packets of a size.
pub(super) fn floor_bytes(start: &ControlStart) -> u64 {
    FLOOR_PACKETS * u64::from(start.packet_bytes)
}

/// A window in whole bytes. Signals name the transmission that they are about, so that those of one round count
/// once.
// spec: A-34
#[derive(Clone, Debug)]
pub(super) struct AimdWindow {
    bytes: u64,
    floor_bytes: u64,
    max_bytes: u64,
    /// Window up to which every acknowledgement adds a step.
    threshold_bytes: u64,
    /// Acknowledged bytes since the last step above the threshold.
    acked_bytes: u64,
    /// First transmission after the last halving, which has answered the signals of earlier ones.
    round_from: u64,
    /// Judge of queues that decides in place of losses.
    by_delay: Option<Box<ByDelay>>,
}

/// Parts of a window that decreases by delay.
#[derive(Clone, Debug)]
struct ByDelay {
    judge: RoundJudge,
    probe: BaseRttProbe,
}

impl AimdWindow {
    fn new(settings: &Aimd, floor_bytes: u64) -> AimdWindow {
        let max_bytes = settings.max_bytes.max(floor_bytes);
        AimdWindow {
            bytes: settings.initial_bytes.clamp(floor_bytes, max_bytes),
            floor_bytes,
            max_bytes,
            threshold_bytes: u64::MAX,
            acked_bytes: 0,
            round_from: 0,
            by_delay: match settings.decrease {
                Decrease::OnLoss => None,
                Decrease::OnDelay { target, classes, shared_phase } => Some(Box::new(ByDelay {
                    judge: RoundJudge::new(target, classes),
                    probe: BaseRttProbe::new(shared_phase),
                })),
            },
        }
    }

    fn on_round(&mut self, state: QueueState) {
        match state {
            // A host that stopped for a moment looks like a queue. Once nothing waits, the window grows quickly again: a
            // packet in a round trip would take seconds to fill a fast link. All senders that share the link grow alike.
            QueueState::Empty => {
                self.threshold_bytes = self.threshold_bytes.max(self.bytes + self.bytes / REGROWTH);
            }
            // The capacity is known: from here on slowly, so that windows become alike.
            QueueState::Filling => self.threshold_bytes = self.threshold_bytes.min(self.bytes),
            QueueState::Crowded(share) => self.cut(self.bytes / 1_000 * share),
        }
    }

    /// Goes down to a window, and grows slowly from there.
    fn cut(&mut self, bytes: u64) {
        self.bytes = bytes.max(self.floor_bytes);
        self.threshold_bytes = self.bytes;
        self.acked_bytes = 0;
    }

    #[inline]
    fn grow(&mut self, acked_bytes: u64) {
        if self.bytes >= self.threshold_bytes {
            self.acked_bytes += acked_bytes;
            if self.acked_bytes < self.bytes {
                return;
            }
            self.acked_bytes -= self.bytes;
        }
        self.bytes = (self.bytes + STEP_BYTES).min(self.max_bytes);
    }

    /// Halves the window, unless that was done since the transmission left. Returns whether it did.
    fn on_congestion(&mut self, transmission: u64, next_transmission: u64) -> bool {
        if transmission < self.round_from {
            return false;
        }
        self.cut(self.bytes / 2);
        self.round_from = next_transmission;
        true
    }
}

impl ByDelay {
    /// Takes in an acknowledgement. Returns the state of the queues at the end of a round.
    #[inline]
    fn on_ack(&mut self, acked: &Acked) -> Option<QueueState> {
        let state = self.judge.on_ack(acked, 1).filter(|_| !self.probe.is_probing());
        self.probe.on_ack(acked.now);
        state
    }
}

impl Controller for AimdWindow {
    #[inline]
    fn on_sent(&mut self, packet: &SentPacket) -> Option<PacketInfo> {
        let is_needed = self.by_delay.as_ref().is_some_and(|delay| delay.judge.needs_info());
        is_needed.then(|| PacketInfo::of(packet))
    }

    #[inline]
    fn on_ack(&mut self, acked: &Acked, _rng: &mut Rng) -> bool {
        let state = self.by_delay.as_mut().and_then(|delay| delay.on_ack(acked));
        if let Some(state) = state {
            self.on_round(state);
        }
        if acked.congested {
            return self.on_congestion(acked.transmission, acked.next_transmission);
        }
        self.grow(acked.bytes.as_u64());
        false
    }

    fn on_loss(&mut self, lost: &Lost) -> bool {
        match &mut self.by_delay {
            Some(delay) => {
                delay.judge.on_loss();
                false
            }
            None => self.on_congestion(lost.transmission, lost.next_transmission),
        }
    }

    /// A timeout of a fragment names the transmission, which is a loss. Silence alone says that a peer is late.
    fn on_timeout(&mut self, _now: Time) {}

    #[inline]
    fn window(&self) -> Bytes {
        let is_probing = self.by_delay.as_ref().is_some_and(|delay| delay.probe.is_probing());
        Bytes::new(if is_probing { self.floor_bytes } else { self.bytes })
    }

    #[inline]
    fn frees_lost_packets(&self) -> bool {
        self.by_delay.is_some()
    }

    fn restart(&mut self) {
        self.round_from = 0;
        if let Some(delay) = &mut self.by_delay {
            delay.judge.restart();
        }
    }

    // spec: T-12
    fn check(&self) {
        let is_within = (self.floor_bytes..=self.max_bytes).contains(&self.bytes);
        let (least, most) = (self.floor_bytes, self.max_bytes);
        assert!(is_within, "a window of {} bytes, not {least} to {most}", self.bytes);
        assert!(self.floor_bytes > 0, "a window of nothing stays closed");
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{acked, lost, rng};
    use super::*;

    fn window(settings: Aimd, packet_bytes: u32) -> AimdWindow {
        settings.start(&ControlStart { packet_bytes, initial_packets: 10 })
    }

    fn grown(window: &mut AimdWindow, packets: u32) -> u64 {
        (0..packets).for_each(|_| window.grow(1_500));
        window.window().as_u64()
    }

    // spec: A-34 machine
    #[test]
    fn it_grows_by_packets_then_by_windows() {
        let mut window = window(Aimd::default(), 1_500);
        assert_eq!(window.window().as_u64(), 60_000);
        assert_eq!(grown(&mut window, 1), 61_500);
        assert_eq!(grown(&mut window, 9), 75_000);
        assert!(window.on_loss(&lost(3, 60)));
        assert_eq!(window.window().as_u64(), 37_500);
        // A window of 37,500 bytes is 25 packets.
        assert_eq!(grown(&mut window, 24), 37_500);
        assert_eq!(grown(&mut window, 1), 39_000);
        assert_eq!(grown(&mut window, 25), 39_000);
        assert_eq!(grown(&mut window, 1), 40_500);
    }

    // spec: A-34 machine
    #[test]
    fn one_round_halves_it_once() {
        let mut window = window(Aimd::default(), 1_500);
        assert!(window.on_loss(&lost(10, 40)));
        assert!(!window.on_loss(&lost(11, 41)), "sent before the halving");
        assert!(!window.on_loss(&lost(39, 80)));
        assert_eq!(window.window().as_u64(), 30_000);
        assert!(window.on_loss(&lost(40, 80)), "sent after it");
        assert_eq!(window.window().as_u64(), 15_000);
        assert!(window.on_loss(&lost(80, 90)) && window.on_loss(&lost(90, 91)));
        assert_eq!(window.window().as_u64(), 3_750);
        assert!(window.on_loss(&lost(91, 92)) && window.on_loss(&lost(92, 93)));
        assert_eq!(window.window().as_u64(), 3_000, "two packets are left");
    }

    #[test]
    fn limits_hold() {
        let settings = Aimd { initial_bytes: 10_000, max_bytes: 12_000, ..Aimd::default() };
        assert_eq!(grown(&mut window(settings, 1_500), 5), 12_000);
        assert_eq!(window(settings, 9_000).window().as_u64(), 18_000);
    }

    /// Acknowledgements with one round trip; eight are a round.
    fn rounds(window: &mut AimdWindow, from: u64, count: u64, round_trip: Span) -> u64 {
        for transmission in from..from + count {
            let acked = Acked {
                transmission,
                next_transmission: transmission + 1,
                bytes: Bytes::new(1_500),
                round_trip: Some(round_trip),
                ..acked()
            };
            window.on_ack(&acked, &mut rng());
        }
        window.window().as_u64()
    }

    #[test]
    fn waiting_ends_the_growth_and_losses_do_not() {
        let (target, classes) = (Span::from_ms(4), SampledClasses::All);
        let decrease = Decrease::OnDelay { target, classes, shared_phase: None };
        let mut window =
            window(Aimd { initial_bytes: 60_000, max_bytes: 900_000, decrease }, 1_500);
        assert_eq!(rounds(&mut window, 0, 16, Span::from_ms(1)), 84_000, "quickly at first");
        assert!(!window.on_loss(&lost(16, 17)), "by chance");
        assert_eq!(rounds(&mut window, 17, 16, Span::from_ms(1)), 108_000);
        // Nine milliseconds instead of five: down to five ninths, then slowly up while packets wait.
        assert_eq!(rounds(&mut window, 33, 8, Span::from_ms(9)), 65_490);
        assert_eq!(rounds(&mut window, 41, 80, Span::from_ms(4)), 66_990);
        // Some waiting does not keep it from growing: so windows of two jobs become alike.
        assert_eq!(rounds(&mut window, 121, 160, Span::from_ms(4)), 72_990);
        // By a quarter in each of five rounds in which nothing waits.
        let before = window.window().as_u64();
        let grown = rounds(&mut window, 281, 40, Span::from_ms(1));
        assert!((before * 3 / 2..before * 3).contains(&grown), "{grown}");
    }
}
