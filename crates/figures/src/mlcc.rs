//! MLCC's testbed: training jobs that share six servers, over one control or another.
//!
//! Its figures are studies of *arms*, which say how links are shared, at *places*, which say how fast links are and what
//! they lose.
//!
//! A run is smaller than the testbed's by a divisor: tensors, times of computing, slots and flows beside are all
//! divided by it, links and round trips stay. So everything keeps its proportion to everything else, but for round
//! trips, which are longer by the divisor beside an iteration. Times are given multiplied back.

mod draw;
mod rates;
mod run;
mod testbed;

use serde::Deserialize;
use thalweg_scenario::Order;

use crate::study::{Bench, Cell, Measured};
use crate::{FigureError, Point};
use draw::{Beside, Job};
pub(crate) use rates::Rates;
use testbed::Testbed;

/// Settings of a plan besides the study.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Setup {
    network: Network,
    /// By which everything is smaller than it was.
    divisor: f64,
    /// Number of rounds in which jobs are placed and run anew.
    rounds: u64,
    jobs: Vec<Job>,
    /// True if every job has the network for itself.
    #[serde(default)]
    alone: bool,
    /// Flows that belong to no job.
    beside: Option<Beside>,
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

/// Settings by the choices of a cell: rates of links, and one way to share them.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Choices {
    gbps: f64,
    /// Probability that a host's link loses a packet.
    #[serde(default)]
    loss: f64,
    control: String,
    /// True if switches mark for it.
    #[serde(default)]
    marks: bool,
    /// Control of the flows that belong to no job, where it is another one.
    flows_control: Option<String>,
    /// The schedule that flows of jobs are paced by, if they are.
    pacing: Option<Pacing>,
    /// Order in which links serve jobs at no cost, in place of a simulation.
    ideal: Option<Ideal>,
    /// Part of the times of computing that jobs have.
    #[serde(default = "whole")]
    computing: f64,
    /// False if nothing is beside the jobs.
    #[serde(default = "yes")]
    has_others: bool,
}

fn yes() -> bool {
    true
}

fn whole() -> f64 {
    1.0
}

/// An ideal order of jobs.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Ideal {
    /// All have max-min fair shares.
    Fair,
    /// The job with the least left goes first.
    LeastLeft,
}

impl From<Ideal> for Order {
    fn from(ideal: Ideal) -> Order {
        match ideal {
            Ideal::Fair => Order::Fair,
            Ideal::LeastLeft => Order::LeastLeft,
        }
    }
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Pacing {
    slot_ms: f64,
    slots: u32,
    #[serde(default)]
    rules: Rules,
}

/// Rules of pacing.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Rules {
    /// Plans are limits of rates, made for whole iterations.
    #[default]
    Published,
    /// Plans are budgets of urgent bytes, and other traffic has its half of a link.
    Classes,
    /// The same in one set of classes: other traffic is in the last one.
    ClassesAlone,
}

impl Bench for Setup {
    type Common = ();

    fn measure(
        &self,
        (): &(),
        cell: &Cell<'_>,
        point: &Point<'_>,
    ) -> Result<Measured, FigureError> {
        Ok(self.rounds(&cell.settings(point)?, point)?.measured(&self.jobs))
    }
}

impl Setup {
    fn testbed(&self) -> Testbed<'_> {
        Testbed { network: &self.network, divisor: self.divisor, jobs: &self.jobs }
    }
}

#[cfg(test)]
mod tests;
