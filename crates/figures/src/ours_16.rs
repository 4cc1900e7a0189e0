//! All sixteen combinations of the four planes on one cluster: what each adds, which help each other, and
//! which get in each other's way.
// spec: T-01

mod effects;
mod planes;
mod run;
mod show;

use serde::Deserialize;

use crate::{Context, Figure, FigureError, Findings};
use planes::{Planes, every};
use run::Measured;

/// The figure.
pub(crate) struct Ours16;

/// What the plan holds.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Setup {
    hosts_per_rack: u32,
    spines: u32,
    rate: String,
    uplink_rate: String,
    delay: String,
    port_buffer: String,
    ecn_threshold: String,
    /// Of every packet on every link.
    loss: f64,
    /// What a worker may lack of its gradients, with bounded deliveries.
    loss_bound: f64,
    slot: String,
    workers: Vec<u32>,
    server: u32,
    model_bytes: u64,
    layers: u32,
    forward: String,
    backward: String,
    chunk: String,
    flow_load: f64,
    flow_cap: String,
    learned_flows: u32,
    /// How long everything lasts.
    lasting: String,
}

/// What every combination gave, in the order of [`every`].
struct Results(Vec<Measured>);

impl Figure for Ours16 {
    fn name(&self) -> &'static str {
        "ours-16"
    }

    fn plan(&self) -> &'static str {
        include_str!("../plans/ours-16.toml")
    }

    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        let setup: Setup = context.plan(self)?;
        let cells = every();
        let measured = context.each(&cells, Planes::name, |planes, point| {
            setup.measure(*planes, context.seed, point)
        })?;
        let results = Results(measured);
        Ok(Findings {
            claims: effects::claims(&results),
            plots: show::plots(&results),
            tables: show::tables(&results),
            not_measured: vec!["training quality: gradients have no values here".to_owned()],
            notes: NOTES.map(str::to_owned).into(),
        })
    }
}

const NOTES: [&str; 5] = [
    "Off: parameter servers over DCTCP in one queue a port. Aggregate: switches sum. Deliver: a bounded part may be \
     missing, front layers first. Prioritize: two fair classes of eight queues, flows by bounds on their sizes, losses \
     by priority. Pace: jobs take turns.",
    "Everything runs for the same time. Iterations and flows that are not over at the end are left out.",
    "An effect is the ratio of what is measured with a plane to the same without it, the geometric mean over the \
     eight settings of the other three.",
    "A pair helps each other where the effect of both is below the product of their effects.",
    "One packet in 2,000 is lost on every link.",
];

impl Results {
    fn of(&self, planes: Planes) -> &Measured {
        &self.0[planes.index()]
    }
}

#[cfg(test)]
mod tests;
