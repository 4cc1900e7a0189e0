//! A server among packets made by hand.

use std::sync::Arc;

use thalweg_core::testing::{OwnedPacket, TestOutbox};
use thalweg_core::{
    Body, BodySize, Checked, Ecn, HEADER_BYTES, Header, JobId, Machine, Meta, NodeId, Packet,
    Purpose, Reports, Span, Time, Verdict,
};
use thalweg_wire::aggregate::{
    Announcement, Gradient, Identity, Magnitude, Notice, Numbers, Parameter, ParameterView, Query,
    Request, Scale,
};

use super::{Config, Event, Missing, Server, Stats};
use crate::parameters::JobParameters;
use crate::setup::{Attempt, Indexing, Numeric, Recovery, Setup};
use crate::tree::{Member, Tree};

mod bounded;
mod budgets;
mod differing;
mod halves;
mod lifecycle;
mod probing;
mod random;
mod repair;
mod slips;
mod sums;
mod tenant;

const SERVER: NodeId = NodeId(900);
const JOB: JobId = JobId(0x1234_5678_9abc_def0);
const OPERATION: u32 = 0x0dd5;
const GAP: Span = Span::from_us(50);
const SPAN: u16 = 8;

fn member(node: u32, path: &[u32]) -> Member {
    Member { node: NodeId(node), path: path.iter().copied().map(NodeId).collect() }
}

/// Workers 0 and 3 below switch 100, workers 1, 4 and 5 below 101, both below 102 with worker 2.
fn racks() -> Vec<Member> {
    let paths: [&[u32]; 6] =
        [&[100, 102], &[101, 102], &[102], &[100, 102], &[101, 102], &[101, 102]];
    (0..).zip(paths).map(|(node, path)| member(node, path)).collect()
}

/// Workers 0 and 1 below switch 100, workers 2 and 3 below 101, and worker 4, all below the server.
fn side_by_side() -> Vec<Member> {
    let paths: [&[u32]; 5] = [&[100], &[100], &[101], &[101], &[]];
    (0..).zip(paths).map(|(node, path)| member(node, path)).collect()
}

fn scale(value: f32) -> Scale {
    Scale::new(value).unwrap()
}

pub(super) fn setup(members: &[Member]) -> Setup {
    Setup {
        job: JOB,
        epoch: 1,
        trees: vec![Arc::new(Tree::build(SERVER, members).unwrap())],
        resume_from: 0,
        parameters: JobParameters {
            fragment_values: 4,
            numeric: Numeric::Fixed { scale: scale(1_000.0), dynamic: false },
            recovery: Recovery::Selective,
            indexing: Indexing::Hashed,
            aggregators: 1_000,
            span_fragments: SPAN,
            overhead_bytes: 100,
            generation: None,
            seals_bodies: false,
            widens_halves: false,
        }
        .check()
        .unwrap(),
    }
}

fn fixed(values: &[i32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// A packet that the server sent.
#[derive(Clone, PartialEq, Debug)]
struct Sent {
    meta: Meta,
    header: Header,
    size: BodySize,
    body: Vec<u8>,
    purpose: Purpose,
}

impl Sent {
    fn parameter(&self) -> Parameter {
        let parameter = Parameter::decode(&self.header).unwrap();
        assert_eq!(self.purpose == Purpose::Control, parameter.repeat);
        parameter
    }

    fn request(&self) -> Request {
        assert_eq!(self.purpose, Purpose::Control);
        Request::decode(&self.header).unwrap()
    }

    fn to(&self) -> u32 {
        self.meta.dst.0
    }

    /// The header without the flag that copies are paid for.
    fn meaning(&self) -> Header {
        let mut header = self.header;
        ParameterView::mark_unpaid(&mut header);
        header
    }
}

impl From<OwnedPacket> for Sent {
    fn from(packet: OwnedPacket) -> Sent {
        let (size, body) = (packet.size(), packet.bytes().to_vec());
        let OwnedPacket { meta, header, purpose, .. } = packet;
        Sent { meta, header, size, body, purpose }
    }
}

/// A server with one job, whose announcements are over. It is checked after every input.
struct Bench {
    server: Checked<Server>,
    setup: Arc<Setup>,
    now: Time,
}

impl Bench {
    fn new(setup: Setup) -> Bench {
        Bench::with(Config { ask_gap: GAP, ..Config::new(SERVER) }, setup)
    }

    fn with(config: Config, setup: Setup) -> Bench {
        let mut server = Server::new(config).unwrap();
        let setup = Arc::new(setup);
        // Long after the start, so that nothing seems to have happened just now.
        let now = Time::ZERO + Span::from_ms(1);
        server.adopt(now, setup.clone());
        let mut bench = Bench { server: Checked::new(server), setup, now };
        bench.drain();
        bench
    }

    fn stats(&self) -> Stats {
        self.server.stats_of(JOB).unwrap()
    }

    /// Lets `us` microseconds pass.
    fn wait_us(&mut self, us: u64) {
        self.now += Span::from_us(us);
    }

    /// Gradient that a worker sends for a fragment: itself in the bitmap of its level of entry.
    fn own(&self, rank: u32, sequence: u64) -> Gradient {
        let branch = self.setup.tree(sequence).branch(rank);
        let entry = branch.entry();
        Gradient {
            bitmap: branch.bit(entry),
            bitmap_level: entry,
            level: branch.end(),
            branch,
            ..self.blank(rank, sequence)
        }
    }

    /// Gradient that a switch sends for children of the station at this level above a worker.
    fn sum(&self, rank: u32, sequence: u64, bitmap_level: u8, bitmap: u32) -> Gradient {
        Gradient { bitmap, bitmap_level, ..self.own(rank, sequence) }
    }

    fn blank(&self, rank: u32, sequence: u64) -> Gradient {
        let (identity, numbers) =
            (self.identity(sequence, 0), self.setup.parameters.numeric.numbers());
        let branch = self.setup.tree(sequence).branch(rank);
        Gradient {
            // The first fragment is complete nowhere.
            watermark_distance: sequence as u16,
            ..Gradient::fresh(identity, 77, numbers, SERVER, branch)
        }
    }

    fn identity(&self, sequence: u64, attempt: u8) -> Identity {
        Identity { job: JOB, epoch: self.setup.epoch, sequence, attempt, operation: OPERATION }
    }

    fn query(&self, rank: u32, sequence: u64, bypass: bool) -> Query {
        let branch = self.setup.tree(sequence).branch(rank);
        let query = Query::new(self.identity(sequence, 0), 77, SERVER, branch);
        Query { level: branch.end(), bypass, ..query }
    }

    /// Hands a gradient in.
    fn give(&mut self, gradient: Gradient, body: &[u8]) {
        self.give_marked(gradient, body, Ecn::Capable);
    }

    fn give_marked(&mut self, gradient: Gradient, body: &[u8], ecn: Ecn) {
        let mut body = body.to_vec();
        self.hand_in(gradient.to_header(), Body::Bytes(&mut body), ecn);
    }

    fn ask(&mut self, query: Query) {
        self.hand_in(query.to_header(), Body::Length(0), Ecn::Capable);
    }

    fn hand_in(&mut self, header: Header, body: Body<'_>, ecn: Ecn) {
        self.hand_in_with(Meta { ecn, ..Meta::default() }, header, body);
    }

    fn hand_in_with(&mut self, meta: Meta, mut header: Header, body: Body<'_>) {
        let wire_bytes = body.len() as u32 + self.setup.parameters.overhead_bytes;
        let mut meta = Meta { wire_bytes, ..meta };
        let packet = Packet { meta: &mut meta, header: &mut header, body };
        assert_eq!(self.server.handle_packet(self.now, packet), Verdict::Consume);
    }

    /// Everything that waits.
    fn drain(&mut self) -> Vec<Sent> {
        let sent = self.drain_some(usize::MAX);
        assert!(!self.server.has_backlog());
        sent
    }

    fn drain_some(&mut self, room: usize) -> Vec<Sent> {
        let mut outbox = TestOutbox::with_room(NodeId(0), room);
        self.server.poll_transmit(self.now, &mut outbox);
        assert_eq!(self.server.poll_timeout(), Time::NEVER);
        outbox.packets.into_iter().map(Sent::from).collect()
    }

    /// Every worker of the tree sends its own values, which are alike.
    fn give_all(&mut self, sequence: u64, body: &[u8]) {
        let ranks: Vec<u32> = (0..self.setup.tree(sequence).workers()).collect();
        self.give_from(&ranks, sequence, body);
    }

    fn give_from(&mut self, ranks: &[u32], sequence: u64, body: &[u8]) {
        for &rank in ranks {
            self.give(self.own(rank, sequence), body);
        }
    }

    fn give_floats_from(&mut self, ranks: &[u32], sequence: u64, body: &[u8]) {
        for &rank in ranks {
            self.give(in_floats(self.own(rank, sequence)), body);
        }
    }
}

/// Destinations of packets, in order.
fn destinations(sent: &[Sent]) -> Vec<u32> {
    sent.iter().map(Sent::to).collect()
}

/// The same in the attempt that answers a repeat.
fn in_floats(gradient: Gradient) -> Gradient {
    let attempt = Attempt(gradient.identity.attempt).in_floats().0;
    let identity = Identity { attempt, ..gradient.identity };
    Gradient { identity, numbers: Numbers::Float, overflow: false, ..gradient }
}
