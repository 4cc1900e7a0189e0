//! A worker against hand-made packets.

mod agreement;
mod bounded;
mod differing;
mod epochs;
mod halves;
mod lossy;
mod paths;
mod recovery;
mod sending;
mod slips;

use thalweg_core::testing::{OwnedPacket as Owned, TestOutbox};
use thalweg_core::{
    Body, Checked, Dscp, Ecn, HEADER_BYTES, Header, JobId, Machine, Meta, NodeId, Packet, Purpose,
    Reports, Span,
};
use thalweg_transport::control::Fixed;
use thalweg_wire::Kind;
use thalweg_wire::aggregate::{Gradient, Identity, Numbers, Parameter, Query, Request, Scale};
use thalweg_wire::peek;

use super::*;
use crate::parameters::JobParameters;
use crate::setup::{Indexing, Numeric, Recovery};
use crate::tree::{Member, Tree};

const JOB: JobId = JobId(7);
const SWITCH: NodeId = NodeId(10);
const SERVER: NodeId = NodeId(20);

/// Two workers below one switch. Fragments of 4 values, packets of 116 bytes, a span of 8.
fn setup() -> Setup {
    Setup {
        job: JOB,
        epoch: 1,
        trees: vec![tree(SERVER)],
        resume_from: 0,
        parameters: JobParameters {
            fragment_values: 4,
            numeric: Numeric::Float,
            recovery: Recovery::Selective,
            indexing: Indexing::Hashed,
            aggregators: 1_000,
            span_fragments: 8,
            overhead_bytes: 100,
            generation: None,
            seals_bodies: false,
            widens_halves: false,
        }
        .check()
        .unwrap(),
    }
}

fn tree(server: NodeId) -> Arc<Tree> {
    let member = |node| Member { node: NodeId(node), path: vec![SWITCH] };
    Arc::new(Tree::build(server, &[member(0), member(1)]).unwrap())
}

fn fixed(scale: f32, dynamic: bool) -> Numeric {
    Numeric::Fixed { scale: Scale::new(scale).unwrap(), dynamic }
}

/// Decoders of packets of a worker.
trait Read {
    fn kind(&self) -> Kind;
    fn gradient(&self) -> Gradient;
    fn query(&self) -> Query;
    fn sequence(&self) -> u64;
    fn floats(&self) -> Vec<f32>;
}

impl Work {
    fn digest(&self, sequence: u64) -> Option<u32> {
        self.operations.locate(sequence).and_then(|at| self.operations.digest(at))
    }
}

impl Read for Owned {
    fn kind(&self) -> Kind {
        peek(&self.header).unwrap().kind()
    }

    fn gradient(&self) -> Gradient {
        Gradient::decode(&self.header).unwrap()
    }

    fn query(&self) -> Query {
        Query::decode(&self.header).unwrap()
    }

    fn sequence(&self) -> u64 {
        match self.kind() {
            Kind::AggregateQuery => self.query().identity.sequence,
            _ => self.gradient().identity.sequence,
        }
    }

    fn floats(&self) -> Vec<f32> {
        self.bytes().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }
}

/// A worker, checked after every input, its set-up and its clock.
struct Bench {
    worker: Checked<Worker>,
    setup: Arc<Setup>,
    now: Time,
}

impl Bench {
    fn new(setup: Setup) -> Bench {
        Bench::with(setup, Config { control: Fixed { bytes: 1 << 20 }.into(), ..Config::default() })
    }

    fn with(setup: Setup, config: Config) -> Bench {
        assert_eq!(config.check(), Ok(()));
        let worker = Checked::new(Worker::new(config).unwrap());
        let mut bench = Bench { worker, setup: Arc::new(setup), now: Time::ZERO };
        let last_rank = bench.setup.trees[0].workers() - 1;
        assert!(bench.worker.adopt(bench.now, bench.setup.clone(), last_rank));
        bench
    }

    /// With a tensor of `fragments` fragments, of which all that fit the window were sent.
    fn with_sent(setup: Setup, config: Config, fragments: u64) -> Bench {
        let mut bench = Bench::with(setup, config);
        bench.submit_length(fragments * u64::from(bench.setup.parameters.fragment_values));
        bench.sent();
        bench
    }

    fn submit(&mut self, values: &[f32]) -> Operation {
        self.worker.submit(self.now, Tensor::from(values.to_vec()))
    }

    fn submit_length(&mut self, values: u64) -> Operation {
        self.worker.submit(self.now, Tensor::Length(values))
    }

    fn wait(&mut self, span: Span) {
        self.now += span;
    }

    /// Waits until the timeout, and lets it come.
    fn expire(&mut self) -> Span {
        let at = self.worker.poll_timeout();
        assert!(at != Time::NEVER && at >= self.now);
        let waited = at.since(self.now);
        self.now = at;
        self.worker.handle_timeout(at);
        waited
    }

    /// Everything that it sends now.
    fn sent(&mut self) -> Vec<Owned> {
        let mut outbox = TestOutbox::default();
        self.worker.poll_transmit(self.now, &mut outbox);
        assert!(!self.worker.has_backlog());
        outbox.packets
    }

    fn sent_sequences(&mut self) -> Vec<u64> {
        self.sent().iter().map(Owned::sequence).collect()
    }

    fn finished(&mut self) -> Vec<(u64, u64)> {
        let events = std::iter::from_fn(|| self.worker.poll_event());
        events
            .map(|Event::Finished { operation, missing_below, .. }| (operation.0, missing_below))
            .collect()
    }

    fn identity(&self, sequence: u64) -> Identity {
        let operation = self.worker.work.digest(sequence).unwrap_or(0);
        Identity { job: JOB, epoch: self.setup.epoch, sequence, attempt: 0, operation }
    }

    /// The sum of a full fragment.
    fn parameter(&self, sequence: u64) -> Parameter {
        let (identity, server) = (self.identity(sequence), self.setup.tree(sequence).server());
        Parameter {
            job_watermark_distance: sequence as u16,
            ..Parameter::sum(identity, 0, Numbers::Float, server, 1)
        }
    }

    fn deliver(&mut self, mut header: Header, body: Body<'_>, ecn: Ecn) {
        let mut meta = Meta { ecn, ..Meta::default() };
        let packet = Packet { meta: &mut meta, header: &mut header, body };
        assert_eq!(self.worker.handle_packet(self.now, packet), Verdict::Consume);
    }

    /// With the length of a full fragment, or without body if it asks for floats.
    fn answer_with(&mut self, parameter: Parameter) {
        let values = if parameter.repeat { 0 } else { self.setup.parameters.fragment_values };
        self.deliver(parameter.to_header(), Body::Length(4 * u32::from(values)), Ecn::Capable);
    }

    /// Completes full fragments of a tensor without values.
    fn answer(&mut self, sequences: impl IntoIterator<Item = u64>) {
        for sequence in sequences {
            self.answer_with(self.parameter(sequence));
        }
    }

    fn answer_values(&mut self, sequence: u64, sums: &[f32]) {
        let header = self.parameter(sequence).to_header();
        let mut body: Vec<u8> = sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
        self.deliver(header, Body::Bytes(&mut body), Ecn::Capable);
    }

    /// A request of the switch for this worker's contribution.
    fn request(&self, sequence: u64) -> Request {
        Request {
            identity: self.identity(sequence),
            aggregator: 0,
            server: self.setup.tree(sequence).server(),
            branch: self.setup.tree(sequence).branch(0),
            level: 0,
            wanted: 0b10,
            bypass: false,
            restart: false,
        }
    }

    fn ask(&mut self, request: Request) {
        self.deliver(request.to_header(), Body::Length(0), Ecn::Capable);
    }
}
