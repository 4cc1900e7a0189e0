//! TIMELY: a rate by the gradient of round trips (Mittal et al., 2015).
//!
//! A queue that grows makes each round trip longer than the last one, long before the queue is long. So between two
//! thresholds the rate falls in proportion to that gradient, and grows by steps while round trips become no longer.
//! Below the lower threshold it always grows, and above the upper one it always falls.
//!
//! The paper has round trips as thresholds, and one network; here they are queueing delays, on top of the round trip
//! of the uncongested path. It has a lossless network; here many losses are a full queue, and halve the rate. It begins with a
//! share of the line rate, which transports do not know: here the first packets leave at once, and their round trip
//! gives the rate.

use thalweg_core::{Bytes, Rate, Rng, Span, Time};

use super::classes::ClassFilter;
use super::queueing::{BaseRtt, Losses};
use super::{
    Acked, ControlError, ControlStart, Controller, DelaySettings, Lost, PacketInfo, SampledClasses,
    SentPacket, Settings,
};
use crate::recovery::DepartureClock;

/// Settings of TIMELY. The defaults are published ones, except where noted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Timely {
    /// Round trip of the uncongested path. Default none: the shortest that was measured.
    pub base: Option<Span>,
    /// Queueing delay below which the rate always grows. Default 25 µs; the paper has a round trip of 50 µs.
    pub target: Span,
    /// Step by which the rate grows, δ. Default 10 Mbps.
    pub step: Rate,
    /// Share of the gradient, or of the excess, by which the rate falls, β. Default 0.8.
    pub beta: f64,
    /// Weight of the last difference of round trips in their mean, α. Default 0.875.
    pub weight: f64,
    /// Classes whose round trips are read. Default all of them.
    pub classes: SampledClasses,
}

impl Default for Timely {
    fn default() -> Timely {
        Timely {
            base: None,
            target: Span::from_us(25),
            step: Rate::from_mbps(10),
            beta: 0.8,
            weight: 0.875,
            classes: SampledClasses::All,
        }
    }
}

/// Queueing delay above which the rate always falls, in targets: 500 µs with the default, as published.
const HIGH_TARGETS: u64 = 20;

/// Acknowledged bytes for which the rate moves once, or once a round trip if fewer are acknowledged in it: the least
/// segment of the paper.
const SEGMENT_BYTES: u64 = 16_000;

/// Moves in a row with round trips that become no longer, after which the rate grows by [`FAST_STEPS`].
const FAST_AFTER: u32 = 5;

/// Steps of a fast increase.
const FAST_STEPS: f64 = 5.0;

/// Largest share of the rate by which it falls at once, and by which a full queue lowers it. Not in the paper.
const MAX_DECREASE: f64 = 0.5;

/// Least rate, in steps. Not in the paper: a rate of zero would stay zero.
const MIN_STEPS: f64 = 0.1;

/// Least window, in packets: with fewer in flight, none would overtake a lost one.
const MIN_PACKETS: f64 = 2.0;

/// Packets that a busy interface held up and that may follow without a gap.
const LATE_PACKETS: u64 = 2;

impl Settings for Timely {
    type Running = Box<TimelyRate>;

    fn start(&self, start: &ControlStart) -> Box<TimelyRate> {
        let packet_bytes = f64::from(start.packet_bytes);
        Box::new(TimelyRate {
            settings: *self,
            packet_bytes,
            initial_bytes: f64::from(start.initial_packets) * packet_bytes,
            rate: None,
            base: BaseRtt::default(),
            last: Span::ZERO,
            difference_s: 0.0,
            moved_at: Time::ZERO,
            acked_bytes: 0,
            fast_after: FAST_AFTER,
            losses: Losses::default(),
            departures: DepartureClock::default(),
            classes: ClassFilter::new(self.classes),
        })
    }

    fn check(&self) -> Result<(), ControlError> {
        let control = "TIMELY";
        for (name, value) in [("beta", self.beta), ("weight", self.weight)] {
            if !(0.0..=1.0).contains(&value) {
                return Err(ControlError::Share { control, name, value });
            }
        }
        if self.target == Span::ZERO {
            return Err(ControlError::Zero { control, name: "target" });
        }
        Ok(())
    }

    fn by_delay(&mut self) -> DelaySettings<'_> {
        let Timely { target, base, classes, .. } = self;
        let (target, base, classes) = (Some(target), Some(base), Some(classes));
        DelaySettings { target, base, classes, shared_phase: None }
    }
}

/// The rate of one flow.
#[derive(Clone, Debug)]
pub(super) struct TimelyRate {
    settings: Timely,
    packet_bytes: f64,
    /// Window until a round trip was measured.
    initial_bytes: f64,
    /// Bytes a second. `None` until a round trip was measured.
    rate: Option<f64>,
    base: BaseRtt,
    /// Round trip at the last move of the rate.
    last: Span,
    /// Mean difference of consecutive round trips, in seconds.
    difference_s: f64,
    /// Time of the last move of the rate, and acknowledged bytes since.
    moved_at: Time,
    acked_bytes: u64,
    /// Moves with round trips that become no longer until increases are fast.
    fast_after: u32,
    losses: Losses,
    departures: DepartureClock,
    classes: ClassFilter,
}

impl TimelyRate {
    fn base(&self) -> Span {
        self.settings.base.or(self.base.shortest()).unwrap_or(Span::ZERO)
    }

    /// Round trip above which the rate always falls.
    fn high(&self) -> Span {
        self.base() + self.settings.target * HIGH_TARGETS
    }

    /// Moves the rate by a round trip.
    fn on_round_trip(&mut self, now: Time, round_trip: Span, is_in_use: bool) {
        let difference_s = round_trip.as_s_f64() - self.last.as_s_f64();
        self.difference_s += self.settings.weight * (difference_s - self.difference_s);
        (self.last, self.moved_at, self.acked_bytes) = (round_trip, now, 0);
        let (low, high) = (self.base() + self.settings.target, self.high());
        let gradient = self.difference_s / self.base().as_s_f64();
        if self.losses.are_many() {
            self.fall(MAX_DECREASE);
        } else if round_trip < low {
            self.fast_after = FAST_AFTER;
            self.grow(1.0, is_in_use);
        } else if round_trip > high {
            self.fast_after = FAST_AFTER;
            self.fall(self.settings.beta * (1.0 - high.as_s_f64() / round_trip.as_s_f64()));
        } else if gradient <= 0.0 {
            self.fast_after = self.fast_after.saturating_sub(1);
            self.grow(if self.fast_after == 0 { FAST_STEPS } else { 1.0 }, is_in_use);
        } else {
            self.fast_after = FAST_AFTER;
            self.fall(self.settings.beta * gradient);
        }
    }

    /// Rates that are not in use do not grow: the network has not shown that it carries more.
    fn grow(&mut self, steps: f64, is_in_use: bool) {
        if is_in_use {
            self.rate = self.rate.map(|rate| rate + steps * self.step());
        }
    }

    fn fall(&mut self, share: f64) {
        let least = MIN_STEPS * self.step();
        self.rate = self.rate.map(|rate| (rate * (1.0 - share.min(MAX_DECREASE))).max(least));
    }

    /// The step, in bytes a second.
    fn step(&self) -> f64 {
        self.settings.step.as_bps() as f64 / 8.0
    }
}

impl Controller for TimelyRate {
    fn on_sent(&mut self, packet: &SentPacket) -> Option<PacketInfo> {
        if let Some(rate) = self.rate {
            let gap = Span::from_s_f64(packet.bytes.as_u64() as f64 / rate);
            self.departures.advance(packet.now, gap, gap * LATE_PACKETS);
        }
        self.classes.is_on().then(|| PacketInfo::of(packet))
    }

    fn on_ack(&mut self, acked: &Acked, _rng: &mut Rng) -> bool {
        let Some(round_trip) = acked.round_trip.filter(|round_trip| *round_trip > Span::ZERO)
        else {
            return false;
        };
        if !self.classes.admits(acked) {
            return false;
        }
        self.base.learn(acked.now, round_trip);
        self.acked_bytes += acked.bytes.as_u64();
        self.losses.acked += 1;
        let Some(rate) = self.rate else {
            self.rate = Some(self.initial_bytes / round_trip.as_s_f64());
            (self.last, self.moved_at, self.acked_bytes) = (round_trip, acked.now, 0);
            return false;
        };
        if self.acked_bytes >= SEGMENT_BYTES || acked.now.since(self.moved_at) >= round_trip {
            let used = 2.0 * acked.in_flight.as_u64() as f64;
            self.on_round_trip(acked.now, round_trip, used >= rate * round_trip.as_s_f64());
        }
        false
    }

    fn on_loss(&mut self, _lost: &Lost) -> bool {
        self.losses.lost += 1;
        false
    }

    fn on_timeout(&mut self, _now: Time) {
        self.fall(MAX_DECREASE);
    }

    /// Bytes that leave in the longest accepted round trip. Not in the paper: when acknowledgements stop, so does the
    /// flow.
    #[inline]
    fn window(&self) -> Bytes {
        let bytes = match self.rate {
            Some(rate) => rate * self.high().as_s_f64(),
            None => self.initial_bytes,
        };
        Bytes::new(bytes.max(MIN_PACKETS * self.packet_bytes) as u64)
    }

    #[inline]
    fn earliest_departure(&self) -> Time {
        self.departures.next()
    }

    fn restart(&mut self) {
        self.losses = Losses::default();
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{acked, lost, rng};
    use super::*;

    /// Gbps of a rate in bytes a second.
    const GBPS: f64 = 1e9 / 8.0;
    /// Bytes a second of a step.
    const STEP: f64 = 0.01 * GBPS;

    /// Begins with 125 packets of 1,000 bytes on a path of 100 µs, which are 10 Gbps. The thresholds are 125 and
    /// 600 µs.
    fn timely() -> Box<TimelyRate> {
        let start = ControlStart { packet_bytes: 1_000, initial_packets: 125 };
        let mut timely = Timely::default().start(&start);
        assert_eq!(timely.window(), Bytes::new(125_000), "before anything was measured");
        assert_eq!(ack(&mut timely, 0, 100), 10.0 * GBPS);
        timely
    }

    /// One segment is acknowledged, with a full window in flight.
    fn ack(timely: &mut TimelyRate, us: u64, round_trip_us: u64) -> f64 {
        let (now, in_flight) = (Time::ZERO + Span::from_us(us), timely.window());
        let (bytes, round_trip) = (Bytes::new(SEGMENT_BYTES), Some(Span::from_us(round_trip_us)));
        timely.on_ack(&Acked { now, bytes, round_trip, in_flight, ..acked() }, &mut rng());
        timely.rate.expect("a round trip was measured")
    }

    #[test]
    fn below_the_lower_threshold_every_segment_adds_a_step() {
        let mut timely = timely();
        assert_eq!(ack(&mut timely, 10, 110), 10.0 * GBPS + STEP, "though round trips grow");
        assert_eq!(ack(&mut timely, 20, 120), 10.0 * GBPS + 2.0 * STEP);
        (3..30).for_each(|at| {
            ack(&mut timely, 10 * at, 100);
        });
        assert_eq!(timely.rate, Some(10.0 * GBPS + 29.0 * STEP), "and never fast");
    }

    #[test]
    fn between_the_thresholds_a_longer_round_trip_lowers_the_rate_in_proportion() {
        let mut timely = timely();
        // From 100 to 140 µs: a mean difference of 0.875 · 40 µs, 0.35 of the base; 1 − 0.8 · 0.35 = 0.72.
        let rate = ack(&mut timely, 10, 140);
        assert!((rate / GBPS - 7.2).abs() < 1e-9, "{rate}");
        assert!(ack(&mut timely, 20, 200) < rate);
    }

    #[test]
    fn round_trips_that_become_no_longer_add_a_step_and_five_after_a_while() {
        let mut timely = timely();
        ack(&mut timely, 10, 300);
        let mut rate = ack(&mut timely, 20, 200);
        let mut increases = Vec::new();
        for at in 3..9 {
            let next = ack(&mut timely, 10 * at, 200 - at);
            increases.push(((next - rate) / STEP).round() as u32);
            rate = next;
        }
        assert_eq!(increases, [1, 1, 1, 5, 5, 5]);
        assert!(ack(&mut timely, 100, 260) < rate, "it grows");
        assert_eq!(timely.fast_after, FAST_AFTER);
    }

    #[test]
    fn above_the_upper_threshold_the_rate_falls_though_round_trips_become_shorter() {
        let mut timely = timely();
        let rate = ack(&mut timely, 10, 1_000);
        // 1 − 0.8 · (1 − 600 ⁄ 800) = 0.8.
        assert!((ack(&mut timely, 20, 800) / rate - 0.8).abs() < 1e-9);
        let halved = ack(&mut timely, 30, 100_000);
        assert!((halved / rate - 0.4).abs() < 1e-9, "at most by half at once");
    }

    #[test]
    fn a_segment_moves_the_rate_once_and_a_round_trip_does() {
        let mut timely = timely();
        let mut small = |us: u64| {
            let (now, in_flight) = (Time::ZERO + Span::from_us(us), timely.window());
            let acked = Acked { now, in_flight, round_trip: Some(Span::from_us(100)), ..acked() };
            timely.on_ack(&acked, &mut rng());
            timely.rate
        };
        let moved = Some(10.0 * GBPS + STEP);
        assert_eq!([small(10), small(20), small(99)], [Some(10.0 * GBPS); 3]);
        assert_eq!([small(100), small(101)], [moved; 2]);
    }

    #[test]
    fn a_rate_that_is_not_in_use_does_not_grow() {
        let mut timely = timely();
        let (bytes, round_trip) = (Bytes::new(SEGMENT_BYTES), Some(Span::from_us(100)));
        timely.on_ack(&Acked { bytes, round_trip, ..acked() }, &mut rng());
        assert_eq!(timely.rate, Some(10.0 * GBPS), "a tenth of it was in flight");
    }

    #[test]
    fn packets_leave_at_the_rate() {
        let mut timely = timely();
        let (bytes, in_flight) = (Bytes::new(1_000), Bytes::ZERO);
        let now = Time::ZERO + Span::from_ms(1);
        (0..4).for_each(|_| {
            timely.on_sent(&SentPacket { now, bytes, in_flight, priority: 7 });
        });
        // 800 ns each, of which two packets may be late.
        assert_eq!(timely.earliest_departure(), now + Span::from_ns(1_600));
        let window = timely.window().as_u64();
        assert!((749_999..=750_000).contains(&window), "600 µs at 10 Gbps");
    }

    #[test]
    fn a_few_losses_are_chance_and_many_halve_the_rate() {
        for (losses, is_halved) in [(4, false), (16, true)] {
            let mut timely = timely();
            let was_cut = (0..losses).any(|number| timely.on_loss(&lost(number, 10)));
            assert!(!was_cut);
            let mut rate = 10.0 * GBPS;
            let mut falls = 0;
            for at in 1..80 {
                let next = ack(&mut timely, 10 * at, 100);
                falls += u32::from(next < 0.6 * rate);
                rate = next;
            }
            assert_eq!(falls, u32::from(is_halved), "{losses}");
        }
    }

    #[test]
    fn silence_leaves_a_little() {
        let mut timely = timely();
        (0..60).for_each(|_| timely.on_timeout(Time::ZERO));
        assert_eq!(timely.rate, Some(MIN_STEPS * STEP));
        assert_eq!(timely.window(), Bytes::new(2_000));
    }

    #[test]
    fn invalid_settings_are_refused() {
        let check = |settings: Timely| Settings::check(&settings).is_err();
        assert!(!check(Timely::default()));
        assert!(check(Timely { beta: f64::NAN, ..Timely::default() }));
        assert!(check(Timely { weight: 1.5, ..Timely::default() }));
        assert!(check(Timely { target: Span::ZERO, ..Timely::default() }));
    }
}
