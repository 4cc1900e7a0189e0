//! Numbers of a study that are made of measured ones.

use serde::Deserialize;
use thalweg_report::format::Unit;
use thalweg_report::stats::Sample;

use super::grid::{At, Cell};
use super::{Measured, Study};

/// A number of some cells, perhaps against that of others. In plans the name of a number stands for itself, and
/// `@axis` is the number that belongs to the choice of an axis.
#[derive(Clone, Deserialize)]
#[serde(from = "Written")]
pub(crate) struct Formula {
    metric: String,
    /// Metric that it is compared with, if that is another one.
    by: Option<String>,
    /// The cells that it is about.
    pub(super) at: At,
    /// Choices that differ in the cells that these are compared with.
    than: At,
    says: Option<Says>,
    /// Rule that picks one of several cells.
    over: Over,
    /// By which the result is multiplied.
    scale: f64,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Name(String),
    Whole(Whole),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Whole {
    metric: String,
    by: Option<String>,
    #[serde(default)]
    at: At,
    #[serde(default)]
    than: At,
    says: Option<Says>,
    #[serde(default)]
    over: Over,
    #[serde(default = "unscaled")]
    scale: f64,
}

fn unscaled() -> f64 {
    1.0
}

impl From<Written> for Formula {
    fn from(written: Written) -> Formula {
        let whole = match written {
            Written::Whole(whole) => whole,
            Written::Name(metric) => Whole {
                metric,
                by: None,
                at: At::default(),
                than: At::default(),
                says: None,
                over: Over::Mean,
                scale: 1.0,
            },
        };
        let Whole { metric, by, at, than, says, over, scale } = whole;
        Formula { metric, by, at, than, says, over, scale }
    }
}

/// Comparison of a number with another one.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Says {
    /// The number itself.
    Is,
    /// The other number.
    Other,
    /// The number over the other.
    Times,
    /// By which share it is lower.
    Lower,
    /// By which share it is higher.
    Higher,
    /// The other over the number: the speed-up, where both are times.
    TimesAsFast,
    /// Of times, by which share it is faster.
    Faster,
    /// Of times, by which share it is slower.
    Slower,
    /// Both together.
    Plus,
}

impl Says {
    fn compare(self, own: f64, other: f64) -> f64 {
        match self {
            Says::Is => own,
            Says::Other => other,
            Says::Times => own / other,
            Says::Lower => 1.0 - own / other,
            Says::Higher => own / other - 1.0,
            Says::TimesAsFast => other / own,
            Says::Faster => other / own - 1.0,
            Says::Slower => 1.0 - other / own,
            Says::Plus => own + other,
        }
    }
}

/// Rule that picks one of several values.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Over {
    Largest,
    Smallest,
    #[default]
    Mean,
    GeometricMean,
}

impl Over {
    /// The value that counts; not a number if no value is finite.
    pub(crate) fn of(self, values: impl IntoIterator<Item = f64>) -> f64 {
        let value = |sample: Sample| match self {
            Over::Largest => sample.max(),
            Over::Smallest => sample.min(),
            Over::Mean => sample.mean(),
            Over::GeometricMean => {
                let logs: f64 = sample.ascending().iter().map(|value| libm::log(*value)).sum();
                libm::exp(logs / sample.count() as f64)
            }
        };
        Sample::new(values).map_or(f64::NAN, value)
    }
}

/// A formula and how its value is written.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Shown {
    pub(super) value: Formula,
    #[serde(default, with = "Units")]
    pub(super) unit: Unit,
}

/// Units, as plans name them.
#[derive(Deserialize)]
#[serde(remote = "Unit", rename_all = "kebab-case")]
pub(super) enum Units {
    Plain,
    Bytes,
    #[serde(rename = "time")]
    SpanUs,
    #[serde(rename = "rate")]
    BitsPerSecond,
    Percent,
    Ratio,
}

/// Results of all cells of a seed.
pub(crate) struct Results<'a> {
    pub(super) study: &'a Study,
    cells: Vec<Cell<'a>>,
    measured: Vec<Measured>,
}

impl<'a> Results<'a> {
    pub(super) fn new(
        study: &'a Study,
        cells: Vec<Cell<'a>>,
        measured: Vec<Measured>,
    ) -> Results<'a> {
        Results { study, cells, measured }
    }

    /// Adds a number to every cell.
    pub(super) fn derive(&mut self, name: &str, value: &Formula) -> Result<(), String> {
        let cells = self.cells(&At::default())?;
        let number = |cell: &At| value.value(self, cell, &At::default());
        let numbers = cells.iter().map(number).collect::<Result<Vec<f64>, String>>()?;
        for (measured, number) in self.measured.iter_mut().zip(numbers) {
            measured.set(name, number);
        }
        Ok(())
    }

    /// The cells that were measured, each as what is chosen.
    pub(super) fn cells(&self, at: &At) -> Result<Vec<At>, String> {
        let wanted = self.study.product(&self.study.order, at)?;
        let cells = self.cells.iter().filter(|cell| wanted.contains(&cell.picks));
        let chosen = |cell: &Cell<'_>| {
            let axes = self.study.order.iter().zip(cell.choices());
            axes.fold(At::default(), |at, (axis, choice)| at.with(axis, &choice.name))
        };
        Ok(cells.map(chosen).collect())
    }

    fn of(&self, picks: &[usize]) -> Option<&Measured> {
        let place = self.cells.iter().position(|cell| cell.picks == picks)?;
        Some(&self.measured[place])
    }

    /// A number of one cell; not one where there is no such cell.
    fn number(&self, picks: &[usize], name: &str) -> f64 {
        match name.strip_prefix('@') {
            Some(axis) => Cell { study: self.study, picks: picks.to_vec() }.number(axis),
            None => self.of(picks).map_or(f64::NAN, |measured| measured.number(name)),
        }
    }
}

impl Formula {
    /// Names of the measured numbers in it.
    pub(super) fn metrics(&self) -> impl Iterator<Item = &str> {
        let names = [&self.metric].into_iter().chain(&self.by).map(String::as_str);
        names.filter(|name| !name.starts_with('@'))
    }

    /// The same with a word in the place of `{key}` in the names of its numbers.
    pub(super) fn keyed(&self, key: &str) -> Formula {
        let fill = |name: &String| name.replace("{key}", key);
        Formula { metric: fill(&self.metric), by: self.by.as_ref().map(fill), ..self.clone() }
    }

    /// Returns `true` if this size of the figure has the choices that it names, among the cells at `at`.
    pub(super) fn is_there(&self, study: &Study, at: &At) -> bool {
        study.product(&study.order, &at.but(&self.at).but(&self.than)).is_ok()
    }

    /// Value among the cells at `at`, each against the one that differs by `than`. What the formula says
    /// itself goes first.
    pub(super) fn value(&self, results: &Results<'_>, at: &At, than: &At) -> Result<f64, String> {
        let (at, than) = (at.but(&self.at), than.but(&self.than));
        let cells = results.study.product(&results.study.order, &at)?;
        let measured = cells.iter().filter(|picks| results.of(picks).is_some());
        let values: Result<Vec<f64>, String> =
            measured.map(|picks| self.compared(results, picks, &than)).collect();
        Ok(self.over.of(values?))
    }

    /// The curve of the one cell at `at`.
    pub(super) fn points(&self, results: &Results<'_>, at: &At) -> Result<Vec<(f64, f64)>, String> {
        let cells = results.study.product(&results.study.order, &at.but(&self.at))?;
        let mut measured = cells.iter().filter_map(|picks| results.of(picks));
        Ok(measured.next().map_or(Vec::new(), |it| it.points(&self.metric).to_vec()))
    }

    fn compared(&self, results: &Results<'_>, picks: &[usize], than: &At) -> Result<f64, String> {
        let study = results.study;
        let mut others = picks.to_vec();
        for (axis, other) in study.order.iter().zip(&mut others) {
            *other = than.only(study, axis)?.unwrap_or(*other);
        }
        let own = results.number(picks, &self.metric);
        let other = results.number(&others, self.by.as_ref().unwrap_or(&self.metric));
        let is_alone = than.is_empty() && self.by.is_none();
        let says = self.says.unwrap_or(if is_alone { Says::Is } else { Says::Times });
        Ok(says.compare(own, other) * self.scale)
    }
}
