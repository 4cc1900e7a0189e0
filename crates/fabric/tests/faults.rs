//! Faults act as their rules say, and nothing leaks.

mod common;

use std::collections::BTreeMap;

use common::{
    Arrival, Probe, Shot, TEN_GBPS, always, check_drained, finish, last_host, leaf_spine, link,
    run_plan, run_train, serialization, star, us,
};
use thalweg_core::{NodeId, Reports, Span, Time};
use thalweg_fabric::{
    Buffer, Bystander, Config, Director, DropReason, Effect, Fabric, Hosts, Limit, Outage, Pause,
    Place, Rule, Spread, Topology,
};

const TRAIN_PACKETS: u64 = 20_000;

fn with_faults(faults: Vec<Rule>) -> Config {
    Config { faults, ..Config::default() }
}

fn with_outage(node: u32, from: Time, until: Time) -> Config {
    let outages = vec![Outage { node: NodeId(node), from, until }];
    Config { outages, ..Config::default() }
}

fn dropped<M: Reports>(fabric: &Fabric<M>, reason: DropReason) -> u64 {
    fabric.stats().dropped_packets[reason as usize]
}

/// The link from the switch of a star of two to its last host, and the link from host 0.
fn both_links() -> [Place; 2] {
    let star = star(2);
    [link(&star, 2, 1), link(&star, 0, 2)].map(Place::Link)
}

#[test]
fn loss_has_its_rate_and_takes_only_what_it_takes() {
    for place in both_links() {
        let config = with_faults(vec![always(place, Effect::Loss(0.1))]);
        let fabric = run_train(&star(2), &config, TRAIN_PACKETS);
        let lost = dropped(&fabric, DropReason::Fault);
        // Five standard deviations of a binomial.
        assert!((1_788..=2_212).contains(&lost), "{lost}");
        assert_eq!(fabric.stats().dropped(), lost);
        let numbers = last_host(&fabric).numbers();
        assert_eq!(numbers.len() as u64, TRAIN_PACKETS - lost);
        assert!(numbers.is_sorted_by(|one, next| one < next));
        // A lost packet takes its time all the same: the others come when they would have come.
        let clean = run_train(&star(2), &Config::default(), TRAIN_PACKETS);
        let on_time =
            |arrival: &Arrival| last_host(&clean).arrivals[arrival.number as usize] == *arrival;
        assert!(last_host(&fabric).arrivals.iter().all(on_time));
    }
}

#[test]
fn certain_loss_loses_everything_and_none_nothing() {
    for (probability, arrived) in [(1.0, 0), (0.0, 500)] {
        let config = with_faults(vec![always(Place::HostCables, Effect::Loss(probability))]);
        assert_eq!(last_host(&run_train(&star(2), &config, 500)).arrivals.len(), arrived);
    }
}

#[test]
fn bursts_have_their_length_and_their_share() {
    let effect = Effect::Bursts { begin: 0.02, end: 0.25 };
    let config = with_faults(vec![always(both_links()[0], effect)]);
    let fabric = run_train(&star(2), &config, 100_000);
    let numbers = last_host(&fabric).numbers();
    let gaps: Vec<u64> =
        numbers.windows(2).map(|pair| pair[1] - pair[0] - 1).filter(|gap| *gap > 0).collect();
    let lost: u64 = gaps.iter().sum();
    let mean_burst = lost as f64 / gaps.len() as f64;
    assert!((3.7..4.3).contains(&mean_burst), "{mean_burst}");
    // In the long run, begin / (begin + end) of the time is bad.
    let share = dropped(&fabric, DropReason::Fault) as f64 / 100_000.0;
    assert!((share - 0.02 / 0.27).abs() < 0.006, "{share}");
}

#[test]
fn duplicates_are_counted_and_arrive_together() {
    for place in both_links() {
        // What is doubled on the first link has to wait for the second.
        let buffer = Buffer::PerPort { bytes: 1 << 30 };
        let faults = vec![always(place, Effect::Duplicate(0.2))];
        let config = Config { buffer, faults, ..Config::default() };
        let fabric = run_train(&star(2), &config, TRAIN_PACKETS);
        let copies = fabric.stats().copied_packets;
        assert!((3_717..=4_283).contains(&copies), "{copies}");
        let mut times_seen = BTreeMap::new();
        last_host(&fabric).numbers().into_iter().for_each(|number| {
            *times_seen.entry(number).or_insert(0) += 1;
        });
        assert_eq!(times_seen.len() as u64, TRAIN_PACKETS);
        assert_eq!(times_seen.values().filter(|times| **times == 2).count() as u64, copies);
        assert!(times_seen.values().all(|times| *times <= 2));
        assert!(last_host(&fabric).numbers().is_sorted());
    }
}

/// Hosts 0 and 1 send to host 2 at the same time, so that the switch has a queue. Answers when each
/// packet came, in order of arrival.
fn two_into_one(faults: Vec<Rule>) -> Vec<((NodeId, u64), Time)> {
    let config = Config { faults, buffer: Buffer::PerPort { bytes: 1 << 30 }, ..Config::default() };
    let mut fabric = Fabric::new(star(3), &config, 3, |host| match host {
        NodeId(2) => Probe::default(),
        _ => Probe::new(vec![Shot::to(NodeId(2)); 1_000]),
    });
    finish(&mut fabric, &mut Bystander);
    let arrivals = fabric.machine(NodeId(2)).arrivals.iter();
    arrivals.map(|arrival| ((arrival.src, arrival.number), arrival.at)).collect()
}

#[test]
fn held_packets_are_overtaken_and_the_others_are_not_late() {
    let by = Span::from_us(50);
    let effect = Effect::Reorder { probability: 0.1, by };
    let last_link = Place::Link(link(&star(3), 3, 2));
    let on_time: BTreeMap<_, _> = two_into_one(vec![]).into_iter().collect();
    let arrivals = two_into_one(vec![always(last_link, effect)]);
    assert!(arrivals.is_sorted_by_key(|(_, at)| *at));
    let mut held = 0;
    for (packet, at) in &arrivals {
        assert!(*at == on_time[packet] || *at == on_time[packet] + by, "{packet:?} at {at:?}");
        held += u64::from(*at != on_time[packet]);
    }
    assert!((133..=267).contains(&held), "{held} of 2,000");
    // Fifty microseconds are 41 packets: a held one comes that much out of turn.
    let turns: Vec<u64> = arrivals.iter().map(|(packet, _)| on_time[packet].as_ps()).collect();
    let inversions = turns.windows(2).filter(|pair| pair[0] > pair[1]).count();
    assert!(inversions > 100, "{inversions}");
    assert_eq!(arrivals.len(), 2_000);
}

#[test]
fn jitter_delays_within_bounds_and_keeps_the_order() {
    let up_to = Span::from_us(50);
    let on_time: Vec<_> = two_into_one(vec![]);
    let jittered =
        two_into_one(vec![always(Place::Link(link(&star(3), 3, 2)), Effect::Jitter(up_to))]);
    let order = |arrivals: &[((NodeId, u64), Time)]| {
        arrivals.iter().map(|(packet, _)| *packet).collect::<Vec<_>>()
    };
    assert_eq!(order(&jittered), order(&on_time));
    let mut delayed = 0;
    for ((_, late), (_, early)) in jittered.iter().zip(&on_time) {
        assert!(late >= early && *late <= *early + up_to, "{late:?}, {early:?}");
        delayed += u64::from(late > early);
    }
    assert!(delayed > 1_900, "{delayed}");
}

#[test]
fn the_first_verdict_wins_and_rules_draw_apart() {
    let lost_numbers = |faults| {
        let fabric = run_train(&star(2), &with_faults(faults), 2_000);
        let numbers = last_host(&fabric).numbers();
        let lost = (0..2_000).filter(|number| !numbers.contains(number)).collect::<Vec<u64>>();
        (lost, numbers.len())
    };
    let loss = always(both_links()[0], Effect::Loss(0.1));
    let (lost, arrived) = lost_numbers(vec![loss]);
    let doubled = lost_numbers(vec![loss, always(both_links()[0], Effect::Duplicate(1.0))]);
    assert_eq!(doubled, (lost, 2 * arrived), "the same are lost, all others come twice");
}

/// A packet every 10 µs from host 0 to host 1 of a star.
fn metronome(config: &Config, count: u64) -> Fabric<Probe> {
    let shots = (0..count).map(|number| Shot { at: us(10 * number), ..Shot::to(NodeId(1)) });
    run_plan(&star(2), config, shots)
}

#[test]
fn a_dead_link_loses_what_starts_over_it_until_it_is_back() {
    let [last_link, first_link] = both_links();
    let cable = Place::Cable(1);
    // Packet 20 starts over the first link at 200 µs and over the second 1.7 µs later.
    let second = us(200) + Span::from_ns(1_700);
    let cases = [
        (first_link, us(200), us(300), 20..30),
        (first_link, us(200) + Span::from_ps(1), us(300) + Span::from_ps(1), 21..31),
        (last_link, second, second + Span::from_us(50), 20..25),
        (cable, second, us(10_000), 20..100),
        (Place::Into(NodeId(1)), Time::ZERO, second, 0..20),
        (Place::OutOf(NodeId(0)), us(995), Time::NEVER, 100..100),
        // The way back is not used.
        (Place::Into(NodeId(0)), Time::ZERO, Time::NEVER, 0..0),
    ];
    for (place, from, until, lost) in cases {
        let fabric =
            metronome(&with_faults(vec![Rule { place, effect: Effect::Down, from, until }]), 100);
        let expected: Vec<u64> = (0..100).filter(|number| !lost.contains(number)).collect();
        assert_eq!(
            last_host(&fabric).numbers(),
            expected,
            "{place:?} from {from:?} until {until:?}"
        );
    }
}

/// Host 0 under leaf 2 sends to host 1 under leaf 3; spines are 4 and 5.
fn racks() -> Topology {
    leaf_spine(1, 2, TEN_GBPS)
}

#[test]
fn a_switch_sends_around_its_own_dead_link() {
    let racks = racks();
    let (dead, other) = (link(&racks, 2, 4), link(&racks, 2, 5));
    for spread in [Spread::PerFlow, Spread::PerPacket, Spread::Explicit] {
        let faults = vec![always(Place::Link(dead), Effect::Down)];
        let mut fabric = run_train(&racks, &Config { faults, spread, ..Config::default() }, 500);
        assert_eq!(last_host(&fabric).arrivals.len(), 500);
        assert_eq!(fabric.link_stats(dead).sent_packets, 0);
        assert_eq!(fabric.link_stats(other).sent_packets, 500);
    }
}

#[test]
fn a_switch_sends_around_a_neighbour_that_is_down() {
    let racks = racks();
    let outages = vec![Outage { node: NodeId(4), from: Time::ZERO, until: Time::NEVER }];
    let config = Config { outages, spread: Spread::PerPacket, ..Config::default() };
    let mut fabric = run_train(&racks, &config, 500);
    assert_eq!(last_host(&fabric).arrivals.len(), 500);
    assert_eq!(fabric.link_stats(link(&racks, 2, 4)).sent_packets, 0);
}

#[test]
fn both_paths_are_used_again_when_the_link_is_back() {
    let racks = racks();
    let place = Place::Link(link(&racks, 2, 4));
    let down = Rule { place, effect: Effect::Down, from: Time::ZERO, until: us(300) };
    let config = Config { faults: vec![down], spread: Spread::PerPacket, ..Config::default() };
    let mut fabric = run_train(&racks, &config, 500);
    assert_eq!(last_host(&fabric).arrivals.len(), 500);
    // The train takes 600 µs. In the second half, every other packet takes the link.
    let back = fabric.link_stats(link(&racks, 2, 4)).sent_packets;
    assert!((85..165).contains(&back), "{back}");
}

#[test]
fn nobody_sends_around_what_it_does_not_see() {
    let racks = racks();
    let (seen, unseen) = (link(&racks, 2, 4), link(&racks, 4, 3));
    let config = Config { spread: Spread::PerPacket, ..Config::default() };
    let faults = vec![always(Place::Link(unseen), Effect::Down)];
    let mut fabric = run_train(&racks, &Config { faults, ..config.clone() }, 500);
    let lost = dropped(&fabric, DropReason::Fault);
    assert_eq!(lost, fabric.link_stats(seen).sent_packets);
    assert_eq!(last_host(&fabric).arrivals.len() as u64, 500 - lost);
    assert!((180..320).contains(&lost), "{lost}");
    // With every choice dead there is nothing to choose.
    let dead = [4, 5].map(|spine| always(Place::Link(link(&racks, 2, spine)), Effect::Down));
    let fabric = run_train(&racks, &Config { faults: dead.to_vec(), ..config }, 500);
    assert_eq!(dropped(&fabric, DropReason::Fault), 500);
}

#[test]
fn a_host_that_is_down_hears_nothing() {
    // Packet n arrives at 10 n + 3.4 µs.
    let fabric = metronome(&with_outage(1, us(205), us(405)), 100);
    let expected: Vec<u64> = (0..21).chain(41..100).collect();
    assert_eq!(last_host(&fabric).numbers(), expected);
    assert_eq!(dropped(&fabric, DropReason::NodeDown), 20);
    let fabric = metronome(&with_outage(1, us(205), Time::NEVER), 100);
    assert_eq!(last_host(&fabric).numbers().len(), 21);
}

#[test]
fn a_host_that_is_down_says_nothing_and_catches_up() {
    let fabric = metronome(&with_outage(0, us(205), us(405)), 100);
    let arrivals = &last_host(&fabric).arrivals;
    assert_eq!(arrivals.len(), 100);
    assert!(arrivals.iter().all(|arrival| arrival.sent < us(205) || arrival.sent >= us(405)));
    assert_eq!(arrivals[21].sent, us(405), "the first after the outage");
    let service = serialization(1_500, TEN_GBPS.rate);
    assert_eq!(arrivals[40].sent, us(405) + service * 19, "the backlog, back to back");
}

#[test]
fn a_switch_that_is_down_loses_what_waits_and_what_comes() {
    for buffer in [Buffer::default(), Buffer::Shared { bytes: 1_500_000, alpha: 8.0 }] {
        let (from, until) = (us(100), us(200));
        let config = Config { buffer, ..with_outage(3, from, until) };
        let mut fabric = Fabric::new(star(3), &config, 3, |host| match host {
            NodeId(2) => Probe::default(),
            _ => Probe::new(vec![Shot::to(NodeId(2)); 300]),
        });
        finish(&mut fabric, &mut Bystander);
        let arrivals = &fabric.machine(NodeId(2)).arrivals;
        let service = serialization(1_500, TEN_GBPS.rate);
        // The first packets reach the switch after 1.7 µs. From then on it sends without a pause,
        // and what it began to send before the outage still goes out.
        let before = arrivals.iter().filter(|arrival| arrival.at < until).count();
        assert_eq!(before, 82, "(100 − 1.7) / 1.2, rounded up");
        let last_before = Time::ZERO + Span::from_ns(1_700) + service * 82 + TEN_GBPS.delay;
        assert_eq!(arrivals[before - 1].at, last_before);
        // Each host's packets come to the switch at 1.2 n + 1.7 µs: 82 before the outage, 84 during
        // it, all others after it.
        let lost = dropped(&fabric, DropReason::NodeDown);
        assert_eq!(lost, (2 * 82 - 82) + 2 * 84);
        assert_eq!(arrivals.len() as u64, 600 - lost);
        assert_eq!(fabric.stats().dropped(), lost);
    }
}

#[test]
fn overlapping_outages_are_one() {
    let outage = |from, until| Outage { node: NodeId(1), from: us(from), until: us(until) };
    let together = vec![outage(105, 305), outage(205, 255), outage(255, 405), outage(505, 605)];
    let config = Config { outages: together, ..Config::default() };
    let expected: Vec<u64> = (0..11).chain(41..51).chain(61..100).collect();
    assert_eq!(last_host(&metronome(&config, 100)).numbers(), expected);
}

/// Starts hosts again with a fresh machine that greets host 0 once.
#[derive(Default)]
struct Reviver {
    restarts: Vec<(Time, NodeId)>,
}

impl Director<Probe> for Reviver {
    fn next_wake(&mut self) -> Time {
        Time::NEVER
    }

    fn handle_wake(&mut self, _now: Time, _hosts: &mut Hosts<'_, Probe>) {}

    fn handle_event(&mut self, _: Time, _: NodeId, _: u64, _: &mut Hosts<'_, Probe>) {}

    fn handle_restart(&mut self, now: Time, host: NodeId, _old: &Probe) -> Option<Probe> {
        self.restarts.push((now, host));
        Some(Probe::new([Shot { bytes: 64, ..Shot::to(NodeId(0)) }]))
    }
}

#[test]
fn a_host_starts_again_with_a_fresh_machine() {
    let shots = (0..100).map(|number| Shot { at: us(10 * number), ..Shot::to(NodeId(1)) });
    let mut sender = Some(Probe::new(shots));
    // The old machine of host 1 wants to speak at 500 µs. The new one does not.
    let late = Shot { at: us(500), ..Shot::to(NodeId(0)) };
    let mut config = with_outage(1, us(205), us(405));
    config.outages.push(Outage { node: NodeId(2), from: us(705), until: us(706) });
    let mut fabric = Fabric::new(star(2), &config, 7, |host| match host {
        NodeId(0) => sender.take().expect("one host 0"),
        _ => Probe::new([late]),
    });
    let mut reviver = Reviver::default();
    finish(&mut fabric, &mut reviver);
    assert_eq!(reviver.restarts, [(us(405), NodeId(1))], "a switch has nothing to ask for");
    assert_eq!(last_host(&fabric).numbers(), (41..100).collect::<Vec<u64>>());
    let greetings = &fabric.machine(NodeId(0)).arrivals;
    assert_eq!(greetings.iter().map(|greeting| greeting.sent).collect::<Vec<_>>(), [us(405)]);
}

/// Everything at once, everywhere.
fn chaos() -> Config {
    let rules = [
        Effect::Loss(0.02),
        Effect::Bursts { begin: 0.01, end: 0.3 },
        Effect::Duplicate(0.05),
        Effect::Reorder { probability: 0.05, by: Span::from_us(30) },
        Effect::Jitter(Span::from_us(2)),
    ];
    let mut faults: Vec<Rule> =
        rules.into_iter().map(|effect| always(Place::Everywhere, effect)).collect();
    let place = Place::SwitchCables;
    faults.insert(0, Rule { place, effect: Effect::Down, from: us(100), until: us(150) });
    let outage =
        |node, from, until| Outage { node: NodeId(node), from: us(from), until: us(until) };
    // A host, a leaf and a spine.
    let outages = vec![outage(1, 50, 120), outage(4, 200, 260), outage(6, 20, 300)];
    Config { faults, outages, spread: Spread::PerPacket, ..Config::default() }
}

#[test]
fn nothing_leaks_at_any_moment() {
    let small_port = Buffer::PerPort { bytes: 20_000 };
    for buffer in [small_port, Buffer::Shared { bytes: 60_000, alpha: 1.0 }] {
        let config = Config { buffer, ..chaos() };
        let shot = |host: NodeId, number| Shot {
            entropy: number,
            priority: (number % 8) as u8,
            ..Shot::to(NodeId((host.0 + 1 + u32::from(number % 3)) % 4))
        };
        let mut fabric = Fabric::new(leaf_spine(2, 2, TEN_GBPS), &config, 5, |host| {
            Probe::new((0..400).map(|number| shot(host, number)))
        });
        let mut reviver = Reviver::default();
        let slice = Limit { until: Time::NEVER, events: 13 };
        let mut slices = 0;
        while fabric.run(&mut reviver, slice) == Pause::Limit {
            fabric.check().unwrap_or_else(|violation| panic!("at {:?}: {violation}", fabric.now()));
            slices += 1;
        }
        assert!(slices > 300, "{slices}");
        check_drained(&fabric);
        for reason in [DropReason::QueueFull, DropReason::Fault, DropReason::NodeDown] {
            assert!(dropped(&fabric, reason) > 0, "{reason:?} did not happen");
        }
    }
}
