//! A rate by the time that echoes take.
//!
//! Losses are tolerated, so all that is left for a rate control is to keep the network from collapsing.
//! It starts at line rate, and every echo moves it a little.

use thalweg_core::{Bytes, Rate, Rng, Span, Time};
use thiserror::Error;

use super::arrivals::ArrivalMeter;
use super::classes::ClassFilter;
use super::queueing::BaseRtt;
use super::{
    Acked, ControlError, ControlStart, Controller, DelaySettings, Lost, PacketInfo, SampledClasses,
    SentPacket, Settings,
};
use crate::recovery::DepartureClock;

/// Settings of a rate by delay. The defaults are those of the paper (MLT, §4.2.3), except where noted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DelayRate {
    /// The rate to start with, and the largest. Default 100 Gbps.
    pub line_rate: Rate,
    /// The least rate. Default 40 Mbps, one step: a rate of zero would stay zero. Not in the paper.
    pub floor: Rate,
    /// Below this round trip the rate grows. Default 12.5 µs.
    pub low: Span,
    /// Above this round trip the rate falls. Default 125 µs.
    pub high: Span,
    /// Base round trip up to which the two thresholds above hold; they grow with paths that take longer. Default 8 µs. Not in the paper.
    pub reference: Span,
    /// Step by which the rate grows. Default 40 Mbps.
    pub step: Rate,
    /// Share of the excess by which the rate falls, in thousandths. Default 800.
    pub decrease_permille: u32,
    /// Echoes that may lower the rate. Default those of packets that left since it last fell. Not in the paper.
    pub cuts: RateCuts,
    /// Delay of a packet that later ones may make up for: hosts are not punctual. Default 10 µs. Not in the
    /// paper.
    pub burst: Span,
    /// Classes whose round trips are read. Default all of them.
    pub classes: SampledClasses,
    /// Least rate that an echo may leave. Default `floor`, as published.
    pub cuts_to: RateFloor,
    /// Rate of a burst that begins. Default that of the link, as published.
    pub starts_at: RateStart,
}

/// Least rate that an echo may leave.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RateFloor {
    /// [`DelayRate::floor`], as published.
    Least,
    /// 0.85 of the rate at which packets arrive, as echoes report it: what arrives now, the network carries. When
    /// the round trip is acceptable again the rate goes back to that at once. After five round trips of growth it grows by
    /// a 64th of its share of the line rate a round trip.
    // spec: M-18
    Arrivals,
}

/// Rate of a burst that begins.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RateStart {
    /// The line rate at first, as published; then the rate with which the last burst ended.
    LineRate,
    /// The line rate, divided by the known number of nodes that send to the same receiver at the same time.
    // spec: M-19
    Shared,
}

/// Echoes that may lower the rate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RateCuts {
    /// All of them, as the paper has it. A full queue delays many packets, and each takes its share of the
    /// rate: it falls to the floor before the first packet at a lower rate has arrived.
    EveryEcho,
    /// Echoes of packets that left since the rate last fell: the others show the rate before.
    OnceARoundTrip,
}

impl Default for DelayRate {
    fn default() -> DelayRate {
        DelayRate {
            line_rate: Rate::from_gbps(100),
            floor: STEP,
            low: Span::from_ns(12_500),
            high: Span::from_us(125),
            reference: Span::from_us(8),
            step: STEP,
            decrease_permille: 800,
            cuts: RateCuts::OnceARoundTrip,
            burst: Span::from_us(10),
            classes: SampledClasses::All,
            cuts_to: RateFloor::Least,
            starts_at: RateStart::LineRate,
        }
    }
}

const STEP: Rate = Rate::from_mbps(40);

/// Share of the rate of arrival that a cut leaves at least, in percent.
const FLOOR_PERCENT: u128 = 85;

/// Part of the line rate, divided by the known senders, by which the rate grows in a round trip of fast growth: all of
/// them grow at once.
const GROWTH_PART: u64 = 64;

/// Round trips of growth in a row, after which growth is fast.
const FAST_AFTER: u32 = 5;

/// Reason why settings of a rate by delay are invalid. The configuration is at fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum DelayRateError {
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

impl Settings for DelayRate {
    type Running = Box<PacedRate>;

    fn start(&self, _start: &ControlStart) -> Box<PacedRate> {
        Box::new(PacedRate::new(*self))
    }

    fn check(&self) -> Result<(), ControlError> {
        Ok(self.check()?)
    }

    fn by_delay(&mut self) -> DelaySettings<'_> {
        DelaySettings { classes: Some(&mut self.classes), ..DelaySettings::default() }
    }
}

impl DelayRate {
    /// Checks the settings.
    pub fn check(&self) -> Result<(), DelayRateError> {
        if self.low >= self.high {
            return Err(DelayRateError::Thresholds { low: self.low, high: self.high });
        }
        if self.floor > self.line_rate {
            let (floor, line_rate) = (self.floor, self.line_rate);
            return Err(DelayRateError::Floor { floor, line_rate });
        }
        if !(1..=1_000).contains(&self.decrease_permille) {
            return Err(DelayRateError::Decrease(self.decrease_permille));
        }
        if self.reference == Span::ZERO {
            return Err(DelayRateError::Reference);
        }
        Ok(())
    }
}

/// The rate towards one peer.
// spec: M-08
#[derive(Clone, Debug)]
pub(super) struct PacedRate {
    config: DelayRate,
    rate: Rate,
    /// Round trip of the last echo.
    last: Option<Span>,
    base: BaseRtt,
    classes: ClassFilter,
    /// Time at which the rate last fell.
    fell_at: Option<Time>,
    departures: DepartureClock,
    arrivals: ArrivalMeter,
    growth: Growth,
    /// The line rate, divided by the known senders.
    share: Rate,
}

/// Round trips in which the rate grew, since it last fell.
#[derive(Clone, Copy, Debug, Default)]
struct Growth {
    round_trips: u32,
    /// Beginning of the current one.
    since: Time,
    /// Time at which the rate last grew.
    last: Time,
}

impl PacedRate {
    /// A control at line rate.
    pub fn new(config: DelayRate) -> PacedRate {
        PacedRate {
            rate: config.line_rate,
            config,
            last: None,
            base: BaseRtt::default(),
            classes: ClassFilter::new(config.classes),
            fell_at: None,
            departures: DepartureClock::default(),
            arrivals: ArrivalMeter::default(),
            growth: Growth::default(),
            share: config.line_rate,
        }
    }

    /// The rate now.
    #[cfg(test)]
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// An echo came back after `round_trip`.
    fn on_echo(&mut self, now: Time, round_trip: Span) {
        self.base.learn(now, round_trip);
        let has_fallen = self.last.is_some_and(|last| round_trip < last);
        self.last = Some(round_trip);
        let (low, high) = self.thresholds();
        if round_trip < low || has_fallen {
            self.grow(now, round_trip, high);
        }
        let is_new = match (self.config.cuts, self.fell_at) {
            (RateCuts::OnceARoundTrip, Some(fell_at)) => now.since(fell_at) >= round_trip,
            _ => true,
        };
        if round_trip > high && is_new {
            self.fell_at = Some(now);
            self.growth = Growth { round_trips: 0, since: now, last: now };
            let excess = u128::from((round_trip - high).as_ps());
            self.fall(excess, u128::from(round_trip.as_ps()));
        }
    }

    fn grow(&mut self, now: Time, round_trip: Span, high: Span) {
        let rate = self.rate.as_bps();
        let step = self.config.step.as_bps();
        if self.config.cuts_to == RateFloor::Least {
            return self.set(rate.saturating_add(step));
        }
        // spec: M-18
        let Growth { round_trips, since, last } = self.growth;
        let is_next = now.since(since) >= round_trip;
        let round_trips = round_trips.saturating_add(u32::from(is_next));
        self.growth = Growth { round_trips, since: if is_next { now } else { since }, last: now };
        let part = match round_trips >= FAST_AFTER {
            true => self.part(now.since(last), round_trip),
            false => 0,
        };
        let arrives = self.arrivals.rate().filter(|_| round_trip <= high);
        let rate = rate.max(arrives.map_or(0, Rate::as_bps));
        self.set(rate.saturating_add(step.max(part)));
    }

    /// Growth of the time since the last one, of which a round trip counts at most.
    fn part(&self, since: Span, round_trip: Span) -> u64 {
        let whole = u128::from(self.share.as_bps() / GROWTH_PART);
        let (since, round_trip) = (since.min(round_trip).as_ps(), round_trip.as_ps().max(1));
        (whole * u128::from(since) / u128::from(round_trip)) as u64
    }

    /// Round trips below which the rate grows, and above which it falls, on this path.
    fn thresholds(&self) -> (Span, Span) {
        let DelayRate { low, high, reference, .. } = self.config;
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
        // The cut is at most the whole rate. What arrives of a burst may be more than was sent on average.
        self.set(((bps - cut) as u64).max(self.arriving().min(self.rate.as_bps())));
    }

    /// Rate that a cut leaves at least.
    // spec: M-18
    fn arriving(&self) -> u64 {
        let arrives = match self.config.cuts_to {
            RateFloor::Least => None,
            RateFloor::Arrivals => self.arrivals.rate(),
        };
        // A share of what fits, fits.
        arrives.map_or(0, |rate| (u128::from(rate.as_bps()) * FLOOR_PERCENT / 100) as u64)
    }

    fn set(&mut self, bps: u64) {
        let rate = Rate::from_bps(bps).unwrap_or(self.config.floor);
        self.rate = rate.clamp(self.config.floor, self.config.line_rate);
    }
}

impl Controller for PacedRate {
    #[inline]
    fn on_sent(&mut self, packet: &SentPacket) -> Option<PacketInfo> {
        let gap = self.rate.serialization(packet.bytes);
        self.departures.advance(packet.now, gap, self.config.burst);
        self.classes.is_on().then(|| PacketInfo::of(packet))
    }

    #[inline]
    fn on_ack(&mut self, acked: &Acked, _rng: &mut Rng) -> bool {
        let Some(round_trip) = acked.round_trip else { return false };
        if let Some(arrived) = acked.arrived {
            self.arrivals.on_report(arrived, round_trip);
        }
        if self.classes.admits(acked) {
            self.on_echo(acked.now, round_trip);
        }
        false
    }

    // spec: M-19
    fn on_burst(&mut self, senders: u32) {
        self.arrivals.pause();
        if self.config.starts_at == RateStart::Shared {
            self.set(self.config.line_rate.as_bps() / u64::from(senders.max(1)));
            self.share = self.rate;
        }
    }

    /// Losses are tolerated.
    fn on_loss(&mut self, _lost: &Lost) -> bool {
        false
    }

    /// No answer in time is an echo that takes for ever.
    fn on_timeout(&mut self, _now: Time) {
        self.arrivals = ArrivalMeter::default();
        self.fall(1, 1);
    }

    fn window(&self) -> Bytes {
        Bytes::new(u64::MAX)
    }

    #[inline]
    fn earliest_departure(&self) -> Time {
        self.departures.next()
    }

    fn restart(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::super::ArrivalCount;
    use super::super::testing::{acked, rng};
    use super::*;

    fn mbps(mbps: u64) -> Rate {
        Rate::from_bps(mbps * 1_000_000).unwrap()
    }

    /// At line rate, after echoes with these round trips, by the published rule.
    fn rate_after(round_trips_us: &[u64]) -> Rate {
        rate_with(RateCuts::EveryEcho, round_trips_us)
    }

    fn rate_with(cuts: RateCuts, round_trips_us: &[u64]) -> Rate {
        let config = DelayRate { line_rate: mbps(10_000), cuts, ..DelayRate::default() };
        let mut control = PacedRate::new(config);
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
        let once = |round_trips_us: &[u64]| rate_with(RateCuts::OnceARoundTrip, round_trips_us);
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
        let mut control = PacedRate::new(DelayRate::default());
        control.on_timeout(Time::ZERO);
        assert_eq!(control.rate(), Rate::from_gbps(20));
        (0..60).for_each(|_| control.on_timeout(Time::ZERO));
        assert_eq!(control.rate(), mbps(40));
    }

    fn send(control: &mut PacedRate, now: Time) {
        let (bytes, in_flight) = (Bytes::new(1_000), Bytes::ZERO);
        control.on_sent(&SentPacket { now, bytes, in_flight, priority: 7 });
    }

    // spec: M-17 machine
    #[test]
    fn an_echo_from_behind_a_more_urgent_class_does_not_lower_the_rate() {
        let rate = |classes| {
            let config = DelayRate { line_rate: mbps(10_000), classes, ..DelayRate::default() };
            let mut control = PacedRate::new(config);
            for (us, priority) in [(8, 1), (250, 6), (8, 1)] {
                let round_trip = Some(Span::from_us(us));
                control
                    .on_ack(&Acked { round_trip, priority: Some(priority), ..acked() }, &mut rng());
            }
            control.rate()
        };
        assert_eq!(rate(SampledClasses::MostUrgent), mbps(10_000));
        assert!(rate(SampledClasses::All) < mbps(6_100));
    }

    /// A control at 10 Gbps that follows the rate of arrival, after echoes every 100 µs: round trip, and rate in Mbps
    /// at which packets arrived until then.
    fn by_arrivals(echoes: &[(u64, u64)]) -> PacedRate {
        let (line_rate, cuts_to) = (mbps(10_000), RateFloor::Arrivals);
        let mut control = PacedRate::new(DelayRate { line_rate, cuts_to, ..DelayRate::default() });
        let (mut now, mut bytes) = (Time::ZERO, 0);
        for &(us, arrives_mbps) in echoes {
            let arrived = Some(ArrivalCount { bytes, at: now });
            let round_trip = Some(Span::from_us(us));
            control.on_ack(&Acked { now, round_trip, arrived, ..acked() }, &mut rng());
            now += Span::from_us(100);
            bytes += 100 * arrives_mbps / 8;
        }
        control
    }

    // spec: M-18 machine
    #[test]
    fn a_cut_leaves_most_of_what_arrives() {
        assert_eq!(rate_after(&[80, 5_000]), mbps(4_000), "as published");
        let after = |arrives| by_arrivals(&[(80, arrives), (80, arrives), (5_000, 0)]).rate();
        assert_eq!(after(8_000), mbps(6_800), "0.85 of it");
        assert_eq!(after(2_000), mbps(4_000), "the cut itself leaves more");
        // More arrives than leaves, since packets that waited come together: no cut raises the rate.
        let mut echoes = vec![(80, 2_000), (80, 2_000), (5_000, 0), (300, 90_000), (300, 0)];
        let before = by_arrivals(&echoes).rate();
        echoes.push((5_000, 0));
        assert_eq!(by_arrivals(&echoes).rate(), before);
    }

    // spec: M-18 machine
    #[test]
    fn after_a_cut_the_rate_is_that_of_arrival_at_once_and_then_grows_ever_faster() {
        let mut echoes = vec![(80, 6_000), (80, 6_000), (5_000, 6_000)];
        assert_eq!(by_arrivals(&echoes).rate(), mbps(5_100));
        // Between the thresholds, and shorter than before: a step.
        echoes.push((100, 6_000));
        assert_eq!(by_arrivals(&echoes).rate(), mbps(6_040));
        let mut last = by_arrivals(&echoes).rate().as_bps();
        let mut steps = Vec::new();
        for us in [99, 98, 97, 96, 95] {
            echoes.push((us, 6_000));
            let rate = by_arrivals(&echoes).rate().as_bps();
            steps.push((rate - last) / 1_000_000);
            last = rate;
        }
        assert_eq!(steps, [40, 40, 40, 156, 156], "a 64th of the line rate");
    }

    // spec: M-19 machine
    #[test]
    fn a_burst_begins_with_its_share() {
        let burst = |starts_at, senders| {
            let line_rate = mbps(10_000);
            let mut control =
                PacedRate::new(DelayRate { line_rate, starts_at, ..DelayRate::default() });
            control.on_burst(senders);
            control.rate()
        };
        assert_eq!(burst(RateStart::Shared, 4), mbps(2_500));
        assert_eq!(burst(RateStart::Shared, 1), mbps(10_000));
        assert_eq!(burst(RateStart::Shared, 0), mbps(10_000));
        assert_eq!(burst(RateStart::Shared, u32::MAX), mbps(40), "the floor");
        assert_eq!(burst(RateStart::LineRate, 4), mbps(10_000), "as published");
    }

    #[test]
    fn packets_leave_at_the_rate() {
        let config = DelayRate { line_rate: mbps(8), burst: Span::ZERO, ..DelayRate::default() };
        let config = DelayRate { floor: mbps(1), ..config };
        let mut control = PacedRate::new(config);
        let mut now = Time::ZERO;
        for _ in 0..3 {
            send(&mut control, now);
            assert_eq!(control.earliest_departure(), now + Span::from_ms(1));
            now = control.earliest_departure();
        }
        // A late packet loses the time, but for what a burst makes up.
        now += Span::from_ms(5);
        control.config.burst = Span::from_us(300);
        send(&mut control, now);
        assert_eq!(control.earliest_departure(), now + Span::from_us(700));
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let config = DelayRate::default();
        assert_eq!(config.check(), Ok(()));
        let refused = |config: DelayRate| config.check().unwrap_err().to_string();
        assert!(refused(DelayRate { low: config.high, ..config }).contains("low"));
        assert!(refused(DelayRate { line_rate: mbps(1), ..config }).contains("floor"));
        let wrong = DelayRate { decrease_permille: 1_001, ..config };
        assert!(refused(wrong).contains("decrease_permille"));
        assert!(refused(DelayRate { reference: Span::ZERO, ..config }).contains("reference"));
    }
}
