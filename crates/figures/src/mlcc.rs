//! MLCC's testbed: training jobs that share six servers, over one control or another.
//!
//! All its figures have one form, which their plans fill in: a network and link speeds, jobs, *arms* that are
//! compared, and what the paper says of one arm against another.
//!
//! A run is smaller than the testbed's by a divisor: tensors, times of computing, slots and flows beside are all
//! divided by it, links and round trips stay. So everything keeps its proportion to everything else, but for
//! round trips, which are so many times as long beside an iteration. Times are given multiplied back.

mod claims;
mod draw;
mod rates;
mod run;
mod show;
mod testbed;

use serde::Deserialize;

use crate::{Context, Figure, FigureError, Findings};
use claims::{Metric, Said};
use draw::{Beside, Job};
pub(crate) use rates::Mlcc11;
use run::Measured;

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

pub(crate) const MLCC_7: Compared = compared!("mlcc-7");
pub(crate) const MLCC_8: Compared = compared!("mlcc-8");
pub(crate) const MLCC_9: Compared = compared!("mlcc-9");
pub(crate) const MLCC_10: Compared = compared!("mlcc-10");

/// What a plan holds.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Setup {
    network: Network,
    gbps: Vec<f64>,
    /// Probabilities that a host's link loses a packet.
    #[serde(default = "no_loss")]
    losses: Vec<f64>,
    /// By which everything is smaller than it was.
    divisor: f64,
    /// How often jobs are placed and run anew.
    rounds: u64,
    jobs: Vec<Job>,
    /// Whether every job has the network for itself.
    #[serde(default)]
    alone: bool,
    /// Flows that belong to no job.
    #[serde(default)]
    beside: Option<Beside>,
    arms: Vec<Arm>,
    claims: Vec<Said>,
    /// What the bars show.
    drawn: Vec<Metric>,
    #[serde(default)]
    not_measured: Vec<String>,
    #[serde(default)]
    notes: Vec<String>,
}

fn no_loss() -> Vec<f64> {
    vec![0.0]
}

/// Hosts around one switch.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Network {
    hosts: u32,
    gpus_per_host: usize,
    delay: String,
    buffer: String,
    ecn_threshold: String,
}

/// One way to share links.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Arm {
    name: String,
    control: String,
    /// Whether switches mark for it.
    #[serde(default)]
    marks: bool,
    /// The schedule that flows of jobs are paced by, if they are.
    #[serde(default)]
    pacing: Option<Pacing>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Pacing {
    slot_ms: f64,
    slots: u32,
}

/// What a cell is about, but for the arm.
#[derive(Clone, Copy, PartialEq)]
struct Place {
    gbps: f64,
    loss: f64,
}

/// All rounds of one arm at one place.
#[derive(Clone, Copy)]
struct Cell<'a> {
    place: Place,
    arm: &'a Arm,
}

/// All cells of a seed.
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
            |cell: &Cell<'_>| format!("{}, {}", setup.place_name(cell.place), cell.arm.name);
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
    fn places(&self) -> Vec<Place> {
        let of = |&gbps: &f64| self.losses.iter().map(move |&loss| Place { gbps, loss });
        self.gbps.iter().flat_map(of).collect()
    }

    fn cells(&self) -> Vec<Cell<'_>> {
        let of = |place| self.arms.iter().map(move |arm| Cell { place, arm });
        self.places().into_iter().flat_map(of).collect()
    }
}

impl Results<'_> {
    /// What one cell gave, if there was such a cell.
    fn of(&self, place: Place, arm: &str) -> Option<&Measured> {
        let is = |cell: &Cell<'_>| cell.place == place && cell.arm.name == arm;
        self.cells.iter().position(is).map(|place| &self.measured[place])
    }
}

#[cfg(test)]
mod tests;
