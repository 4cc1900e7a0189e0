//! Sums that leave the range of fixed point: they take the way of floats and are right, and with a
//! dynamic scale they become rare.

use std::sync::Arc;

use thalweg_aggregate::{
    JobParameters, Member, Numeric, Setup, Switch, Tree, Worker, server, switch, worker,
};
use thalweg_collective::Event as SumEvent;
use thalweg_core::{JobId, NodeId, Rate, Rng, Span, Time};
use thalweg_fabric::topology::{CableSpec, OneSwitch};
use thalweg_fabric::{Config, Director, Fabric, Hosts, Limit, Pause, Program};
use thalweg_flow::Endpoint;
use thalweg_stack::{Event, Participant, TrainingHost};
use thalweg_values::Tensor;
use thalweg_wire::aggregate::Scale;

const WORKERS: u32 = 4;
const SERVER: NodeId = NodeId(WORKERS);
const SWITCH: NodeId = NodeId(WORKERS + 1);
const JOB: JobId = JobId(77);
const FRAGMENTS: u64 = 2_000;
const FRAGMENT_VALUES: u16 = 8;

/// Collects the sums.
#[derive(Default)]
struct Listener {
    sums: Vec<Vec<f32>>,
}

impl Director<TrainingHost> for Listener {
    fn next_wake(&mut self) -> Time {
        Time::NEVER
    }

    fn handle_wake(&mut self, _now: Time, _hosts: &mut Hosts<'_, TrainingHost>) {}

    fn handle_event(&mut self, _: Time, _: NodeId, event: Event, _: &mut Hosts<'_, TrainingHost>) {
        if let Event::Sum { event: SumEvent::Finished { tensor, .. }, .. } = event {
            self.sums.extend(tensor.values().map(<[f32]>::to_vec));
        }
    }

    fn is_done(&mut self) -> bool {
        self.sums.len() == WORKERS as usize
    }
}

/// Most values are small; one in ten fragments has a value of which four do not fit.
fn tensor(rank: u32) -> Vec<f32> {
    let mut draw = Rng::new(5).substream("tensor", rank.into());
    let values = FRAGMENTS * u64::from(FRAGMENT_VALUES);
    let value = |at: u64| {
        let small = draw.uniform() as f32 - 0.5;
        if at.is_multiple_of(80) { 7.0 + small } else { small }
    };
    (0..values).map(value).collect()
}

fn setup(numeric: Numeric) -> Arc<Setup> {
    let member = |rank| Member { node: NodeId(rank), path: vec![SWITCH] };
    let members: Vec<Member> = (0..WORKERS).map(member).collect();
    let parameters = JobParameters {
        fragment_values: FRAGMENT_VALUES,
        numeric,
        aggregators: 1_000,
        span_fragments: 100,
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

/// The sums of all workers, and what the server counted.
fn run(numeric: Numeric) -> (Vec<Vec<f32>>, server::Stats) {
    let setup = setup(numeric);
    let host_cable = CableSpec { rate: Rate::from_gbps(10), delay: Span::from_us(1) };
    let topology = OneSwitch { hosts: WORKERS + 1, host_cable }.build().expect("a topology");
    let mut fabric = Fabric::new(topology, &Config::default(), 1, |node| {
        let flows = Endpoint::new(thalweg_flow::Config::default()).expect("defaults work");
        let mut host = TrainingHost::new(node, flows);
        if node == SERVER {
            host.server_mut().adopt(Time::ZERO, setup.clone());
        } else {
            let mut worker = Worker::new(worker::Config::default()).expect("defaults work");
            assert!(worker.adopt(Time::ZERO, setup.clone(), node.0));
            worker.submit(Time::ZERO, Tensor::from(tensor(node.0)));
            host.enter(JOB, Participant::Aggregate(Box::new(worker)));
        }
        host
    });
    let machine = Switch::new(switch::Config::new(SWITCH)).expect("defaults work");
    fabric.install(SWITCH, Program::addressed(Box::new(machine)));
    let mut listener = Listener::default();
    let end = Time::ZERO + Span::from_s(1);
    assert_eq!(fabric.run(&mut listener, Limit::until(end)), Pause::Done);
    let server = fabric.machine(SERVER).server().expect("it has adopted a job");
    (listener.sums, server.stats())
}

fn check_sums(sums: &[Vec<f32>], step: f64) {
    let tensors: Vec<Vec<f32>> = (0..WORKERS).map(tensor).collect();
    for (at, &value) in sums[0].iter().enumerate() {
        let parts = || tensors.iter().map(|tensor| f64::from(tensor[at]));
        let (exact, magnitude): (f64, f64) = (parts().sum(), parts().map(f64::abs).sum());
        let allowed = magnitude * f64::from(WORKERS) * f64::from(f32::EPSILON) + step;
        assert!((f64::from(value) - exact).abs() <= allowed, "value {at}: {value}, not {exact}");
    }
    let bits = |sum: &Vec<f32>| sum.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    assert!(sums.iter().all(|sum| bits(sum) == bits(&sums[0])), "all have the same bits");
}

// spec: simulator
#[test]
fn overflow_takes_the_way_of_floats_and_a_dynamic_scale_makes_it_rare() {
    let scale = Scale::new(1e8).expect("a scale");
    let (sums, fixed) = run(Numeric::Fixed { scale, dynamic: false });
    check_sums(&sums, f64::from(WORKERS) / 1e8);
    assert_eq!((fixed.completed, fixed.repeats), (FRAGMENTS, FRAGMENTS / 10));

    let (sums, dynamic) = run(Numeric::Fixed { scale, dynamic: true });
    // Four numbers below 8 need a scale of 2^25 at most.
    check_sums(&sums, f64::from(WORKERS) / 33_554_432.0);
    assert_eq!(dynamic.completed, FRAGMENTS);
    assert!(dynamic.rescaled >= 1 && dynamic.repeats <= FRAGMENTS / 50, "{dynamic:?}");
    println!("repeats in floats: {} fixed, {} dynamic", fixed.repeats, dynamic.repeats);

    let (sums, float) = run(Numeric::Float);
    check_sums(&sums, 0.0);
    assert_eq!(float.repeats, 0);
}
