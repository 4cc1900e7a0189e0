//! What a plane adds, and what two add to each other.

use thalweg_report::format::Unit;

use super::Results;
use super::planes::{Plane, Planes, every};
use super::run::Measured;
use crate::{Claim, Rule};

/// What effects are counted on.
pub(super) type Metric = fn(&Measured) -> f64;

impl Results {
    /// With a plane, as a part of without it: the geometric mean over the settings of the others that
    /// `among` takes.
    pub(super) fn effect(
        &self,
        plane: Plane,
        metric: Metric,
        among: impl Fn(Planes) -> bool,
    ) -> f64 {
        let without = every().into_iter().filter(|planes| !planes.has(plane) && among(*planes));
        let logs: Vec<f64> = without
            .map(|off| (metric(self.of(off.with(plane))) / metric(self.of(off))).ln())
            .collect();
        (logs.iter().sum::<f64>() / logs.len() as f64).exp()
    }

    /// The effect of one plane beside another, as a part of its effect without that one: below 1 where
    /// they help each other.
    pub(super) fn together(&self, one: Plane, other: Plane, metric: Metric) -> f64 {
        let beside = self.effect(one, metric, |planes| planes.has(other));
        beside / self.effect(one, metric, |planes| !planes.has(other))
    }
}

/// What we want of the stack. The rules were fixed before anything was measured.
pub(super) fn claims(results: &Results) -> Vec<Claim> {
    let iteration: Metric = |measured| measured.iteration_us;
    let small_tail: Metric = |measured| measured.small_p99_us;
    let of_none = |planes: Planes, metric: Metric| {
        metric(results.of(planes)) / metric(results.of(Planes::NONE))
    };
    let claim = |text: &str, ours: f64, most: f64| {
        Claim::measured(text, "(ours)", ours, Unit::Ratio, Rule::AtMost(most))
    };
    let alone = |plane: Plane| Planes::NONE.with(plane);
    let dispensable = Plane::ALL
        .map(|plane| iteration(results.of(Planes::FOUR.without(plane))))
        .into_iter()
        .fold(f64::INFINITY, f64::min);
    vec![
        claim("iterations, all four against none", of_none(Planes::FOUR, iteration), 0.7),
        claim(
            "99th percentile of small flows, all four against none",
            of_none(Planes::FOUR, small_tail),
            1.0,
        ),
        claim("iterations, aggregate alone", of_none(alone(Plane::Aggregate), iteration), 0.7),
        claim("iterations, deliver alone", of_none(alone(Plane::Deliver), iteration), 1.0),
        claim(
            "99th percentile of small flows, prioritize alone",
            of_none(alone(Plane::Prioritize), small_tail),
            0.7,
        ),
        claim("iterations, pace alone", of_none(alone(Plane::Pace), iteration), 0.95),
        claim(
            "iterations with all four, against the best three of them",
            iteration(results.of(Planes::FOUR)) / dispensable,
            1.02,
        ),
    ]
}
