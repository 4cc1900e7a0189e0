//! Queries of nodes that lack something, and answers from those that have it.

use thalweg_core::{Body, JobId, Machine, NodeId, Span};
use thalweg_wire::aggregate::{
    Announcement, Bounded, Gradient, LossShare, Query, Request, StationBytes,
};

use super::harness::{
    Bench, Content, Fate, ME, OVERHEAD, PARENT, SERVER, Sent, TestOutbox, branch_of, gradient,
    parameter,
};

/// A worker of [`gradient`] misses the sum.
fn query(worker: u8) -> Query {
    let Gradient { identity, aggregator, server, branch, .. } = gradient(worker);
    Query { watermark_distance: 10, ..Query::new(identity, aggregator, server, branch) }
}

/// The switch above asks this one, whose place there is 1.
pub(super) fn request() -> Request {
    let Gradient { identity, aggregator, server, branch, .. } = gradient(0);
    Request {
        identity,
        aggregator,
        server,
        branch,
        level: 1,
        wanted: 0b10,
        bypass: false,
        restart: false,
    }
}

/// Hands a query in, and returns what became of it.
fn ask(bench: &mut Bench, query: &Query) -> (Fate, Sent) {
    let mut sent = Sent::bare(query.to_header());
    (bench.handle(&mut sent), sent)
}

/// Hands a request in, and returns what became of it.
fn demand(bench: &mut Bench, request: &Request) -> (Fate, Sent) {
    let mut sent = Sent::bare(request.to_header());
    (bench.handle(&mut sent), sent)
}

fn query_in(sent: &Sent) -> Query {
    Query::decode(&sent.header).unwrap()
}

fn request_in(sent: &Sent) -> Request {
    Request::decode(&sent.header).unwrap()
}

// spec: T-10 machine
#[test]
fn a_query_becomes_a_request_where_a_child_is_missing() {
    let mut bench = Bench::knowing();
    bench.send(&gradient(0), &[3, -4]);
    let (fate, sent) = ask(&mut bench, &query(0));
    assert_eq!(fate, Fate::Multicast(vec![NodeId(2)]));
    assert_eq!(request_in(&sent), Request { level: 0, ..request() });

    bench.now += Span::from_us(99);
    assert_eq!(ask(&mut bench, &query(1)).0, Fate::Consumed, "it was just asked for");
    bench.now += Span::from_us(1);
    assert_eq!(ask(&mut bench, &query(1)).0, Fate::Multicast(vec![NodeId(2)]));
    assert_eq!((bench.switch.stats().asked, bench.switch.stats().asks_held), (2, 1));

    let repair = Gradient { repair: true, ..gradient(1) };
    let (fate, sent) = bench.send(&repair, &[10, 20]);
    assert_eq!((fate, sent.meta.dst, sent.values()), (Fate::Forwarded, PARENT, vec![13, 16]));
    assert_eq!(sent.read(), Gradient { bitmap: 0b11, level: 1, ..repair });
}

// spec: T-10 machine
#[test]
fn a_query_goes_on_where_nothing_or_nobody_is_missing() {
    let mut bench = Bench::knowing();
    let up = Query { level: 1, ..query(0) };
    let (fate, sent) = ask(&mut bench, &query(0));
    assert_eq!((fate, sent.meta.dst, query_in(&sent)), (Fate::Forwarded, PARENT, up));
    bench.send(&gradient(0), &[3, -4]);
    let mut other = query(0);
    other.identity.attempt = 1;
    assert_eq!(ask(&mut bench, &other).0, Fate::Forwarded, "another attempt");
    let mut other = query(0);
    other.identity.operation = 71;
    assert_eq!(ask(&mut bench, &other).0, Fate::Forwarded, "another operation");
    bench.send(&gradient(1), &[3, -4]);
    let (fate, sent) = ask(&mut bench, &query(0));
    let awaited = Query { awaited: true, ..up };
    assert_eq!((fate, sent.meta.dst, query_in(&sent)), (Fate::Forwarded, PARENT, awaited));
    assert_eq!(ask(&mut bench, &query(1)).0, Fate::Consumed, "one asks for all");
    bench.now += Span::from_us(100);
    assert_eq!(ask(&mut bench, &query(1)).0, Fate::Forwarded);
    // What a switch below says does not hold here.
    let other = Query { aggregator: 6, awaited: true, ..query(0) };
    assert!(!query_in(&ask(&mut bench, &other).1).awaited);
    for past in [Query { bypass: true, ..query(0) }, Query { level: 2, ..query(0) }] {
        let (fate, sent) = ask(&mut bench, &past);
        assert_eq!((fate, sent.meta.dst), (Fate::Forwarded, SERVER));
        assert_eq!(query_in(&sent), Query { level: 2, ..past });
    }
    let mut bench = Bench::new();
    bench.send(&gradient(0), &[3, -4]);
    let (fate, sent) = ask(&mut bench, &query(0));
    assert_eq!((fate, sent.meta.dst, query_in(&sent).level), (Fate::Forwarded, SERVER, 2));
    assert_eq!(bench.transmit().len(), 1, "it does not know whom to ask, and says so");
}

// spec: T-10 machine
#[test]
fn a_full_station_that_is_asked_sends_its_sum_again() {
    let mut bench = Bench::knowing();
    bench.send(&Gradient { congested: true, ..gradient(0) }, &[3, -4]);
    bench.send(&Gradient { watermark_distance: 20, ..gradient(1) }, &[10, 20]);
    for _ in 0..2 {
        assert_eq!(demand(&mut bench, &request()).0, Fate::Consumed);
    }
    let mut nothing = TestOutbox::with_room(ME, 0);
    bench.switch.poll_transmit(bench.now, &mut nothing);
    assert!(bench.switch.has_backlog(), "it waits for room");
    let sent = bench.transmit();
    let [sum] = &sent[..] else { panic!("once, not {sent:?}") };
    assert_eq!((sum.meta.dst, sum.meta.wire_bytes), (PARENT, 8 + OVERHEAD));
    assert_eq!(sum.values(), [13, 16]);
    let expected = Gradient {
        bitmap: 0b11,
        level: 1,
        branch: branch_of(2, 0),
        watermark_distance: 20,
        congested: true,
        repair: true,
        ..gradient(0)
    };
    assert_eq!(sum.read(), expected);
    assert_eq!(bench.switch.stats().sent_again, 1);

    demand(&mut bench, &request());
    bench.handle(&mut parameter(&gradient(0)));
    assert_eq!(bench.transmit(), [], "what was freed is not sent");
    // A worker that was asked finds the sum full: it takes a copy with it.
    bench.send(&gradient(0), &[3, -4]);
    bench.send(&gradient(1), &[10, 20]);
    let repair = Gradient { repair: true, ..gradient(0) };
    let (fate, sent) = bench.send(&repair, &[3, -4]);
    assert_eq!((fate, sent.values(), sent.read().bitmap), (Fate::Forwarded, vec![13, 16], 0b11));
}

// spec: T-10 machine
#[test]
fn sums_without_values_are_sent_again_as_lengths() {
    let mut bench = Bench::knowing();
    for worker in [0, 1] {
        let mut sent = Sent::new(ME, Content::Length(8));
        gradient(worker).encode(&mut sent.header);
        bench.handle(&mut sent);
    }
    demand(&mut bench, &request());
    let mut sent = bench.transmit();
    assert_eq!(sent[0].lend().body, Body::Length(8));
    assert_eq!(sent[0].read().bitmap, 0b11);
}

// spec: T-10 machine
#[test]
fn a_station_that_is_asked_asks_those_that_it_lacks() {
    let mut bench = Bench::knowing();
    let branch = branch_of(2, 0);
    let down = Request { level: 0, branch, ..request() };
    let (fate, sent) = demand(&mut bench, &request());
    assert_eq!(fate, Fate::Multicast(vec![NodeId(1), NodeId(2)]));
    assert_eq!(request_in(&sent), Request { wanted: 0b11, restart: true, ..down });
    bench.send(&gradient(1), &[3, -4]);
    let (fate, sent) = demand(&mut bench, &request());
    assert_eq!(fate, Fate::Multicast(vec![NodeId(1)]));
    assert_eq!(request_in(&sent), Request { wanted: 0b01, ..down });
    assert_eq!(demand(&mut bench, &request()).0, Fate::Consumed, "within the gap");
    let not_me = Request { wanted: 0b01, ..request() };
    assert_eq!(demand(&mut bench, &not_me).0, Fate::Consumed);
    assert_eq!(bench.switch.stats().malformed, 0);
    for wrong in [Request { level: 2, ..request() }, Request { bypass: true, ..request() }] {
        assert_eq!(demand(&mut bench, &wrong).0, Fate::Consumed);
    }
    assert_eq!((bench.switch.stats().malformed, bench.switch.stats().asked), (2, 2));
}

// spec: T-10 machine
#[test]
fn stations_of_one_switch_are_asked_each() {
    let mut bench = Bench::new();
    let announcement = Announcement {
        job: JobId(7),
        epoch: 3,
        server: SERVER,
        parent: PARENT,
        level: 0,
        stations: 2,
        switches: [0; 4],
    };
    let stations = [
        StationBytes::new([0, 0, 0, 0], &[NodeId(1), NodeId(2)]),
        StationBytes::new([0, 1, 0, 0], &[NodeId(3), NodeId(4)]),
    ];
    bench.announce(&announcement, &stations);
    bench.send(&gradient(0), &[3, -4]);
    let (fate, sent) = demand(&mut bench, &Request { wanted: 0b11, ..request() });
    let read = request_in(&sent);
    assert_eq!(fate, Fate::Multicast(vec![NodeId(1), NodeId(2)]));
    assert_eq!((read.branch.places(), read.restart), ([0; 4], true));
    let sent = bench.transmit();
    let [other] = &sent[..] else { panic!("the missing child, not {sent:?}") };
    assert_eq!((other.meta.dst, other.meta.wire_bytes), (NodeId(4), OVERHEAD));
    let read = request_in(other);
    assert_eq!((read.branch.places(), read.wanted, read.restart), ([0, 1, 0, 0], 0b10, false));
}

#[test]
fn a_bounded_query_takes_what_there_is_to_the_server() {
    let share = LossShare::from_parts(25);
    let operation = Bounded { first_distance: 0, fragments: 100, share };
    let query = |worker| Query { bounded: Some(operation), ..query(worker) };
    let mut bench = Bench::knowing();
    bench.send(&gradient(0), &[3, -4]);
    assert_eq!(ask(&mut bench, &query(0)).0, Fate::Consumed);
    let sent = bench.transmit();
    assert_eq!(sent.iter().map(|sent| sent.meta.dst).collect::<Vec<_>>(), [SERVER, PARENT]);
    let part = sent[0].read();
    assert_eq!((part.bitmap, part.bitmap_level, part.level), (0b1, 0, part.branch.end()));
    assert!(part.resend && !part.repair, "no switch along the path sums it");
    assert_eq!(sent[0].values(), [3, -4]);
    assert_eq!(query_in(&sent[1]), Query { level: 1, ..query(0) }, "behind it");
    assert_eq!((bench.switch.stats().parts_sent, bench.switch.stats().asked), (1, 0));

    let (fate, sent) = ask(&mut bench, &query(1));
    let level = query_in(&sent).level;
    assert_eq!((fate, sent.meta.dst, level), (Fate::Forwarded, PARENT, 1), "just sent");
    assert!(bench.transmit().is_empty());

    let (fate, sent) = bench.send(&gradient(1), &[10, 20]);
    assert_eq!((fate, sent.values()), (Fate::Forwarded, vec![13, 16]), "the sum is still there");
    bench.now += Span::from_us(100);
    assert_eq!(ask(&mut bench, &query(0)).0, Fate::Forwarded, "nothing is missing here");
    bench.handle(&mut parameter(&gradient(0)));
    assert_eq!(bench.switch.occupied(), 0);
}
