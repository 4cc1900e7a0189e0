//! SwitchML in the fabric: sums are exact whatever is lost, and the pool is the window.

use thalweg_baselines::switchml::{Config as Settings, Event, Switch, Worker};
use thalweg_core::{JobId, NodeId, Operation, Rate, Rng, Span, Time};
use thalweg_fabric::topology::{CableSpec, LeafSpine, OneSwitch};
use thalweg_fabric::{
    Config, Director, Effect, Fabric, Hosts, Intercept, Limit, Pause, Place, Program, Rule,
    Topology,
};
use thalweg_values::{Fixed, Tensor};

const CABLE: CableSpec = CableSpec { rate: Rate::from_gbps(10), delay: Span::from_ns(500) };
const LENGTHS: [usize; 4] = [10_000, 1, 3_520, 777];

/// Jobs of workers on the hosts of a topology, host by host.
struct Stage {
    topology: Topology,
    switch: NodeId,
    jobs: u32,
    workers_per_job: u8,
    slots: u32,
}

/// Submits all tensors at once and waits until every worker has all sums.
struct Application {
    inputs: Vec<Vec<Tensor>>,
    has_begun: bool,
    unfinished: usize,
    finished_at: Time,
}

impl Director<Worker> for Application {
    fn next_wake(&mut self) -> Time {
        if self.has_begun { Time::NEVER } else { Time::ZERO }
    }

    fn handle_wake(&mut self, now: Time, hosts: &mut Hosts<'_, Worker>) {
        self.has_begun = true;
        for (host, tensors) in (0..).zip(&self.inputs) {
            for (number, tensor) in (0..).zip(tensors) {
                let operation = hosts.machine(NodeId(host)).submit(now, tensor.clone());
                assert_eq!(operation, Operation(number));
            }
        }
    }

    fn handle_event(&mut self, now: Time, _: NodeId, _: Event, _: &mut Hosts<'_, Worker>) {
        self.unfinished -= 1;
        self.finished_at = now;
    }
}

impl Stage {
    fn star(workers: u8, slots: u32) -> Stage {
        let topology = OneSwitch { hosts: workers.into(), host_cable: CABLE };
        Stage {
            topology: topology.build().expect("valid"),
            switch: NodeId(workers.into()),
            jobs: 1,
            workers_per_job: workers,
            slots,
        }
    }

    fn run(&self, faults: Vec<Rule>, inputs: Vec<Vec<Tensor>>) -> (Fabric<Worker>, Application) {
        let config = Config { faults, ..Config::default() };
        let (each, slots) = (u32::from(self.workers_per_job), self.slots);
        let mut switch = Switch::new(self.switch, slots * self.jobs);
        for job in 0..self.jobs {
            let workers = (job * each..(job + 1) * each).map(NodeId).collect();
            switch.allot(JobId(job.into()), slots, workers).expect("enough slots");
        }
        let mut fabric = Fabric::new(self.topology.clone(), &config, 3, |host| {
            let (job, rank) = (JobId((host.0 / each).into()), (host.0 % each) as u8);
            let settings = Settings::new(job, self.switch, rank, self.workers_per_job);
            Worker::new(Settings { slots, ..settings }).expect("valid")
        });
        let machine = Box::new(switch);
        fabric.install(self.switch, Program { machine, intercept: Intercept::Addressed });
        let unfinished = inputs.iter().map(Vec::len).sum();
        let mut application =
            Application { inputs, has_begun: false, unfinished, finished_at: Time::ZERO };
        let limit = Limit { until: Time::NEVER, events: 20_000_000 };
        assert_eq!(fabric.run(&mut application, limit), Pause::Quiet);
        fabric.check().expect("the laws of the simulator hold");
        assert_eq!(application.unfinished, 0);
        (fabric, application)
    }

    /// Runs random tensors and compares every sum, at every worker, with integer arithmetic.
    fn run_exactly(&self, faults: Vec<Rule>) -> Fabric<Worker> {
        let each = usize::from(self.workers_per_job);
        let hosts = self.jobs * u32::from(self.workers_per_job);
        let inputs: Vec<Vec<Tensor>> = (0..hosts).map(random_tensors).collect();
        let (fabric, _) = self.run(faults, inputs.clone());
        for host in 0..hosts {
            let first = host as usize / each * each;
            for (number, operation) in (0..LENGTHS.len()).zip((0..).map(Operation)) {
                let sum = fabric.machine(NodeId(host)).tensor(operation);
                let expected = exact_sum(&inputs[first..first + each], number);
                assert_eq!(sum, Some(&expected), "host {host}, {operation:?}");
            }
        }
        fabric
    }
}

fn random_tensors(host: u32) -> Vec<Tensor> {
    let mut rng = Rng::new(11).substream("tensor", host.into());
    let mut tensor = |length| (0..length).map(|_| rng.uniform() as f32 - 0.5).collect::<Vec<f32>>();
    LENGTHS.map(|length| Tensor::from(tensor(length))).to_vec()
}

/// The sum in 64-bit integers, in fixed point.
fn exact_sum(inputs: &[Vec<Tensor>], number: usize) -> Tensor {
    let fixed = Fixed::new(1e8).expect("positive");
    let mut sums = vec![0_i64; LENGTHS[number]];
    for worker in inputs {
        let mut integers = vec![0; sums.len()];
        let fit = fixed.encode(worker[number].values().expect("real"), &mut integers);
        assert!(!fit.is_clipped);
        sums.iter_mut().zip(integers).for_each(|(sum, integer)| *sum += i64::from(integer));
    }
    let sums: Vec<i32> =
        sums.into_iter().map(|sum| i32::try_from(sum).expect("in range")).collect();
    let mut values = vec![0.0; sums.len()];
    fixed.decode(&sums, &mut values);
    Tensor::from(values)
}

fn always(place: Place, effect: Effect) -> Rule {
    Rule { place, effect, from: Time::ZERO, until: Time::NEVER }
}

fn resent(fabric: &Fabric<Worker>, hosts: u32) -> u64 {
    (0..hosts).map(|host| fabric.machine(NodeId(host)).stats().resent_packets).sum()
}

// spec: A-50 simulator
#[test]
fn without_loss_every_fragment_is_sent_once_and_sums_are_exact() {
    let fabric = Stage::star(4, 8).run_exactly(vec![]);
    // 29 + 1 + 10 + 3 fragments of up to 352 values.
    for host in 0..4 {
        let stats = fabric.machine(NodeId(host)).stats();
        assert_eq!((stats.sent_packets, stats.resent_packets, stats.ignored_packets), (43, 0, 0));
    }
    assert_eq!(fabric.stats().copied_packets, 4 * 43, "every sum goes to four workers");
}

// spec: A-50 simulator
#[test]
fn sums_are_exact_with_loss_on_one_rack() {
    let shape = LeafSpine {
        racks: 2,
        hosts_per_rack: 3,
        spines: 1,
        host_cable: CABLE,
        uplink: CABLE,
        uplinks_per_spine: 1,
    };
    let topology = shape.build().unwrap();
    // The switch of the first rack sums for both; what goes to and from the second is lossy.
    let (switch, lossy) = (NodeId(6), NodeId(7));
    let stage = Stage { topology, switch, jobs: 1, workers_per_job: 6, slots: 5 };
    let faults = vec![
        always(Place::Into(lossy), Effect::Loss(0.05)),
        always(Place::OutOf(lossy), Effect::Loss(0.05)),
    ];
    let fabric = stage.run_exactly(faults);
    assert!(resent(&fabric, 6) > 10, "{}", resent(&fabric, 6));
    let clean = resent(&fabric, 3);
    assert!(clean > 0, "who waits for a lossy rack runs out of time too");
}

// spec: A-50 simulator
#[test]
fn sums_are_exact_whatever_the_network_does() {
    let faults = vec![
        always(Place::Everywhere, Effect::Loss(0.02)),
        always(Place::Everywhere, Effect::Duplicate(0.1)),
        always(Place::Everywhere, Effect::Reorder { probability: 0.1, by: Span::from_us(3_000) }),
    ];
    for slots in [1, 2, 7, 64] {
        let fabric = Stage::star(3, slots).run_exactly(faults.clone());
        assert!(resent(&fabric, 3) > 0);
    }
}

// spec: A-50 simulator
#[test]
fn jobs_have_shares_of_one_switch() {
    let topology = OneSwitch { hosts: 6, host_cable: CABLE }.build().unwrap();
    let stage = Stage { topology, switch: NodeId(6), jobs: 2, workers_per_job: 3, slots: 16 };
    stage.run_exactly(vec![always(Place::HostCables, Effect::Loss(0.01))]);
}

// spec: A-50 simulator
#[test]
fn a_pool_of_one_slot_takes_a_round_trip_for_every_fragment() {
    let stage = Stage::star(2, 1);
    let lengths = vec![Tensor::Length(352 * 10)];
    let (fabric, application) = stage.run(vec![], vec![lengths.clone(), lengths]);
    // 1,538 bytes at 10 Gbps, twice, and twice the cable.
    let round_trip = Span::from_ps(2 * (1_230_400 + 500_000));
    assert_eq!(application.finished_at, Time::ZERO + round_trip * 10);
    let sum = fabric.machine(NodeId(0)).tensor(Operation(0));
    assert_eq!(sum, Some(&Tensor::Length(3_520)));
}
