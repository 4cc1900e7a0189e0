//! Squared norm of what arrives of real gradients when a part may be missing, with and without importance: of sums by a
//! server, around a ring, and in a switch.

use std::sync::Arc;

use thalweg_aggregate::{
    JobParameters, Member, Reliability, Setup, Switch, Tree, Worker, switch, worker,
};
use thalweg_collective::{Delivery, Event as SumEvent, SumCall, ring, server as parameter_server};
use thalweg_core::{JobId, NodeId, Rate, Rng, Span, Time};
use thalweg_deliver::{LossBound, SegmentOrder};
use thalweg_fabric::topology::{CableSpec, OneSwitch};
use thalweg_fabric::{Config, Director, Effect, Fabric, Hosts, Limit, Pause, Place, Program, Rule};
use thalweg_flow::Endpoint;
use thalweg_stack::{Event, Participant, TrainingHost};
use thalweg_train::{Batches, DIGITS, Recipe, STRIPES, Shard};
use thalweg_transport::Credentials;
use thalweg_values::{Coverage, Importance, Tensor};
use thalweg_wire::aggregate::LossShare;

const WORKERS: u32 = 8;
const SERVER: NodeId = NodeId(WORKERS);
const SWITCH: NodeId = NodeId(WORKERS + 1);
const JOB: JobId = JobId(7);

/// Place of the sums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Summing {
    Server,
    Ring,
    Switch,
}

/// One run.
#[derive(Clone, Copy, Debug)]
struct Trial {
    summing: Summing,
    /// The largest share of each worker's contribution that may be missing.
    bound: f64,
    /// Share of the packets of workers that the network loses.
    loss: f64,
    knows_importance: bool,
    seed: u64,
}

impl Trial {
    fn importance(self) -> Importance {
        if self.knows_importance { Importance::PacketMean } else { Importance::All }
    }

    /// Values of a packet. A ring divides the bound among its hops, so that its messages need more packets.
    fn packet_values(self) -> u16 {
        if self.summing == Summing::Ring { 32 } else { 352 }
    }

    fn delivery(self, node: NodeId) -> Delivery {
        let default = Delivery::new(Rng::new(self.seed).substream("node", node.0.into()));
        let segments = match self.knows_importance {
            true => SegmentOrder::ImportantFirst,
            false => SegmentOrder::AsTheyLie,
        };
        let segment_bytes = 4 * self.packet_values();
        let credentials = Credentials { job: JOB, ..Credentials::default() };
        let endpoint = thalweg_deliver::Config {
            segments,
            segment_bytes,
            credentials,
            ..default.endpoint.clone()
        };
        let loss = LossBound::new(self.bound).expect("a share");
        Delivery { endpoint, loss, importance: self.importance(), ..default }
    }

    fn setup(self) -> Arc<Setup> {
        let member = |rank| Member { node: NodeId(rank), path: vec![SWITCH] };
        let members: Vec<Member> = (0..WORKERS).map(member).collect();
        let parameters =
            JobParameters { fragment_values: self.packet_values(), ..JobParameters::default() };
        Arc::new(Setup {
            job: JOB,
            epoch: 1,
            trees: vec![Arc::new(Tree::build(SERVER, &members).expect("a tree"))],
            parameters: parameters.check().expect("valid"),
            resume_from: 0,
        })
    }

    /// The part of a node in the job.
    fn participant(self, node: NodeId) -> Option<Participant> {
        let workers: Vec<NodeId> = (0..WORKERS).map(NodeId).collect();
        let delivery = Some(self.delivery(node));
        match self.summing {
            Summing::Server => {
                let config = parameter_server::Config::new(workers, vec![SERVER]).at(node);
                let config = parameter_server::Config { delivery, ..config };
                let node = parameter_server::Node::new(config).expect("sound settings");
                Some(Participant::Server(Box::new(node)))
            }
            _ if node == SERVER => None,
            Summing::Ring => {
                let config = ring::Config { delivery, ..ring::Config::new(workers, node.0) };
                let ring = ring::Ring::new(config).expect("sound settings");
                Some(Participant::Ring(Box::new(ring)))
            }
            Summing::Switch => {
                let config =
                    worker::Config { importance: self.importance(), ..worker::Config::default() };
                let mut worker = Worker::new(config).expect("sound settings");
                assert!(worker.adopt(Time::ZERO, self.setup(), node.0));
                Some(Participant::Aggregate(Box::new(worker)))
            }
        }
    }

    /// Begins the sum at a worker.
    fn submit(self, host: &mut TrainingHost, gradient: &[f32]) {
        let tensor = Tensor::from(gradient.to_vec());
        match host.participant_mut(JOB).expect("a worker takes part") {
            Participant::Aggregate(worker) => {
                let share = LossShare::new(self.bound).expect("a share");
                worker.submit_with(Time::ZERO, tensor, Reliability::Bounded(share));
            }
            Participant::Server(node) => {
                node.submit(Time::ZERO, SumCall::from(tensor)).expect("a worker");
            }
            Participant::Ring(ring) => {
                ring.submit(Time::ZERO, SumCall::from(tensor)).expect("a worker");
            }
            Participant::Mesh(_) | Participant::Deliveries(_) => unreachable!("no job here is one"),
        }
    }

    /// Coverage of the sum that all workers have.
    fn run(self, gradients: &[Vec<f32>]) -> Coverage {
        let host_cable = CableSpec { rate: Rate::from_gbps(25), delay: Span::from_us(1) };
        let topology = OneSwitch { hosts: WORKERS + 1, host_cable }.build().expect("a topology");
        let rule = |worker| Rule {
            place: Place::OutOf(NodeId(worker)),
            effect: Effect::Loss(self.loss),
            from: Time::ZERO,
            until: Time::NEVER,
        };
        let faults = (0..WORKERS).map(rule).collect();
        let network = Config { faults, ..Config::default() };
        let mut fabric = Fabric::new(topology, &network, self.seed, |node| {
            let flows = Endpoint::new(thalweg_flow::Config::default()).expect("defaults work");
            let mut host = TrainingHost::new(node, flows);
            if self.summing == Summing::Switch && node == SERVER {
                host.server_mut().adopt(Time::ZERO, self.setup());
            }
            if let Some(participant) = self.participant(node) {
                host.enter(JOB, participant);
            }
            if node != SERVER {
                self.submit(&mut host, &gradients[node.index()]);
            }
            host
        });
        let machine = Switch::new(switch::Config::new(SWITCH)).expect("defaults work");
        fabric.install(SWITCH, Program::addressed(Box::new(machine)));
        let mut listener = Listener::default();
        let end = Time::ZERO + Span::from_s(100);
        assert_eq!(fabric.run(&mut listener, Limit::until(end)), Pause::Done, "{self:?}");
        let coverages = &listener.coverages;
        assert!(coverages.iter().all(|own| own == &coverages[0]), "all report the same");
        coverages[0].clone()
    }
}

/// Collects what the sums lack.
#[derive(Default)]
struct Listener {
    coverages: Vec<Coverage>,
}

impl Director<TrainingHost> for Listener {
    fn next_wake(&mut self) -> Time {
        Time::NEVER
    }

    fn handle_wake(&mut self, _now: Time, _hosts: &mut Hosts<'_, TrainingHost>) {}

    fn handle_event(&mut self, _: Time, _: NodeId, event: Event, _: &mut Hosts<'_, TrainingHost>) {
        match event {
            Event::Sum { event: SumEvent::Finished { coverage, .. }, .. } => {
                self.coverages.push(coverage);
            }
            other => panic!("{other:?}"),
        }
    }

    fn is_done(&mut self) -> bool {
        self.coverages.len() == WORKERS as usize
    }
}

/// Gradients of the workers when a model has learnt for some steps.
fn gradients(model: &Recipe, seed: u64) -> Vec<Vec<f32>> {
    const STEPS: usize = 20;
    let (task, mut network) = (model.task(seed), model.network(seed));
    let mut batches = Batches::new(task.train.len(), model.batch, seed);
    let all = Shard::new(0, 1);
    for step in 0..STEPS {
        let batch = task.train.batch(batches.indices(step, all).iter().copied());
        let mean = network.gradient(&batch).1.iter().map(|sum| sum / model.batch as f32);
        let mean: Vec<f32> = mean.collect();
        network.step(&mean, model.rate);
    }
    let own = |worker| {
        let shard = Shard::new(worker, WORKERS as usize);
        let batch = task.train.batch(batches.indices(STEPS, shard).iter().copied());
        network.gradient(&batch).1.to_vec()
    };
    (0..WORKERS as usize).map(own).collect()
}

/// Shares of all contributions: what is missing of their values, and what is there of their squared norm.
fn shares(gradients: &[Vec<f32>], coverage: &Coverage) -> (f64, f64) {
    let squares = |values: &[f32]| -> f64 {
        values.iter().map(|value| f64::from(*value) * f64::from(*value)).sum()
    };
    let (mut missing, mut lost) = (0, 0.0);
    for part in coverage.missing().expect("it is reported") {
        let range = part.values.start as usize..part.values.end as usize;
        for &rank in &part.ranks {
            missing += range.len();
            lost += squares(&gradients[rank as usize][range.clone()]);
        }
    }
    let values: usize = gradients.iter().map(Vec::len).sum();
    let norm: f64 = gradients.iter().map(|own| squares(own)).sum();
    (missing as f64 / values as f64, 1.0 - lost / norm)
}

/// Means over three seeds: shares that are missing, and that are there of the squared norm.
fn mean(trial: Trial, gradients: &[Vec<f32>]) -> (f64, f64) {
    let own = |seed| shares(gradients, &Trial { seed, ..trial }.run(gradients));
    let all = [1, 2, 3].map(own);
    let of = |share: fn(&(f64, f64)) -> f64| all.iter().map(share).sum::<f64>() / 3.0;
    (of(|own| own.0), of(|own| own.1))
}

/// With as much missing, more of the norm is there if importance decides what is left out.
// spec: M-04, M-20 simulator
#[test]
fn importance_delivers_more_of_the_norm() {
    println!("| gradients | sums | missing | squared norm | at random | without importance |");
    println!("|---|---|---|---|---|---|");
    for model in [DIGITS, STRIPES] {
        let gradients = gradients(&model, 1);
        for summing in [Summing::Server, Summing::Ring, Summing::Switch] {
            // Deliveries stop when there is enough; sums in switches lack what is lost. What a rank of a ring adds to a
            // sum passes half of the hops, and the bound counts all of them.
            for (target, loss) in [(0.1, 0.2), (0.3, 0.45)] {
                let loss = if summing == Summing::Switch { loss } else { 0.0 };
                let bound = if summing == Summing::Ring { 2.0 * target } else { target };
                let trial = Trial { summing, bound, loss, knows_importance: true, seed: 0 };
                let (missing, norm) = mean(trial, &gradients);
                // What is lost by chance is missing then, as long as the bound lasts.
                let loss = if summing == Summing::Switch { target } else { 0.0 };
                let without = Trial { loss, knows_importance: false, ..trial };
                let without = mean(without, &gradients);
                println!(
                    "| {} | {summing:?} | {:.1}% | {:.1}% | {:.1}% | {:.1}% ({:.1}% missing) |",
                    model.name,
                    100.0 * missing,
                    100.0 * norm,
                    100.0 * (1.0 - missing),
                    100.0 * without.1,
                    100.0 * without.0,
                );
                let case = (model.name, summing, target);
                assert!(missing > 0.7 * target && missing < 1.05 * target, "{case:?}: {missing}");
                // What is missing by chance has its share of the norm.
                assert!(norm > 1.0 - missing + target / 10.0, "{case:?}: {norm}");
                assert!(norm > without.1, "{case:?}: {norm}, {without:?}");
            }
        }
    }
}
