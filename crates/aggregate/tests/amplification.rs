//! A tenant that sends whatever it can seal to its server and its switches: together they send the nodes of its job no more
//! bytes than it sends, times its workers, and each other, for each level of switches, what it sends and no more than that.
// spec: E-13 machine

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use thalweg_aggregate::{JobParameters, Member, Recovery, Server, Setup, Switch, Tree};
use thalweg_aggregate::{server, switch};
use thalweg_core::testing::{OwnedBody, OwnedPacket, TestOutbox};
use thalweg_core::{Checked, Header, JobId, Machine, Meta, NodeId, Rng, Span, Time, Verdict};
use thalweg_wire::aggregate::{Bounded, Branch, Gradient, Identity, LossShare, Numbers, Query};
use thalweg_wire::tag::{self, Key, Secret};

const SERVER: NodeId = NodeId(900);
const JOB: JobId = JobId(8);
const SECRET: Secret = Secret([9; 16]);
const VALUES: u16 = 352;
const BODY: [u8; 4 * VALUES as usize] = [0; 4 * VALUES as usize];
const PACKETS: u64 = 6_000;
/// Fragments that the tenant sends about.
const FRAGMENTS: u64 = 12;

/// The network of a tenant's job, and its traffic.
struct Net {
    setup: Arc<Setup>,
    server: Checked<Server>,
    switches: BTreeMap<NodeId, Checked<Switch>>,
    now: Time,
    rng: Rng,
    /// Probability that a packet between a server and a switch is lost.
    loss: f64,
    bytes_in: u64,
    /// Bytes that reached hosts.
    bytes_out: u64,
    /// Bytes between the server and switches, on all links together.
    bytes_between: u64,
}

impl Net {
    fn new(members: &[Member], recovery: Recovery, aggregators: u32, seed: u64) -> Net {
        let tree = Tree::build(SERVER, members).expect("a tree");
        let groups = tree.groups();
        let parameters = JobParameters {
            fragment_values: VALUES,
            span_fragments: 64,
            recovery,
            ..JobParameters::default()
        };
        let setup = Arc::new(Setup {
            job: JOB,
            epoch: 1,
            trees: vec![Arc::new(tree)],
            parameters: parameters.check().expect("parameters"),
            resume_from: 0,
        });
        let secrets = Some(SECRET.into());
        let config = server::Config { secrets, ..server::Config::new(SERVER) };
        let mut server = Server::new(config).expect("settings");
        let now = Time::ZERO + Span::from_ms(1);
        server.adopt(now, setup.clone());
        let switches = groups.iter().map(|group| {
            let config =
                switch::Config { aggregators, secrets, ..switch::Config::new(group.switch) };
            (group.switch, Checked::new(Switch::new(config).expect("settings")))
        });
        let switches = switches.collect();
        let rng = Rng::new(seed).stream("tenant");
        let server = Checked::new(server);
        let (loss, bytes_in, bytes_out, bytes_between) = (0.0, 0, 0, 0);
        let mut net =
            Net { setup, server, switches, now, rng, loss, bytes_in, bytes_out, bytes_between };
        net.carry(VecDeque::new());
        net
    }

    fn workers(&self) -> u32 {
        self.setup.trees[0].workers()
    }

    /// Bytes that may have been sent by now. Accounts of servers begin with one packet for each worker, and those of switches
    /// with the copies of one.
    fn paid_for(&self) -> u64 {
        let begun =
            u64::from(self.setup.parameters.packet_bytes()) * (1 + self.switches.len() as u64);
        u64::from(self.workers()) * (self.bytes_in + begun)
    }

    /// Levels of switches: links between daemons on the longest path from a worker to the server.
    fn levels(&self) -> u64 {
        let level = |rank| u64::from(self.setup.trees[0].branch(rank).end());
        (0..self.workers()).map(level).max().unwrap_or(0)
    }

    /// The tenant sends a packet, sealed with the key that its workers have.
    fn send(&mut self, to: NodeId, mut header: Header, body: &[u8]) {
        tag::seal_sized(&mut header, body.len(), &Key::derive(&SECRET, JOB, 1));
        let wire_bytes = self.setup.parameters.overhead_bytes + body.len() as u32;
        let meta = Meta { dst: to, wire_bytes, ..Meta::default() };
        self.bytes_in += u64::from(wire_bytes);
        let packet = OwnedPacket::made_of(meta, header, OwnedBody::Bytes(body.to_vec()));
        self.carry(VecDeque::from([packet]));
        assert!(
            self.bytes_out <= self.paid_for(),
            "{} bytes out for {} bytes in, with {} workers",
            self.bytes_out,
            self.bytes_in,
            self.workers()
        );
        // What it sends goes up each level once, and what follows from that goes down.
        assert!(
            self.bytes_between <= self.levels() * (self.bytes_in + self.paid_for()),
            "{} bytes between daemons for {} bytes in, with {} workers and {} levels",
            self.bytes_between,
            self.bytes_in,
            self.workers(),
            self.levels()
        );
    }

    /// Carries packets until there are none, and those that follow from them.
    fn carry(&mut self, mut in_flight: VecDeque<OwnedPacket>) {
        self.drain(SERVER, &mut in_flight);
        while let Some(mut packet) = in_flight.pop_front() {
            let node = packet.meta.dst;
            let verdict = match self.switches.get_mut(&node) {
                Some(switch) => switch.handle_packet(self.now, packet.lend()),
                None if node == SERVER => self.server.handle_packet(self.now, packet.lend()),
                None => {
                    self.bytes_out += u64::from(packet.meta.wire_bytes);
                    continue;
                }
            };
            let targets = match verdict {
                Verdict::Consume => Vec::new(),
                Verdict::Forward => vec![packet.meta.dst],
                Verdict::Multicast(nodes) => nodes.to_vec(),
            };
            for target in targets {
                let mut copy = packet.clone();
                copy.meta.dst = target;
                self.put(copy, &mut in_flight);
            }
            self.drain(node, &mut in_flight);
        }
    }

    fn drain(&mut self, node: NodeId, in_flight: &mut VecDeque<OwnedPacket>) {
        let mut outbox = TestOutbox::new(node);
        match self.switches.get_mut(&node) {
            Some(switch) => switch.poll_transmit(self.now, &mut outbox),
            None => self.server.poll_transmit(self.now, &mut outbox),
        }
        outbox.packets.into_iter().for_each(|packet| self.put(packet, in_flight));
    }

    fn put(&mut self, packet: OwnedPacket, in_flight: &mut VecDeque<OwnedPacket>) {
        let is_inside = packet.meta.dst == SERVER || self.switches.contains_key(&packet.meta.dst);
        self.bytes_between += u64::from(packet.meta.wire_bytes) * u64::from(is_inside);
        if !(is_inside && self.rng.chance(self.loss)) {
            in_flight.push_back(packet);
        }
    }

    fn own(&self, rank: u32, sequence: u64) -> Gradient {
        let branch = self.setup.trees[0].branch(rank);
        let identity = Identity { job: JOB, epoch: 1, sequence, attempt: 0, operation: 1 };
        let level = branch.entry();
        let fresh = Gradient::fresh(identity, sequence as u32, Numbers::Float, SERVER, branch);
        // Nothing is complete anywhere, so that the server keeps everything.
        let watermark_distance = sequence as u16;
        Gradient {
            level,
            bitmap_level: level,
            bitmap: branch.bit(level),
            watermark_distance,
            ..fresh
        }
    }

    fn contribute(&mut self, sequence: u64) {
        for rank in 0..self.workers() {
            let own = self.own(rank, sequence);
            self.send(self.setup.trees[0].first_hop(rank), own.to_header(), &BODY);
        }
    }

    fn query(&self, rank: u32, sequence: u64) -> Query {
        let Gradient { identity, aggregator, branch, level, .. } = self.own(rank, sequence);
        let watermark_distance = sequence as u16;
        Query { level, watermark_distance, ..Query::new(identity, aggregator, SERVER, branch) }
    }

    /// Anything, about one of the first fragments, to a switch or past all of them.
    fn improvise(&mut self) {
        let rank = self.rng.below(self.workers().into()) as u32;
        let sequence = self.rng.below(FRAGMENTS);
        let to = if self.rng.chance(0.3) { SERVER } else { self.setup.trees[0].first_hop(rank) };
        if self.rng.chance(0.03) {
            let bytes =
                if self.rng.chance(0.5) { BODY.len() } else { 4 * self.rng.below(9) as usize };
            let own = self.own(rank, sequence);
            let odd = Branch::new([32, 0, 0, 0], [self.rng.below(32) as u8, 0, 0, 0]);
            let gradient = Gradient {
                resend: self.rng.chance(0.3),
                repair: self.rng.chance(0.3),
                result: self.rng.chance(0.1),
                branch: odd.ok().filter(|_| self.rng.chance(0.2)).unwrap_or(own.branch),
                bitmap: if self.rng.chance(0.2) { own.branch.full(own.level) } else { own.bitmap },
                ..own
            };
            return self.send(to, gradient.to_header(), &BODY[..bytes]);
        }
        let share = LossShare::from_parts(25);
        let bounded = Bounded { first_distance: 0, fragments: 100, share };
        let query = Query {
            bypass: self.rng.chance(0.2),
            awaited: self.rng.chance(0.5),
            bounded: self.rng.chance(0.1).then_some(bounded),
            ..self.query(rank, sequence)
        };
        self.send(to, query.to_header(), &[]);
    }

    fn switch_stats(&self) -> switch::Stats {
        let mut all = switch::Stats::default();
        self.switches.values().for_each(|switch| all += switch.stats());
        all
    }
}

fn member(node: u32, path: &[u32]) -> Member {
    Member { node: NodeId(node), path: path.iter().copied().map(NodeId).collect() }
}

/// Trees: one rack of two or eight workers, two racks below a root, two racks and a worker beside them, and racks of one worker
/// each below one and two levels of switches.
fn trees() -> Vec<Vec<Member>> {
    let rack = |workers| (0..workers).map(|node| member(node, &[100])).collect::<Vec<_>>();
    let below_a_root = (0..6).map(|node| member(node, &[100 + node / 3, 102])).collect();
    let beside = (0..4).map(|node| member(node, &[100 + node / 2])).chain([member(4, &[])]);
    let single = (0..8).map(|node| member(node, &[100 + node, 110])).collect();
    let deep = (0..8).map(|node| member(node, &[100 + node, 110 + node / 4, 120])).collect();
    vec![rack(2), rack(8), below_a_root, beside.collect(), single, deep]
}

#[test]
fn servers_and_switches_together_send_no_more_than_comes_in_times_the_workers() {
    for members in trees() {
        let mut withheld = 0;
        let mut met = [0; 4];
        for (seed, recovery) in
            (0..4).flat_map(|seed| [(seed, Recovery::Selective), (seed, Recovery::Paper)])
        {
            // With few aggregators most contributions collide, and are sent on as they are.
            let aggregators = if seed % 2 == 0 { 1_000 } else { 2 };
            let mut net = Net::new(&members, recovery, aggregators, seed);
            net.loss = 0.1 * seed as f64;
            (0..FRAGMENTS / 2).for_each(|sequence| net.contribute(sequence));
            for _ in 0..PACKETS {
                net.now += Span::from_us(net.rng.below(60));
                net.improvise();
            }
            let (server, switches) = (net.server.stats(), net.switch_stats());
            withheld += server.withheld + switches.withheld;
            let counts = [
                server.parameters_awaited,
                server.parameters_again,
                switches.results_repeated,
                switches.asked,
            ];
            met.iter_mut().zip(counts).for_each(|(met, count)| *met += count);
        }
        assert!(met.iter().all(|met| *met > 0), "every mechanism is met: {met:?}");
        assert!(withheld > 0, "the limit is met");
    }
}

/// The only worker of a job, beside its server and below a switch.
#[test]
fn the_only_worker_of_a_job_gets_no_more_bytes_than_it_sends() {
    for path in [&[][..], &[100]] {
        let mut net = Net::new(&[member(0, path)], Recovery::Selective, 1_000, 1);
        (0..FRAGMENTS / 2).for_each(|sequence| net.contribute(sequence));
        assert!(net.bytes_out * 2 > net.bytes_in, "it gets results");
        for _ in 0..PACKETS {
            net.now += Span::from_us(net.rng.below(60));
            net.improvise();
        }
        assert!(net.server.stats().withheld > 0, "the limit is met");
    }
}

/// Queries in the name of a switch that has lost a result, and nothing else.
#[test]
fn asking_as_a_switch_does_is_answered_as_far_as_it_is_paid_for() {
    let rack: Vec<Member> = (0..8).map(|node| member(node, &[100])).collect();
    let mut net = Net::new(&rack, Recovery::Selective, 1_000, 1);
    net.contribute(0);
    let (paid_in, sent) = (net.bytes_in, net.bytes_out);
    for _ in 0..5_000 {
        net.now += Span::from_us(3_000);
        let query = Query { awaited: true, bypass: true, ..net.query(0, 0) };
        net.send(SERVER, query.to_header(), &[]);
    }
    let (asked, got) = (net.bytes_in - paid_in, net.bytes_out - sent);
    assert!(net.switch_stats().withheld > 1_000, "{:?}", net.switch_stats());
    assert!(got < 8 * (asked + paid_in), "{got} bytes for {asked}");
}

/// Requests are multicast by one level of switches after the other. Every link between them carries one for a query.
#[test]
fn requests_between_switches_are_one_a_level_for_each_worker() {
    for members in trees() {
        let mut net = Net::new(&members, Recovery::Selective, 1_000, 1);
        let rank = net.workers() - 1;
        // The others owe theirs, so that they are asked, and the switches on the path to them.
        for sequence in 0..FRAGMENTS {
            let own = net.own(rank, sequence);
            net.send(net.setup.trees[0].first_hop(rank), own.to_header(), &BODY);
        }
        let (paid_in, between, out) = (net.bytes_in, net.bytes_between, net.bytes_out);
        for at in 0..2_000 {
            net.now += Span::from_us(3_000);
            let query = Query { bypass: at % 2 == 1, ..net.query(rank, at % FRAGMENTS) };
            let first_hop = net.setup.trees[0].first_hop(rank);
            net.send(if query.bypass { SERVER } else { first_hop }, query.to_header(), &[]);
        }
        let asked = net.bytes_in - paid_in;
        let (between, out) = (net.bytes_between - between, net.bytes_out - out);
        let workers = u64::from(net.workers());
        let is_within = out <= workers * asked && between <= net.levels() * workers * asked;
        assert!(is_within && out > 0, "{asked} bytes in, {out} out, {between} between");
        println!(
            "{workers} workers, {} levels: {out} out, {between} between for {asked}",
            net.levels()
        );
    }
}

/// A job whose packets are lost between its switch and its server has all results, however many are lost. That of one worker has
/// nobody to sum with, and gets what its own packets pay for.
#[test]
fn results_that_a_switch_misses_are_paid_for_by_the_contributions() {
    for workers in [2, 8] {
        for aggregators in [1_000, 1] {
            let rack: Vec<Member> = (0..workers).map(|node| member(node, &[100])).collect();
            let mut net = Net::new(&rack, Recovery::Selective, aggregators, 1);
            for sequence in 0..60 {
                // The result is lost on its path to the switch, and the switch asks for it.
                net.contribute(sequence);
                net.now += Span::from_us(3_000);
                let query = Query { awaited: true, bypass: true, ..net.query(0, sequence) };
                net.send(SERVER, query.to_header(), &[]);
            }
            let (server, switches) = (net.server.stats(), net.switch_stats());
            assert_eq!((server.withheld, switches.withheld), (0, 0), "{workers} workers");
            assert_eq!(server.parameters_again, 60);
        }
    }
}
