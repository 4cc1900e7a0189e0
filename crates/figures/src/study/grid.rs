//! Axes, their choices, and the cells that they span.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Table;

use super::Study;
use crate::{FigureError, Point};

/// One choice of an axis. In plans a name or a number stands for a choice that changes nothing.
#[derive(Clone, Deserialize)]
#[serde(from = "Written")]
pub(crate) struct Choice {
    pub(crate) name: String,
    /// Position on a numeric axis.
    pub(crate) number: f64,
    /// Words for texts, besides the name.
    words: BTreeMap<String, String>,
    /// Changes of the scenario of a cell.
    pub(crate) scenario: Table,
    /// Other settings, for the bench.
    pub(crate) set: Table,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Number(f64),
    Name(String),
    Whole(Whole),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Whole {
    name: String,
    #[serde(default = "no_number")]
    number: f64,
    #[serde(default)]
    words: BTreeMap<String, String>,
    #[serde(default)]
    scenario: Table,
    #[serde(default)]
    set: Table,
}

fn no_number() -> f64 {
    f64::NAN
}

impl From<Written> for Choice {
    fn from(written: Written) -> Choice {
        let plain = |name, number| Choice {
            name,
            number,
            words: BTreeMap::new(),
            scenario: Table::new(),
            set: Table::new(),
        };
        match written {
            Written::Number(number) => plain(number.to_string(), number),
            Written::Name(name) => plain(name, f64::NAN),
            Written::Whole(Whole { name, number, words, scenario, set }) => {
                Choice { name, number, words, scenario, set }
            }
        }
    }
}

/// Choices by axis. An axis that is not named is free.
#[derive(Clone, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub(crate) struct At(BTreeMap<String, Names>);

/// Names of choices. `@first` and `@last` stand for those at the ends of the axis, `*` for all of them, and `#word`
/// for those that have this word.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(untagged)]
enum Names {
    One(String),
    Some(Vec<String>),
}

impl At {
    /// The same with the choices of another in place of its own.
    pub(crate) fn but(&self, other: &At) -> At {
        let mut all = self.clone();
        all.0.extend(other.0.clone());
        all
    }

    /// The same with one choice of an axis.
    pub(crate) fn with(&self, axis: &str, name: &str) -> At {
        self.but(&At([(axis.to_owned(), Names::One(name.to_owned()))].into()))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The name of its one choice of an axis.
    fn one(&self, axis: &str) -> Option<&str> {
        match self.0.get(axis)? {
            Names::One(name) => Some(name),
            Names::Some(names) => names.first().filter(|_| names.len() == 1).map(String::as_str),
        }
    }

    /// The number of its one choice of an axis.
    pub(super) fn only(&self, study: &Study, axis: &str) -> Result<Option<usize>, String> {
        self.check(study)?;
        self.one(axis).map(|name| study.number_of(axis, name)).transpose()
    }

    /// Numbers of the choices of an axis that it takes.
    fn picks(&self, study: &Study, axis: &str) -> Result<Vec<usize>, String> {
        let all = 0..study.choices(axis)?.len();
        let has = |pick: &usize, word: &str| {
            study.axes[axis][*pick].words.values().any(|own| own == word)
        };
        match self.0.get(axis) {
            None => Ok(all.collect()),
            Some(Names::One(name)) if name == "*" => Ok(all.collect()),
            Some(Names::One(name)) => match name.strip_prefix('#') {
                Some(word) => Ok(all.filter(|pick| has(pick, word)).collect()),
                None => Ok(vec![study.number_of(axis, name)?]),
            },
            Some(Names::Some(names)) => {
                names.iter().map(|name| study.number_of(axis, name)).collect()
            }
        }
    }

    fn check(&self, study: &Study) -> Result<(), String> {
        let unknown = self.0.keys().find(|axis| !study.order.contains(axis));
        unknown.map_or(Ok(()), |axis| Err(format!("there is no axis {axis:?}")))
    }
}

/// One choice of every axis.
#[derive(Clone)]
pub(crate) struct Cell<'a> {
    pub(crate) study: &'a Study,
    /// By axis, in their order.
    pub(super) picks: Vec<usize>,
}

impl<'a> Cell<'a> {
    /// Returns the choices, in the order of the axes.
    pub(crate) fn choices(&self) -> impl Iterator<Item = &'a Choice> {
        let axes = self.study.order.iter().zip(&self.picks);
        axes.map(|(axis, pick)| &self.study.axes[axis][*pick])
    }

    /// Returns the choice of one axis, if there is such an axis.
    pub(crate) fn choice(&self, axis: &str) -> Option<&'a Choice> {
        let place = self.study.order.iter().position(|name| name == axis)?;
        Some(&self.study.axes[axis][self.picks[place]])
    }

    /// Returns the number of the choice of one axis; not a number where the choice is a word.
    pub(crate) fn number(&self, axis: &str) -> f64 {
        self.choice(axis).map_or(f64::NAN, |choice| choice.number)
    }

    /// Returns what all choices set for the bench.
    pub(crate) fn settings<T: DeserializeOwned>(
        &self,
        point: &Point<'_>,
    ) -> Result<T, FigureError> {
        let all: Table = self.choices().flat_map(|choice| choice.set.clone()).collect();
        all.try_into().map_err(|error: toml::de::Error| point.context.mistake(error.message()))
    }

    /// Returns `true` if it is one of the cells at `at`.
    pub(crate) fn is_at(&self, at: &At) -> Result<bool, String> {
        Ok(self.study.product(&self.study.order, at)?.contains(&self.picks))
    }

    pub(crate) fn label(&self) -> String {
        let names = self.choices().map(|choice| choice.name.as_str());
        names.filter(|name| !name.is_empty()).collect::<Vec<_>>().join(", ")
    }
}

impl Study {
    /// All cells, in the order in which they are run and listed.
    pub(crate) fn cells(&self) -> Result<Vec<Cell<'_>>, String> {
        let everywhere = [At::default()];
        let grids = if self.grids.is_empty() { &everywhere[..] } else { &self.grids };
        let mut cells: Vec<Cell<'_>> = Vec::new();
        for grid in grids {
            let all = self.product(&self.order, grid)?;
            cells.extend(all.into_iter().map(|picks| Cell { study: self, picks }));
        }
        Ok(cells)
    }

    /// Every combination of the choices that `at` takes of some axes; the last axis changes fastest.
    pub(super) fn product(&self, axes: &[String], at: &At) -> Result<Vec<Vec<usize>>, String> {
        at.check(self)?;
        let mut all = vec![Vec::new()];
        for axis in axes {
            let picks = at.picks(self, axis)?;
            let with = |before: Vec<usize>| {
                picks.iter().map(move |pick| [&before[..], &[*pick]].concat()).collect::<Vec<_>>()
            };
            all = all.into_iter().flat_map(with).collect();
        }
        Ok(all)
    }

    /// The same combinations, each as what is chosen.
    pub(super) fn combinations(&self, axes: &[String], at: &At) -> Result<Vec<At>, String> {
        let chosen = |picks: Vec<usize>| {
            axes.iter()
                .zip(picks)
                .fold(at.clone(), |at, (axis, pick)| at.with(axis, &self.axes[axis][pick].name))
        };
        Ok(self.product(axes, at)?.into_iter().map(chosen).collect())
    }

    pub(super) fn choices(&self, axis: &str) -> Result<&[Choice], String> {
        let choices = self.axes.get(axis).filter(|choices| !choices.is_empty());
        choices.map(Vec::as_slice).ok_or_else(|| format!("there is no axis {axis:?}"))
    }

    fn number_of(&self, axis: &str, name: &str) -> Result<usize, String> {
        let choices = self.choices(axis)?;
        let found = match name {
            "@first" => Some(0),
            "@last" => Some(choices.len() - 1),
            name => choices.iter().position(|choice| choice.name == name),
        };
        found.ok_or_else(|| format!("axis {axis} has no choice {name:?}"))
    }

    /// The number of what is chosen, of the first of some axes.
    pub(super) fn number_at(&self, axes: &[String], at: &At) -> Result<f64, String> {
        let axis = axes.first().ok_or("numbers need an axis")?;
        let pick = at.only(self, axis)?.ok_or_else(|| format!("{axis} is free"))?;
        Ok(self.axes[axis][pick].number)
    }

    /// A text of the plan: `{axis}` is the name of what is chosen, `{axis.word}` another word of it, and
    /// `{axis:first}` and `{axis:last}` are the names at the ends of the axis. `{axis+axis}` joins the names that are
    /// not empty.
    pub(super) fn fill(&self, text: &str, at: &At) -> Result<String, String> {
        let Some((before, rest)) = text.split_once('{') else { return Ok(text.to_owned()) };
        let (slot, after) = rest.split_once('}').ok_or("a brace is not closed")?;
        let choice = |axis: &str, name: &str| {
            Ok::<_, String>(&self.choices(axis)?[self.number_of(axis, name)?])
        };
        let chosen = |axis: &str| {
            let name = at.one(axis).ok_or_else(|| format!("{text:?} does not fix {axis}"))?;
            choice(axis, name)
        };
        let all: Vec<&str> = slot.split('+').collect();
        let filled = if all.len() > 1 {
            let names = all.into_iter().map(|axis| Ok(chosen(axis)?.name.as_str()));
            let names = names.collect::<Result<Vec<&str>, String>>()?;
            let named: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
            &if named.is_empty() { "none".to_owned() } else { named.join(" + ") }
        } else if let Some((axis, end)) = slot.split_once(':') {
            &choice(axis, &format!("@{end}"))?.name
        } else if let Some((axis, word)) = slot.split_once('.') {
            let words = &chosen(axis)?.words;
            words.get(word).ok_or_else(|| format!("{axis} has no word {word:?}"))?
        } else {
            &chosen(slot)?.name
        };
        Ok(format!("{before}{filled}{}", self.fill(after, at)?))
    }
}
