//! Packets that a worker keeps from the switch when it avoids overflow on its own, most of them for nothing.
//!
//! With `n` workers and a scale `s` no sum can overflow as long as every value is at most
//! B = (2^31 − n) / (n · s). A worker that knows nothing else flags every packet with a larger value,
//! and flagged packets pass the switch by. Most of them would have fitted.

mod count;
mod gradients;
#[cfg(test)]
mod tests;

use serde::Deserialize;
use thalweg_core::Rng;

use crate::shrink::known_model;
use crate::study::{Bench, Cell, Measured};
use crate::{Context, FigureError, Point};
use count::{Counts, Job};
use gradients::{Draws, Gradients};

/// Workers that the paper works out a bound for.
const PAPER_BOUND_WORKERS: u32 = 100;

/// Settings of a plan besides the study.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Overflow {
    model: String,
    values_a_packet: u64,
    scale: f64,
    images_an_epoch: f64,
    images_a_worker: f64,
}

/// Settings by the choices of a cell.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Choices {
    workers: u32,
    /// False positives an epoch, from the paper.
    paper: f64,
    gradients: Gradients,
    /// Share of the epoch that is run.
    share_of_epoch: f64,
}

impl Bench for Overflow {
    /// Sizes of the model's tensors.
    type Common = Vec<u64>;

    fn prepare(&self, context: &Context<'_>) -> Result<Vec<u64>, FigureError> {
        let model = known_model(context, &self.model)?;
        Ok(model.tensors().iter().map(|tensor| tensor.values).collect())
    }

    fn measure(
        &self,
        tensors: &Vec<u64>,
        cell: &Cell<'_>,
        point: &Point<'_>,
    ) -> Result<Measured, FigureError> {
        self.count(tensors, cell.settings(point)?, point)
    }
}

impl Overflow {
    /// Counts packets of some iterations, scaled up to an epoch.
    fn count(
        &self,
        tensors: &[u64],
        choices: Choices,
        point: &Point<'_>,
    ) -> Result<Measured, FigureError> {
        let Choices { workers, paper, gradients, share_of_epoch } = choices;
        let job = |workers: u32| Job {
            gradients,
            workers,
            values_a_packet: self.values_a_packet,
            scale: self.scale,
        };
        let an_epoch = self.images_an_epoch / (self.images_a_worker * f64::from(workers));
        let iterations = libm::ceil(an_epoch * share_of_epoch).max(1.0);
        let stream = format!("tail {}, {workers} workers", gradients.tail);
        let rng = Rng::new(point.context.seed).stream(&stream);
        let mut sum = Counts::default();
        for iteration in 0..iterations as u64 {
            let mut draws = Draws::new(rng.substream("iteration", iteration));
            sum += job(workers).iteration(tensors, &mut draws);
            point.reached(iteration as f64 / iterations)?;
        }
        let to_epoch = an_epoch / iterations;
        let false_positives = sum.false_positives as f64 * to_epoch;
        let flagged = sum.flagged as f64 * to_epoch;
        Ok(Measured::of([
            ("packets", sum.packets as f64 * to_epoch),
            ("flagged", flagged),
            ("false-positives", false_positives),
            ("of-the-flagged", false_positives / flagged),
            ("paper", paper),
            ("bound", job(workers).bound()),
            ("bound-of-100", job(PAPER_BOUND_WORKERS).bound()),
        ]))
    }
}
