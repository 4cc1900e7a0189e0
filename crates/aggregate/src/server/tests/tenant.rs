//! A tenant that sends whatever it can seal: a server sends no more bytes than it receives, times the workers of the job, and
//! only to nodes of the job.
// spec: E-13 machine

use std::collections::BTreeSet;

use thalweg_core::Rng;
use thalweg_wire::aggregate::{Bounded, LossShare};
use thalweg_wire::tag::{self, Key, Secret};

use super::*;

const SECRET: Secret = Secret([9; 16]);
const PACKETS: u64 = 20_000;
const VALUES: u16 = 352;
const BODY: [u8; 4 * VALUES as usize] = [0; 4 * VALUES as usize];

/// Bytes that went in and out, and where to.
#[derive(Default, Debug)]
struct Traffic {
    bytes_in: u64,
    bytes_out: u64,
    to: BTreeSet<u32>,
}

/// A tenant that has joined its own job, and a source of ideas.
struct Tenant {
    bench: Bench,
    key: Key,
    rng: Rng,
    traffic: Traffic,
}

impl Tenant {
    fn new(members: &[Member], recovery: Recovery, seed: u64) -> Tenant {
        let setup = setup(members).with(|parameters| {
            (parameters.fragment_values, parameters.recovery) = (VALUES, recovery);
        });
        let config = Config { ask_gap: GAP, secrets: Some(SECRET.into()), ..Config::new(SERVER) };
        let mut server = Server::new(config).unwrap();
        let (setup, now) = (Arc::new(setup), Time::ZERO + Span::from_ms(1));
        server.adopt(now, setup.clone());
        let mut bench = Bench { server: Checked::new(server), setup, now };
        bench.drain();
        let rng = Rng::new(seed).stream("tenant");
        let key = Key::derive(&SECRET, JOB, 1);
        Tenant { bench, key, rng, traffic: Traffic::default() }
    }

    fn workers(&self) -> u32 {
        self.bench.setup.trees[0].workers()
    }

    /// Bytes that the server may send at most by now: those that it has received, and one packet for each worker, which the
    /// account of a job begins with, times the workers.
    fn paid_for(&self) -> u64 {
        let packet_bytes = u64::from(self.bench.setup.parameters.packet_bytes());
        u64::from(self.workers()) * (self.traffic.bytes_in + packet_bytes)
    }

    fn send(&mut self, mut header: Header, body: &[u8]) {
        tag::seal_sized(&mut header, body.len(), &self.key);
        let overhead_bytes = self.bench.setup.parameters.overhead_bytes;
        self.traffic.bytes_in += u64::from(overhead_bytes) + body.len() as u64;
        self.bench.hand_in(header, Body::Bytes(&mut body.to_vec()), Ecn::Capable);
    }

    /// Takes what the server sends, and checks that it was paid for.
    fn receive(&mut self) -> usize {
        let sent = self.bench.drain();
        for packet in &sent {
            self.traffic.bytes_out += u64::from(packet.meta.wire_bytes);
            self.traffic.to.insert(packet.to());
        }
        assert!(self.traffic.bytes_out <= self.paid_for(), "{:?}", self.traffic);
        sent.len()
    }

    /// Contributions of all workers to a fragment.
    fn contribute(&mut self, sequence: u64) {
        for rank in 0..self.workers() {
            let own = self.bench.own(rank, sequence);
            self.send(own.to_header(), &BODY);
        }
        self.receive();
    }

    fn ask(&mut self, rank: u32, sequence: u64) -> usize {
        self.bench.wait_us(60);
        let query = self.bench.query(rank, sequence, false);
        self.send(query.to_header(), &[]);
        self.receive()
    }

    /// Anything, about one of the first fragments.
    fn improvise(&mut self) {
        let rank = self.rng.below(self.workers().into()) as u32;
        let sequence = self.rng.below(6);
        let bytes = if self.rng.chance(0.8) { BODY.len() } else { 4 * self.rng.below(9) as usize };
        // Contributions pay for much.
        if self.rng.chance(0.01) {
            let gradient = Gradient {
                resend: self.rng.chance(0.5),
                result: self.rng.chance(0.2),
                overflow: self.rng.chance(0.01),
                ..self.bench.own(rank, sequence)
            };
            return self.send(gradient.to_header(), &BODY[..bytes]);
        }
        let share = LossShare::from_parts(25);
        let bounded = Bounded { first_distance: 0, fragments: 100, share };
        let query = Query {
            // It has nothing, and the server keeps all.
            watermark_distance: sequence as u16,
            bounded: self.rng.chance(0.3).then_some(bounded),
            ..self.bench.query(rank, sequence, self.rng.chance(0.2))
        };
        self.send(query.to_header(), &[]);
    }
}

#[test]
fn no_more_comes_out_than_goes_in_times_the_workers_and_nobody_else_gets_any() {
    for members in [racks(), side_by_side()] {
        let mut withheld = 0;
        for (seed, recovery) in
            (0..5).flat_map(|seed| [(seed, Recovery::Selective), (seed, Recovery::Paper)])
        {
            let mut tenant = Tenant::new(&members, recovery, seed);
            (0..4).for_each(|sequence| tenant.contribute(sequence));
            for _ in 0..PACKETS {
                tenant.bench.wait_us(tenant.rng.below(60));
                tenant.improvise();
                if tenant.rng.chance(0.5) {
                    tenant.receive();
                }
            }
            tenant.receive();
            let stats = tenant.bench.stats();
            let job = (0..tenant.workers()).chain([100, 101, 102]).collect();
            assert!(tenant.traffic.to.is_subset(&job), "{:?}", tenant.traffic.to);
            let met = [stats.completed, stats.parameters_again, stats.requests];
            assert!(met.iter().all(|met| *met > 0), "every mechanism is met: {stats:?}");
            withheld += stats.withheld;
        }
        assert!(withheld > PACKETS, "the limit is met: {withheld}");
    }
}

/// Queries alone: a packet of 100 bytes for one of 1,508.
#[test]
fn questions_without_contributions_are_answered_as_far_as_they_pay() {
    let mut tenant = Tenant::new(&side_by_side()[..2], Recovery::Selective, 1);
    tenant.contribute(0);
    let answered = (0..1_000).filter(|_| tenant.ask(0, 0) > 0).count() as u64;
    let stats = tenant.bench.stats();
    assert_eq!((answered, stats.parameters_again), (stats.parameters_again, answered));
    assert_eq!(stats.withheld, 1_000 - answered);
    assert!(
        (100..200).contains(&answered),
        "200 bytes pay for each, and a result has 1,508: {answered}"
    );
}

/// A switch sends its sum again whenever the server asks for it, and nobody has sent anything then.
#[test]
fn sums_that_are_sent_again_pay_for_nothing() {
    let mut tenant = Tenant::new(&racks(), Recovery::Selective, 1);
    tenant.contribute(0);
    while tenant.ask(0, 0) > 0 {}
    let copy = |repair| Gradient { repair, ..tenant.bench.own(0, 0) }.to_header();
    for (header, expected) in [(copy(true), 0..10), (copy(false), 20..21)] {
        (0..10).for_each(|_| tenant.send(header, &BODY));
        let answered = (0..20).filter(|_| tenant.ask(0, 0) > 0).count();
        assert!(expected.contains(&answered), "{answered} of 20: queries pay for some");
    }
}

/// Workers of an honest job lose every result several times, from the first one on, and have it at once whenever they ask. A job of one
/// host sends nothing.
#[test]
fn honest_workers_have_what_they_miss() {
    for members in [racks(), side_by_side(), racks()[..2].to_vec()] {
        let mut tenant = Tenant::new(&members, Recovery::Selective, 1);
        for sequence in 0..u64::from(SPAN) {
            tenant.contribute(sequence);
            for rank in 0..tenant.workers() {
                assert_eq!(tenant.ask(rank, sequence), 1, "rank {rank}, fragment {sequence}");
            }
        }
        assert_eq!(tenant.bench.stats().withheld, 0);
    }
}
