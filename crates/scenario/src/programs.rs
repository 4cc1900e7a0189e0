//! Programs of switches for the jobs of a scenario.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_aggregate::{Switch, switch};
use thalweg_baselines::switchml;
use thalweg_core::{JobId, NodeId};
use thalweg_fabric::{Fabric, Intercept, Program, Topology};
use thalweg_pace::Settings;
use thalweg_stack::{Ledger, Way};

use crate::error::Mistake;
use crate::job::{Cast, Job, Part, Stage};
use crate::plan::ways;
use crate::simulated::SimulatedHost;

/// Program of each switch that has one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Programs {
    by_switch: BTreeMap<NodeId, Kind>,
    /// Load tables beside them, or alone.
    tables: Option<Tables>,
}

/// Settings of load tables in switches.
#[derive(Clone, Debug)]
struct Tables {
    settings: Settings,
    ways: BTreeMap<NodeId, Vec<Option<Way>>>,
}

#[derive(Clone, Debug)]
enum Kind {
    Aggregate(switch::Config),
    SwitchMl { slots: u32, pools: Vec<Pool> },
}

/// The slots of one job.
#[derive(Clone, Debug)]
struct Pool {
    job: JobId,
    slots: u32,
    workers: Vec<NodeId>,
}

/// A switch with a program and what it counted since it last started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwitchUse {
    /// The switch.
    pub switch: NodeId,
    /// Counters of the program.
    pub stats: SwitchStats,
}

/// Counters of a switch's program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one for each switch of a run, and it is copied"
)]
pub enum SwitchStats {
    /// In-network aggregation.
    Aggregate(switch::Stats),
    /// SwitchML.
    SwitchMl(switchml::SwitchStats),
}

impl Programs {
    /// The programs that jobs need. The mistake comes with the number of the job.
    pub(crate) fn new<'a>(
        jobs: impl Iterator<Item = &'a Job>,
        casts: &[Cast],
        stage: Stage<'_>,
    ) -> Result<Programs, (usize, Mistake)> {
        let tables = stage.pacing.map(|settings| Tables::new(*settings, stage.topology));
        let mut programs = Programs { tables, ..Programs::default() };
        for (number, (job, cast)) in jobs.zip(casts).enumerate() {
            programs.add(job, cast, stage).map_err(|mistake| (number, mistake))?;
        }
        Ok(programs)
    }

    /// All switches that have one.
    pub(crate) fn switches(&self) -> impl Iterator<Item = NodeId> + '_ {
        let tables = self.tables.iter().flat_map(|tables| tables.ways.keys());
        let all: BTreeSet<NodeId> = self.by_switch.keys().chain(tables).copied().collect();
        all.into_iter()
    }

    /// The jobs that end when a switch loses its memory.
    pub(crate) fn jobs_that_end_with(&self, switch: NodeId) -> impl Iterator<Item = JobId> + '_ {
        let pools = match self.by_switch.get(&switch) {
            Some(Kind::SwitchMl { pools, .. }) => &pools[..],
            Some(Kind::Aggregate(_)) | None => &[],
        };
        pools.iter().map(|pool| pool.job)
    }

    /// A program that has just started.
    pub(crate) fn start(&self, switch: NodeId) -> Option<Program> {
        let sums = |config: &switch::Config| Switch::new(*config).expect("checked with the file");
        let kind = self.by_switch.get(&switch);
        match (&self.tables, kind) {
            (_, Some(Kind::SwitchMl { slots, pools })) => {
                let mut machine = switchml::Switch::new(switch, *slots);
                for Pool { job, slots, workers } in pools {
                    let allotted = machine.allot(*job, *slots, workers.clone());
                    allotted.expect("checked with the file");
                }
                Some(Program { machine: Box::new(machine), intercept: Intercept::Addressed })
            }
            (None, Some(Kind::Aggregate(config))) => {
                Some(Program { machine: Box::new(sums(config)), intercept: Intercept::Addressed })
            }
            (None, None) => None,
            (Some(tables), kind) => {
                let inner = match kind {
                    Some(Kind::Aggregate(config)) => Some(sums(config)),
                    _ => None,
                };
                let ways = tables.ways.get(&switch)?.clone();
                let ledger = Ledger::new(switch, tables.settings, ways, inner);
                Some(Program { machine: Box::new(ledger), intercept: Intercept::Everything })
            }
        }
    }

    /// Counters of a switch's program, if it has one.
    pub(crate) fn stats(fabric: &Fabric<SimulatedHost>, switch: NodeId) -> Option<SwitchStats> {
        let beside_tables = || fabric.program::<Ledger<Switch>>(switch)?.inner();
        let aggregate = fabric.program::<Switch>(switch).or_else(beside_tables);
        let aggregate = aggregate.map(|program| SwitchStats::Aggregate(*program.stats()));
        aggregate.or_else(|| {
            let program = fabric.program::<switchml::Switch>(switch);
            program.map(|program| SwitchStats::SwitchMl(program.stats()))
        })
    }

    fn add(&mut self, job: &Job, cast: &Cast, stage: Stage<'_>) -> Result<(), Mistake> {
        match &cast.part {
            Part::Server | Part::Ring => Ok(()),
            Part::Aggregation(setup) => {
                for group in setup.trees.iter().flat_map(|tree| tree.groups()) {
                    let config = stage.aggregation.switch(group.switch);
                    let kind =
                        self.by_switch.entry(group.switch).or_insert(Kind::Aggregate(config));
                    if matches!(kind, Kind::SwitchMl { .. }) {
                        return Err(two_programs(group.switch));
                    }
                }
                Ok(())
            }
            &Part::SwitchMl { switch, slots } => {
                let whole = stage.aggregation.parameters.aggregators;
                let empty = Kind::SwitchMl { slots: whole, pools: Vec::new() };
                match self.by_switch.entry(switch).or_insert(empty) {
                    Kind::Aggregate(_) => return Err(two_programs(switch)),
                    Kind::SwitchMl { pools, .. } => {
                        let used: u64 = pools.iter().map(|pool| u64::from(pool.slots)).sum();
                        if used + u64::from(slots) > u64::from(whole) {
                            return Err(no_slots(switch, whole, slots));
                        }
                        pools.push(Pool { job: cast.id, slots, workers: job.workers.clone() });
                    }
                }
                Ok(())
            }
        }
    }
}

impl Tables {
    fn new(settings: Settings, topology: &Topology) -> Tables {
        let switches = (topology.hosts()..topology.nodes()).map(NodeId);
        let ways = switches.map(|switch| (switch, ways(topology, switch))).collect();
        Tables { settings, ways }
    }
}

fn two_programs(switch: NodeId) -> Mistake {
    let message = format!(
        "switch {switch} would have to run two programs, aggregation and SwitchML: keep the jobs \
         apart, or take one collective for both"
    );
    Mistake::at("collective", message)
}

fn no_slots(switch: NodeId, whole: u32, slots: u32) -> Mistake {
    let message = format!(
        "switch {switch} has {whole} aggregators, too few for {slots} slots of each job: set fewer \
         slots or more aggregators in [aggregation]"
    );
    Mistake::here(message)
}
