//! What the paper says of one arm against others, and what came out.

use serde::Deserialize;
use thalweg_report::format::Unit;

use super::run::Measured;
use super::{Place, Results, Setup};
use crate::compare::{Over, rule};
use crate::{Claim, Context, FigureError, Value};

/// What the paper says, in a plan.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Said {
    metric: Metric,
    says: Says,
    of: String,
    /// Each of these arms.
    than: Vec<String>,
    /// All link speeds, if there is none.
    gbps: Option<f64>,
    #[serde(default)]
    loss: f64,
    /// At which loss the others are, if that is another one.
    than_loss: Option<f64>,
    /// Which of all speeds and arms counts.
    over: Over,
    paper: Value,
    at_least: Option<f64>,
    at_most: Option<f64>,
}

/// How times are compared.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Says {
    /// By which share the time is lower.
    Lower,
    /// By which share the speed is higher.
    Faster,
    /// By which share the speed is lower.
    Slower,
    /// How many times the speed is as high.
    TimesAsFast,
}

/// What is measured: times, all of them.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Metric {
    MeanCompletion,
    LongestCompletion,
    /// Of the job of that name.
    Iteration(String),
}

impl Metric {
    /// What a cell gave of it, in microseconds.
    pub(super) fn of(&self, setup: &Setup, measured: &Measured) -> Option<f64> {
        match self {
            Metric::MeanCompletion => Some(measured.completions()?.mean() * 1e6),
            Metric::LongestCompletion => Some(measured.completions()?.max() * 1e6),
            Metric::Iteration(name) => {
                let job = setup.jobs.iter().position(|job| job.name == *name)?;
                Some(measured.iteration_ms(job)? * 1e3)
            }
        }
    }

    pub(super) fn name(&self) -> String {
        match self {
            Metric::MeanCompletion => "average completion time".to_owned(),
            Metric::LongestCompletion => "longest completion time".to_owned(),
            Metric::Iteration(job) => format!("iteration of {job}"),
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
            let rule = rule(context, said.at_least, said.at_most)?;
            let value = said.value(self, results).unwrap_or(f64::NAN);
            Ok(Claim::measured(said.text(self), said.paper.clone(), value, said.unit(), rule))
        };
        self.claims.iter().map(of).collect()
    }
}

impl Said {
    fn unit(&self) -> Unit {
        match self.says {
            Says::TimesAsFast => Unit::Ratio,
            Says::Lower | Says::Faster | Says::Slower => Unit::Percent,
        }
    }

    /// All arms that it names.
    #[cfg(test)]
    pub(super) fn arms(&self) -> impl Iterator<Item = &String> {
        self.than.iter().chain([&self.of])
    }

    pub(super) fn text(&self, setup: &Setup) -> String {
        let place = match self.gbps {
            Some(gbps) => format!("{}: ", setup.place_name(Place { gbps, loss: self.loss })),
            None => String::new(),
        };
        let comparison = match self.says {
            Says::Lower => "lower than",
            Says::Faster => "faster than",
            Says::Slower => "slower than",
            Says::TimesAsFast => "so many times as fast as",
        };
        let is_one = self.than.len() <= 1 && self.gbps.is_some();
        let over = if is_one { "" } else { self.over.words() };
        let without = match self.than_loss {
            Some(loss) => format!(" at {} loss", Unit::Percent.format(loss)),
            None => String::new(),
        };
        let (metric, of, than) = (self.metric.name(), &self.of, self.than.join(", "));
        format!("{place}{metric}, {of} {comparison} {than}{without}{over}")
    }

    /// Pairs of places that it is about: of the one arm, and of the others.
    pub(super) fn places(&self, setup: &Setup) -> Vec<(Place, Place)> {
        let is_meant = |place: &Place| {
            self.gbps.is_none_or(|gbps| place.gbps == gbps) && place.loss == self.loss
        };
        let own = setup.places().into_iter().filter(is_meant);
        own.map(|place| (place, Place { loss: self.than_loss.unwrap_or(place.loss), ..place }))
            .collect()
    }

    /// The value that decides, if all cells are there that it needs.
    fn value(&self, setup: &Setup, results: &Results<'_>) -> Option<f64> {
        let mut values = Vec::new();
        for (place, other) in self.places(setup) {
            let time = |place, arm: &str| self.metric.of(setup, results.of(place, arm)?);
            let own = time(place, &self.of)?;
            for arm in &self.than {
                values.push(self.compare(own, time(other, arm)?));
            }
        }
        self.over.of(values)
    }

    fn compare(&self, own: f64, other: f64) -> f64 {
        match self.says {
            Says::Lower => 1.0 - own / other,
            Says::Faster => other / own - 1.0,
            Says::Slower => 1.0 - other / own,
            Says::TimesAsFast => other / own,
        }
    }
}
