//! One forest, and how it bounds flows that it has not seen.

use std::ops::ControlFlow;

use thalweg_core::{Bytes, Rng};
use thalweg_prioritize::evaluate::{Class, Summary, judge};
use thalweg_prioritize::generate::{Hints, describe};
use thalweg_prioritize::{Model, NewFlow, Options, Settings};
use thalweg_report::format::{Unit, format_count};

use super::{QclimbTable2, Setup, Workload};
use crate::qclimb::workloads;
use crate::{Figure, FigureError};

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
    below: usize,
    above: usize,
    /// Means over small, medium and large flows.
    pub(super) lower_bytes: [f64; 3],
    /// Between the sizes of small flows and their lower bounds, on average.
    pub(super) small_gap_bytes: f64,
    /// Between sizes and the forest's mean, on average.
    error_bytes: f64,
}

impl Setup {
    pub(super) fn measure(
        &self,
        point: &Point<'_>,
        seed: u64,
        at: &crate::Point<'_>,
    ) -> Result<Measured, FigureError> {
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

fn wrong(reason: String) -> FigureError {
    FigureError::Plan { figure: QclimbTable2.name(), reason }
}

impl Measured {
    /// For a table.
    pub(super) fn cells(&self) -> Vec<String> {
        let [small, medium, large] = self.lower_bytes.map(|bytes| Unit::Bytes.format(bytes));
        vec![
            format!("{:.3}%", self.share * 100.0),
            format_count(self.below as u64),
            format_count(self.above as u64),
            small,
            medium,
            large,
            Unit::Bytes.format(self.small_gap_bytes),
            Unit::Bytes.format(self.error_bytes),
        ]
    }
}
