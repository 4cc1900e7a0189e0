//! Results that are kept, and sent again to the child that misses them.

use thalweg_core::{JobId, NodeId, Span};
use thalweg_wire::aggregate::{Gradient, Identity, Numbers, Parameter, Query};
use thalweg_wire::tag::{self, Key, Secret};

use super::harness::{
    Bench, Content, Fate, ME, Net, OVERHEAD, PARENT, SERVER, Sent, gradient, parameter,
};
use super::keys::{knowing as sealed, of_stations, of_worker};
use crate::tree::{Member, Tree};

/// The result of [`gradient`], with other values than the sum that the switch has: nobody may get those.
const RESULT: [i32; 2] = [7, -7];

fn result(gradient: &Gradient) -> Sent {
    let body = RESULT.iter().flat_map(|value| value.to_le_bytes()).collect();
    Sent { header: parameter(gradient).header, ..Sent::new(ME, Content::Bytes(body)) }
}

fn query_of(gradient: &Gradient) -> Query {
    let Gradient { identity, aggregator, server, branch, .. } = *gradient;
    Query { watermark_distance: 10, ..Query::new(identity, aggregator, server, branch) }
}

/// The query of a worker that last got the result so far above the one that it misses.
fn last_got(gradient: &Gradient, distance: i32) -> Query {
    Query { received_distance: distance, ..query_of(gradient) }
}

fn query(worker: u8) -> Query {
    query_of(&gradient(worker))
}

fn ask(bench: &mut Bench, query: &Query) -> (Fate, NodeId) {
    let mut sent = Sent::bare(query.to_header());
    let fate = bench.handle(&mut sent);
    (fate, sent.meta.dst)
}

/// The nodes that get something.
fn reached(bench: &mut Bench) -> Vec<NodeId> {
    bench.transmit().iter().map(|sent| sent.meta.dst).collect()
}

/// A switch that knows the group of [`gradient`], where packets are lost.
fn losing() -> Bench {
    let mut bench = Bench::knowing();
    assert_eq!(ask(&mut bench, &Query { bypass: true, ..query(0) }).0, Fate::Forwarded);
    bench
}

/// The same, after a few sums whose contributions have paid for repeats.
fn rich() -> Bench {
    let mut bench = losing();
    for sequence in 400..410 {
        finish(&mut bench, |worker| {
            let own = gradient(worker);
            let identity = Identity { sequence, ..own.identity };
            Gradient { identity, aggregator: 9, ..own }
        });
    }
    bench
}

/// Sums a fragment of two workers, and takes its result in.
fn finish(bench: &mut Bench, of: impl Fn(u8) -> Gradient) {
    bench.send(&of(0), &[3, -4]);
    bench.send(&of(1), &[10, 20]);
    assert!(matches!(bench.handle(&mut result(&of(0))), Fate::Multicast(_)));
    assert_eq!(bench.switch.occupied(), 0, "who keeps a result holds no aggregator");
}

const UP: (Fate, NodeId) = (Fate::Forwarded, PARENT);

// spec: T-10 machine
#[test]
fn a_child_that_misses_a_result_gets_it_from_the_switch() {
    let mut bench = losing();
    finish(&mut bench, gradient);
    assert_eq!(ask(&mut bench, &query(1)).0, Fate::Consumed, "nobody above is asked");
    let sent = bench.transmit();
    let [again] = &sent[..] else { panic!("once, not {sent:?}") };
    assert_eq!((again.meta.dst, again.meta.wire_bytes), (NodeId(2), 8 + OVERHEAD));
    assert_eq!(again.values(), RESULT, "the bits of the server");
    let first = Parameter::decode(&result(&gradient(0)).header).unwrap();
    assert_eq!(Parameter::decode(&again.header), Ok(Parameter { level: 0, ..first }));
    assert_eq!(bench.switch.stats().results_repeated, 1);
}

// spec: T-10 machine
#[test]
fn nothing_is_kept_where_nobody_asks() {
    let at = |sequence: u64| {
        move |worker: u8| {
            let mut own = gradient(worker);
            own.identity.sequence = sequence;
            own
        }
    };
    let mut bench = Bench::knowing();
    finish(&mut bench, gradient);
    assert_eq!(ask(&mut bench, &query(0)), UP);
    for sequence in 501..501 + 4_096 {
        finish(&mut bench, at(sequence));
    }
    let last = query_of(&at(501 + 4_095)(0));
    assert_eq!(ask(&mut bench, &last).0, Fate::Consumed);
    assert_eq!(reached(&mut bench), [NodeId(1)]);
    for sequence in 5_000..5_000 + 4_097 {
        finish(&mut bench, at(sequence));
    }
    assert_eq!(ask(&mut bench, &query_of(&at(5_000 + 4_096)(0))), UP, "all were well for long");
}

// spec: T-10 machine
#[test]
fn each_child_gets_it_once_in_a_gap() {
    let mut bench = rich();
    finish(&mut bench, gradient);
    for worker in [0, 0, 1, 1, 0] {
        assert_eq!(ask(&mut bench, &query(worker)).0, Fate::Consumed);
    }
    assert_eq!(reached(&mut bench), [NodeId(1), NodeId(2)]);
    bench.now += Span::from_us(99);
    assert_eq!(ask(&mut bench, &query(0)).0, Fate::Consumed);
    assert!(reached(&mut bench).is_empty());
    bench.now += Span::from_us(1);
    assert_eq!(ask(&mut bench, &query(0)).0, Fate::Consumed);
    assert_eq!(reached(&mut bench), [NodeId(1)]);
    assert_eq!(bench.switch.stats().asks_held, 4);
}

// spec: E-13 machine
#[test]
fn it_is_sent_again_no_more_often_than_was_paid_for() {
    let mut bench = losing();
    finish(&mut bench, gradient);
    for _ in 0..10 {
        ask(&mut bench, &query(0));
        bench.now += Span::from_us(100);
    }
    // One of the contributions went on with the sum. The other pays for two packets, and the tree began with what the copy
    // of the result takes, and 8 bytes more.
    assert_eq!(reached(&mut bench).len(), 2);
    assert_eq!(ask(&mut bench, &query(0)), UP, "the server answers");
}

// spec: T-10 machine
#[test]
fn nothing_but_exactly_this_result_is_an_answer() {
    let mut bench = losing();
    finish(&mut bench, gradient);
    let other = |change: fn(&mut Identity)| {
        let mut query = query(0);
        change(&mut query.identity);
        query
    };
    for query in [
        other(|identity| identity.attempt = 1),
        other(|identity| identity.sequence = 501),
        other(|identity| identity.operation = 71),
        Query { aggregator: 6, ..query(0) },
    ] {
        assert_eq!(ask(&mut bench, &query), UP, "{query:?}");
    }
    for (query, to) in [
        (other(|identity| identity.epoch = 4), SERVER),
        (Query { server: NodeId(9), ..query(0) }, NodeId(9)),
        (Query { bypass: true, ..query(0) }, SERVER),
    ] {
        assert_eq!(ask(&mut bench, &query), (Fate::Forwarded, to), "{query:?}");
    }
    assert_eq!(bench.switch.stats().results_repeated, 0);
}

// spec: T-10 machine
#[test]
fn who_takes_the_aggregator_ends_it() {
    let mut bench = losing();
    finish(&mut bench, gradient);
    assert_eq!(ask(&mut bench, &query(0)).0, Fate::Consumed);
    let mut next = gradient(0);
    next.identity.sequence = 600;
    assert_eq!(bench.send(&next, &[1, 2]).0, Fate::Consumed, "it is free for all");
    assert!(reached(&mut bench).is_empty(), "these are other values");
    assert_eq!(ask(&mut bench, &query(0)), UP);
    // What ends without a result leaves nothing.
    bench.now += Span::from_s(1);
    bench.send(&gradient(0), &[1, 2]);
    assert_eq!(bench.switch.stats().freed_stale, 1);
    bench.send(&Gradient { resend: true, ..gradient(0) }, &[1, 2]);
    assert_eq!((bench.switch.occupied(), ask(&mut bench, &query(0))), (0, UP));
}

// spec: T-10, A-23 machine
#[test]
fn what_is_no_result_of_the_sum_is_not_kept() {
    let of_floats = || {
        let Gradient { identity, aggregator, numbers, server, .. } = gradient(0);
        let sum = Parameter::sum(identity, aggregator, numbers, server, 4);
        let header = Parameter { repeat: true, ..sum }.to_header();
        Sent { header, ..Sent::new(ME, Content::Length(0)) }
    };
    let longer = Sent { header: result(&gradient(0)).header, ..Sent::new(ME, Content::Length(12)) };
    for mut answer in [of_floats(), parameter(&gradient(0)), longer] {
        let mut bench = losing();
        bench.send(&gradient(0), &[3, -4]);
        bench.send(&gradient(1), &[10, 20]);
        bench.handle(&mut answer);
        assert_eq!((bench.switch.occupied(), ask(&mut bench, &query(0))), (0, UP), "{answer:?}");
    }
}

// spec: T-10 machine
#[test]
fn a_result_without_values_is_kept_as_a_length() {
    let mut bench = losing();
    for worker in [0, 1] {
        let header = gradient(worker).to_header();
        bench.handle(&mut Sent { header, ..Sent::new(ME, Content::Length(8)) });
    }
    bench.handle(&mut parameter(&gradient(0)));
    ask(&mut bench, &query(0));
    assert_eq!(bench.transmit()[0].body, Content::Length(8));
}

// spec: T-10 machine
#[test]
fn a_query_that_has_crossed_the_result_is_not_answered() {
    let mut bench = rich();
    let at = |sequence: u64| {
        move |worker: u8| {
            let mut own = gradient(worker);
            own.identity.sequence = sequence;
            Gradient { aggregator: sequence as u32, ..own }
        }
    };
    for sequence in [501, 500, 502] {
        finish(&mut bench, at(sequence));
        bench.now += Span::from_us(10);
    }
    let asks = |distance| last_got(&at(500)(0), distance);
    assert_eq!(ask(&mut bench, &asks(1)).0, Fate::Consumed, "501 was sent before it");
    assert!(reached(&mut bench).is_empty());
    assert_eq!(bench.switch.stats().asks_held, 1);
    assert_eq!(ask(&mut bench, &asks(2)).0, Fate::Consumed, "502 was sent after it");
    assert_eq!(reached(&mut bench), [NodeId(1)]);
    for distance in [0, 3] {
        bench.now += Span::from_us(100);
        assert_eq!(ask(&mut bench, &asks(distance)).0, Fate::Consumed, "nobody knows");
        assert_eq!(reached(&mut bench), [NodeId(1)]);
    }
    // A child that got 501 again may have got it after 500.
    ask(&mut bench, &last_got(&at(501)(1), 0));
    assert_eq!(reached(&mut bench), [NodeId(2)]);
    ask(&mut bench, &last_got(&at(500)(1), 1));
    assert_eq!(reached(&mut bench), [NodeId(2)]);
}

// spec: F-02 machine
#[test]
fn halves_are_kept_as_they_came() {
    let mut bench = losing();
    let own = |worker| Gradient { numbers: Numbers::Bf16, ..gradient(worker) };
    let bytes: Vec<u8> = (0..16).map(|at| 0x11 * at).collect();
    for worker in [0, 1] {
        let header = own(worker).to_header();
        bench.handle(&mut Sent { header, ..Sent::new(ME, Content::Bytes(bytes.clone())) });
    }
    let odd: Vec<u8> = bytes.iter().map(|byte| byte ^ 0x5a).collect();
    let header = parameter(&own(0)).header;
    bench.handle(&mut Sent { header, ..Sent::new(ME, Content::Bytes(odd.clone())) });
    ask(&mut bench, &query(0));
    assert_eq!(bench.transmit()[0].body, Content::Bytes(odd));
}

// spec: E-13, T-06 machine
#[test]
fn it_is_sealed_for_the_child() {
    const SECRET: Secret = Secret([9; 16]);
    let (job, stations) = (Key::derive(&SECRET, JobId(7), 3), Key::stations(&SECRET, JobId(7), 3));
    // The second child is a switch.
    for (worker, key, other) in [(0, &job, &stations), (1, &stations, &job)] {
        for covers_body in [false, true] {
            let seal = |mut sent: Sent, key: &Key| {
                let Content::Bytes(body) = &sent.body else { panic!("only a length") };
                if covers_body {
                    tag::seal_with_body(&mut sent.header, body, key);
                    return sent;
                }
                let of_workers = *key == job;
                if of_workers { of_worker(sent) } else { of_stations(sent) }
            };
            let mut bench = sealed(0b10);
            bench.handle(&mut of_worker(Sent::bare(query(0).to_header())));
            for worker in [0, 1] {
                bench.handle(&mut seal(Sent::gradient(ME, &gradient(worker), &[1, 2]), &job));
            }
            bench.handle(&mut seal(result(&gradient(0)), &stations));
            // The copy of the result for the switch.
            assert_eq!(bench.transmit().len(), 1);
            bench.handle(&mut of_worker(Sent::bare(query(worker).to_header())));
            let sent = bench.transmit();
            assert_eq!(seal(sent[0].clone(), key), sent[0]);
            assert_ne!(seal(sent[0].clone(), other), sent[0]);
        }
    }
}

// spec: E-13 machine
#[test]
fn nobody_has_paid_for_the_copies_of_what_is_sent_again() {
    let mut bench = losing();
    bench.send(&gradient(0), &[3, -4]);
    bench.send(&gradient(1), &[10, 20]);
    let mut paid = result(&gradient(0));
    let first = Parameter::decode(&paid.header).unwrap();
    paid.header = Parameter { paid: true, ..first }.to_header();
    assert!(matches!(bench.handle(&mut paid), Fate::Multicast(_)));
    assert!(Parameter::decode(&paid.header).unwrap().paid, "switches below need not pay");
    ask(&mut bench, &query(1));
    assert!(!Parameter::decode(&bench.transmit()[0].header).unwrap().paid);
}

// spec: E-13 machine
#[test]
fn copies_that_nobody_has_paid_for_are_withheld() {
    let mut bench = Bench::knowing();
    let result = |sequence, paid| {
        let own = gradient(0);
        let identity = Identity { sequence, ..own.identity };
        let sum = Parameter::sum(identity, own.aggregator, own.numbers, own.server, 4);
        let header = Parameter { paid, ..sum }.to_header();
        Sent { header, ..Sent::new(ME, Content::Length(8)) }
    };
    assert!(matches!(bench.handle(&mut result(0, false)), Fate::Multicast(_)), "the first one");
    assert_eq!(bench.handle(&mut result(1, false)), Fate::Consumed);
    assert!(matches!(bench.handle(&mut result(2, true)), Fate::Multicast(_)));
    assert_eq!(bench.switch.stats().withheld, 1);
    // Contributions pay, and the sum is freed in any case.
    finish(&mut bench, gradient);
    assert!(matches!(bench.handle(&mut result(3, false)), Fate::Multicast(_)));
    assert_eq!(bench.handle(&mut result(4, false)), Fate::Consumed);
}

/// Two racks of two workers below a root.
fn racks() -> (Tree, Net) {
    let member = |rank: u32| Member {
        node: NodeId(1_000 + rank),
        path: vec![NodeId(10 + rank / 2), NodeId(9)],
    };
    let tree = Tree::build(SERVER, &(0..4).map(member).collect::<Vec<_>>()).unwrap();
    let net = Net::new(&tree.groups(), JobId(7), 3, SERVER);
    (tree, net)
}

// spec: T-10, A-12 machine
#[test]
fn both_levels_keep_results() {
    for is_lost_above in [false, true] {
        let (tree, mut net) = racks();
        let of = |rank| {
            let branch = tree.branch(rank);
            Gradient { branch, bitmap: branch.bit(0), ..gradient(0) }
        };
        let asks = || {
            let header = query_of(&of(1)).to_header();
            Sent { header, ..Sent::new(tree.first_hop(1), Content::Length(0)) }
        };
        net.send(asks());
        net.arrived.clear();
        for rank in 0..4 {
            net.send(Sent::gradient(tree.first_hop(rank), &of(rank), &[rank as i32, 1]));
        }
        assert_eq!(std::mem::take(&mut net.arrived).len(), 1, "one sum of all");
        let mut answer = result(&of(0));
        if is_lost_above {
            // The rack of ranks 0 and 1 misses it.
            let rack = net.switches.remove(&NodeId(10)).unwrap();
            answer.meta.dst = NodeId(9);
            net.send(answer);
            net.switches.insert(NodeId(10), rack);
        } else {
            answer.meta.dst = NodeId(9);
            net.send(answer);
        }
        net.arrived.clear();
        net.send(asks());
        let came: Vec<(NodeId, Vec<i32>)> =
            net.arrived.iter().map(|sent| (sent.meta.dst, sent.values())).collect();
        let nodes: &[u32] = if is_lost_above { &[1_000, 1_001] } else { &[1_001] };
        let expected: Vec<_> = nodes.iter().map(|&node| (NodeId(node), RESULT.to_vec())).collect();
        assert_eq!(came, expected);
        assert_eq!(net.occupied(), 0);
        let at = if is_lost_above { NodeId(9) } else { NodeId(10) };
        assert_eq!(net.switches[&at].stats().results_repeated, 1);
    }
}
