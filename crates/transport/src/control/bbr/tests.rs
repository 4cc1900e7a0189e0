use super::super::PacketInfos;
use super::super::testing::{acked, lost};
use super::*;

const SEGMENT: Bytes = Bytes::new(1_000);

/// A path for one control: a bottleneck with a queue and a delay, packet by packet.
struct Path {
    control: BbrModel,
    infos: PacketInfos,
    rng: Rng,
    now: Time,
    rate_gap: Span,
    delay: Span,
    free_at: Time,
    /// Departure of each packet in flight, and the time of its acknowledgement.
    sent: std::collections::VecDeque<(Time, Time)>,
    answered: u64,
    next: u64,
}

impl Path {
    /// A packet every microsecond, and 100 µs there and back: a product of 100 packets.
    fn new() -> Path {
        Path {
            control: BbrModel::new(SEGMENT, 10),
            infos: PacketInfos::default(),
            rng: Rng::new(1),
            now: Time::ZERO,
            rate_gap: Span::from_us(1),
            delay: Span::from_us(100),
            free_at: Time::ZERO,
            sent: std::collections::VecDeque::new(),
            answered: 0,
            next: 0,
        }
    }

    fn in_flight(&self) -> u64 {
        self.sent.len() as u64
    }

    fn may_send(&self) -> bool {
        (self.in_flight() + 1) * 1_000 <= self.control.window().as_u64()
    }

    fn step(&mut self) {
        let answer_at = self.sent.front().map_or(Time::NEVER, |&(_, at)| at);
        let send_at = if self.may_send() {
            self.control.earliest_departure().max(self.now)
        } else {
            Time::NEVER
        };
        if send_at <= answer_at {
            self.now = send_at;
            self.send();
        } else {
            self.now = answer_at;
            self.answer();
        }
    }

    fn send(&mut self) {
        let in_flight = SEGMENT * self.in_flight();
        let packet = SentPacket { now: self.now, bytes: SEGMENT, in_flight, priority: 7 };
        let info = self.control.on_sent(&packet).expect("BBR needs the state of every packet");
        self.infos.push(self.next, info);
        self.free_at = self.free_at.max(self.now) + self.rate_gap;
        self.sent.push_back((self.now, self.free_at + self.delay));
        self.next += 1;
    }

    fn answer(&mut self) {
        let in_flight = self.in_flight();
        let (left, _) = self.sent.pop_front().expect("a packet is in flight");
        let acked = Acked {
            now: self.now,
            round_trip: Some(self.now.since(left)),
            in_flight: SEGMENT * in_flight,
            transmission: self.answered,
            next_transmission: self.next,
            info: self.infos.take(self.answered),
            ..acked()
        };
        self.control.on_ack(&acked, &mut self.rng);
        self.answered += 1;
    }

    fn run_until(&mut self, is_there: impl Fn(&BbrModel) -> bool) {
        for _ in 0..100_000_000 {
            if is_there(&self.control) {
                return;
            }
            self.step();
        }
        panic!("never got there: {:?}", self.control);
    }

    fn run_for(&mut self, span: Span) {
        let end = self.now + span;
        while self.now < end {
            self.step();
        }
    }
}

fn is_in_cycle(control: &BbrModel) -> bool {
    matches!(control.state, State::ProbeBandwidth { .. })
}

#[test]
fn it_starts_up_drains_and_then_cycles() {
    let mut path = Path::new();
    path.run_until(|control| control.state == State::Drain);
    // From ten packets a round: seven doublings at most, three rounds to be sure, and queues on top.
    assert!(path.now < Time::ZERO + Span::from_ms(2), "{:?}", path.now);
    let rate = path.control.pipe.rate().expect("measured");
    assert!((rate / 1e9 - 1.0).abs() < 0.02, "{rate}");
    let in_queue = path.in_flight() - 100;
    assert!(in_queue > 20, "{in_queue}: the search filled a queue");
    path.run_until(is_in_cycle);
    assert!(path.in_flight() <= 104, "{}", path.in_flight());
}

#[test]
fn the_gains_of_the_cycle_follow_each_other() {
    let mut path = Path::new();
    path.run_until(is_in_cycle);
    let mut phases = Vec::new();
    for _ in 0..17 {
        let State::ProbeBandwidth { phase, since } = path.control.state else { panic!("left") };
        phases.push(phase);
        path.run_until(|control| {
            !matches!(control.state, State::ProbeBandwidth { since: now, .. } if now == since)
        });
    }
    let first = phases[0];
    assert_ne!(first, 1, "it does not begin with less");
    let expected: Vec<usize> = (0..17).map(|step| (first + step) % 8).collect();
    assert_eq!(phases, expected);
    assert_eq!(CYCLE_GAINS.iter().sum::<f64>(), 8.0, "on average it sends what arrives");
}

#[test]
fn in_the_cycle_the_link_is_full_and_the_queue_short() {
    let mut path = Path::new();
    path.run_until(is_in_cycle);
    path.run_for(Span::from_ms(1));
    let (before, start, mut longest) = (path.answered, path.now, 0);
    while path.now < start + Span::from_ms(50) {
        path.step();
        longest = longest.max(path.in_flight());
    }
    let rate = (path.answered - before) as f64 / path.now.since(start).as_us_f64();
    assert!(rate > 0.97, "{rate}");
    assert!(longest < 160, "{longest}: a quarter more for little longer than a round trip");
}

#[test]
fn the_base_round_trip_is_probed_every_ten_seconds() {
    let mut path = Path::new();
    // Slower, so that ten seconds are not many packets: a product of two.
    path.rate_gap = Span::from_us(500);
    path.delay = Span::from_ms(20);
    path.run_until(is_in_cycle);
    // Less would be seen only with an empty queue, which the first look was.
    let seen_at = path.control.min_rtt.expect("measured").seen_at;
    path.delay = Span::from_ms(25);
    path.run_until(|control| matches!(control.state, State::ProbeRtt { .. }));
    let waited = path.now.since(seen_at);
    assert!(waited > Span::from_s(10) && waited < Span::from_ms(10_100), "{waited}");
    let window = path.control.prior_window;
    assert_eq!(path.control.window().as_u64(), 4_000);
    let begin = path.now;
    path.run_until(is_in_cycle);
    let lasted = path.now.since(begin);
    assert!(lasted > Span::from_ms(200) && lasted < Span::from_ms(300), "{lasted}");
    assert!(path.control.window >= window.min(path.control.target(2.0)), "and all goes on");
    let least = path.control.min_rtt.expect("measured").span;
    assert_eq!(least, Span::from_us(25_500), "the path has become longer");
}

/// The next acknowledgement, with or without a loss that is being repaired.
fn answer_in_recovery(path: &mut Path, in_recovery: bool) {
    let acked = Acked {
        now: path.now,
        round_trip: Some(Span::from_us(110)),
        in_flight: SEGMENT * path.in_flight(),
        in_recovery,
        transmission: path.answered,
        next_transmission: path.next,
        info: path.infos.take(path.answered),
        ..acked()
    };
    path.control.on_ack(&acked, &mut path.rng);
}

#[test]
fn a_loss_keeps_what_is_in_flight_for_a_round_and_costs_no_rate() {
    let mut path = Path::new();
    path.run_until(is_in_cycle);
    path.run_for(Span::from_ms(1));
    let (window, rate) = (path.control.window, path.control.pacing_rate);
    path.control.on_loss(&lost(0, path.next));
    assert_eq!(path.control.window, path.control.in_flight);
    assert!(path.control.window < 0.7 * window);
    assert_eq!(path.control.pacing_rate, rate);
    answer_in_recovery(&mut path, true);
    assert_eq!(path.control.recovery, Recovery::Conserving);
    answer_in_recovery(&mut path, false);
    assert!(path.control.window >= 0.99 * window, "as before when it is repaired");
}

#[test]
fn a_timeout_leaves_one_packet_and_the_rate() {
    let mut path = Path::new();
    path.run_until(is_in_cycle);
    let rate = path.control.pipe.rate();
    path.control.on_timeout(path.now);
    assert_eq!(path.control.window(), SEGMENT);
    assert_eq!(path.control.pipe.rate(), rate);
    answer_in_recovery(&mut path, true);
    assert_eq!(path.control.window().as_u64(), 4_000, "at least four, and up by what arrives");
}

#[test]
fn packets_leave_one_gap_after_another() {
    let mut control = BbrModel::new(SEGMENT, 10);
    // Ten packets in a millisecond, times 2.885.
    let gap = Span::from_s_f64(1e-4 / 2.885);
    let mut send = |now: Time, in_flight: u64| {
        let packet =
            SentPacket { now, bytes: SEGMENT, in_flight: SEGMENT * in_flight, priority: 7 };
        control.on_sent(&packet);
        control.earliest_departure()
    };
    let now = Time::ZERO + Span::from_ms(1);
    let first = send(now, 0);
    assert_eq!(first, Time::from_ps(now.as_ps() - (gap * 2).as_ps()) + gap, "two are let through");
    send(now, 1);
    let third = send(now, 2);
    assert_eq!(third, now + gap);
    assert_eq!(send(third, 3), third + gap);
}

/// The phases of the cycle that a flow enters at one moment, again and again.
fn phases(mut rng: Rng) -> Vec<usize> {
    let mut control = BbrModel::new(SEGMENT, 10);
    let mut enter = || {
        control.begin_cycle(Time::ZERO + Span::from_ms(3), &mut rng);
        match control.state {
            State::ProbeBandwidth { phase, .. } => phase,
            other => panic!("{other:?} is no phase of the cycle"),
        }
    };
    (0..64).map(|_| enter()).collect()
}

// spec: C-14 machine
#[test]
fn flows_that_enter_the_cycle_together_probe_at_moments_of_their_own() {
    let seed = Rng::new(7);
    let flow = |number| phases(seed.substream("flow", number));
    assert_eq!(flow(0), flow(0), "a seed fixes the draws");
    let firsts: std::collections::BTreeSet<usize> = (0..64).map(|number| flow(number)[0]).collect();
    assert_eq!(firsts.into_iter().collect::<Vec<_>>(), [0, 2, 3, 4, 5, 6, 7]);
    assert_ne!(flow(0), flow(1));
    let all: std::collections::BTreeSet<usize> = flow(0).into_iter().collect();
    assert!(all.len() > 4 && !all.contains(&1), "{all:?}: never where the rate is lowered");
}
