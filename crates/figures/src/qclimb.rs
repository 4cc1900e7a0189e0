//! QCLIMB's figures: ways to give flows priorities, side by side.
//!
//! All of them have one form, which their plans fill in: a network, workloads and loads, *arms* that are
//! compared, and what the paper says of one arm against another.

mod claims;
mod network;
mod run;
mod show;
pub(crate) mod workloads;

use serde::Deserialize;
use toml::Table;

use crate::{Context, Figure, FigureError, Findings};
use claims::Said;
use network::Network;
use run::{Measured, Traffic};

/// One of the figures.
pub(crate) struct Compared {
    name: &'static str,
    plan: &'static str,
}

/// The figure of that name, whose plan is in the file of that name.
macro_rules! compared {
    ($name:literal) => {
        Compared { name: $name, plan: include_str!(concat!("../plans/", $name, ".toml")) }
    };
}

pub(crate) const QCLIMB_7: Compared = compared!("qclimb-7");
pub(crate) const QCLIMB_13: Compared = compared!("qclimb-13");
pub(crate) const QCLIMB_14: Compared = compared!("qclimb-14");
pub(crate) const QCLIMB_15: Compared = compared!("qclimb-15");
pub(crate) const QCLIMB_18: Compared = compared!("qclimb-18");
pub(crate) const QCLIMB_19: Compared = compared!("qclimb-19");
pub(crate) const QCLIMB_20: Compared = compared!("qclimb-20");
pub(crate) const QCLIMB_21: Compared = compared!("qclimb-21");
pub(crate) const QCLIMB_22: Compared = compared!("qclimb-22");
pub(crate) const QCLIMB_23: Compared = compared!("qclimb-23");
pub(crate) const QCLIMB_24: Compared = compared!("qclimb-24");
pub(crate) const QCLIMB_27: Compared = compared!("qclimb-27");
pub(crate) const QCLIMB_28: Compared = compared!("qclimb-28");
pub(crate) const QCLIMB_29: Compared = compared!("qclimb-29");
pub(crate) const QCLIMB_WHY: Compared = compared!("qclimb-why");
pub(crate) const QCLIMB_TABLE3: Compared = compared!("qclimb-table3");
pub(crate) const QCLIMB_TABLE4: Compared = compared!("qclimb-table4");
pub(crate) const QCLIMB_TABLE5: Compared = compared!("qclimb-table5");

/// What a plan holds.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Setup {
    network: Network,
    traffic: Traffic,
    workloads: Vec<String>,
    loads: Vec<f64>,
    /// A load at which flows hardly meet: how long they take by themselves, under the first arm. For the
    /// tables alone.
    #[serde(default)]
    lonely_load: Option<f64>,
    arms: Vec<Arm>,
    claims: Vec<Said>,
    /// What one arm gains over another, to be listed.
    #[serde(default)]
    gains: Vec<Gain>,
    /// What the bars or lines show first.
    drawn: Vec<claims::Metric>,
    #[serde(default)]
    not_measured: Vec<String>,
    #[serde(default)]
    notes: Vec<String>,
}

/// One way to give flows priorities. What is left out is as the scenario has it by default.
#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Arm {
    name: String,
    /// Another transport in place of windows and taggers.
    #[serde(default)]
    control: Option<Control>,
    /// With that: flows are ranked by what a forest says of their sizes.
    #[serde(default)]
    imprecise: bool,
    #[serde(default)]
    past_estimate: Option<String>,
    /// Of a port, if it is not that of the network.
    #[serde(default)]
    buffer: Option<String>,
    #[serde(default)]
    tagger: Option<String>,
    #[serde(default)]
    loss_detection: Option<String>,
    #[serde(default)]
    thresholds: Option<Vec<String>>,
    #[serde(default)]
    slack: Option<String>,
    #[serde(default)]
    depth: Option<u32>,
    /// The share of flows that nothing is known of.
    #[serde(default)]
    unseen: Option<f64>,
    /// The workload that the forest has learned from, if that is another one.
    #[serde(default)]
    learned_from: Option<String>,
    /// What is other than in the tables of the same names of its scenario. A key that is `false` is taken
    /// out of them.
    #[serde(default)]
    switch: Table,
    #[serde(default)]
    transport: Table,
}

/// A line of the table of gains.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Gain {
    what_if: String,
    of: String,
    than: String,
}

/// A transport that ranks flows by their sizes.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Control {
    Pfabric,
    Homa,
}

/// One run.
#[derive(Clone, Copy)]
struct Cell<'a> {
    workload: &'a str,
    load: f64,
    arm: &'a Arm,
}

/// All runs of a seed.
struct Results<'a> {
    cells: &'a [Cell<'a>],
    measured: &'a [Measured],
}

impl Figure for Compared {
    fn name(&self) -> &'static str {
        self.name
    }

    fn plan(&self) -> &'static str {
        self.plan
    }

    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        let setup: Setup = context.plan(self)?;
        let cells = setup.cells();
        let label =
            |cell: &Cell<'_>| format!("{}, load {}, {}", cell.workload, cell.load, cell.arm.name);
        let measured = context.each(&cells, label, |cell, point| {
            setup.measure(self.name, cell, context.seed, point)
        })?;
        let results = Results { cells: &cells, measured: &measured };
        Ok(Findings {
            claims: setup.claims(self.name, &results)?,
            plots: setup.plots(&results),
            tables: setup.tables(&results),
            not_measured: setup.not_measured.clone(),
            notes: setup.notes.clone(),
        })
    }
}

impl Setup {
    fn cells(&self) -> Vec<Cell<'_>> {
        let mut cells = Vec::new();
        for workload in &self.workloads {
            for &load in &self.loads {
                cells.extend(self.arms.iter().map(|arm| Cell { workload, load, arm }));
            }
            let lonely = self.lonely_load.zip(self.arms.first());
            cells.extend(lonely.map(|(load, arm)| Cell { workload, load, arm }));
        }
        cells
    }
}

impl Results<'_> {
    /// What one run gave, if there was such a run.
    fn of(&self, workload: &str, load: f64, arm: &str) -> Option<&Measured> {
        let is = |cell: &Cell<'_>| {
            cell.workload == workload && cell.load == load && cell.arm.name == arm
        };
        self.cells.iter().position(is).map(|place| &self.measured[place])
    }
}

#[cfg(test)]
mod tests;
