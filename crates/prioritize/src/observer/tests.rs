use std::net::Ipv4Addr;
use std::ops::ControlFlow;

use thalweg_core::Rng;

use super::*;
use crate::Settings;
use crate::bounds::Options;
use crate::features::LAST_FLOWS;

const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const OWN_PORT: u16 = 40_000;

fn at(ms: u64) -> Time {
    Time::ZERO + Span::from_ms(ms)
}

fn service(port: u16) -> Service {
    Service::of(Ipv4Addr::new(10, 0, 0, 2).into(), OWN_PORT, port)
}

fn seen(id: u64, port: u16, sent: u64, is_quiet: bool) -> Seen {
    Seen { id, own: OWN, service: service(port), sent: Bytes::new(sent), is_quiet }
}

/// An observer that has seen one empty list.
fn observer() -> Observer {
    observer_with(ObserverConfig { due_after: 20, ..ObserverConfig::default() })
}

fn observer_with(config: ObserverConfig) -> Observer {
    let mut observer = Observer::new(config);
    observer.handle_listed(at(0));
    observer
}

/// Passes a list of connections.
fn list(observer: &mut Observer, now: Time, all: &[Seen]) {
    all.iter().for_each(|seen| observer.handle_seen(now, seen));
    observer.handle_listed(now);
}

fn learned(observer: &Observer) -> Vec<(NewFlow, Bytes)> {
    observer.flows().copied().collect()
}

/// Gives a service a full history that ended long before the tests begin.
fn fill(observer: &mut Observer, port: u16) {
    for id in 0..LAST_FLOWS as u64 {
        observer.handle_closed(at(0), &seen(1_000 + id, port, 10, true));
    }
    assert!(learned(observer).is_empty(), "a flow without a full history teaches nothing");
    observer.counts = ObserverCounts::default();
}

/// An observer that has seen one empty list, and a service with a full history.
fn filled() -> Observer {
    let mut observer = observer();
    fill(&mut observer, 80);
    observer
}

fn train(flows: &[(NewFlow, Bytes)]) -> Model {
    let watch = |_| ControlFlow::Continue(());
    Model::train(flows, &Settings::default(), Options::default(), &watch).unwrap()
}

// spec: machine
#[test]
fn a_message_after_a_pause_is_a_flow_of_its_own() {
    let mut observer = filled();
    list(&mut observer, at(10), &[seen(1, 80, 5_000, false)]);
    list(&mut observer, at(20), &[seen(1, 80, 9_000, true)]);
    list(&mut observer, at(110), &[seen(1, 80, 9_000, true)]);
    assert_eq!(observer.counts().flows, 0, "it has paused for 90 ms");
    list(&mut observer, at(120), &[seen(1, 80, 9_000, true)]);
    assert_eq!(observer.counts().flows, 1);
    list(&mut observer, at(500), &[seen(1, 80, 9_700, true)]);
    observer.handle_closed(at(510), &seen(1, 80, 10_000, true));
    let flows = learned(&observer);
    assert_eq!(flows.iter().map(|(_, bytes)| bytes.as_u64()).collect::<Vec<_>>(), [9_000, 1_000]);
    assert_eq!(
        (flows[0].0.gap, flows[0].0.last_bytes[0]),
        (Some(Span::from_ms(8)), Bytes::new(10))
    );
    // It ended at 20 ms, as nothing was seen to leave later: 480 ms, rounded down to a power of two.
    assert_eq!(flows[1].0.gap, Some(Span::from_ms(256)));
    assert_eq!(flows[1].0.last_bytes[0], Bytes::new(9_000));
    let ObserverCounts { flows, later_flows, bytes, .. } = observer.counts();
    assert_eq!((flows, later_flows, bytes), (2, 1, 10_000));
    assert_eq!(observer.connections(), 0);
}

// spec: Q-13 machine
#[test]
fn a_connection_that_waits_is_not_over() {
    let mut observer = filled();
    list(&mut observer, at(10), &[seen(1, 80, 5_000, false)]);
    for ms in [200, 400, 600] {
        list(&mut observer, at(ms), &[seen(1, 80, 5_000, false)]);
    }
    assert_eq!(observer.counts().flows, 0, "bytes wait to be acknowledged");
    list(&mut observer, at(700), &[seen(1, 80, 6_000, true)]);
    list(&mut observer, at(900), &[seen(1, 80, 6_000, true)]);
    assert_eq!(learned(&observer)[0].1, Bytes::new(6_000));
}

// spec: Q-13 machine
#[test]
fn short_connections_are_known_by_their_end_alone() {
    let mut observer = filled();
    observer.handle_closed(at(15), &seen(7, 80, 300, true));
    observer.handle_closed(at(16), &seen(8, 80, 0, true));
    let flows = learned(&observer);
    assert_eq!(flows.len(), 1, "one that has sent nothing is no flow");
    assert_eq!(flows[0].1, Bytes::new(300));
}

// spec: Q-13 machine
#[test]
fn connections_that_vanish_have_ended() {
    let mut observer = filled();
    list(&mut observer, at(10), &[seen(1, 80, 5_000, false)]);
    list(&mut observer, at(20), &[]);
    assert_eq!(observer.counts().flows, 0, "the report of its end may come yet");
    list(&mut observer, at(30), &[]);
    assert_eq!(observer.counts().flows, 1);
    assert_eq!(learned(&observer)[0].1, Bytes::new(5_000));
}

// spec: Q-13 machine
#[test]
fn what_began_before_anybody_looked_teaches_nothing() {
    let mut observer = Observer::new(ObserverConfig::default());
    list(&mut observer, at(0), &[seen(1, 80, 5_000, false), seen(2, 80, 70, true)]);
    list(&mut observer, at(200), &[seen(1, 80, 5_000, true), seen(2, 80, 70, true)]);
    observer.handle_closed(at(300), &seen(1, 80, 5_000, true));
    assert_eq!(observer.counts().flows, 0);
    fill(&mut observer, 80);
    // The next message is whole.
    list(&mut observer, at(400), &[seen(2, 80, 1_070, true)]);
    observer.handle_closed(at(410), &seen(2, 80, 1_070, true));
    assert_eq!(learned(&observer)[0].1, Bytes::new(1_000));
}

#[test]
fn a_service_has_the_lower_port() {
    let peer: IpAddr = Ipv4Addr::new(10, 0, 0, 2).into();
    let (asks, answers) = (Service::of(peer, 40_000, 80), Service::of(peer, 80, 40_000));
    assert_eq!((asks.port, asks.is_answer), (80, false));
    assert_eq!((answers.port, answers.is_answer), (80, true));
    assert_eq!(asks.tuple(OWN).src_port, 0);
    assert_eq!((answers.tuple(OWN).src_port, answers.tuple(OWN).dst_port), (80, 80));
    assert_eq!(octave(Span::from_us(3)), Span::from_ms(1));
    assert_eq!(octave(Span::from_ms(7)), Span::from_ms(4));
}

/// Lets each of two services have a flow of its size every 10 ms until a forest is due, and trains it. The first five
/// flows of a service have no full history and teach nothing.
fn teach(observer: &mut Observer) {
    for round in 1..=15 {
        observer.handle_closed(at(10 * round), &seen(2 * round, 80, 1_000, true));
        observer.handle_closed(at(10 * round), &seen(2 * round + 1, 81, 50_000, true));
    }
    let due = observer.take_due(at(150)).expect("twenty flows with a history have ended");
    assert_eq!(due.len(), 20);
    assert!(observer.take_due(at(150)).is_none(), "it is being trained");
    observer.newest().publish(train(&due));
    observer.handle_trained(at(200), Span::from_ms(50), true);
}

// spec: machine
#[test]
fn finished_flows_give_bounds_to_the_next_ones() {
    let mut observer = observer();
    assert_eq!(observer.poll_next(at(1)), None);
    teach(&mut observer);
    let exactly = |bytes| {
        let bytes = Bytes::new(bytes);
        Some(Bounds { lower: bytes, upper: bytes })
    };
    assert_eq!(observer.poll_next(at(200)), Some((service(80), exactly(1_000))));
    assert_eq!(observer.poll_next(at(200)), Some((service(81), exactly(50_000))));
    assert_eq!(observer.poll_next(at(200)), None);
    for (id, port, bytes) in [(100, 80, 1_000), (101, 81, 49_999), (102, 81, 50_001), (103, 82, 9)]
    {
        observer.handle_closed(at(210), &seen(id, port, bytes, true));
    }
    let ObserverCounts { within, below, above, forests, flows, .. } = observer.counts();
    assert_eq!((within, below, above, forests, flows), (1, 1, 1, 1, 34));
    // What changed little still gives the same bounds: nothing is reported twice.
    while let Some((service, _)) = observer.poll_next(at(220)) {
        assert_eq!(service.port, 81, "only what became different");
    }
}

// spec: Q-13 machine
#[test]
fn training_gets_a_share_of_a_core() {
    let mut observer = observer();
    teach(&mut observer);
    for id in 500..600 {
        observer.handle_closed(at(210), &seen(id, 80, 1_000, true));
    }
    assert!(observer.take_due(at(649)).is_none(), "nine times as long as it took");
    assert_eq!(observer.take_due(at(650)).expect("it is due").len(), 120);
}

// spec: Q-13 machine
#[test]
fn tables_are_bounded_and_evictions_are_counted() {
    let config = ObserverConfig { connections: 10, services: 3, ..ObserverConfig::default() };
    let mut observer = observer_with(config);
    // The first one keeps on sending.
    for id in 0..50 {
        let first = seen(0, 80, 300 + id, false);
        let other = seen(id, 80 + (id % 5) as u16, 200, false);
        observer.handle_seen(at(id), &first);
        observer.handle_seen(at(id), &other);
        observer.connections.check();
        observer.services.check();
    }
    assert_eq!((observer.connections(), observer.services()), (10, 3));
    let counts = observer.counts();
    assert_eq!(counts.evicted_connections, 40);
    assert!(counts.evicted_services > 20, "{}", counts.evicted_services);
    observer.handle_closed(at(60), &seen(0, 80, 500, true));
    assert_eq!(observer.counts().bytes - counts.bytes, 500, "the first was never evicted");
}

/// A service that was evicted loses its bounds in the kernel, and no bounds are set for one that is not known.
// spec: Q-13 machine
#[test]
fn bounds_of_evicted_services_are_removed() {
    let config = ObserverConfig { services: 2, due_after: 20, ..ObserverConfig::default() };
    let mut observer = observer_with(config);
    teach(&mut observer);
    let mut set = BTreeSet::new();
    let mut drain = |observer: &mut Observer| {
        while let Some((service, bounds)) = observer.poll_next(at(210)) {
            match bounds {
                Some(_) => assert!(set.insert(service) || observer.services.contains(&service)),
                None => {
                    set.remove(&service);
                }
            }
        }
        set.len()
    };
    assert_eq!(drain(&mut observer), 2);
    for port in 90..100 {
        observer.handle_closed(at(220), &seen(port, port as u16, 70, true));
        assert!(drain(&mut observer) <= 2);
    }
    assert_eq!(drain(&mut observer), 0, "no flow of the ones that are left was learned from");
}

// spec: Q-13 machine
#[test]
fn a_hundred_thousand_connections_a_minute_stay_within_bounds() {
    let config = ObserverConfig { connections: 5_000, services: 500, ..ObserverConfig::default() };
    let mut observer = observer_with(config);
    let mut rng = Rng::new(1);
    let mut id = 0;
    // Of 100,000 in a minute a third is seen before it closes, a third only then, and a third never closes.
    for ms in (0..60_000).step_by(20) {
        for _ in 0..33 {
            id += 1;
            let peer = Ipv4Addr::from(0x0a00_0000 + rng.below(2_000) as u32);
            let service = Service::of(peer.into(), 50_000, 80);
            let sent = Bytes::new(rng.below(100_000));
            let one = Seen { id, own: OWN, service, sent, is_quiet: false };
            if !id.is_multiple_of(3) {
                observer.handle_seen(at(ms), &one);
            }
            if id % 3 != 1 {
                observer.handle_closed(at(ms), &one);
            }
        }
        observer.handle_listed(at(ms));
        while observer.poll_next(at(ms)).is_some() {}
    }
    assert!(observer.connections() <= 5_000 && observer.services() <= 500);
    assert!(observer.stale.len() <= 500 && observer.gone.is_empty());
    assert!(observer.counts().flows > 98_000, "{:?}", observer.counts());
    observer.connections.check();
    observer.services.check();
}
