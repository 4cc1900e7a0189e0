//! What the paper says of one arm against another, and what came out.

use serde::Deserialize;
use thalweg_report::format::Unit;

use super::run::{Flows, Measured};
use super::{Place, Results, Setup};
use crate::compare::{Over, rule};
use crate::{Claim, Context, FigureError, Value};

/// What the paper says, in a plan.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Said {
    metric: Metric,
    /// How it is compared.
    says: Says,
    of: Vec<String>,
    than: Option<String>,
    /// Of all workloads and loads that it is about.
    #[serde(default)]
    over: Over,
    /// All of them, if there is none.
    workload: Option<String>,
    load: Option<f64>,
    paper: Value,
    at_least: Option<f64>,
    at_most: Option<f64>,
}

/// How arms are compared.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Says {
    /// By which share it is lower.
    Lower,
    /// How many times it is as much.
    Times,
    /// How much it is.
    Is,
    /// It falls from one arm to the next.
    Falls,
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Metric {
    SmallMean,
    SmallP99,
    MediumMean,
    LargeMean,
    LargeP99,
    AllMean,
    BesideSmallMean,
    BesideAllMean,
    LossEvents,
    SmallLossEvents,
    FoundLosses,
    HeldBytes,
    NeedlessCopies,
}

impl Metric {
    /// What a run gave of it.
    pub(super) fn of(self, measured: &Measured) -> f64 {
        let mean = |flows, beside| measured.times(flows, beside).mean_us;
        let losses = |flows: Flows| {
            let at = flows as usize;
            (measured.detections[at] + measured.timeouts[at]) as f64
        };
        match self {
            Metric::SmallMean => mean(Flows::Small, false),
            Metric::SmallP99 => measured.times(Flows::Small, false).p99_us,
            Metric::MediumMean => mean(Flows::Medium, false),
            Metric::LargeMean => mean(Flows::Large, false),
            Metric::LargeP99 => measured.times(Flows::Large, false).p99_us,
            Metric::AllMean => mean(Flows::All, false),
            Metric::BesideSmallMean => mean(Flows::Small, true),
            Metric::BesideAllMean => mean(Flows::All, true),
            Metric::LossEvents => losses(Flows::All),
            Metric::SmallLossEvents => losses(Flows::Small),
            Metric::FoundLosses => measured.detections[Flows::All as usize] as f64,
            Metric::HeldBytes => measured.mean_held_bytes,
            Metric::NeedlessCopies => measured.copies as f64,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Metric::SmallMean => "mean time of small flows",
            Metric::SmallP99 => "99th percentile of small flows",
            Metric::MediumMean => "mean time of medium flows",
            Metric::LargeMean => "mean time of large flows",
            Metric::LargeP99 => "99th percentile of large flows",
            Metric::AllMean => "mean time of all flows",
            Metric::BesideSmallMean => "mean time of small flows beside",
            Metric::BesideAllMean => "mean time of all flows beside",
            Metric::LossEvents => "losses that flows noticed",
            Metric::SmallLossEvents => "losses that small flows noticed",
            Metric::FoundLosses => "losses found without a timer",
            Metric::HeldBytes => "bytes that wait for their turn, on average",
            Metric::NeedlessCopies => "packets that were sent again for nothing",
        }
    }

    pub(super) fn unit(self) -> Unit {
        match self {
            Metric::LossEvents
            | Metric::SmallLossEvents
            | Metric::FoundLosses
            | Metric::NeedlessCopies => Unit::Plain,
            Metric::HeldBytes => Unit::Bytes,
            _ => Unit::SpanUs,
        }
    }
}

impl Setup {
    pub(super) fn claims(
        &self,
        context: &Context<'_>,
        results: &Results<'_>,
    ) -> Result<Vec<Claim>, FigureError> {
        let of = |said: &Said| {
            if said.says == Says::Falls {
                return Ok(said.order(self, results));
            }
            let rule = rule(context, said.at_least, said.at_most)?;
            let value = said.value(self, results).unwrap_or(f64::NAN);
            Ok(Claim::measured(said.text(), said.paper.clone(), value, said.unit(), rule))
        };
        self.claims.iter().map(of).collect()
    }
}

impl Said {
    fn unit(&self) -> Unit {
        match self.says {
            Says::Lower => Unit::Percent,
            Says::Times => Unit::Ratio,
            Says::Is | Says::Falls => self.metric.unit(),
        }
    }

    /// All arms that it names.
    #[cfg(test)]
    pub(super) fn arms(&self) -> impl Iterator<Item = &String> {
        self.of.iter().chain(&self.than)
    }

    pub(super) fn text(&self) -> String {
        let place = match (&self.workload, self.load) {
            (Some(workload), Some(load)) => format!("{workload}, load {load}: "),
            (Some(workload), None) => format!("{workload}: "),
            (None, Some(load)) => format!("load {load}: "),
            (None, None) => String::new(),
        };
        let over = if self.over == Over::Mean { "" } else { self.over.words() };
        let (metric, of) = (self.metric.name(), self.of.join(", "));
        let than = self.than.as_deref().unwrap_or_default();
        match self.says {
            Says::Lower => format!("{place}{metric}, {of} below {than}{over}"),
            Says::Times => format!("{place}{metric}, {of} against {than}{over}"),
            Says::Is => format!("{place}{metric}, {of}{over}"),
            Says::Falls => format!("{place}{metric}, from {than} to {of}"),
        }
    }

    /// The value that decides, if all runs are there that it needs.
    fn value(&self, setup: &Setup, results: &Results<'_>) -> Option<f64> {
        let values = self.places(setup).map(|place| {
            let of = |arm: &str| Some(self.metric.of(results.of(place, arm)?));
            let own = of(self.of.first()?)?;
            Some(match self.says {
                Says::Lower => 1.0 - own / of(self.than.as_ref()?)?,
                Says::Times => own / of(self.than.as_ref()?)?,
                Says::Is | Says::Falls => own,
            })
        });
        self.over.of(values.collect::<Option<Vec<f64>>>()?)
    }

    /// The arms in order, with their means over all places.
    fn order(&self, setup: &Setup, results: &Results<'_>) -> Claim {
        let mean = |arm: &String| {
            let values = self
                .places(setup)
                .map(|place| results.of(place, arm).map_or(f64::NAN, |it| self.metric.of(it)));
            Over::Mean.of(values).unwrap_or(f64::NAN)
        };
        let arms = self.than.iter().chain(&self.of);
        let mut rising: Vec<f64> = arms.map(mean).collect();
        rising.reverse();
        let text = format!("{} (the last first)", self.text());
        Claim::rising(text, self.paper.clone(), &rising, self.unit())
    }

    pub(super) fn places<'a>(&'a self, setup: &'a Setup) -> impl Iterator<Item = Place<'a>> {
        setup.places().filter(|place| {
            self.workload.as_deref().is_none_or(|own| own == place.workload)
                && self.load.is_none_or(|own| own == place.load)
        })
    }
}
