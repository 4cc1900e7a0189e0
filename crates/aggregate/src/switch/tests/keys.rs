//! Who may speak for a job.

use thalweg_core::JobId;
use thalweg_wire::aggregate::{Gradient, Notice, Query};
use thalweg_wire::tag::{self, Key, Secret};

use super::harness::{
    Bench, Content, Fate, ME, PARENT, SERVER, Sent, announcement, gradient, parameter,
};

const SECRET: Secret = Secret([9; 16]);

fn key() -> Key {
    Key::derive(&SECRET, JobId(7), 3)
}

fn bench() -> Bench {
    Bench::with(|config| config.secret = Some(SECRET))
}

fn sealed(sent: Sent) -> Sent {
    sealed_with(sent, &key())
}

fn sealed_with(mut sent: Sent, key: &Key) -> Sent {
    let body_bytes = sent.lend().body.len();
    tag::seal_sized(&mut sent.header, body_bytes, key);
    sent
}

fn is_sealed(mut sent: Sent) -> bool {
    let body_bytes = sent.lend().body.len();
    tag::verify_sized(&sent.header, body_bytes, &key())
}

fn contribution(worker: u8) -> Sent {
    Sent::gradient(ME, &gradient(worker), &[1, 2])
}

fn group() -> Sent {
    use thalweg_core::NodeId;
    use thalweg_wire::aggregate::{Announcement, StationBytes};
    let job = JobId(7);
    let what =
        Announcement { job, epoch: 3, server: SERVER, parent: PARENT, level: 0, stations: 1 };
    let station = StationBytes::new([0, 1, 0, 0], &[NodeId(1), NodeId(2)]);
    announcement(ME, &what, &[station])
}

// spec: T-06 machine
#[test]
fn what_goes_on_is_sealed_again() {
    let mut bench = bench();
    assert_eq!(bench.handle(&mut sealed(group())), Fate::Consumed);
    assert_eq!(bench.handle(&mut sealed(contribution(0))), Fate::Consumed);
    let mut last = sealed(contribution(1));
    assert_eq!(bench.handle(&mut last), Fate::Forwarded);
    assert!(is_sealed(last.clone()));
    assert_eq!(Gradient::decode(&last.header).unwrap().level, 1);
    let mut answer = sealed(parameter(&gradient(0)));
    assert!(matches!(bench.handle(&mut answer), Fate::Multicast(_)));
    assert!(is_sealed(answer.clone()));
    assert_eq!(bench.switch.stats().forged, 0);
}

// spec: T-06 machine
#[test]
fn a_switch_that_has_just_started_verifies_at_once() {
    let mut bench = bench();
    let mut first = sealed(contribution(0));
    assert_eq!(bench.handle(&mut first), Fate::Consumed);
    let mut resent = sealed(Sent::gradient(ME, &Gradient { resend: true, ..gradient(1) }, &[1, 2]));
    assert_eq!(bench.handle(&mut resent), Fate::Forwarded, "straight on, nothing is known");
    let notices = bench.transmit();
    assert_eq!(notices.len(), 1);
    assert!(Notice::decode(&notices[0].header).is_ok());
    assert!(is_sealed(notices[0].clone()));
}

// spec: T-06 machine
#[test]
fn what_is_not_sealed_with_the_jobs_key_touches_nothing() {
    let other_job = Key::derive(&SECRET, JobId(8), 3);
    let other_epoch = Key::derive(&SECRET, JobId(7), 2);
    let other_cluster = Key::derive(&Secret([8; 16]), JobId(7), 3);
    for kind in [contribution(0), group(), parameter(&gradient(0)), query()] {
        let mut bench = bench();
        let mut forged = vec![kind.clone()];
        for key in [other_job, other_epoch, other_cluster] {
            forged.push(sealed_with(kind.clone(), &key));
        }
        let mut changed = sealed(kind);
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

fn query() -> Sent {
    let Gradient { identity, aggregator, branch, .. } = gradient(0);
    Sent::bare(Query::new(identity, aggregator, SERVER, branch).to_header())
}
