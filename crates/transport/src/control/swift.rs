//! Swift: keep the round trip at a target by additive increase and multiplicative decrease (Kumar et al., 2020).
//!
//! The target is that of the fabric, with flow scaling. Hosts do not know the number of hops, which topology
//! scaling needs; in its place stands the round trip of the uncongested path. The window for the delay inside of
//! hosts is left out: acknowledgements carry no time stamps of the receiver's host.

use thalweg_core::{Bytes, Rng, Span, Time};

use super::classes::ClassFilter;
use super::queueing::BaseRtt;
use super::{
    Acked, ControlError, ControlStart, Controller, DelaySettings, Lost, PacketInfo, SampledClasses,
    SentPacket, Settings,
};

/// Settings of Swift. The defaults are published ones, except where noted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Swift {
    /// Round trip of the uncongested path. Default none: the shortest that was measured. A flow that begins
    /// beside others measures their queues, and takes a larger share than they have.
    pub base: Option<Span>,
    /// Queueing delay that a large window accepts. Default 25 µs.
    pub target: Span,
    /// Delay that the smallest window accepts on top: many flows make queues longer. Default 25 µs.
    pub scaling: Span,
    /// Packets by which the window grows in a round trip. Default 1.
    pub increase_packets: f64,
    /// Share of the excess by which the window falls, β. Default 0.8.
    pub beta: f64,
    /// Largest share of the window by which it falls at once. Default 0.5.
    pub max_decrease: f64,
    /// Classes whose round trips are read. Default all of them.
    pub classes: SampledClasses,
}

impl Default for Swift {
    fn default() -> Swift {
        Swift {
            base: None,
            target: Span::from_us(25),
            scaling: Span::from_us(25),
            increase_packets: 1.0,
            beta: 0.8,
            max_decrease: 0.5,
            classes: SampledClasses::All,
        }
    }
}

/// Least window, in packets. Below one, a packet leaves every few round trips.
const MIN_PACKETS: f64 = 0.01;

/// Largest window, in packets.
const MAX_PACKETS: f64 = 65_536.0;

/// Windows between which flow scaling acts, in packets.
const SCALED_PACKETS: (f64, f64) = (0.1, 100.0);

/// Timeouts in a row after which the window begins again from the least one.
const RESET_TIMEOUTS: u32 = 5;

impl Settings for Swift {
    type Running = Box<SwiftWindow>;

    fn start(&self, start: &ControlStart) -> Box<SwiftWindow> {
        Box::new(SwiftWindow {
            settings: *self,
            packet_bytes: f64::from(start.packet_bytes),
            packets: f64::from(start.initial_packets),
            base: BaseRtt::default(),
            round_trip: Span::ZERO,
            decreased_at: None,
            timeouts: 0,
            next_departure: Time::ZERO,
            classes: ClassFilter::new(self.classes),
        })
    }

    fn check(&self) -> Result<(), ControlError> {
        let control = "Swift";
        for (name, value) in [("beta", self.beta), ("max_decrease", self.max_decrease)] {
            if !(0.0..=1.0).contains(&value) {
                return Err(ControlError::Share { control, name, value });
            }
        }
        if self.target == Span::ZERO {
            return Err(ControlError::Zero { control, name: "target" });
        }
        if self.increase_packets.is_nan() || self.increase_packets <= 0.0 {
            return Err(ControlError::Zero { control, name: "increase_packets" });
        }
        Ok(())
    }

    fn by_delay(&mut self) -> DelaySettings<'_> {
        let Swift { target, base, classes, .. } = self;
        let (target, base, classes) = (Some(target), Some(base), Some(classes));
        DelaySettings { target, base, classes, shared_phase: None }
    }
}

/// The window of one flow.
#[derive(Clone, Debug)]
pub(super) struct SwiftWindow {
    settings: Swift,
    packet_bytes: f64,
    /// The window, in packets. It may be below one.
    packets: f64,
    base: BaseRtt,
    /// Last round trip.
    round_trip: Span,
    /// Time of the last decrease: one a round trip.
    decreased_at: Option<Time>,
    /// Timeouts since the last acknowledgement.
    timeouts: u32,
    /// Earliest departure of the next packet, while the window is below one packet.
    next_departure: Time,
    classes: ClassFilter,
}

impl SwiftWindow {
    /// Round trip at which the window stays as it is.
    fn target(&self) -> Span {
        let base = self.settings.base.or(self.base.shortest()).unwrap_or(Span::ZERO);
        base + self.settings.target + self.scaling()
    }

    /// Delay that a small window accepts on top: α ⁄ √w + β, between 0 and the whole range.
    fn scaling(&self) -> Span {
        let (least, most) = SCALED_PACKETS;
        let inverse_root = |packets: f64| 1.0 / libm::sqrt(packets);
        let share = (inverse_root(self.packets) - inverse_root(most))
            / (inverse_root(least) - inverse_root(most));
        Span::from_s_f64(self.settings.scaling.as_s_f64() * share.clamp(0.0, 1.0))
    }

    fn grow(&mut self, acked_packets: f64) {
        let increase = self.settings.increase_packets * acked_packets;
        let packets =
            self.packets + if self.packets >= 1.0 { increase / self.packets } else { increase };
        self.set(packets);
    }

    /// Multiplies the window, unless it fell less than a round trip ago. Returns whether it fell.
    fn decrease(&mut self, now: Time, factor: f64) -> bool {
        if self.decreased_at.is_some_and(|at| now.since(at) < self.round_trip) {
            return false;
        }
        self.decreased_at = Some(now);
        self.set(self.packets * factor.max(1.0 - self.settings.max_decrease));
        true
    }

    fn set(&mut self, packets: f64) {
        self.packets = packets.clamp(MIN_PACKETS, MAX_PACKETS);
    }
}

impl Controller for SwiftWindow {
    fn on_sent(&mut self, packet: &SentPacket) -> Option<PacketInfo> {
        if self.packets < 1.0 {
            let gap = Span::from_s_f64(self.round_trip.as_s_f64() / self.packets);
            self.next_departure = packet.now + gap;
        }
        self.classes.is_on().then(|| PacketInfo::of(packet))
    }

    fn on_ack(&mut self, acked: &Acked, _rng: &mut Rng) -> bool {
        self.timeouts = 0;
        let Some(round_trip) = acked.round_trip else { return false };
        if !self.classes.admits(acked) {
            return false;
        }
        self.base.learn(acked.now, round_trip);
        self.round_trip = round_trip;
        let target = self.target();
        if round_trip < target {
            // Windows that are not in use do not grow: the network has not shown that it carries more.
            if 2.0 * acked.in_flight.as_u64() as f64 >= self.packets * self.packet_bytes {
                self.grow(acked.bytes.as_u64() as f64 / self.packet_bytes);
            }
            return false;
        }
        let excess = (round_trip - target).as_s_f64() / round_trip.as_s_f64();
        self.decrease(acked.now, 1.0 - self.settings.beta * excess);
        false
    }

    fn on_loss(&mut self, lost: &Lost) -> bool {
        self.decrease(lost.now, 0.0)
    }

    fn on_timeout(&mut self, now: Time) {
        self.timeouts += 1;
        if self.timeouts >= RESET_TIMEOUTS {
            self.set(MIN_PACKETS);
        } else {
            self.decrease(now, 0.0);
        }
    }

    #[inline]
    fn window(&self) -> Bytes {
        // Below one packet the time of departure limits the flow.
        Bytes::new((self.packets.max(1.0) * self.packet_bytes) as u64)
    }

    #[inline]
    fn earliest_departure(&self) -> Time {
        if self.packets < 1.0 { self.next_departure } else { Time::ZERO }
    }

    fn restart(&mut self) {
        self.next_departure = Time::ZERO;
        self.timeouts = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{acked, lost, rng};
    use super::*;

    fn swift() -> Box<SwiftWindow> {
        let settings = Swift { scaling: Span::ZERO, ..Swift::default() };
        settings.start(&ControlStart { packet_bytes: 1_000, initial_packets: 10 })
    }

    fn ack(swift: &mut SwiftWindow, us: u64, round_trip_us: u64) -> f64 {
        let now = Time::ZERO + Span::from_us(us);
        let (round_trip, in_flight) = (Some(Span::from_us(round_trip_us)), swift.window());
        swift.on_ack(&Acked { now, round_trip, in_flight, ..acked() }, &mut rng());
        swift.packets
    }

    #[test]
    fn below_the_target_a_window_of_acknowledgements_adds_one_packet() {
        let mut swift = swift();
        (0..10).for_each(|at| {
            ack(&mut swift, at, 100);
        });
        assert!((10.9..=11.0).contains(&swift.packets), "{}", swift.packets);
    }

    #[test]
    fn above_the_target_it_falls_in_proportion_once_a_round_trip() {
        let mut swift = swift();
        ack(&mut swift, 0, 100);
        let before = swift.packets;
        // Target 125 µs: 1 − 0.8 · (250 − 125) ⁄ 250 = 0.6.
        assert!((ack(&mut swift, 1, 250) - 0.6 * before).abs() < 1e-9);
        assert!(
            (ack(&mut swift, 250, 250) - 0.6 * before).abs() < 1e-9,
            "less than a round trip ago"
        );
        assert!((ack(&mut swift, 20_000, 10_000) - 0.3 * before).abs() < 1e-9, "at most by half");
    }

    #[test]
    fn a_window_below_one_packet_waits_between_packets() {
        let mut swift = swift();
        ack(&mut swift, 0, 100);
        (1..6).for_each(|at| {
            ack(&mut swift, 20_000 * at, 10_000);
        });
        assert!(swift.packets < 1.0, "{}", swift.packets);
        assert_eq!(swift.window().as_u64(), 1_000);
        let now = Time::ZERO + Span::from_s(1);
        let (bytes, in_flight) = (Bytes::new(1_000), Bytes::ZERO);
        swift.on_sent(&SentPacket { now, bytes, in_flight, priority: 7 });
        let gap = swift.earliest_departure().since(now);
        assert!(gap > Span::from_ms(10), "{gap}");
    }

    #[test]
    fn small_windows_accept_more_delay() {
        let start = ControlStart { packet_bytes: 1_000, initial_packets: 100 };
        let mut swift = Swift::default().start(&start);
        assert_eq!(swift.target(), Span::from_us(25));
        swift.set(0.1);
        assert_eq!(swift.target(), Span::from_us(50));
        swift.set(4.0);
        assert!(swift.target() > Span::from_us(25) && swift.target() < Span::from_us(40));
    }

    #[test]
    fn losses_halve_it_and_silence_begins_again() {
        let mut swift = swift();
        ack(&mut swift, 0, 100);
        let before = swift.packets;
        assert!(swift.on_loss(&lost(0, 10)));
        assert!(!swift.on_loss(&lost(1, 10)), "within a round trip");
        assert!((swift.packets - before / 2.0).abs() < 1e-9);
        (0..RESET_TIMEOUTS).for_each(|_| swift.on_timeout(Time::ZERO + Span::from_s(1)));
        assert_eq!(swift.packets, MIN_PACKETS);
    }

    #[test]
    fn invalid_settings_are_refused() {
        let check = |settings: Swift| Settings::check(&settings).is_err();
        assert!(!check(Swift::default()));
        assert!(check(Swift { beta: 2.0, ..Swift::default() }));
        assert!(check(Swift { target: Span::ZERO, ..Swift::default() }));
        assert!(check(Swift { increase_packets: f64::NAN, ..Swift::default() }));
    }
}
