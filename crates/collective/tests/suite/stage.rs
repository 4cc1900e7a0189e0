//! Whole groups in the fabric, around one switch.

use thalweg_collective::Event;
use thalweg_core::{NodeId, Rate, Reports, Span, Time};
use thalweg_fabric::topology::{CableSpec, OneSwitch};
use thalweg_fabric::{
    Config, Director, Discipline, Effect, Fabric, Hosts, Limit, Marking, Pause, Place, Rule,
};
use thalweg_values::{Coverage, Tensor};

use crate::group::Collective;

/// Rate of every host's cable.
pub const RATE: Rate = Rate::from_gbps(100);

/// Outcome of a run.
pub struct Played {
    /// When the last worker finished.
    pub took: Span,
    /// The sums at each worker, by operation.
    pub sums: Vec<Vec<Tensor>>,
    /// The coverage of each of them.
    pub coverages: Vec<Vec<Coverage>>,
    /// Packets that were lost in flight.
    pub lost_packets: u64,
}

/// Has every worker submit its tensors at once and runs until all sums are there. `scripts` has the
/// tensors of each worker; nodes beyond it only serve.
pub fn play<M: Collective>(machines: Vec<M>, scripts: Vec<Vec<Tensor>>, loss: f64) -> Played {
    let mut script = Script {
        missing: scripts.iter().map(Vec::len).sum(),
        sums: scripts.iter().map(|tensors| vec![None; tensors.len()]).collect(),
        scripts: Some(scripts),
        end: Time::ZERO,
    };
    let mut fabric = fabric(machines, loss);
    let pause = fabric.run(&mut script, Limit::until(Time::ZERO + Span::from_s(100)));
    assert_eq!(pause, Pause::Done, "{} sums are missing", script.missing);
    fabric.check().expect("the fabric keeps its laws");
    let whole = |sums: Vec<Option<_>>| sums.into_iter().map(|sum| sum.expect("none missing"));
    let (sums, coverages) = script.sums.into_iter().map(|sums| whole(sums).unzip()).unzip();
    let lost_packets = fabric.stats().dropped();
    Played { took: script.end.since(Time::ZERO), sums, coverages, lost_packets }
}

/// Machines around one switch, whose links lose some packets.
pub fn fabric<M: Reports>(machines: Vec<M>, loss: f64) -> Fabric<M> {
    let cable = CableSpec { rate: RATE, delay: Span::from_us(1) };
    let hosts = machines.len() as u32;
    let topology = OneSwitch { hosts, host_cable: cable }.build().expect("it is connected");
    let rule = Rule {
        place: Place::Everywhere,
        effect: Effect::Loss(loss),
        from: Time::ZERO,
        until: Time::NEVER,
    };
    let config = Config {
        discipline: Discipline::Fifo(Marking::above(97_500)),
        faults: if loss > 0.0 { vec![rule] } else { Vec::new() },
        ..Config::default()
    };
    let mut machines = machines.into_iter().map(Some).collect::<Vec<_>>();
    Fabric::new(topology, &config, 7, |host| {
        machines[host.index()].take().expect("one machine for each host")
    })
}

struct Script {
    scripts: Option<Vec<Vec<Tensor>>>,
    sums: Vec<Vec<Option<(Tensor, Coverage)>>>,
    missing: usize,
    end: Time,
}

impl<M: Collective> Director<M> for Script {
    fn next_wake(&mut self) -> Time {
        if self.scripts.is_some() { Time::ZERO } else { Time::NEVER }
    }

    fn handle_wake(&mut self, now: Time, hosts: &mut Hosts<'_, M>) {
        let scripts = self.scripts.take().into_iter().flatten();
        for (worker, tensors) in (0..).map(NodeId).zip(scripts) {
            for tensor in tensors {
                hosts.machine(worker).submit(now, tensor).expect("it is a worker");
            }
        }
    }

    fn handle_event(&mut self, now: Time, node: NodeId, event: Event, _: &mut Hosts<'_, M>) {
        match event {
            Event::Finished { operation, tensor, coverage } => {
                let sum = &mut self.sums[node.index()][operation.0 as usize];
                assert_eq!(sum.replace((tensor, coverage)), None, "it ended twice");
                self.missing -= 1;
                self.end = now;
            }
            Event::Failed { failure, .. } => panic!("{node:?}: {failure}"),
        }
    }

    fn is_done(&mut self) -> bool {
        self.missing == 0
    }
}
