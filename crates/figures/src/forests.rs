//! Forests that learn the sizes of flows, and how they bound flows that they have not seen.
//!
//! A constant bound of one byte and of the largest size would hold all flows. So the lower bounds of
//! small, medium and large flows stand beside the share: they have to tell the three apart.

use std::ops::ControlFlow;

use serde::Deserialize;
use thalweg_core::{Bytes, Rng};
use thalweg_prioritize::evaluate::{Class, Summary, judge};
use thalweg_prioritize::generate::types::{MessageTypes, TypeSettings, TypesError};
use thalweg_prioritize::generate::{Hints, describe};
use thalweg_prioritize::{Model, NewFlow, Options, Settings};
use thalweg_workload::SizeDistribution;

use crate::study::{Bench, Cell, Measured};
use crate::{FigureError, Point, workloads};

/// Settings of a plan besides the study. The axes `workload`, `flows`, `depth`, `width` and `trees` say what is learned
/// from, and how.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Forests {
    /// Share of flows that is learned from; the rest is bounded.
    learned: f64,
    /// Share of hints that are another flow's.
    swapped: f64,
    /// Types of messages, where features say the type: at the width that is a word.
    types: Types,
}

/// Settings of types of messages.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Types {
    count: u32,
    popularity: f64,
    jitter: f64,
    strangers: f64,
}

impl Forests {
    /// Flows of a workload with their features. `width` is how far hints are from sizes, and not a number where features
    /// say the type.
    fn flows(
        &self,
        curve: &SizeDistribution,
        (count, width): (u32, f64),
        rng: &Rng,
    ) -> Result<Vec<(NewFlow, Bytes)>, TypesError> {
        if width.is_nan() {
            let Types { count: types, popularity, jitter, strangers } = self.types;
            let settings = TypeSettings { types, popularity, jitter, strangers };
            let types = MessageTypes::new(settings, |share| curve.quantile(share))?;
            return Ok(types.ended(count, rng, |rng| curve.sample(rng)));
        }
        let mut draws = rng.stream("sizes");
        let sizes: Vec<Bytes> = (0..count).map(|_| curve.sample(&mut draws)).collect();
        Ok(describe(&sizes, Hints { width, swapped: self.swapped }, rng))
    }
}

impl Bench for Forests {
    type Common = ();

    fn measure(
        &self,
        (): &(),
        cell: &Cell<'_>,
        point: &Point<'_>,
    ) -> Result<Measured, FigureError> {
        let seed = point.context.seed;
        let wrong = |reason: String| point.context.mistake(reason);
        let workload = cell.choice("workload").map_or("", |choice| &choice.name);
        let sizes = workloads::sizes(workload)
            .ok_or_else(|| wrong(format!("{workload:?} is no workload")))?
            .map_err(|error| wrong(error.to_string()))?;
        let rng = Rng::new(seed).stream(workload);
        let count = cell.number("flows");
        let flows = self.flows(&sizes, (count as u32, cell.number("width")), &rng);
        let flows = flows.map_err(|error| wrong(error.to_string()))?;
        let (learned, tested) = flows.split_at((count * self.learned) as usize);
        let (trees, depth) = (cell.number("trees"), cell.number("depth") as u32);
        let settings = Settings { trees: trees as u32, depth, seed, ..Settings::default() };
        let watch = |done: usize| match point.reached(done as f64 / trees) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        };
        let model = Model::train(learned, &settings, Options::default(), &watch);
        // A run that was stopped returns its error here.
        point.reached(1.0)?;
        let model = model.map_err(|error| wrong(error.to_string()))?;
        Ok(measured(&model, tested))
    }
}

/// Numbers of a forest. Means of classes without flows are no numbers.
fn measured(model: &Model, tested: &[(NewFlow, Bytes)]) -> Measured {
    let summary = Summary::of(&judge(model, tested));
    let or_none = |mean: Option<f64>| mean.unwrap_or(f64::NAN);
    let errors = tested.iter().filter_map(|(flow, bytes)| {
        Some(model.estimate(flow)?.as_u64().abs_diff(bytes.as_u64()) as f64)
    });
    let share = or_none(summary.bounded_share());
    let lower = |class| or_none(summary.class(class).mean_lower());
    Measured::of([
        ("within", share),
        ("out", 1.0 - share),
        ("below", summary.below as f64),
        ("above", summary.above as f64),
        ("lower-small", lower(Class::Small)),
        ("lower-medium", lower(Class::Medium)),
        ("lower-large", lower(Class::Large)),
        // Between the sizes of small flows and their lower bounds, and between sizes and the forest's mean.
        ("gap-small", or_none(summary.class(Class::Small).mean_gap())),
        ("error", errors.sum::<f64>() / tested.len() as f64),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Context;
    use crate::study::Of;

    #[test]
    fn sizes_have_the_published_shares_of_small_flows() {
        for (workload, share) in [("K-Means", 0.95), ("PageRank", 0.74), ("SGD", 0.66)] {
            let curve = workloads::curve(workload).unwrap();
            let at = curve.lines().find_map(|line| line.strip_prefix("100000,"));
            let found: f64 = at.unwrap().parse().unwrap();
            assert!((found - share).abs() < 0.005, "{workload}: {found}");
        }
    }

    #[test]
    fn precise_hints_tell_more_than_wide_ones() {
        let context = Context::unwatched("qclimb-table2", 3, 1);
        let form: Of<Forests> = context.figure.form(true);
        let is_end = |cell: &Cell<'_>| [0.0, 10.0].contains(&cell.number("width"));
        let ends: Vec<_> = form.study.cells().unwrap().into_iter().filter(is_end).collect();
        let measure = |cell: &Cell<'_>, point: &Point<'_>| form.bench.measure(&(), cell, point);
        let measured = context.each(&ends, Cell::label, measure).unwrap();
        let [precise, wide] = &measured[..] else { panic!("two ends") };
        assert!(precise.number("lower-large") > 3.0 * wide.number("lower-large"));
        assert!(precise.number("within") > 0.95 && wide.number("within") > 0.95);
    }
}
