//! Memory of switches: drop-tail limits, the dynamic threshold of a shared buffer, ECN.

mod common;

use common::{Probe, Shot, TEN_GBPS, finish, link, packets, serialization, star, us};
use thalweg_core::{Ecn, NodeId, Span, Time};
use thalweg_fabric::{
    Buffer, Bystander, Config, Discipline, DropReason, Fabric, Limit, Marking, Pause, Program,
};

/// Probes around one switch, whose program sends `plan`.
fn fabric_with_plan(hosts: u32, config: &Config, plan: Vec<Shot>) -> Fabric<Probe> {
    let mut fabric = Fabric::new(star(hosts), config, 1, |_| Probe::default());
    let machine = Box::new(Probe::new(plan));
    fabric.install(NodeId(hosts), Program::addressed(machine));
    fabric
}

/// Runs a plan of the switch's to the end. What host 0 got is the answer.
fn run_into_queue(config: &Config, plan: Vec<Shot>) -> Fabric<Probe> {
    let mut fabric = fabric_with_plan(2, config, plan);
    finish(&mut fabric, &mut Bystander);
    fabric
}

fn dropped(fabric: &Fabric<Probe>, reason: DropReason) -> u64 {
    fabric.stats().dropped_packets[reason as usize]
}

#[test]
fn a_drop_tail_queue_holds_exactly_its_bytes() {
    // One packet is being sent; the others wait. 14,999 bytes hold nine of them, 15,000 hold ten.
    for (bytes, waiting) in [(0, 0), (1_499, 0), (1_500, 1), (14_999, 9), (15_000, 10)] {
        let config = Config { buffer: Buffer::PerPort { bytes }, ..Config::default() };
        let mut fabric = run_into_queue(&config, vec![Shot::to(NodeId(0)); 30]);
        let expected: Vec<u64> = (0..=waiting).collect();
        assert_eq!(fabric.machine(NodeId(0)).numbers(), expected, "{bytes} bytes");
        assert_eq!(dropped(&fabric, DropReason::QueueFull), 29 - waiting);
        let stats = fabric.link_stats(link(fabric.topology(), 2, 0));
        assert_eq!(stats.dropped_packets, 29 - waiting);
        assert_eq!(stats.peak_queue_bytes, 1_500 * waiting);
    }
}

#[test]
fn a_small_packet_fits_where_a_large_one_does_not() {
    let config = Config { buffer: Buffer::PerPort { bytes: 4_000 }, ..Config::default() };
    let sizes = [1_500, 1_500, 1_500, 1_001, 1_000, 1];
    let plan = sizes.map(|bytes| Shot { bytes, ..Shot::to(NodeId(0)) });
    let fabric = run_into_queue(&config, plan.to_vec());
    assert_eq!(fabric.machine(NodeId(0)).numbers(), [0, 1, 2, 4]);
}

#[test]
fn room_appears_at_the_moment_of_departure() {
    let config = Config { buffer: Buffer::PerPort { bytes: 1_500 }, ..Config::default() };
    let departure = Time::ZERO + serialization(1_500, TEN_GBPS.rate);
    for (at, arrives) in [(Time::from_ps(departure.as_ps() - 1), false), (departure, true)] {
        let late = Shot { at, ..Shot::to(NodeId(0)) };
        let fabric = run_into_queue(&config, vec![Shot::to(NodeId(0)), Shot::to(NodeId(0)), late]);
        assert_eq!(fabric.machine(NodeId(0)).arrivals.len(), if arrives { 3 } else { 2 });
    }
}

/// Twice what the cables carry, to hosts 0 to `ports` − 1 in turn, for `span`.
fn overload(ports: u32, span: Span) -> Vec<Shot> {
    let gap = serialization(1_500, TEN_GBPS.rate) / (2 * u64::from(ports));
    let shots = (0..).map(|number: u64| Shot {
        at: Time::ZERO + gap * number,
        ..Shot::to(NodeId((number % u64::from(ports)) as u32))
    });
    shots.take_while(|shot| shot.at < Time::ZERO + span).collect()
}

#[test]
fn congested_ports_share_a_buffer_by_the_dynamic_threshold() {
    let bytes = 600_000;
    for alpha in [0.25, 0.5, 1.0, 2.0, 8.0] {
        for ports in 1..5 {
            let config = Config { buffer: Buffer::Shared { bytes, alpha }, ..Config::default() };
            let mut fabric = fabric_with_plan(5, &config, overload(ports, Span::from_ms(2)));
            let share = alpha * bytes as f64 / (1.0 + f64::from(ports) * alpha);
            // Seven microseconds are no multiple of a gap: all phases of the arrivals come up.
            for turn in 0..50 {
                let pause = fabric.run(&mut Bystander, Limit::until(us(1_500 + 7 * turn)));
                assert_eq!(pause, Pause::Limit);
                for port in 0..ports {
                    let held = fabric.queue_bytes(link(fabric.topology(), 5, port)) as f64;
                    let off = (held - share).abs();
                    assert!(off <= 1_500.0, "{held} B, not {share}: {ports} ports, alpha {alpha}");
                }
                fabric.check().expect("within the buffer");
            }
        }
    }
}

#[test]
fn an_idle_ports_share_goes_to_the_congested_one() {
    let buffer = Buffer::Shared { bytes: packets(100).as_u64(), alpha: 1.0 };
    let config = Config { buffer, ..Config::default() };
    let fabric = run_into_queue(&config, vec![Shot::to(NodeId(0)); 200]);
    // A port may hold what is free: half of the buffer. One more is being sent.
    assert_eq!(fabric.machine(NodeId(0)).arrivals.len(), 51);
    let all = Buffer::Shared { bytes: packets(100).as_u64(), alpha: 1e9 };
    let fabric = run_into_queue(&Config { buffer: all, ..config }, vec![Shot::to(NodeId(0)); 200]);
    assert_eq!(fabric.machine(NodeId(0)).arrivals.len(), 101);
}

#[test]
fn to_look_at_a_queue_changes_nothing() {
    // At 1.2 µs three things fall together: two packets of 875 bytes from hosts come to the switch,
    // and one packet leaves its shared buffer, which has room for one more only after that.
    let late = Shot { at: Time::from_ps(900_000), ..Shot::to(NodeId(0)) };
    let long = Shot { bytes: 9_000, ..Shot::to(NodeId(1)) };
    let plan = [long, Shot::to(NodeId(0)), late];
    let digest = |looks: bool| {
        let buffer = Buffer::Shared { bytes: 2_900, alpha: 8.0 };
        let config = Config { buffer, ..Config::default() };
        let small = Shot { bytes: 875, ..Shot::to(NodeId(1)) };
        let mut fabric = Fabric::new(star(4), &config, 1, |host| match host {
            NodeId(2 | 3) => Probe::new([small]),
            _ => Probe::default(),
        });
        let machine = Box::new(Probe::new(plan));
        fabric.install(NodeId(4), Program::addressed(machine));
        let one_event = Limit { until: Time::NEVER, events: 1 };
        while fabric.run(&mut Bystander, one_event) != Pause::Quiet {
            for port in (0..2).filter(|_| looks) {
                fabric.queue_bytes(link(fabric.topology(), 4, port));
            }
        }
        assert_eq!(dropped(&fabric, DropReason::QueueFull), 1);
        fabric.digest()
    };
    assert_eq!(digest(true), digest(false));
}

#[test]
fn a_packet_is_marked_when_it_finds_more_than_the_threshold() {
    for buffer in [Buffer::default(), Buffer::Shared { bytes: 1 << 30, alpha: 8.0 }] {
        // Packet n finds n − 1 waiting behind the one that is being sent.
        for (threshold_bytes, first_marked) in [(0, 2), (14_999, 11), (15_000, 12), (15_001, 12)] {
            let discipline = Discipline::Fifo(Marking::above(threshold_bytes));
            let config = Config { discipline, buffer, ..Config::default() };
            let mut fabric = run_into_queue(&config, vec![Shot::to(NodeId(0)); 30]);
            let arrivals = &fabric.machine(NodeId(0)).arrivals;
            assert_eq!(arrivals.len(), 30);
            for arrival in arrivals {
                assert_eq!(arrival.ecn.is_congested(), arrival.number >= first_marked);
            }
            let stats = fabric.link_stats(link(fabric.topology(), 2, 0));
            assert_eq!(stats.marked_packets, 30 - first_marked);
        }
    }
}

#[test]
fn unmarkable_packets_pass_or_drop_as_set() {
    let plan: Vec<Shot> = (0..20)
        .map(|number| {
            let ecn = if number % 2 == 0 { Ecn::NotCapable } else { Ecn::Capable };
            Shot { ecn, ..Shot::to(NodeId(0)) }
        })
        .collect();
    for (drop_unmarkable, lost) in [(false, 0), (true, 7)] {
        // Of 0 to 5, one is sent and five wait; from 6 on, the even ones cannot be marked.
        let marking = Marking { threshold_bytes: packets(4).as_u64(), drop_unmarkable };
        let config = Config { discipline: Discipline::Fifo(marking), ..Config::default() };
        let fabric = run_into_queue(&config, plan.clone());
        let arrivals = &fabric.machine(NodeId(0)).arrivals;
        assert_eq!(dropped(&fabric, DropReason::Unmarkable), lost);
        assert_eq!(arrivals.len() as u64, 20 - lost);
        for arrival in arrivals {
            let expected = match (arrival.number % 2, arrival.number >= 6) {
                (0, _) => Ecn::NotCapable,
                (_, true) => Ecn::Congested,
                (_, false) => Ecn::Capable,
            };
            assert_eq!(arrival.ecn, expected, "packet {}", arrival.number);
        }
    }
}

#[test]
fn strict_queues_mark_by_themselves_or_by_port() {
    // Five of class 6, then five of class 1. One of class 6 is being sent.
    let of_class = |priority| vec![Shot { priority, ..Shot::to(NodeId(0)) }; 5];
    let plan = [of_class(6), of_class(1)].concat();
    let threshold = Marking::above(packets(2).as_u64());
    let mut only_class_1 = [Marking::NONE; 8];
    only_class_1[1] = threshold;
    let marked = |discipline| {
        let fabric = run_into_queue(&Config { discipline, ..Config::default() }, plan.clone());
        let arrivals = fabric.machine(NodeId(0)).arrivals.iter();
        let mut numbers: Vec<u64> = arrivals
            .filter(|arrival| arrival.ecn.is_congested())
            .map(|arrival| arrival.number)
            .collect();
        numbers.sort_unstable();
        numbers
    };
    assert_eq!(marked(Discipline::strict_per_queue([threshold; 8])), [4, 8, 9]);
    assert_eq!(marked(Discipline::strict_per_queue(only_class_1)), [8, 9]);
    assert_eq!(marked(Discipline::strict_per_port(threshold)), [4, 5, 6, 7, 8, 9]);
}
