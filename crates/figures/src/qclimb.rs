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

use crate::frame::planned::{Form, Planned, planned};
use crate::{Context, FigureError, Findings, compare};
use claims::Said;
use network::Network;
use run::{Measured, Traffic};

pub(crate) const QCLIMB_7: Planned<Setup> = planned!("qclimb-7");
pub(crate) const QCLIMB_13: Planned<Setup> = planned!("qclimb-13");
pub(crate) const QCLIMB_14: Planned<Setup> = planned!("qclimb-14");
pub(crate) const QCLIMB_15: Planned<Setup> = planned!("qclimb-15");
pub(crate) const QCLIMB_18: Planned<Setup> = planned!("qclimb-18");
pub(crate) const QCLIMB_19: Planned<Setup> = planned!("qclimb-19");
pub(crate) const QCLIMB_20: Planned<Setup> = planned!("qclimb-20");
pub(crate) const QCLIMB_21: Planned<Setup> = planned!("qclimb-21");
pub(crate) const QCLIMB_22: Planned<Setup> = planned!("qclimb-22");
pub(crate) const QCLIMB_23: Planned<Setup> = planned!("qclimb-23");
pub(crate) const QCLIMB_24: Planned<Setup> = planned!("qclimb-24");
pub(crate) const QCLIMB_27: Planned<Setup> = planned!("qclimb-27");
pub(crate) const QCLIMB_28: Planned<Setup> = planned!("qclimb-28");
pub(crate) const QCLIMB_29: Planned<Setup> = planned!("qclimb-29");
pub(crate) const QCLIMB_WHY: Planned<Setup> = planned!("qclimb-why");
pub(crate) const QCLIMB_TABLE3: Planned<Setup> = planned!("qclimb-table3");
pub(crate) const QCLIMB_TABLE4: Planned<Setup> = planned!("qclimb-table4");
pub(crate) const QCLIMB_TABLE5: Planned<Setup> = planned!("qclimb-table5");

/// What a plan holds.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Setup {
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

/// What a run is about, but for the arm.
#[derive(Clone, Copy, PartialEq)]
struct Place<'a> {
    workload: &'a str,
    load: f64,
}

/// One run.
type Cell<'a> = compare::Cell<'a, Place<'a>, Arm>;

/// All runs of a seed.
type Results<'a> = compare::Results<'a, Place<'a>, Arm, Measured>;

impl compare::Arm for Arm {
    fn name(&self) -> &str {
        &self.name
    }
}

impl Form for Setup {
    fn run(&self, figure: &'static str, context: &Context<'_>) -> Result<Findings, FigureError> {
        let label = |cell: &Cell<'_>| {
            let Place { workload, load } = cell.place;
            format!("{workload}, load {load}, {}", cell.arm.name)
        };
        let results = Results::measure(context, self.cells(), label, |cell, point| {
            self.measure(figure, cell, context.seed, point)
        })?;
        Ok(Findings {
            claims: self.claims(figure, &results)?,
            plots: self.plots(&results),
            tables: self.tables(&results),
            not_measured: self.not_measured.clone(),
            notes: self.notes.clone(),
        })
    }
}

impl Setup {
    /// Every workload at every load.
    fn places(&self) -> impl Iterator<Item = Place<'_>> {
        self.workloads.iter().flat_map(|workload| self.places_of(workload))
    }

    fn places_of<'a>(&'a self, workload: &'a str) -> impl Iterator<Item = Place<'a>> {
        self.loads.iter().map(move |&load| Place { workload, load })
    }

    fn cells(&self) -> Vec<Cell<'_>> {
        let mut cells = Vec::new();
        for workload in &self.workloads {
            for place in self.places_of(workload) {
                cells.extend(self.arms.iter().map(|arm| Cell { place, arm }));
            }
            let lonely = self.lonely_load.zip(self.arms.first());
            cells.extend(lonely.map(|(load, arm)| Cell { place: Place { workload, load }, arm }));
        }
        cells
    }
}

#[cfg(test)]
mod tests;
