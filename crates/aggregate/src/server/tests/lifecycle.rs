//! Jobs that come, change and go, and windows that move.

use thalweg_wire::tag::{self, Key, Secret};

use super::super::slot::Values;
use super::super::{BudgetError, ConfigError};
use super::*;

// spec: A-41 machine
#[test]
fn a_new_epoch_keeps_results_and_forgets_sums() {
    let mut bench = Bench::new(setup(&racks()));
    bench.give_all(2, &fixed(&[1]));
    bench.drain();
    bench.give(bench.own(0, 3), &fixed(&[1]));
    let stale = bench.own(1, 3);
    // Worker 5 has left: five workers, of which rank 4 is the last.
    let members = &racks()[..5];
    renew(&mut bench, Setup { epoch: 2, resume_from: 1, ..setup(members) });
    let sent = bench.drain();
    assert_eq!(destinations(&sent), [102, 100, 101]);
    assert!(sent.iter().all(|sent| Announcement::decode(&sent.header).unwrap().epoch == 2));
    bench.give(stale, &fixed(&[1]));
    assert_eq!(bench.stats().stale, 1);
    bench.ask(bench.query(3, 2, false));
    let sent = bench.drain();
    assert_eq!((destinations(&sent), &sent[0].body), (vec![3], &fixed(&[6])));
    assert_eq!(sent[0].parameter().identity, bench.identity(2, 0));
    assert_eq!(sent[0].parameter().job_watermark(), 1);
    bench.give_all(3, &fixed(&[1]));
    assert_eq!(bench.drain()[0].body, fixed(&[5]), "nothing of the old sum is in it");
    bench.give(bench.own(0, 0), &fixed(&[1]));
    assert_eq!(bench.stats().stale, 2, "it is below the job watermark");
}

// spec: A-41 machine
#[test]
fn workers_that_send_again_what_was_complete_get_the_result() {
    let mut bench = Bench::new(setup(&racks()));
    bench.give(Gradient { collision: true, ..bench.sum(0, 0, 1, 0b111) }, &fixed(&[6]));
    assert!(bench.drain()[0].parameter().next_aggregator.is_some());
    renew(&mut bench, Setup { epoch: 2, ..setup(&racks()) });
    bench.drain();
    let again = Gradient { aggregator: 5, identity: bench.identity(0, 4), ..bench.own(0, 0) };
    bench.give(again, &fixed(&[1]));
    let sent = bench.drain();
    let parameter = sent[0].parameter();
    assert_eq!((destinations(&sent), &sent[0].body), (vec![102], &fixed(&[6])));
    assert_eq!((parameter.identity, parameter.aggregator), (bench.identity(0, 4), 5));
    assert_eq!(parameter.next_aggregator, None, "indices begin anew in an epoch");
}

#[test]
fn set_ups_that_are_not_newer_change_nothing() {
    let mut bench = Bench::new(Setup { epoch: 5, ..setup(&racks()) });
    bench.give(bench.own(0, 0), &fixed(&[1]));
    for epoch in [4, 5] {
        bench.server.adopt(bench.now, Arc::new(Setup { epoch, ..setup(&side_by_side()) }));
    }
    assert!(bench.drain().is_empty());
    bench.give_all(0, &fixed(&[1]));
    assert_eq!(bench.drain()[0].body, fixed(&[6]));
}

// spec: A-24 machine
#[test]
fn each_server_completes_the_fragments_of_its_own_tree() {
    let other = NodeId(901);
    let tree = |server| Arc::new(Tree::build(server, &racks()).unwrap());
    let trees = vec![tree(other), tree(SERVER), tree(other)];
    let mut bench = Bench::new(Setup { trees, ..setup(&racks()) });
    for sequence in 0..9 {
        bench.give_all(sequence, &fixed(&[1]));
    }
    let sequences: Vec<u64> =
        bench.drain().iter().map(|sent| sent.parameter().identity.sequence).collect();
    assert_eq!(sequences, [1, 4, 7]);
    assert_eq!((bench.stats().foreign, bench.stats().completed), (36, 3));
    bench.ask(bench.query(0, 3, false));
    assert!(bench.drain().is_empty());
    let moved = Setup { epoch: 2, trees: vec![tree(other)], ..setup(&racks()) };
    bench.server.adopt(bench.now, Arc::new(moved));
    assert_eq!(bench.server.stats_of(JOB), None, "the server has no tree of it");
}

/// After a restart the results of a whole window may be there, so that no sum says how far the job is. Then all workers ask for
/// fragments beyond the window.
// spec: A-41 machine
#[test]
fn workers_that_all_ask_beyond_the_window_say_how_far_the_job_is() {
    let mut bench = Bench::new(setup(&racks()));
    // Twice the span, and one for the only tree.
    let beyond =
        |bench: &Bench, rank| Query { watermark_distance: 0, ..bench.query(rank, 17, false) };
    for rank in 1..6 {
        bench.ask(beyond(&bench, rank));
    }
    assert_eq!(bench.stats().beyond, 5, "one of them may still need what is below");
    bench.ask(beyond(&bench, 0));
    assert_eq!(bench.stats().beyond, 5);
    bench.give_all(17, &fixed(&[1]));
    assert_eq!(bench.stats().completed, 1);
}

#[test]
fn fragments_below_the_job_watermark_are_forgotten_and_those_beyond_the_span_dropped() {
    let mut bench = Bench::new(setup(&racks()));
    // Twice the span, and one for the only tree.
    bench.give(bench.own(0, 16), &fixed(&[1]));
    assert_eq!(bench.stats().added, 1);
    bench.give(bench.own(0, 17), &fixed(&[1]));
    assert_eq!(bench.stats().beyond, 1);
    for rank in 0..6 {
        let watermark_distance = if rank == 3 { 2 } else { 0 };
        bench.give(Gradient { watermark_distance, ..bench.own(rank, 5) }, &fixed(&[1]));
    }
    assert_eq!(bench.drain()[0].parameter().job_watermark(), 3);
    bench.give(bench.own(0, 2), &fixed(&[1]));
    bench.ask(bench.query(0, 2, false));
    assert_eq!(bench.stats().stale, 2);
    bench.give(bench.own(0, 19), &fixed(&[1]));
    assert_eq!((bench.stats().added, bench.stats().beyond), (8, 1));
    bench.ask(bench.query(0, 5, false));
    assert_eq!(bench.drain()[0].body, fixed(&[6]), "a result above the job watermark stays");
}

#[test]
fn long_jobs_go_round_and_use_the_same_buffers() {
    let mut bench = Bench::new(setup(&racks()));
    for sequence in 0..1_000 {
        let watermark_distance = sequence.min(5) as u16;
        let sum = Gradient { watermark_distance, ..bench.sum(0, sequence, 1, 0b111) };
        bench.give(sum, &fixed(&[sequence as i32]));
        let sent = bench.drain();
        assert_eq!((sent.len(), &sent[0].body), (1, &fixed(&[sequence as i32])));
    }
    let mut ring = bench.server.jobs.remove(&JOB).unwrap().shards[0].take().unwrap().ring;
    let vacant = ring.at(0).vacant.len();
    let held = ring.into_slots().filter(|slot| matches!(slot.body, Values::Real(_))).count();
    assert_eq!((held, vacant), (6, 1), "what is above the watermark, and one to begin with");
}

#[test]
fn switches_are_informed_at_the_beginning_and_when_they_ask() {
    let mut server = Server::new(Config { ask_gap: GAP, ..Config::new(SERVER) }).unwrap();
    server.adopt(Time::ZERO, Arc::new(setup(&racks())));
    let server = Checked::new(server);
    let mut bench = Bench { server, setup: Arc::new(setup(&racks())), now: Time::ZERO };
    let sent = bench.drain();
    assert_eq!(destinations(&sent), [102, 100, 101]);
    let last = Announcement::decode(&sent[2].header).unwrap();
    let expected = Announcement {
        job: JOB,
        epoch: 1,
        server: SERVER,
        parent: NodeId(102),
        level: 0,
        stations: 1,
        switches: [0; 4],
    };
    assert_eq!(last, expected);
    let first = Announcement::decode(&sent[0].header).unwrap();
    assert_eq!(first.switches, [0b11, 0, 0, 0], "both racks below it are switches");
    let stations = last.stations(&sent[2].body).unwrap();
    let children: Vec<NodeId> = stations[0].children().collect();
    assert_eq!((stations[0].places, children), ([0, 1, 0, 0], [1, 4, 5].map(NodeId).to_vec()));
    assert_eq!(sent[2].meta.wire_bytes, 236);
    notice(&mut bench, 1, 101);
    assert!(bench.drain().is_empty(), "it was sent just now");
    bench.wait_us(60);
    notice(&mut bench, 1, 101);
    notice(&mut bench, 1, 101);
    notice(&mut bench, 0, 100);
    notice(&mut bench, 1, 7);
    assert_eq!(bench.drain(), [sent[2].clone()]);
    assert_eq!((bench.stats().notices, bench.stats().announcements), (5, 4));
}

#[test]
fn jobs_end_and_more_than_allowed_are_refused() {
    let config = Config { jobs_max: 1, ..Config::new(SERVER) };
    let mut server = Server::new(config).unwrap();
    server.adopt(Time::ZERO, Arc::new(setup(&racks())));
    let other = JobId(5);
    server.adopt(Time::ZERO, Arc::new(Setup { job: other, ..setup(&racks()) }));
    let reason = BudgetError::Jobs(1);
    assert_eq!(server.poll_event(), Some(Event::Refused { job: other, reason }));
    let server = Checked::new(server);
    let mut bench = Bench { server, setup: Arc::new(setup(&racks())), now: Time::ZERO };
    bench.give(bench.own(0, 0), &fixed(&[1]));
    bench.server.retire(JOB);
    assert!(bench.drain().is_empty(), "announcements of a job that is over are dropped");
    bench.give(bench.own(0, 0), &fixed(&[1]));
    bench.hand_in([0; HEADER_BYTES], Body::Length(0), Ecn::Capable);
    let stats = bench.server.stats();
    assert_eq!((stats.gradients, stats.unknown, stats.malformed), (1, 1, 1));
    assert_eq!(bench.server.stats_of(JOB), None);
    bench.server.adopt(bench.now, Arc::new(Setup { job: other, ..setup(&racks()) }));
    assert_eq!(bench.server.stats_of(other), Some(Stats::default()));
}

#[test]
fn with_a_secret_only_sealed_packets_count_and_all_are_sealed() {
    let secret = Secret(*b"sixteen letters.");
    let key = Key::derive(&secret, JOB, 1);
    let stations = Key::stations(&secret, JOB, 1);
    let config = Config { secrets: Some(secret.into()), ..Config::new(SERVER) };
    let mut server = Server::new(config).unwrap();
    server.adopt(Time::ZERO, Arc::new(setup(&racks())));
    let server = Checked::new(server);
    let mut bench = Bench { server, setup: Arc::new(setup(&racks())), now: Time::ZERO };
    bench.give_all(0, &fixed(&[1]));
    bench.ask(bench.query(0, 1, false));
    assert_eq!((bench.stats().forged, bench.stats().gradients, bench.stats().queries), (7, 0, 0));
    let mut header = bench.sum(0, 0, 1, 0b111).to_header();
    tag::seal_sized(&mut header, 4, &key);
    bench.hand_in(header, Body::Length(8), Ecn::Capable);
    assert_eq!(bench.stats().forged, 8, "a body of another length");
    bench.hand_in(header, Body::Length(4), Ecn::Capable);
    bench.query(0, 1, false).encode(&mut header);
    tag::seal(&mut header, &key);
    bench.hand_in(header, Body::Length(0), Ecn::Capable);
    let sent = bench.drain();
    assert_eq!(destinations(&sent), [102, 100, 101, 102, 102]);
    let is_sealed = |sent: &Sent, key: &Key| {
        let (BodySize::Length(bytes) | BodySize::Bytes(bytes)) = sent.size;
        tag::verify_sized(&sent.header, bytes as usize, key)
    };
    assert!(sent.iter().all(|sent| is_sealed(sent, &stations)), "all of them go to switches");
    assert!(!sent.iter().any(|sent| is_sealed(sent, &key)));
    // Only switches send notices.
    for (key, taken) in [(key, 0), (stations, 1)] {
        let mut header = Notice { job: JOB, epoch: 1, switch: NodeId(100) }.to_header();
        tag::seal(&mut header, &key);
        bench.wait_us(60);
        bench.hand_in(header, Body::Length(0), Ecn::Capable);
        assert_eq!((bench.stats().notices, bench.drain().len()), (taken, taken as usize));
    }
}

// spec: E-13 machine
#[test]
fn what_goes_to_workers_is_sealed_with_the_key_that_they_have() {
    let secret = Secret([6; 16]);
    let key = Key::derive(&secret, JOB, 1);
    let config = Config { secrets: Some(secret.into()), ..Config::new(SERVER) };
    let mut server = Server::new(config).unwrap();
    let alone: Vec<Member> =
        (0..2).map(|node| Member { node: NodeId(node), path: Vec::new() }).collect();
    server.adopt(Time::ZERO, Arc::new(setup(&alone)));
    let server = Checked::new(server);
    let mut bench = Bench { server, setup: Arc::new(setup(&alone)), now: Time::ZERO };
    for worker in [0, 1] {
        let mut header = bench.own(worker, 0).to_header();
        tag::seal_sized(&mut header, 4, &key);
        bench.hand_in(header, Body::Length(4), Ecn::Capable);
    }
    let sent = bench.drain();
    assert_eq!(destinations(&sent), [0, 1]);
    assert!(sent.iter().all(|sent| tag::verify_sized(&sent.header, 4, &key)));
}

// spec: T-06 machine
#[test]
fn bodies_are_sealed_where_the_job_asks_for_it() {
    let secret = Secret([6; 16]);
    let key = Key::derive(&secret, JOB, 1);
    let config = Config { secrets: Some(secret.into()), ..Config::new(SERVER) };
    let mut server = Server::new(config).unwrap();
    let sealed = Arc::new(setup(&racks()).with(|parameters| parameters.seals_bodies = true));
    server.adopt(Time::ZERO, sealed.clone());
    let mut bench = Bench { server: Checked::new(server), setup: sealed, now: Time::ZERO };
    let stations = Key::stations(&secret, JOB, 1);
    let is_sealed = |sent: &Sent| tag::verify_with_body(&sent.header, &sent.body, &stations);
    let announced = bench.drain();
    assert!(announced.len() == 3 && announced.iter().all(is_sealed));
    let mut values = fixed(&[1]);
    let mut header = bench.sum(0, 0, 1, 0b111).to_header();
    tag::seal_sized(&mut header, 4, &key);
    bench.hand_in(header, Body::Bytes(&mut values), Ecn::Capable);
    tag::seal_with_body(&mut header, &fixed(&[2]), &key);
    bench.hand_in(header, Body::Bytes(&mut values), Ecn::Capable);
    assert_eq!((bench.stats().forged, bench.stats().gradients), (2, 0));
    for place in [0, 1] {
        let mut header = bench.sum(0, 0, 1, 0b1 << place).to_header();
        tag::seal_with_body(&mut header, &values, &key);
        bench.hand_in(header, Body::Bytes(&mut values), Ecn::Capable);
    }
    assert_eq!((bench.stats().forged, bench.stats().gradients), (2, 2));
}

#[test]
fn settings_are_checked() {
    assert_eq!(Config::new(SERVER).check(), Ok(()));
    let no_gap = Config { ask_gap: Span::ZERO, ..Config::new(SERVER) };
    assert_eq!(no_gap.check(), Err(ConfigError::Zero("ask_gap")));
    let no_jobs = Config { jobs_max: 0, ..Config::new(SERVER) };
    assert_eq!(no_jobs.check(), Err(ConfigError::Zero("jobs_max")));
}

fn renew(bench: &mut Bench, setup: Setup) {
    bench.setup = Arc::new(setup);
    bench.wait_us(60);
    bench.server.adopt(bench.now, bench.setup.clone());
}

fn notice(bench: &mut Bench, epoch: u32, switch: u32) {
    let header = Notice { job: JOB, epoch, switch: NodeId(switch) }.to_header();
    bench.hand_in(header, Body::Length(0), Ecn::Capable);
}
