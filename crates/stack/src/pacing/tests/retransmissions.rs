//! A paced worker that loses packets: values that leave again are no progress, whatever they leave for.

use std::collections::BTreeSet;
use std::sync::Arc;

use thalweg_aggregate::{
    Indexing, JobParameters, Member, Numeric, Recovery, Server, Setup, Tree, Worker, server, worker,
};
use thalweg_core::testing::TestOutbox;
use thalweg_values::Tensor;
use thalweg_wire::aggregate::{Gradient, Scale};
use thalweg_wire::{Kind, peek};

use super::*;

const SERVER: NodeId = NodeId(5);
const FRAGMENT_VALUES: u16 = 365;
const FRAGMENTS: u64 = 600;
const FLOW: FlowId = FlowId { job: JOB, number: 0 };

/// Bytes that a full packet occupies of a link.
const PACKET_BYTES: u64 = 4 * FRAGMENT_VALUES as u64 + OVERHEAD_BYTES as u64;

fn setup(recovery: Recovery) -> Arc<Setup> {
    let members = [0, 1].map(|node| Member { node: NodeId(node), path: Vec::new() });
    let parameters = JobParameters {
        fragment_values: FRAGMENT_VALUES,
        numeric: Numeric::Fixed { scale: Scale::new(1e8).expect("a scale"), dynamic: false },
        recovery,
        indexing: Indexing::Hashed,
        aggregators: 1_000,
        span_fragments: 100,
        overhead_bytes: OVERHEAD_BYTES,
        ..JobParameters::default()
    };
    Arc::new(Setup {
        job: JOB,
        epoch: 1,
        trees: vec![Arc::new(Tree::build(SERVER, &members).expect("a tree"))],
        parameters: parameters.check().expect("valid"),
        resume_from: 0,
    })
}

/// Values of which some leave the range of fixed point, so that they leave once more in floats.
fn tensor() -> Tensor {
    let values = FRAGMENTS * u64::from(FRAGMENT_VALUES);
    let value = |at: u64| if at.is_multiple_of(20_000) { 20.0 } else { 0.5 };
    Tensor::from((0..values).map(value).collect::<Vec<f32>>())
}

fn pacing() -> Pacing {
    let volume = Bytes::new(FRAGMENTS * 4 * u64::from(FRAGMENT_VALUES));
    let relation = Relation::Alone;
    let flow = PacedFlow { number: 0, to: SERVER, volume, relation, others: Vec::new() };
    let job = PacedJob {
        round: volume,
        flows: vec![flow],
        segment_bytes: 4 * u32::from(FRAGMENT_VALUES),
        overhead_bytes: OVERHEAD_BYTES,
    };
    let pacing = Pacing::new(NodeId(0), settings(), Rate::from_gbps(GBPS), &Rng::new(1));
    let mut pacing = pacing.expect("settings");
    pacing.enter(JOB, &job);
    pacing
}

/// Two workers and a server, of which the first worker is paced and both lose packets.
struct Bench {
    now: Time,
    pacing: Pacing,
    workers: [Worker; 2],
    server: Server,
    rng: Rng,
    outbox: TestOutbox,
    /// Of the first worker.
    distinct: BTreeSet<u64>,
    gradients: u64,
}

impl Bench {
    fn new(recovery: Recovery) -> Bench {
        let setup = setup(recovery);
        let now = Time::ZERO + settings().slot;
        let mut server = Server::new(server::Config::new(SERVER)).expect("defaults work");
        server.adopt(now, setup.clone());
        let workers = [0, 1].map(|rank| {
            let mut worker = Worker::new(worker::Config::default()).expect("defaults work");
            assert!(worker.adopt(now, setup.clone(), rank));
            worker.submit(now, tensor());
            worker
        });
        let mut pacing = pacing();
        pacing.handed_over(now, JOB, FRAGMENTS * 4 * u64::from(FRAGMENT_VALUES));
        let (rng, outbox) = (Rng::new(3), TestOutbox::with_room(NodeId(0), 64));
        let distinct = BTreeSet::new();
        Bench { now, pacing, workers, server, rng, outbox, distinct, gradients: 0 }
    }

    fn step(&mut self) {
        self.now += Span::from_us(50);
        self.pacing.handle_timeout(self.now);
        self.pacing.transmit(self.now, &mut DiscardOutbox::default());
        self.send_paced();
        self.deliver();
        self.workers[1].poll_transmit(self.now, &mut self.outbox);
        self.deliver();
        for worker in &mut self.workers {
            if worker.poll_timeout() <= self.now {
                worker.handle_timeout(self.now);
            }
        }
    }

    fn send_paced(&mut self) {
        let gate = self.pacing.gate(JOB).expect("it has entered");
        self.workers[0].poll_transmit(self.now, &mut Gated::new(&mut self.outbox, gate, self.now));
        self.pacing.settle(JOB);
        let kinds = self.outbox.packets.iter().map(|packet| (packet, peek(&packet.header)));
        for (packet, prefix) in kinds {
            if prefix.expect("sound packets").kind() == Kind::AggregateGradient {
                let gradient = Gradient::decode(&packet.header).expect("a gradient");
                self.distinct.insert(gradient.identity.sequence);
                self.gradients += 1;
            }
        }
    }

    /// Hands over what was sent and what the server answers. One packet in fifty is lost.
    fn deliver(&mut self) {
        while !self.outbox.packets.is_empty() {
            let mut packet = self.outbox.packets.remove(0);
            let dst = packet.meta.dst;
            if self.rng.chance(0.02) {
                continue;
            }
            if dst == SERVER {
                self.server.handle_packet(self.now, packet.lend());
            } else {
                self.workers[dst.index()].handle_packet(self.now, packet.lend());
            }
            self.server.poll_transmit(self.now, &mut self.outbox);
        }
    }

    /// Bytes that the scheduler takes for progress.
    fn progress(&self) -> u64 {
        FRAGMENTS * PACKET_BYTES
            - self.pacing.agent.host().left(FLOW).expect("it was added").as_u64()
    }
}

// spec: C-13 machine
#[test]
fn progress_is_what_has_left_for_the_first_time_under_both_recoveries() {
    for recovery in [Recovery::Selective, Recovery::Paper] {
        let mut bench = Bench::new(recovery);
        let mut again = 0;
        while (bench.distinct.len() as u64) < FRAGMENTS {
            bench.step();
            let distinct = bench.distinct.len() as u64;
            again = bench.gradients - distinct;
            assert_eq!(bench.progress(), distinct * PACKET_BYTES, "{recovery:?}, {again} again");
            assert!(bench.now < Time::ZERO + Span::from_s(10), "{recovery:?}: it stands");
        }
        let stats = bench.workers[0].stats();
        assert!(again > 5 && stats.repeats > 0, "{recovery:?}: {stats:?}");
        match recovery {
            Recovery::Selective => assert!(stats.repairs > 0 && stats.resent == 0, "{stats:?}"),
            _ => assert!(stats.resent > 0, "{stats:?}"),
        }
    }
}
