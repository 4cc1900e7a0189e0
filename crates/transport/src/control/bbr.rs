//! BBR: send at the rate of the bottleneck, with little more in flight than it holds (Cardwell et al., 2016).
//!
//! Version 1 as published, with what Linux does where the paper is silent. Left out is what came to Linux
//! later or concerns other networks: the rate limiters of providers that drop what is above a rate
//! (long-term sampling), and answers that are held back and come in bursts. Marks mean nothing to it.

mod delivery;
mod pipe;

use thalweg_core::{Bytes, Rng, Span, Time};

use super::{Acked, ControlStart, Controller, Lost, PacketInfo, SentPacket, Settings};
use crate::recovery::DepartureClock;
use delivery::DeliveryRate;
use pipe::{Pipe, Rounds};

/// The least gain that doubles the rate every round trip: 2 / ln 2.
const HIGH_GAIN: f64 = 2.885;

/// Factors of the rate, one round trip each: look for more, let the queue of that drain, go on.
const CYCLE_GAINS: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];

/// Window in products of rate and round trip while probing for rate, so that late answers stop nothing.
const CYCLE_WINDOW_GAIN: f64 = 2.0;

/// Packets on top of a window: at the sender, on the wire, and one that is being answered.
const QUANTA: f64 = 3.0;

/// Window while the base round trip is probed, and the least one otherwise.
const LEAST_PACKETS: f64 = 4.0;

/// Time for which a round trip counts as that of the uncongested path.
const MIN_RTT_LASTS: Span = Span::from_s(10);

/// Duration of a probe of the base round trip, during which nearly nothing is sent.
const PROBE_RTT_LASTS: Span = Span::from_ms(200);

/// Send a little less than was measured, so that queues do not stand.
const PACING_MARGIN: f64 = 0.99;

/// A round trip to begin with, before anything was measured.
const INITIAL_RTT_S: f64 = 1e-3;

/// Packets that a busy interface held up and that may follow without a gap.
const LATE_PACKETS: u64 = 2;

/// BBR, version 1. It has no settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bbr;

impl Settings for Bbr {
    type Running = Box<BbrModel>;

    fn start(&self, start: &ControlStart) -> Box<BbrModel> {
        Box::new(BbrModel::new(Bytes::from(start.packet_bytes), start.initial_packets))
    }
}

/// BBR of one flow: a model of the path, and what follows from it.
// spec: C-14
#[derive(Clone, Debug)]
pub(super) struct BbrModel {
    segment: f64,
    initial_window: f64,
    window: f64,
    /// Window before a loss, or before a probe of the base round trip.
    prior_window: f64,
    /// Bytes a second.
    pacing_rate: f64,
    state: State,
    delivery: DeliveryRate,
    rounds: Rounds,
    pipe: Pipe,
    min_rtt: Option<MinRtt>,
    recovery: Recovery,
    /// Since the phase of the cycle began.
    has_lost: bool,
    /// Nothing came back yet since the last flow ended.
    was_idle: bool,
    /// Bytes in flight before the last acknowledgement.
    in_flight: f64,
    departures: DepartureClock,
    /// Losses of transmissions below this number were answered already.
    loss_end: u64,
}

/// Phases of BBR.
#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    /// Doubles the rate until that brings no more.
    Startup,
    /// Lets the queue go that the search for the rate has built.
    Drain,
    /// Goes at the measured rate, and tries a little more from time to time.
    ProbeBandwidth { phase: usize, since: Time },
    /// Sends next to nothing, to see the uncongested path.
    ProbeRtt {
        /// End of the probe: known once little is in flight.
        until: Option<Time>,
        /// True if a round has passed since then.
        has_passed_round: bool,
    },
}

#[derive(Clone, Copy, Debug)]
struct MinRtt {
    span: Span,
    seen_at: Time,
}

/// Progress of the repair of a loss.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Recovery {
    None,
    /// For a round, only as much is sent as arrives.
    Conserving,
    /// The window grows again.
    Growing,
}

impl State {
    /// Factors of the rate, and of the product of rate and round trip that gives the window.
    fn gains(self) -> (f64, f64) {
        match self {
            State::Startup => (HIGH_GAIN, HIGH_GAIN),
            State::Drain => (1.0 / HIGH_GAIN, HIGH_GAIN),
            State::ProbeBandwidth { phase, .. } => (CYCLE_GAINS[phase], CYCLE_WINDOW_GAIN),
            State::ProbeRtt { .. } => (1.0, 1.0),
        }
    }
}

impl BbrModel {
    pub fn new(segment: Bytes, initial_packets: u32) -> BbrModel {
        let segment = segment.as_u64() as f64;
        let initial_window = f64::from(initial_packets) * segment;
        BbrModel {
            segment,
            initial_window,
            window: initial_window,
            prior_window: initial_window,
            pacing_rate: HIGH_GAIN * initial_window / INITIAL_RTT_S,
            state: State::Startup,
            delivery: DeliveryRate::default(),
            rounds: Rounds::default(),
            pipe: Pipe::default(),
            min_rtt: None,
            recovery: Recovery::None,
            has_lost: false,
            was_idle: false,
            in_flight: 0.0,
            departures: DepartureClock::default(),
            loss_end: 0,
        }
    }

    /// Learns what an acknowledgement says about the path. Returns whether a round begins.
    fn observe(&mut self, acked: &Acked) -> bool {
        let Some(sample) = self.delivery.on_ack(acked) else { return false };
        let least = self.min_rtt.map_or(Span::ZERO, |least| least.span);
        let begins_round =
            self.rounds.on_ack(sample.prior_delivered_bytes, self.delivery.delivered_bytes());
        if begins_round {
            self.pipe.begin_round();
        }
        // What took less than a round trip is an artefact of how answers came.
        if sample.interval >= least && sample.interval > Span::ZERO {
            self.pipe.see(sample.bytes as f64 / sample.interval.as_s_f64());
        }
        if begins_round {
            self.pipe.judge();
        }
        begins_round
    }

    /// Bytes in flight when the bottleneck is just busy, times `gain`. `None` before the first sample.
    fn product(&self, gain: f64) -> Option<f64> {
        let rate = self.pipe.rate().filter(|&rate| rate > 0.0)?;
        let min_rtt = self.min_rtt?.span.as_s_f64();
        Some(gain * rate * min_rtt)
    }

    /// Bytes that may be in flight with a gain.
    fn target(&self, gain: f64) -> f64 {
        self.product(gain).map_or(self.initial_window, |bytes| bytes + QUANTA * self.segment)
    }

    /// Moves on in the cycle, and from state to state.
    fn step(&mut self, acked: &Acked, rng: &mut Rng) {
        let in_flight = acked.in_flight.as_u64() as f64;
        match self.state {
            State::Startup if self.pipe.is_full() => self.state = State::Drain,
            State::ProbeBandwidth { phase, since }
                if self.ends_phase(phase, acked.now.since(since), in_flight) =>
            {
                self.begin_phase(acked.now, (phase + 1) % CYCLE_GAINS.len());
            }
            _ => {}
        }
        if self.state == State::Drain && in_flight <= self.target(1.0) {
            self.begin_cycle(acked.now, rng);
        }
    }

    fn ends_phase(&self, phase: usize, lasted: Span, in_flight: f64) -> bool {
        let is_long = self.min_rtt.is_none_or(|least| lasted > least.span);
        let gain = CYCLE_GAINS[phase];
        if gain > 1.0 {
            // Until enough was in flight that a higher rate would have shown, or did not fit. A flow that its
            // own host's link holds up stays here: what waits in the host is not in flight, and fills no queue.
            is_long && (self.has_lost || in_flight >= self.target(gain))
        } else if gain < 1.0 {
            is_long || in_flight <= self.target(1.0)
        } else {
            is_long
        }
    }

    /// Anywhere in the cycle but where the rate is lowered, so that flows do not probe together.
    fn begin_cycle(&mut self, now: Time, rng: &mut Rng) {
        let behind = rng.below(CYCLE_GAINS.len() as u64 - 1) as usize;
        let phase = if behind == 0 { 0 } else { behind + 1 };
        self.begin_phase(now, phase);
    }

    fn begin_phase(&mut self, now: Time, phase: usize) {
        self.state = State::ProbeBandwidth { phase, since: now };
        self.has_lost = false;
    }

    /// Keeps the least round trip, and looks again when it is old.
    fn update_min_rtt(&mut self, acked: &Acked, begins_round: bool, rng: &mut Rng) {
        let now = acked.now;
        let is_old = self.min_rtt.is_some_and(|least| now.since(least.seen_at) > MIN_RTT_LASTS);
        if let Some(round_trip) = acked.round_trip
            && (is_old || self.min_rtt.is_none_or(|least| round_trip <= least.span))
        {
            if self.min_rtt.is_none() && self.pipe.rate().is_none() {
                self.pacing_rate =
                    HIGH_GAIN * self.initial_window / round_trip.as_s_f64().max(1e-9);
            }
            self.min_rtt = Some(MinRtt { span: round_trip, seen_at: now });
        }
        let is_probing = matches!(self.state, State::ProbeRtt { .. });
        if is_old && !self.was_idle && !is_probing {
            self.save_window();
            self.state = State::ProbeRtt { until: None, has_passed_round: false };
        }
        if let State::ProbeRtt { until, has_passed_round } = self.state {
            self.probe_rtt(acked, until, has_passed_round || begins_round, rng);
        }
        self.was_idle = false;
    }

    fn probe_rtt(
        &mut self,
        acked: &Acked,
        until: Option<Time>,
        has_passed_round: bool,
        rng: &mut Rng,
    ) {
        let now = acked.now;
        match until {
            None if acked.in_flight.as_u64() as f64 <= LEAST_PACKETS * self.segment => {
                self.rounds.begin(self.delivery.delivered_bytes());
                let until = Some(now + PROBE_RTT_LASTS);
                self.state = State::ProbeRtt { until, has_passed_round: false };
            }
            None => {}
            Some(end) if has_passed_round && now >= end => {
                if let Some(least) = &mut self.min_rtt {
                    least.seen_at = now;
                }
                self.window = self.window.max(self.prior_window);
                if self.pipe.is_full() {
                    self.begin_cycle(now, rng);
                } else {
                    self.state = State::Startup;
                }
            }
            Some(_) => self.state = State::ProbeRtt { until, has_passed_round },
        }
    }

    fn save_window(&mut self) {
        let is_whole =
            self.recovery == Recovery::None && !matches!(self.state, State::ProbeRtt { .. });
        self.prior_window = if is_whole { self.window } else { self.prior_window.max(self.window) };
    }

    fn set_pacing_rate(&mut self) {
        let Some(rate) = self.pipe.rate() else { return };
        let (gain, _) = self.state.gains();
        let wanted = gain * rate * PACING_MARGIN;
        // Before the rate is known, a slow round says nothing.
        if wanted > 0.0 && (self.pipe.is_full() || wanted > self.pacing_rate) {
            self.pacing_rate = wanted;
        }
    }

    fn set_window(&mut self, acked: &Acked, begins_round: bool) {
        if self.recovery != Recovery::None && !acked.in_recovery {
            self.recovery = Recovery::None;
            self.window = self.window.max(self.prior_window);
        } else if self.recovery == Recovery::Conserving && begins_round {
            self.recovery = Recovery::Growing;
        }
        if self.recovery == Recovery::Conserving {
            self.window = self.window.max(acked.in_flight.as_u64() as f64);
        } else {
            self.grow(acked.bytes.as_u64() as f64);
        }
        if matches!(self.state, State::ProbeRtt { .. }) {
            self.window = self.window.min(LEAST_PACKETS * self.segment);
        }
    }

    fn grow(&mut self, acked: f64) {
        let (_, gain) = self.state.gains();
        let target = self.target(gain);
        if self.pipe.is_full() {
            self.window = (self.window + acked).min(target);
        } else if self.window < target
            || (self.delivery.delivered_bytes() as f64) < self.initial_window
        {
            self.window += acked;
        }
        self.window = self.window.max(LEAST_PACKETS * self.segment);
    }
}

impl Controller for BbrModel {
    fn on_sent(&mut self, packet: &SentPacket) -> Option<PacketInfo> {
        let gap = Span::from_s_f64(self.segment / self.pacing_rate);
        self.departures.advance(packet.now, gap, gap * LATE_PACKETS);
        Some(self.delivery.on_sent(packet))
    }

    fn on_ack(&mut self, acked: &Acked, rng: &mut Rng) -> bool {
        let begins_round = self.observe(acked);
        self.step(acked, rng);
        self.update_min_rtt(acked, begins_round, rng);
        self.set_pacing_rate();
        self.set_window(acked, begins_round);
        self.in_flight = acked.in_flight.as_u64() as f64;
        false
    }

    /// Not a sign of a full queue: what arrives is replaced for a round, then all goes on as before.
    fn on_loss(&mut self, lost: &Lost) -> bool {
        if lost.transmission < self.loss_end {
            return false;
        }
        self.loss_end = lost.next_transmission;
        self.save_window();
        self.recovery = Recovery::Conserving;
        self.rounds.begin(self.delivery.delivered_bytes());
        self.window = self.in_flight.max(self.segment);
        self.has_lost = true;
        true
    }

    fn on_timeout(&mut self, _now: Time) {
        self.save_window();
        // Grows from one packet to its target, and what counted as full has to be shown again.
        self.recovery = Recovery::Growing;
        self.pipe.forget_plateau();
        self.window = self.segment;
        self.has_lost = true;
    }

    fn window(&self) -> Bytes {
        Bytes::new(self.window as u64)
    }

    fn earliest_departure(&self) -> Time {
        self.departures.next()
    }

    fn restart(&mut self) {
        self.departures = DepartureClock::default();
        self.loss_end = 0;
        self.rounds.begin(self.delivery.delivered_bytes());
        if self.recovery != Recovery::None {
            self.window = self.window.max(self.prior_window);
            self.recovery = Recovery::None;
        }
        self.window = self.window.max(LEAST_PACKETS * self.segment);
        self.was_idle = true;
    }
}

#[cfg(test)]
mod tests;
