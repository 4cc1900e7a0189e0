//! One forest, and how it bounds flows that it has not seen.

use std::ops::ControlFlow;

use thalweg_core::{Bytes, Rng};
use thalweg_prioritize::evaluate::{Class, Summary, judge};
use thalweg_prioritize::generate::{Hints, describe};
use thalweg_prioritize::{Model, NewFlow, Options, Settings};

use super::{Setup, Workload};
use crate::FigureError;
use crate::workloads;

/// What to learn from, and how.
#[derive(Clone, Copy)]
pub(super) struct Point<'a> {
    pub(super) workload: &'a Workload,
    pub(super) depth: u32,
    pub(super) trees: u32,
    pub(super) width: f64,
}

impl Point<'_> {
    pub(super) fn label(&self) -> String {
        let Point { depth, trees, width, .. } = self;
        format!("{}, depth {depth}, {trees} trees, w = {width}", self.workload.name)
    }
}

/// What came out. Means of classes without flows are no numbers.
pub(super) struct Measured {
    /// Of flows within their bounds.
    pub(super) share: f64,
    pub(super) below: usize,
    pub(super) above: usize,
    /// Means over small, medium and large flows.
    pub(super) lower_bytes: [f64; 3],
    /// Between the sizes of small flows and their lower bounds, on average.
    pub(super) small_gap_bytes: f64,
    /// Between sizes and the forest's mean, on average.
    pub(super) error_bytes: f64,
}

impl Setup {
    pub(super) fn measure(
        &self,
        point: &Point<'_>,
        at: &crate::Point<'_>,
    ) -> Result<Measured, FigureError> {
        let seed = at.context.seed;
        let wrong = |reason: String| at.context.mistake(reason);
        let sizes = workloads::sizes(&point.workload.name)
            .ok_or_else(|| wrong(format!("{} is no workload", point.workload.name)))?
            .map_err(|error| wrong(error.to_string()))?;
        let rng = Rng::new(seed).stream(&point.workload.name);
        let mut draws = rng.stream("sizes");
        let sizes: Vec<Bytes> = (0..self.flows).map(|_| sizes.sample(&mut draws)).collect();
        let hints = Hints { width: point.width, swapped: self.swapped };
        let flows = describe(&sizes, hints, &rng);
        let (learned, tested) = flows.split_at((self.flows as f64 * self.learned) as usize);
        let settings =
            Settings { trees: point.trees, depth: point.depth, seed, ..Settings::default() };
        let watch = |done: usize| match at.reached(done as f64 / f64::from(point.trees)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        };
        let model = Model::train(learned, &settings, Options::default(), &watch);
        // Whoever stopped it is told so once more.
        at.reached(1.0)?;
        let model = model.map_err(|error| wrong(error.to_string()))?;
        Ok(measured(&model, tested))
    }
}

fn measured(model: &Model, tested: &[(NewFlow, Bytes)]) -> Measured {
    let summary = Summary::of(&judge(model, tested));
    let or_none = |mean: Option<f64>| mean.unwrap_or(f64::NAN);
    let errors = tested.iter().filter_map(|(flow, bytes)| {
        Some(model.estimate(flow)?.as_u64().abs_diff(bytes.as_u64()) as f64)
    });
    Measured {
        share: or_none(summary.bounded_share()),
        below: summary.below,
        above: summary.above,
        lower_bytes: Class::ALL.map(|class| or_none(summary.class(class).mean_lower())),
        small_gap_bytes: or_none(summary.class(Class::Small).mean_gap()),
        error_bytes: errors.sum::<f64>() / tested.len() as f64,
    }
}
