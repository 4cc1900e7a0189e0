//! Authority to speak for a job.

use thalweg_core::{JobId, NodeId, Span};
use thalweg_wire::aggregate::{
    Announcement, Gradient, Notice, PROBE_EPOCH, PROBE_JOB, Probe, Query, StationBytes,
};
use thalweg_wire::tag::{self, Key, Secret, Secrets};

use super::super::outgoing::STRANGERS_MAX;
use super::asks;
use super::harness::{
    Bench, Content, Fate, ME, PARENT, SERVER, Sent, announcement, gradient, parameter,
};

const SECRET: Secret = Secret([9; 16]);
const JOB: JobId = JobId(7);

fn key() -> Key {
    Key::derive(&SECRET, JOB, 3)
}

fn stations_key() -> Key {
    Key::stations(&SECRET, JOB, 3)
}

fn bench() -> Bench {
    Bench::with(|config| config.secrets = Some(SECRET.into()))
}

/// A switch that knows a tree.
pub(super) fn knowing(switches: u32) -> Bench {
    let mut bench = bench();
    assert_eq!(bench.handle(&mut of_stations(group(switches))), Fate::Consumed);
    bench
}

/// Sealed as workers do.
pub(super) fn of_worker(sent: Sent) -> Sent {
    sealed_with(sent, &key())
}

/// Sealed as servers do for switches.
pub(super) fn of_stations(sent: Sent) -> Sent {
    sealed_with(sent, &stations_key())
}

fn sealed_with(mut sent: Sent, key: &Key) -> Sent {
    let body_bytes = sent.lend().body.len();
    tag::seal_sized(&mut sent.header, body_bytes, key);
    sent
}

fn is_sealed(sent: &Sent, key: &Key) -> bool {
    let body_bytes = sent.clone().lend().body.len();
    tag::verify_sized(&sent.header, body_bytes, key)
}

fn contribution(worker: u8) -> Sent {
    Sent::gradient(ME, &gradient(worker), &[1, 2])
}

/// Nodes 1 and 2 below the switch.
fn group(switches: u32) -> Sent {
    let what = Announcement {
        job: JOB,
        epoch: 3,
        server: SERVER,
        parent: PARENT,
        level: 0,
        stations: 1,
        switches: [switches, 0, 0, 0],
    };
    let station = StationBytes::new([0, 1, 0, 0], &[NodeId(1), NodeId(2)]);
    announcement(ME, &what, &[station])
}

fn query() -> Sent {
    let Gradient { identity, aggregator, branch, .. } = gradient(0);
    Sent::bare(Query::new(identity, aggregator, SERVER, branch).to_header())
}

fn request() -> Sent {
    Sent::bare(asks::request().to_header())
}

// spec: T-06 machine
#[test]
fn what_goes_on_is_sealed_again() {
    let mut bench = knowing(0);
    assert_eq!(bench.handle(&mut of_worker(contribution(0))), Fate::Consumed);
    let mut last = of_worker(contribution(1));
    assert_eq!(bench.handle(&mut last), Fate::Forwarded);
    assert!(is_sealed(&last, &key()));
    assert_eq!(Gradient::decode(&last.header).unwrap().level, 1);
    let mut answer = of_stations(parameter(&gradient(0)));
    assert!(matches!(bench.handle(&mut answer), Fate::Multicast(_)));
    assert!(is_sealed(&answer, &key()), "workers have no other key");
    assert_eq!(bench.switch.stats().forged, 0);
}

// spec: T-06 machine
#[test]
fn a_switch_that_has_just_started_verifies_at_once() {
    let mut bench = bench();
    let mut first = of_worker(contribution(0));
    assert_eq!(bench.handle(&mut first), Fate::Consumed, "nobody has named the server");
    assert_eq!((bench.switch.occupied(), bench.switch.stats().unknown_server), (0, 1));
    let notices = bench.transmit();
    assert_eq!(notices.len(), 1);
    assert!(Notice::decode(&notices[0].header).is_ok());
    assert!(is_sealed(&notices[0], &stations_key()), "only switches send notices");
    // The announcement follows.
    bench.handle(&mut of_stations(group(0)));
    assert_eq!(bench.handle(&mut of_worker(contribution(0))), Fate::Consumed);
    assert_eq!(bench.handle(&mut of_worker(contribution(1))), Fate::Forwarded);
}

// spec: T-06 machine
#[test]
fn what_is_not_sealed_with_the_right_key_touches_nothing() {
    let kinds = [
        (contribution(0), true),
        (query(), true),
        (group(0), false),
        (parameter(&gradient(0)), false),
        (request(), false),
    ];
    for (kind, is_of_workers) in kinds {
        let mut bench = bench();
        let derive = if is_of_workers { Key::derive } else { Key::stations };
        // A worker has the key of its job, and signs what only servers may send in vain.
        let other_role = if is_of_workers { Key::stations } else { Key::derive };
        let others = [
            derive(&SECRET, JobId(8), 3),
            derive(&SECRET, JOB, 2),
            derive(&Secret([8; 16]), JOB, 3),
            derive(&Secret([7; 16]), JOB, 3),
            other_role(&SECRET, JOB, 3),
        ];
        let mut forged = vec![kind.clone()];
        forged.extend(others.map(|key| sealed_with(kind.clone(), &key)));
        let mut changed = sealed_with(kind, &derive(&SECRET, JOB, 3));
        changed.header[40] ^= 1;
        forged.push(changed.clone());
        changed.header[40] ^= 1;
        changed.body = Content::Length(changed.lend().body.len() as u32 + 4);
        forged.push(changed);
        for (at, sent) in forged.iter_mut().enumerate() {
            let before = sent.clone();
            assert_eq!(bench.handle(sent), Fate::Consumed);
            assert_eq!(*sent, before);
            assert_eq!(bench.switch.stats().forged, at as u64 + 1);
        }
        assert_eq!((bench.switch.occupied(), bench.transmit().len()), (0, 0));
    }
}

// spec: E-13 machine
#[test]
fn results_and_requests_are_sealed_for_those_below() {
    for (switches, multicast, copied) in
        [(0b00, vec![1, 2], vec![]), (0b11, vec![1, 2], vec![]), (0b10, vec![1], vec![2])]
    {
        let nodes = |nodes: &[u32]| nodes.iter().copied().map(NodeId).collect::<Vec<_>>();
        for mut packet in [of_stations(parameter(&gradient(0))), of_stations(request())] {
            let mut bench = knowing(switches);
            let own = if switches == 0b11 { stations_key() } else { key() };
            assert_eq!(bench.handle(&mut packet), Fate::Multicast(nodes(&multicast)));
            assert!(is_sealed(&packet, &own), "{switches:b}");
            let sent = bench.transmit();
            let to: Vec<NodeId> = sent.iter().map(|sent| sent.meta.dst).collect();
            assert_eq!(to, nodes(&copied));
            for copy in sent {
                assert!(is_sealed(&copy, &stations_key()));
                assert_eq!(
                    (copy.body.clone(), copy.meta.wire_bytes),
                    (packet.body.clone(), packet.meta.wire_bytes)
                );
                assert_eq!(
                    copy.header[24..],
                    packet.header[24..],
                    "but for the seal it is the same"
                );
            }
            let other = if switches == 0b11 { key() } else { stations_key() };
            assert!(!is_sealed(&packet, &other));
        }
    }
}

// spec: E-13 machine
#[test]
fn packets_go_to_servers_that_servers_have_named() {
    let other = NodeId(103);
    let stray = |server| {
        let gradient = Gradient { server, resend: true, ..gradient(0) };
        of_worker(Sent::gradient(ME, &gradient, &[1, 2]))
    };
    let asks = |server| {
        let Gradient { identity, aggregator, branch, .. } = gradient(0);
        let query = Query { bypass: true, ..Query::new(identity, aggregator, server, branch) };
        of_worker(Sent::bare(query.to_header()))
    };
    let mut bench = knowing(0);
    assert_eq!(bench.handle(&mut stray(SERVER)), Fate::Forwarded);
    assert_eq!(bench.handle(&mut asks(SERVER)), Fate::Forwarded);
    for victim in 200..240 {
        assert_eq!(bench.handle(&mut stray(NodeId(victim))), Fate::Consumed);
        assert_eq!(bench.handle(&mut asks(NodeId(victim))), Fate::Consumed);
    }
    assert_eq!(bench.switch.stats().unknown_server, 80);
    assert_eq!(bench.transmit().len(), 1, "one notice in a gap, whomever the job names");
    bench.now += Span::from_us(100);
    bench.handle(&mut stray(NodeId(240)));
    assert_eq!(bench.transmit().len(), 1);
    let mut notices = 2;
    for victim in 0..2_000 {
        bench.now += Span::from_us(100);
        bench.handle(&mut stray(NodeId(1_000 + victim)));
        notices += bench.transmit().len();
    }
    assert_eq!(notices, STRANGERS_MAX as usize, "the life of a switch has no more of them");

    // A sealed probe names a server, and so does a result of a tree that is not known.
    let probe = Sent::bare(Probe { server: other, switch: ME, via: None }.to_header());
    let key = Key::derive(&SECRET, PROBE_JOB, PROBE_EPOCH);
    assert_eq!(bench.handle(&mut sealed_with(probe, &key)), Fate::Forwarded);
    assert_eq!(bench.handle(&mut stray(other)), Fate::Forwarded);
    let unknown = Gradient { server: NodeId(104), ..gradient(0) };
    assert_eq!(bench.handle(&mut of_stations(parameter(&unknown))), Fate::Consumed);
    assert_eq!(bench.handle(&mut stray(NodeId(104))), Fate::Forwarded);
}

// spec: E-13 machine
#[test]
fn without_a_secret_packets_go_where_workers_say() {
    let mut bench = Bench::new();
    let gradient = Gradient { server: NodeId(200), resend: true, ..gradient(0) };
    let (fate, sent) = bench.send(&gradient, &[1, 2]);
    assert_eq!((fate, sent.meta.dst), (Fate::Forwarded, NodeId(200)));
}

// spec: T-06 machine
#[test]
fn packets_of_two_secrets_are_taken_and_each_goes_on_as_it_came() {
    let (old, new) = (SECRET, Secret([8; 16]));
    let secrets = Secrets::both(new, old).unwrap();
    let mut bench = Bench::with(|config| config.secrets = Some(secrets));
    for secret in [old, new] {
        let key = Key::derive(&secret, JOB, 3);
        bench.handle(&mut sealed_with(group(0), &Key::stations(&secret, JOB, 3)));
        assert_eq!(bench.handle(&mut sealed_with(contribution(0), &key)), Fate::Consumed);
        let mut last = sealed_with(contribution(1), &key);
        assert_eq!(bench.handle(&mut last), Fate::Forwarded);
        assert!(is_sealed(&last, &key));
        let mut answer = sealed_with(parameter(&gradient(0)), &Key::stations(&secret, JOB, 3));
        assert!(matches!(bench.handle(&mut answer), Fate::Multicast(_)));
        assert!(is_sealed(&answer, &key));
        assert_eq!(bench.switch.occupied(), 0, "the result frees the sum");
    }
    assert_eq!(bench.switch.stats().forged, 0);
    // With one of them, the other is a stranger's.
    let mut bench = Bench::with(|config| config.secrets = Some(new.into()));
    bench.handle(&mut of_stations(group(0)));
    assert_eq!((bench.switch.stats().announcements, bench.switch.stats().forged), (0, 1));
}

// spec: T-06 machine
#[test]
fn secrets_are_replaced_while_a_job_sums() {
    let (old, new) = (SECRET, Secret([8; 16]));
    let mut bench = Bench::with(|config| config.secrets = Some(old.into()));
    let key = Key::derive(&old, JOB, 3);
    bench.handle(&mut sealed_with(group(0), &Key::stations(&old, JOB, 3)));
    bench.handle(&mut sealed_with(contribution(0), &key));
    bench.switch.replace_secrets(Secrets::both(new, old).unwrap());
    let mut last = sealed_with(contribution(1), &key);
    assert_eq!(bench.handle(&mut last), Fate::Forwarded, "the sum that had begun ends");
    assert!(is_sealed(&last, &key));
    assert_eq!(bench.switch.stats().forged, 0);
    // Its keys go with a secret.
    bench.switch.replace_secrets(new.into());
    bench.handle(&mut sealed_with(group(0), &Key::stations(&old, JOB, 3)));
    assert_eq!(bench.switch.stats().forged, 1);
}

// spec: T-06 machine
#[test]
fn tags_over_bodies_are_checked_and_kept() {
    let with_body = |mut sent: Sent, key: &Key| {
        let Content::Bytes(body) = &sent.body else { panic!("only a length") };
        tag::seal_with_body(&mut sent.header, body, key);
        sent
    };
    let mut bench = knowing(0);
    let mut changed = with_body(contribution(0), &key());
    let Content::Bytes(body) = &mut changed.body else { panic!("bytes") };
    body[3] ^= 1;
    bench.handle(&mut changed);
    assert_eq!((bench.switch.stats().forged, bench.switch.occupied()), (1, 0));
    bench.handle(&mut with_body(contribution(0), &key()));
    let mut last = with_body(contribution(1), &key());
    assert_eq!(bench.handle(&mut last), Fate::Forwarded);
    assert_eq!(last.values(), [2, 4]);
    assert_eq!(with_body(last.clone(), &key()), last, "sealed over the sum");
    // The same fragment without the body in its tag is another sum.
    let mut bare = of_worker(contribution(0));
    assert_eq!(bench.handle(&mut bare), Fate::Forwarded);
    assert_eq!(bench.switch.stats().collisions, 1);
    // The sum that is asked for again.
    assert_eq!(bench.handle(&mut of_stations(request())), Fate::Consumed);
    let sent = bench.transmit();
    assert_eq!(with_body(sent[0].clone(), &key()), sent[0]);
}
