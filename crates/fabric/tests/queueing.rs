//! Queues and links against closed forms: waiting times of M/D/1 and M/M/1, trains of packets to
//! the picosecond, strict priorities.

mod common;

use std::collections::VecDeque;
use std::ops::Range;

use common::{
    Probe, Shot, TEN_GBPS, finish, last_host, leaf_spine, pair, read_stamp, run_plan,
    serialization, stamp, star, three_tier,
};
use thalweg_core::{
    BodySize, Machine, NodeId, Outbox, Packet, Purpose, Rate, Reports, Rng, Span, Time, Verdict,
};
use thalweg_fabric::topology::{CableSpec, Dumbbell, OneSwitch};
use thalweg_fabric::{
    Buffer, Bystander, Config, Discipline, Fabric, Intercept, Marking, Program, Topology,
};

const MEAN_BYTES: u32 = 1_500;
const PACKETS_PER_RUN: u32 = 500_000;
/// Departures are worked out on demand.
const LAZY: Buffer = Buffer::PerPort { bytes: 1 << 40 };
/// Every departure is an event, because ports share memory.
const EAGER: Buffer = Buffer::Shared { bytes: 1 << 40, alpha: 8.0 };

#[derive(Clone, Copy, Debug)]
enum Sizes {
    Fixed,
    /// Rounded to whole bytes, one at least. That moves mean and variance by less than a thousandth
    /// of what the tests allow.
    Exponential,
}

/// A program that sends packets at Poisson times directly into a queue of its switch.
struct Arrivals {
    gaps: Rng,
    sizes: Rng,
    kind: Sizes,
    mean_gap: Span,
    next: Time,
    left_packets: u32,
    now: Time,
}

impl Arrivals {
    fn new(load: f64, kind: Sizes, seed: u64) -> Arrivals {
        let service = serialization(MEAN_BYTES, TEN_GBPS.rate);
        let rng = Rng::new(seed);
        let mean_gap = Span::from_s_f64(service.as_s_f64() / load);
        let mut gaps = rng.stream("gaps");
        let next = Time::ZERO + gaps.exponential(mean_gap);
        let sizes = rng.stream("sizes");
        let left_packets = PACKETS_PER_RUN;
        Arrivals { gaps, sizes, kind, mean_gap, next, left_packets, now: Time::ZERO }
    }

    fn draw_bytes(&mut self) -> u32 {
        match self.kind {
            Sizes::Fixed => MEAN_BYTES,
            Sizes::Exponential => {
                // Drawn in thousandths of a byte.
                let mean = Span::from_ps(u64::from(MEAN_BYTES) * 1_000);
                let bytes = (self.sizes.exponential(mean).as_ps() + 500) / 1_000;
                u32::try_from(bytes).expect("small").max(1)
            }
        }
    }
}

impl Machine for Arrivals {
    fn handle_packet(&mut self, _now: Time, _packet: Packet<'_>) -> Verdict<'_> {
        Verdict::Consume
    }

    fn handle_timeout(&mut self, now: Time) {
        self.now = now;
    }

    fn poll_transmit(&mut self, now: Time, outbox: &mut dyn Outbox) {
        if self.left_packets == 0 || self.next > self.now {
            return;
        }
        assert_eq!(now, self.next, "the arrival is at its exact moment");
        let bytes = self.draw_bytes();
        let packet = outbox.lend(BodySize::Length(0), Purpose::Data).expect("room for one");
        stamp(packet.header, 0, now);
        packet.meta.dst = NodeId(0);
        packet.meta.wire_bytes = bytes;
        self.left_packets -= 1;
        self.next = now + self.gaps.exponential(self.mean_gap);
    }

    fn poll_timeout(&self) -> Time {
        if self.left_packets == 0 { Time::NEVER } else { self.next }
    }
}

impl Reports for Arrivals {
    type Event = ();

    fn poll_event(&mut self) -> Option<()> {
        None
    }
}

/// Adds up how long packets were in queue and transmitter. It also works out when each of them must
/// come, from the one before it (Lindley's recursion), and insists.
#[derive(Default)]
struct Sink {
    served_until: Time,
    packets: u64,
    total: Span,
}

impl Machine for Sink {
    fn handle_packet(&mut self, now: Time, packet: Packet<'_>) -> Verdict<'_> {
        let (_, sent) = read_stamp(packet.header);
        let service = serialization(packet.meta.wire_bytes, TEN_GBPS.rate);
        self.served_until = self.served_until.max(sent) + service;
        assert_eq!(now, self.served_until + TEN_GBPS.delay);
        self.packets += 1;
        self.total += self.served_until.since(sent);
        Verdict::Consume
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, _now: Time, _outbox: &mut dyn Outbox) {}

    fn poll_timeout(&self) -> Time {
        Time::NEVER
    }
}

impl Reports for Sink {
    type Event = ();

    fn poll_event(&mut self) -> Option<()> {
        None
    }
}

/// Mean time in system of each run, in µs.
fn mean_times_us(load: f64, sizes: Sizes, buffer: Buffer, seeds: Range<u64>) -> Vec<f64> {
    let config = Config { buffer, ..Config::default() };
    let run = |seed| {
        let mut fabric = Fabric::new(star(2), &config, seed, |_| Sink::default());
        let machine = Box::new(Arrivals::new(load, sizes, seed));
        fabric.install(NodeId(2), Program { machine, intercept: Intercept::Addressed });
        finish(&mut fabric, &mut Bystander);
        let sink = fabric.machine(NodeId(0));
        assert_eq!(sink.packets, u64::from(PACKETS_PER_RUN));
        sink.total.as_us_f64() / f64::from(PACKETS_PER_RUN)
    };
    seeds.map(run).collect()
}

/// Theory holds for departures that are worked out on demand. Those with events of their own are
/// the same to the last bit, so that a quarter of the runs is enough of them.
#[track_caller]
fn assert_mean(load: f64, sizes: Sizes, seeds: Range<u64>, expected_us: f64, tolerance: f64) {
    let lazy_us = mean_times_us(load, sizes, LAZY, seeds.clone());
    let mean_us = lazy_us.iter().sum::<f64>() / lazy_us.len() as f64;
    let error = mean_us / expected_us - 1.0;
    assert!(error.abs() <= tolerance, "{mean_us} µs, not {expected_us}: off by {error:.4}");
    let some_seeds = seeds.start..seeds.start + lazy_us.len().div_ceil(4) as u64;
    let eager_us = mean_times_us(load, sizes, EAGER, some_seeds);
    assert_eq!(eager_us, lazy_us[..eager_us.len()]);
}

// Every load has seeds of its own: with the same ones, the same luck would be measured six times.

#[test]
fn a_half_loaded_queue_waits_as_theory_says() {
    assert_mean(0.5, Sizes::Fixed, 0..1, 1.8, 0.01);
    assert_mean(0.5, Sizes::Exponential, 10..12, 2.4, 0.01);
}

#[test]
fn a_queue_at_four_fifths_waits_as_theory_says() {
    assert_mean(0.8, Sizes::Fixed, 20..23, 3.6, 0.01);
    assert_mean(0.8, Sizes::Exponential, 30..40, 6.0, 0.01);
}

#[test]
fn a_queue_at_nine_tenths_waits_as_theory_says() {
    assert_mean(0.9, Sizes::Fixed, 40..43, 6.6, 0.02);
    assert_mean(0.9, Sizes::Exponential, 50..66, 12.0, 0.02);
}

/// Shapes in which the way from the first to the last host has a known number of links.
fn shapes(spec: CableSpec) -> [(u64, Topology); 5] {
    let one_switch = OneSwitch { hosts: 2, host_cable: spec };
    let dumbbell = Dumbbell { hosts_per_side: 1, host_cable: spec, trunk: spec };
    [
        (1, pair(spec)),
        (2, one_switch.build().expect("valid")),
        (3, dumbbell.build().expect("valid")),
        (4, leaf_spine(1, 3, spec)),
        (6, three_tier(spec)),
    ]
}

/// When the last of a train of equal packets comes to the last host.
fn last_arrival(topology: &Topology, packets: u64, bytes: u32) -> Time {
    let shot = Shot { bytes, ..Shot::to(NodeId(topology.hosts() - 1)) };
    let config = Config { buffer: LAZY, ..Config::default() };
    let fabric = run_plan(topology, &config, vec![shot; packets as usize]);
    let arrivals = &last_host(&fabric).arrivals;
    assert_eq!(arrivals.len() as u64, packets);
    arrivals.last().expect("at least one").at
}

#[test]
fn an_uncontended_train_arrives_to_the_picosecond() {
    let rates = [100_000_000_000, 10_000_000_000, 3_000_000_000, 7_777_777_777, 1_000_003];
    let delays = [Span::ZERO, Span::from_ns(500), Span::from_ps(1_234_567)];
    let trains = [(1, 1_564), (2, 1), (40, 1_564), (667, 64), (100, 9_001)];
    for rate in rates.map(|bps| Rate::from_bps(bps).expect("not zero")) {
        for (hops, topology) in delays.iter().flat_map(|&delay| shapes(CableSpec { rate, delay })) {
            let delay = topology.cables()[0].delay;
            for (packets, bytes) in trains {
                let expected = serialization(bytes, rate) * (packets + hops - 1) + delay * hops;
                assert_eq!(
                    last_arrival(&topology, packets, bytes),
                    Time::ZERO + expected,
                    "{packets} packets of {bytes} B over {hops} hops at {rate} and {delay}"
                );
            }
        }
    }
}

#[test]
fn a_train_takes_literal_times() {
    let spec = CableSpec { rate: Rate::from_gbps(100), delay: Span::from_ns(500) };
    let [_, two_hops, _, four_hops, _] = shapes(spec).map(|(_, topology)| topology);
    let ps = |topology, packets| last_arrival(topology, packets, 1_564).as_ps();
    assert_eq!([ps(&two_hops, 1), ps(&two_hops, 667)], [1_250_240, 84_580_160]);
    assert_eq!([ps(&four_hops, 40), ps(&four_hops, 667)], [7_380_160, 85_830_400]);
}

const STRICT: Discipline = Discipline::strict_per_port(Marking::NONE);

/// Runs a plan as a program, so that packets enter the queue towards host 0 at exact times.
fn run_into_queue(plan: Vec<Shot>, discipline: Discipline, buffer: Buffer) -> Vec<(u64, Time)> {
    let config = Config { discipline, buffer, ..Config::default() };
    let mut fabric = Fabric::new(star(2), &config, 1, |_| Probe::default());
    let machine = Box::new(Probe::new(plan));
    fabric.install(NodeId(2), Program { machine, intercept: Intercept::Addressed });
    finish(&mut fabric, &mut Bystander);
    let arrivals = &fabric.machine(NodeId(0)).arrivals;
    arrivals.iter().map(|arrival| (arrival.number, arrival.at)).collect()
}

/// Arrivals after a strict-priority port, computed step by step.
fn strict_model(plan: &[Shot]) -> Vec<(u64, Time)> {
    let mut waiting: [VecDeque<usize>; 8] = Default::default();
    let (mut free_at, mut next, mut arrivals) = (Time::ZERO, 0, Vec::new());
    while arrivals.len() < plan.len() {
        // Who comes at the very moment of a departure is too late for it.
        while next < plan.len() && plan[next].at < free_at {
            waiting[usize::from(plan[next].priority)].push_back(next);
            next += 1;
        }
        let urgent = waiting.iter_mut().find_map(VecDeque::pop_front);
        let index = urgent.unwrap_or_else(|| {
            next += 1;
            next - 1
        });
        let start = free_at.max(plan[index].at);
        free_at = start + serialization(plan[index].bytes, TEN_GBPS.rate);
        arrivals.push((index as u64, free_at + TEN_GBPS.delay));
    }
    arrivals
}

#[test]
fn strict_priorities_serve_as_the_model_does() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        // From nearly idle to far overloaded.
        let mean_gap = Span::from_ns(200 + rng.below(1_500));
        let mut at = Time::ZERO;
        let plan: Vec<Shot> = (0..300)
            .map(|_| {
                at += rng.exponential(mean_gap);
                let (bytes, priority) = (64 + rng.below(1_437) as u32, rng.below(8) as u8);
                Shot { at, bytes, priority, ..Shot::to(NodeId(0)) }
            })
            .collect();
        let expected = strict_model(&plan);
        for buffer in [LAZY, EAGER] {
            assert_eq!(run_into_queue(plan.clone(), STRICT, buffer), expected, "seed {seed}");
        }
    }
}

#[test]
fn an_urgent_packet_waits_for_one_other_at_most() {
    let service = serialization(1_500, TEN_GBPS.rate);
    let urgent_service = serialization(100, TEN_GBPS.rate);
    for at_ps in (1..30_000_000).step_by(777_777) {
        let bulk = vec![Shot::to(NodeId(0)); 50];
        let at = Time::from_ps(at_ps);
        let urgent = Shot { at, bytes: 100, priority: 0, ..Shot::to(NodeId(0)) };
        let plan = [bulk, vec![urgent]].concat();
        for buffer in [LAZY, EAGER] {
            let arrivals = run_into_queue(plan.clone(), STRICT, buffer);
            let (_, came) = arrivals.iter().find(|(number, _)| *number == 50).expect("it came");
            let residual = Span::from_ps(service.as_ps() - at_ps % service.as_ps());
            assert_eq!(*came, at + residual + urgent_service + TEN_GBPS.delay);
        }
        // Without priorities it is the last one.
        let arrivals = run_into_queue(plan, Discipline::default(), LAZY);
        assert_eq!(arrivals.last().map(|(number, _)| *number), Some(50));
    }
}

#[test]
fn classes_keep_their_order_and_the_link_never_idles() {
    let mut rng = Rng::new(11);
    let plan: Vec<Shot> = (0..500)
        .map(|_| Shot {
            bytes: 64 + rng.below(1_437) as u32,
            priority: rng.below(8) as u8,
            ..Shot::to(NodeId(0))
        })
        .collect();
    let total = plan.iter().map(|shot| serialization(shot.bytes, TEN_GBPS.rate));
    let busy = total.fold(Span::ZERO, |sum, span| sum + span);
    for discipline in
        [STRICT, Discipline::strict_per_queue([Marking::NONE; 8]), Discipline::default()]
    {
        for buffer in [LAZY, EAGER] {
            let arrivals = run_into_queue(plan.clone(), discipline, buffer);
            assert_eq!(
                arrivals.last().map(|(_, at)| *at),
                Some(Time::ZERO + busy + TEN_GBPS.delay)
            );
            for priority in 0..8 {
                let class = arrivals.iter().map(|(number, _)| *number);
                let of_class = |number: &u64| plan[*number as usize].priority == priority;
                assert!(class.filter(of_class).is_sorted());
            }
        }
    }
}
