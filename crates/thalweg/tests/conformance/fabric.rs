//! The fabric: the same machines on a simulated network.

use std::sync::Arc;

use thalweg::Numeric;
use thalweg_aggregate::{
    Numeric as Bodies, Recovery, Setup, Switch, Worker, server, switch, worker,
};
use thalweg_collective::Event as SumEvent;
use thalweg_core::{JobId, NodeId, Rate, Span, Time};
use thalweg_fabric::topology::{CableSpec, OneSwitch};
use thalweg_fabric::{
    Config, Director, Effect, Fabric, Hosts, Intercept, Limit, Outage, Pause, Place, Program, Rule,
};
use thalweg_flow::Endpoint;
use thalweg_stack::{Event, Participant, TrainingHost};
use thalweg_values::Tensor;
use thalweg_wire::aggregate::Scale;
use thalweg_wire::tag::{Key, Secret};

use crate::job::{Job, Trouble};

const JOB: JobId = JobId(8);
const SECRET: Secret = Secret([9; 16]);

/// Bodies that a session uses for this setting.
pub fn bodies_of(numeric: Numeric) -> Bodies {
    match numeric {
        Numeric::Auto | Numeric::Float => Bodies::Float,
        Numeric::Fixed { scale, dynamic } => {
            Bodies::Fixed { scale: Scale::new(scale).expect("a scale"), dynamic }
        }
        other => panic!("{other:?} is new"),
    }
}

/// The values of a sum in single precision.
pub fn wide_values(sum: &Tensor) -> Vec<f32> {
    let sum = sum.clone().widened();
    sum.values().expect("values were handed over").to_vec()
}

pub fn run(job: &Job) -> Option<Vec<Vec<Vec<f32>>>> {
    let (server, switch) = (NodeId(job.ranks()), NodeId(job.ranks() + 1));
    let nodes: Vec<NodeId> = (0..job.ranks()).map(NodeId).collect();
    let setup = setup(&nodes, server, switch, job);
    let host_cable = CableSpec { rate: Rate::from_gbps(10), delay: Span::from_us(1) };
    let topology = OneSwitch { hosts: job.ranks() + 1, host_cable }.build().expect("a topology");
    let config = Config { faults: faults(job), outages: outages(job, switch), ..Config::default() };
    let mut fabric = Fabric::new(topology, &config, 1, |node| host(node, job, &setup, server));
    fabric.install(switch, program(switch));
    let mut listener = Listener {
        switch,
        sums: vec![vec![Vec::new(); job.tensors.len()]; nodes.len()],
        left: nodes.len() * job.tensors.len(),
        restarts: 0,
    };
    let end = Time::ZERO + Span::from_s(20);
    assert_eq!(fabric.run(&mut listener, Limit::until(end)), Pause::Done);
    fabric.check().expect("packets are conserved");
    assert_eq!(listener.restarts, u32::from(job.trouble == Trouble::SwitchRestart));
    for node in &nodes {
        let Some(Participant::Aggregate(worker)) = fabric.machine(*node).participant(JOB) else {
            panic!("{node:?} has left");
        };
        job.check_sent(worker.stats().fragments_sent);
    }
    let switch = fabric.program::<Switch>(switch).expect("it was installed");
    assert!(switch.stats().gradients > 0, "the switch, or its successor, has worked");
    let flushed = switch.stats().flushed;
    assert_eq!(flushed > 0, job.recovery == Recovery::Paper, "{flushed} flushed");
    Some(listener.sums)
}

fn setup(nodes: &[NodeId], server: NodeId, switch: NodeId, job: &Job) -> Arc<Setup> {
    use thalweg_aggregate::{JobParameters, Member, Tree};
    let member = |node: &NodeId| Member { node: *node, path: vec![switch] };
    let members: Vec<Member> = nodes.iter().map(member).collect();
    let parameters = JobParameters {
        numeric: bodies_of(job.numeric),
        recovery: job.recovery,
        ..JobParameters::default()
    };
    Arc::new(Setup {
        job: JOB,
        epoch: 1,
        trees: vec![Arc::new(Tree::build(server, &members).expect("a tree"))],
        parameters: parameters.check().expect("valid"),
        resume_from: 0,
    })
}

fn host(node: NodeId, job: &Job, setup: &Arc<Setup>, server: NodeId) -> TrainingHost {
    let flows = Endpoint::new(thalweg_flow::Config::default()).expect("the defaults work");
    let mut host = TrainingHost::new(node, flows);
    if node == server {
        let config = server::Config { secrets: Some(SECRET.into()), ..server::Config::new(node) };
        host.serve(config).expect("the settings are right");
        host.server_mut().adopt(Time::ZERO, Arc::clone(setup));
        return host;
    }
    let mut worker = Worker::new(worker::Config::default()).expect("the defaults work");
    worker.set_key(Some(Key::derive(&SECRET, JOB, setup.epoch)));
    assert!(worker.adopt(Time::ZERO, Arc::clone(setup), node.0));
    for tensor in job.typed_tensors_of(node.0) {
        worker.submit(Time::ZERO, tensor);
    }
    host.enter(JOB, Participant::Aggregate(Box::new(worker)));
    host
}

fn program(node: NodeId) -> Program {
    let config = switch::Config { secrets: Some(SECRET.into()), ..switch::Config::new(node) };
    let machine = Switch::new(config).expect("the settings are right");
    Program { machine: Box::new(machine), intercept: Intercept::Addressed }
}

fn faults(job: &Job) -> Vec<Rule> {
    let reorder = Effect::Reorder { probability: 0.03, by: Span::from_us(20) };
    let effects = match job.trouble {
        Trouble::Loss => vec![Effect::Loss(0.02), Effect::Duplicate(0.02), reorder],
        Trouble::Nothing | Trouble::SwitchRestart => vec![],
    };
    let rule =
        |effect| Rule { place: Place::Everywhere, effect, from: Time::ZERO, until: Time::NEVER };
    effects.into_iter().map(rule).collect()
}

/// Long enough after the beginning that operations are under way, and long before their end.
fn outages(job: &Job, switch: NodeId) -> Vec<Outage> {
    let from = Time::ZERO + Span::from_us(500);
    let outage = Outage { node: switch, from, until: from + Span::from_us(300) };
    if job.trouble == Trouble::SwitchRestart { vec![outage] } else { vec![] }
}

/// Collects the sums.
struct Listener {
    switch: NodeId,
    sums: Vec<Vec<Vec<f32>>>,
    left: usize,
    restarts: u32,
}

impl Director<TrainingHost> for Listener {
    fn next_wake(&mut self) -> Time {
        Time::NEVER
    }

    fn handle_wake(&mut self, _now: Time, _hosts: &mut Hosts<'_, TrainingHost>) {}

    fn handle_event(
        &mut self,
        _: Time,
        node: NodeId,
        event: Event,
        _: &mut Hosts<'_, TrainingHost>,
    ) {
        if let Event::Sum { event: SumEvent::Finished { operation, tensor, coverage }, .. } = event
        {
            assert!(coverage.is_exact(), "{coverage:?}");
            self.sums[node.index()][operation.0 as usize] = wide_values(&tensor);
            self.left -= 1;
        }
    }

    fn handle_switch_restart(&mut self, _now: Time, switch: NodeId) -> Option<Program> {
        assert_eq!(switch, self.switch);
        assert!(self.left > 0, "it was over before the switch could restart");
        self.restarts += 1;
        Some(program(switch))
    }

    fn is_done(&mut self) -> bool {
        self.left == 0
    }
}
