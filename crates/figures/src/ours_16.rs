//! All sixteen combinations of the four planes on one cluster: what each adds, which help each other, and
//! which get in each other's way.
// spec: T-01

mod effects;
mod planes;
mod run;
mod show;

use serde::Deserialize;

use crate::frame::figure::Form;
use crate::{Context, FigureError, Findings};
use planes::{Planes, every};
use run::Measured;

/// What the plan holds.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Setup {
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

impl Form for Setup {
    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        let measured =
            context.each(&every(), Planes::name, |planes, point| self.measure(*planes, point))?;
        let results = Results(measured);
        Ok(Findings {
            claims: effects::claims(&results),
            plots: show::plots(&results),
            tables: show::tables(&results),
        })
    }
}

impl Results {
    fn of(&self, planes: Planes) -> &Measured {
        &self.0[planes.index()]
    }
}

#[cfg(test)]
mod tests;
