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

use crate::frame::figure::Form;
use crate::{Context, FigureError, Findings, compare};
use claims::Said;
use network::Network;
use run::{Measured, Traffic};

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
    lonely_load: Option<f64>,
    arms: Vec<Arm>,
    claims: Vec<Said>,
    /// What one arm gains over another, to be listed.
    #[serde(default)]
    gains: Vec<Gain>,
    /// What the bars or lines show first.
    drawn: Vec<claims::Metric>,
}

/// One way to give flows priorities. What is left out is as the scenario has it by default.
#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Arm {
    name: String,
    /// Another transport in place of windows and taggers.
    control: Option<Control>,
    /// Of a port, if it is not that of the network.
    buffer: Option<String>,
    /// What is other than in the tables of the same names of its scenario. A key that is `false` is taken
    /// out of them.
    #[serde(default)]
    switch: Table,
    #[serde(default)]
    transport: Table,
    /// What a forest is told of flows beside what the traffic says; those that learn have hints without it.
    hints: Option<Table>,
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
    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        let label = |cell: &Cell<'_>| {
            let Place { workload, load } = cell.place;
            format!("{workload}, load {load}, {}", cell.arm.name)
        };
        let results = Results::measure(context, self.cells(), label, |cell, point| {
            self.measure(cell, point)
        })?;
        Ok(Findings {
            claims: self.claims(context, &results)?,
            plots: self.plots(&results),
            tables: self.tables(&results),
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
