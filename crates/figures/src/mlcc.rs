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

use crate::frame::figure::Form;
use crate::{Context, FigureError, Findings, compare};
use claims::{Metric, Said};
use draw::{Beside, Job};
pub(crate) use rates::Setup as Rates;
use run::Measured;

/// What a plan holds.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Setup {
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
    beside: Option<Beside>,
    arms: Vec<Arm>,
    claims: Vec<Said>,
    /// What the bars show.
    drawn: Vec<Metric>,
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
type Cell<'a> = compare::Cell<'a, Place, Arm>;

/// All cells of a seed.
type Results<'a> = compare::Results<'a, Place, Arm, Measured>;

impl compare::Arm for Arm {
    fn name(&self) -> &str {
        &self.name
    }
}

impl Form for Setup {
    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        let label = |cell: &Cell<'_>| format!("{}, {}", self.place_name(cell.place), cell.arm.name);
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
    fn places(&self) -> Vec<Place> {
        let of = |&gbps: &f64| self.losses.iter().map(move |&loss| Place { gbps, loss });
        self.gbps.iter().flat_map(of).collect()
    }

    fn cells(&self) -> Vec<Cell<'_>> {
        let of = |place| self.arms.iter().map(move |arm| Cell { place, arm });
        self.places().into_iter().flat_map(of).collect()
    }
}

#[cfg(test)]
mod tests;
