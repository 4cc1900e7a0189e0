//! A tenant that sends whatever it can seal: a switch sends no more bytes than it receives, times the ranks of the job, and
//! only to nodes of the job.
// spec: E-13 machine

use std::collections::BTreeSet;

use thalweg_core::{HEADER_BYTES, JobId, NodeId, Rng, Span};
use thalweg_wire::Kind;
use thalweg_wire::aggregate::{
    Announcement, Bounded, Branch, Gradient, Identity, LossShare, Notice, Numbers, Parameter,
    Probe, Query, Request, StationBytes,
};
use thalweg_wire::tag::{self, Key, Secret};

use super::asks;
use super::harness::{Bench, Content, Fate, ME, SERVER, Sent, announcement};

const SECRET: Secret = Secret([9; 16]);
const JOB: JobId = JobId(8);
/// Of the tenant's job: a rack of workers, and a rack of its own below the switch.
const WORKERS: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];
const BELOW: NodeId = NodeId(4);
const RANKS: u64 = 4;
const PACKETS: u64 = 20_000;

/// Bytes that went in and out, and where to.
#[derive(Default, Debug)]
struct Traffic {
    bytes_in: u64,
    bytes_out: u64,
    to: BTreeSet<NodeId>,
    notices: u64,
}

/// The tenant: its key, and a source of ideas.
struct Tenant {
    rng: Rng,
    key: Key,
}

impl Tenant {
    fn packet(&mut self) -> Sent {
        let identity = Identity {
            job: JOB,
            epoch: 1,
            sequence: self.rng.below(6),
            attempt: 0,
            operation: self.rng.below(2) as u32,
        };
        let mut sent = match self.rng.below(8) {
            0..3 => self.gradient(identity),
            3 | 4 => self.query(identity),
            5 => self.result_or_request(identity),
            6 => self.announcement(),
            _ => self.other(),
        };
        let body_bytes = sent.lend().body.len();
        if let (true, Content::Bytes(body)) = (self.rng.chance(0.2), &sent.body) {
            tag::seal_with_body(&mut sent.header, body, &self.key);
        } else {
            tag::seal_sized(&mut sent.header, body_bytes, &self.key);
        }
        sent
    }

    /// A server of its own, or any address.
    fn server(&mut self) -> NodeId {
        if self.rng.chance(0.8) { SERVER } else { NodeId(1_000 + self.rng.below(1_000) as u32) }
    }

    fn branch(&mut self) -> Branch {
        let fan_in = if self.rng.chance(0.8) { 4 } else { 1 + self.rng.below(32) as u8 };
        let place = self.rng.below(fan_in.into()) as u8;
        Branch::new([fan_in, 0, 0, 0], [place, 0, 0, 0]).unwrap()
    }

    fn gradient(&mut self, identity: Identity) -> Sent {
        let (aggregator, branch) = (self.rng.below(16) as u32, self.branch());
        let gradient = Gradient {
            resend: self.rng.chance(0.2),
            repair: self.rng.chance(0.2),
            result: self.rng.chance(0.1),
            ..Gradient::fresh(identity, aggregator, Numbers::Float, self.server(), branch)
        };
        let values = [1; 6];
        let count = if self.rng.chance(0.8) { 4 } else { self.rng.below(7) as usize };
        Sent::gradient(ME, &gradient, &values[..count])
    }

    fn query(&mut self, identity: Identity) -> Sent {
        let (aggregator, branch) = (self.rng.below(16) as u32, self.branch());
        let share = LossShare::from_parts(25);
        let bounded = Bounded { first_distance: 0, fragments: 100, share };
        let query = Query {
            bypass: self.rng.chance(0.2),
            awaited: self.rng.chance(0.2),
            bounded: self.rng.chance(0.7).then_some(bounded),
            ..Query::new(identity, aggregator, self.server(), branch)
        };
        Sent::bare(query.to_header())
    }

    fn result_or_request(&mut self, identity: Identity) -> Sent {
        let (aggregator, branch, server) = (3, self.branch(), self.server());
        if self.rng.chance(0.5) {
            let result = Parameter::sum(identity, aggregator, Numbers::Float, server, 4);
            return Sent {
                header: result.to_header(),
                ..Sent::new(ME, Content::Bytes(vec![1; 16]))
            };
        }
        let wanted = self.rng.bits() as u32;
        let request = Request { identity, server, branch, wanted, ..asks::request() };
        Sent::bare(request.to_header())
    }

    /// Makes everybody a child.
    fn announcement(&mut self) -> Sent {
        let what = Announcement {
            job: JOB,
            epoch: 1,
            server: self.server(),
            parent: NodeId(2_000),
            level: 0,
            stations: 4,
            switches: [0; 4],
        };
        let children: Vec<NodeId> = (3_000..3_032).map(NodeId).collect();
        announcement(ME, &what, &[StationBytes::new([0; 4], &children); 4])
    }

    fn other(&mut self) -> Sent {
        let header = match self.rng.below(3) {
            0 => Notice { job: JOB, epoch: 1, switch: ME }.to_header(),
            1 => Probe { server: NodeId(4_000), switch: ME, via: None }.to_header(),
            _ => std::array::from_fn(|at| match at {
                3 => Kind::AggregateGradient as u8 + self.rng.below(8) as u8,
                0..16 => Notice { job: JOB, epoch: 1, switch: ME }.to_header()[at],
                _ => self.rng.bits() as u8,
            }),
        };
        Sent::bare(header)
    }
}

/// A switch whose server has announced the tenant's tree.
fn bench() -> Bench {
    let mut bench = Bench::with(|config| config.secrets = Some(SECRET.into()));
    let what = Announcement {
        job: JOB,
        epoch: 1,
        server: SERVER,
        parent: SERVER,
        level: 0,
        stations: 1,
        switches: [0b1000, 0, 0, 0],
    };
    let children: Vec<NodeId> = WORKERS.into_iter().chain([BELOW]).collect();
    let mut group = announcement(ME, &what, &[StationBytes::new([0; 4], &children)]);
    let body_bytes = group.lend().body.len();
    tag::seal_sized(&mut group.header, body_bytes, &Key::stations(&SECRET, JOB, 1));
    assert_eq!(bench.handle(&mut group), Fate::Consumed);
    assert_eq!(bench.switch.stats().announcements, 1);
    bench
}

fn attack(seed: u64) -> (Bench, Traffic) {
    let mut bench = bench();
    let rng = Rng::new(seed).stream("tenant");
    let mut tenant = Tenant { rng, key: Key::derive(&SECRET, JOB, 1) };
    let mut traffic = Traffic::default();
    for _ in 0..PACKETS {
        bench.now += Span::from_us(tenant.rng.below(40));
        let mut sent = tenant.packet();
        let bytes = (HEADER_BYTES + sent.lend().body.len()) as u64;
        traffic.bytes_in += bytes;
        match bench.handle(&mut sent) {
            Fate::Consumed => {}
            Fate::Forwarded => traffic.send(bytes, [sent.meta.dst]),
            Fate::Multicast(nodes) => traffic.send(bytes, nodes),
        }
        for mut own in bench.transmit() {
            let bytes = (HEADER_BYTES + own.lend().body.len()) as u64;
            if Notice::decode(&own.header).is_ok() {
                traffic.notices += 1;
                traffic.bytes_out += bytes;
            } else {
                traffic.send(bytes, [own.meta.dst]);
            }
        }
    }
    (bench, traffic)
}

impl Traffic {
    fn send(&mut self, bytes: u64, to: impl IntoIterator<Item = NodeId>) {
        for node in to {
            self.bytes_out += bytes;
            self.to.insert(node);
        }
    }
}

#[test]
fn no_more_comes_out_than_goes_in_times_the_ranks_and_nobody_else_gets_any() {
    let job: BTreeSet<NodeId> = WORKERS.into_iter().chain([BELOW, SERVER]).collect();
    for seed in 0..5 {
        let (bench, traffic) = attack(seed);
        let stats = bench.switch.stats();
        assert!(traffic.to.is_subset(&job), "{:?}", traffic.to);
        assert!(traffic.bytes_out <= RANKS * traffic.bytes_in, "{traffic:?}");
        assert_eq!((stats.announcements, stats.parameters, stats.requests), (1, 0, 0));
        assert!(stats.forged > PACKETS / 5, "what it must not say is refused: {stats:?}");
        assert!(stats.unknown_server > PACKETS / 20, "{stats:?}");
        // At most one in a gap of 100 us; packets are 20 us apart.
        assert!(traffic.notices <= PACKETS / 5 + 1, "{traffic:?}");
        assert!(stats.parts_sent > 0 && stats.asked > 0, "every mechanism is met: {stats:?}");
    }
}

#[test]
fn a_part_of_a_sum_is_sent_no_more_often_than_was_paid_for() {
    let mut bench = bench();
    let mut tenant = Tenant { rng: Rng::new(1), key: Key::derive(&SECRET, JOB, 1) };
    let identity = Identity { job: JOB, epoch: 1, sequence: 0, attempt: 0, operation: 0 };
    let branch = Branch::new([4, 0, 0, 0], [0; 4]).unwrap();
    let gradient = Gradient::fresh(identity, 3, Numbers::Float, SERVER, branch);
    let mut contribution = Sent::gradient(ME, &gradient, &[1; 4]);
    tag::seal_sized(&mut contribution.header, 16, &tenant.key);
    assert_eq!(bench.handle(&mut contribution), Fate::Consumed);
    for _ in 0..50 {
        bench.now += Span::from_us(150);
        let share = LossShare::from_parts(25);
        let bounded = Some(Bounded { first_distance: 0, fragments: 100, share });
        let query = Query { bounded, ..Query::new(identity, 3, SERVER, branch) };
        let mut sent = Sent::bare(query.to_header());
        tag::seal(&mut sent.header, &tenant.key);
        bench.handle(&mut sent);
        bench.transmit();
    }
    assert_eq!(bench.switch.stats().parts_sent, 1, "one contribution");
    let _ = tenant.packet();
}

/// A part that the server has got pays there, and no longer here.
#[test]
fn a_contribution_pays_once() {
    for is_handed_over in [false, true] {
        let mut bench = bench();
        let key = Key::derive(&SECRET, JOB, 1);
        let identity =
            |sequence| Identity { job: JOB, epoch: 1, sequence, attempt: 0, operation: 0 };
        let result = |bench: &mut Bench, sequence| {
            let header =
                Parameter::sum(identity(sequence), 3, Numbers::Float, SERVER, 4).to_header();
            let mut result = Sent { header, ..Sent::new(ME, Content::Bytes(vec![2; 16])) };
            tag::seal_sized(&mut result.header, 16, &Key::stations(&SECRET, JOB, 1));
            bench.handle(&mut result) != Fate::Consumed
        };
        assert!(result(&mut bench, 0), "a tree begins with the copies of one");
        assert!(!result(&mut bench, 1));
        let branch = Branch::new([4, 0, 0, 0], [0; 4]).unwrap();
        let gradient = Gradient::fresh(identity(2), 3, Numbers::Float, SERVER, branch);
        let mut contribution = Sent::gradient(ME, &gradient, &[1; 4]);
        tag::seal_sized(&mut contribution.header, 16, &key);
        assert_eq!(bench.handle(&mut contribution), Fate::Consumed);
        if is_handed_over {
            let share = LossShare::from_parts(25);
            let bounded = Some(Bounded { first_distance: 0, fragments: 100, share });
            let query = Query { bounded, ..Query::new(identity(2), 3, SERVER, branch) };
            let mut sent = Sent::bare(query.to_header());
            tag::seal(&mut sent.header, &key);
            bench.handle(&mut sent);
            bench.transmit();
            assert_eq!(bench.switch.stats().parts_sent, 1);
        }
        assert_eq!(result(&mut bench, 2), !is_handed_over);
    }
}

/// The tenant contributes to sums, and asks for every result as often as it can.
#[test]
fn results_are_repeated_no_more_often_than_was_paid_for() {
    let mut bench = bench();
    let key = Key::derive(&SECRET, JOB, 1);
    let mut traffic = Traffic::default();
    let first = Identity { job: JOB, epoch: 1, sequence: 0, attempt: 0, operation: 0 };
    let stray = Query::new(first, 3, SERVER, Branch::new([4, 0, 0, 0], [0; 4]).unwrap());
    let mut stray = Sent::bare(stray.to_header());
    tag::seal(&mut stray.header, &key);
    assert_eq!(bench.handle(&mut stray), Fate::Forwarded);
    for sequence in 0..20 {
        let identity = Identity { job: JOB, epoch: 1, sequence, attempt: 0, operation: 0 };
        let branch = |place| Branch::new([4, 0, 0, 0], [place, 0, 0, 0]).unwrap();
        for place in 0..4 {
            let gradient = Gradient::fresh(identity, 3, Numbers::Float, SERVER, branch(place));
            let mut sent = Sent::gradient(ME, &gradient, &[1; 4]);
            tag::seal_sized(&mut sent.header, 16, &key);
            let bytes = (HEADER_BYTES + 16) as u64;
            traffic.bytes_in += bytes;
            if bench.handle(&mut sent) == Fate::Forwarded {
                traffic.send(bytes, [sent.meta.dst]);
            }
        }
        // What the server sends is not for the tenant to pay.
        let result = Parameter::sum(identity, 3, Numbers::Float, SERVER, 4).to_header();
        let mut result = Sent { header: result, ..Sent::new(ME, Content::Bytes(vec![2; 16])) };
        tag::seal_sized(&mut result.header, 16, &Key::stations(&SECRET, JOB, 1));
        assert!(matches!(bench.handle(&mut result), Fate::Multicast(_)));
        assert_eq!(bench.transmit().len(), 1, "the copy for the switch below");
        let repeated = bench.switch.stats().results_repeated;
        for at in 0..200 {
            bench.now += Span::from_us(30);
            let query = Query::new(identity, 3, SERVER, branch(at % 4));
            let mut sent = Sent::bare(query.to_header());
            tag::seal(&mut sent.header, &key);
            traffic.bytes_in += HEADER_BYTES as u64;
            if bench.handle(&mut sent) == Fate::Forwarded {
                traffic.send(HEADER_BYTES as u64, [sent.meta.dst]);
            }
            for mut own in bench.transmit() {
                traffic.send((HEADER_BYTES + own.lend().body.len()) as u64, [own.meta.dst]);
            }
        }
        let repeated = bench.switch.stats().results_repeated - repeated;
        // One contribution went on with the sum. The others pay for four packets each, of which three were the copies of the
        // result; the tree began with three copies.
        assert_eq!(repeated, 3 * RANKS - if sequence == 0 { 0 } else { 3 });
    }
    assert!(traffic.bytes_out <= RANKS * traffic.bytes_in, "{traffic:?}");
    let job: BTreeSet<NodeId> = WORKERS.into_iter().chain([BELOW, SERVER]).collect();
    assert!(traffic.to.is_subset(&job), "{:?}", traffic.to);
}
