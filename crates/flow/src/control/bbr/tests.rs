use super::*;

const SEGMENT: Bytes = Bytes::new(1_000);

/// A way of its own for one control: a bottleneck with a queue and a delay, packet by packet.
struct Way {
    control: Bbr,
    now: Time,
    may_send_at: Time,
    rate_gap: Span,
    delay: Span,
    free_at: Time,
    /// When each packet on the way left, and when it is answered.
    sent: std::collections::VecDeque<(Time, Time)>,
    answered: u64,
    next: u64,
}

impl Way {
    /// A packet every microsecond, and 100 µs there and back: a product of 100 packets.
    fn new() -> Way {
        Way {
            control: Bbr::new(SEGMENT, 10, Rng::new(1)),
            now: Time::ZERO,
            may_send_at: Time::ZERO,
            rate_gap: Span::from_us(1),
            delay: Span::from_us(100),
            free_at: Time::ZERO,
            sent: std::collections::VecDeque::new(),
            answered: 0,
            next: 0,
        }
    }

    fn on_the_way(&self) -> u64 {
        self.sent.len() as u64
    }

    fn may_send(&self) -> bool {
        (self.on_the_way() + 1) * 1_000 <= self.control.window().as_u64()
    }

    fn step(&mut self) {
        let answer_at = self.sent.front().map_or(Time::NEVER, |&(_, at)| at);
        let send_at = if self.may_send() { self.may_send_at.max(self.now) } else { Time::NEVER };
        if send_at <= answer_at {
            self.now = send_at;
            self.send();
        } else {
            self.now = answer_at;
            self.answer();
        }
    }

    fn send(&mut self) {
        let on_the_way = self.sent.len() as u32;
        self.may_send_at = self.control.on_send(self.now, self.may_send_at, on_the_way);
        self.free_at = self.free_at.max(self.now) + self.rate_gap;
        self.sent.push_back((self.now, self.free_at + self.delay));
        self.next += 1;
    }

    fn answer(&mut self) {
        let on_the_way = self.on_the_way();
        let (left, _) = self.sent.pop_front().expect("something is on the way");
        self.control.on_ack(&Acked {
            now: self.now,
            bytes: SEGMENT,
            congested: false,
            round_trip: self.now.since(left),
            in_flight: SEGMENT * on_the_way,
            in_recovery: false,
            transmission: self.answered,
            next_transmission: self.next,
        });
        self.answered += 1;
    }

    fn run_until(&mut self, is_there: impl Fn(&Bbr) -> bool) {
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

fn is_in_cycle(control: &Bbr) -> bool {
    matches!(control.state, State::ProbeBandwidth { .. })
}

#[test]
fn it_starts_up_drains_and_then_cycles() {
    let mut way = Way::new();
    way.run_until(|control| control.state == State::Drain);
    // From ten packets a round: seven doublings at most, three rounds to be sure, and queues on top.
    assert!(way.now < Time::ZERO + Span::from_ms(2), "{:?}", way.now);
    let rate = way.control.pipe.rate().expect("measured");
    assert!((rate / 1e9 - 1.0).abs() < 0.02, "{rate}");
    let in_queue = way.on_the_way() - 100;
    assert!(in_queue > 20, "{in_queue}: the search filled a queue");
    way.run_until(is_in_cycle);
    assert!(way.on_the_way() <= 104, "{}", way.on_the_way());
}

#[test]
fn the_gains_of_the_cycle_follow_each_other() {
    let mut way = Way::new();
    way.run_until(is_in_cycle);
    let mut phases = Vec::new();
    for _ in 0..17 {
        let State::ProbeBandwidth { phase, since } = way.control.state else { panic!("left") };
        phases.push(phase);
        way.run_until(|control| {
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
    let mut way = Way::new();
    way.run_until(is_in_cycle);
    way.run_for(Span::from_ms(1));
    let (before, start, mut longest) = (way.answered, way.now, 0);
    while way.now < start + Span::from_ms(50) {
        way.step();
        longest = longest.max(way.on_the_way());
    }
    let rate = (way.answered - before) as f64 / way.now.since(start).as_us_f64();
    assert!(rate > 0.97, "{rate}");
    assert!(longest < 160, "{longest}: a quarter more for little longer than a round trip");
}

#[test]
fn the_empty_way_is_looked_at_every_ten_seconds() {
    let mut way = Way::new();
    // Slower, so that ten seconds are not many packets: a product of two.
    way.rate_gap = Span::from_us(500);
    way.delay = Span::from_ms(20);
    way.run_until(is_in_cycle);
    // Less would be seen only with an empty queue, which the first look was.
    let seen_at = way.control.min_rtt.expect("measured").seen_at;
    way.delay = Span::from_ms(25);
    way.run_until(|control| matches!(control.state, State::ProbeRtt { .. }));
    let waited = way.now.since(seen_at);
    assert!(waited > Span::from_s(10) && waited < Span::from_ms(10_100), "{waited}");
    let window = way.control.prior_window;
    assert_eq!(way.control.window().as_u64(), 4_000);
    let begin = way.now;
    way.run_until(is_in_cycle);
    let lasted = way.now.since(begin);
    assert!(lasted > Span::from_ms(200) && lasted < Span::from_ms(300), "{lasted}");
    assert!(way.control.window >= window.min(way.control.target(2.0)), "and all goes on");
    let least = way.control.min_rtt.expect("measured").span;
    assert_eq!(least, Span::from_us(25_500), "the way has become longer");
}

fn acked_in_recovery(way: &Way, in_recovery: bool) -> Acked {
    Acked {
        now: way.now,
        bytes: SEGMENT,
        congested: false,
        round_trip: Span::from_us(110),
        in_flight: SEGMENT * way.on_the_way(),
        in_recovery,
        transmission: way.answered,
        next_transmission: way.next,
    }
}

#[test]
fn a_loss_keeps_what_is_on_the_way_for_a_round_and_costs_no_rate() {
    let mut way = Way::new();
    way.run_until(is_in_cycle);
    way.run_for(Span::from_ms(1));
    let (window, rate) = (way.control.window, way.control.pacing_rate);
    way.control.on_loss(way.now);
    assert_eq!(way.control.window, way.control.in_flight);
    assert!(way.control.window < 0.7 * window);
    assert_eq!(way.control.pacing_rate, rate);
    let acked = acked_in_recovery(&way, true);
    way.control.on_ack(&acked);
    assert_eq!(way.control.recovery, Recovery::Conserving);
    let acked = acked_in_recovery(&way, false);
    way.control.on_ack(&acked);
    assert!(way.control.window >= 0.99 * window, "as before when it is repaired");
}

#[test]
fn a_timeout_leaves_one_packet_and_the_rate() {
    let mut way = Way::new();
    way.run_until(is_in_cycle);
    let rate = way.control.pipe.rate();
    way.control.on_timeout(way.now);
    assert_eq!(way.control.window(), SEGMENT);
    assert_eq!(way.control.pipe.rate(), rate);
    let acked = acked_in_recovery(&way, true);
    way.control.on_ack(&acked);
    assert_eq!(way.control.window().as_u64(), 4_000, "at least four, and up by what arrives");
}

#[test]
fn packets_leave_one_gap_after_another() {
    let mut control = Bbr::new(SEGMENT, 10, Rng::new(1));
    // Ten packets in a millisecond, times 2.885.
    let gap = Span::from_s_f64(1e-4 / 2.885);
    let now = Time::ZERO + Span::from_ms(1);
    let first = control.on_send(now, Time::ZERO, 0);
    assert_eq!(first, Time::from_ps(now.as_ps() - (gap * 2).as_ps()) + gap, "two are let through");
    let second = control.on_send(now, first, 1);
    let third = control.on_send(now, second, 2);
    assert_eq!(third, now + gap);
    assert_eq!(control.on_send(third, third, 3), third + gap);
}

/// The phases of the cycle that a flow enters at one moment, again and again.
fn phases(rng: Rng) -> Vec<usize> {
    let mut control = Bbr::new(SEGMENT, 10, rng);
    let mut enter = || {
        control.begin_cycle(Time::ZERO + Span::from_ms(3));
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

// spec: C-14 machine
#[test]
fn a_flow_that_begins_with_what_another_learned_draws_for_itself() {
    let mut way = Way::new();
    way.run_until(is_in_cycle);
    let next = |number| {
        let mut control = way.control.clone();
        control.restart(Rng::new(7).substream("flow", number));
        (0..16).map(|_| control.rng.bits()).collect::<Vec<_>>()
    };
    assert_ne!(next(1), next(2));
}
