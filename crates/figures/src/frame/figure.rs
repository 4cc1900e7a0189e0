//! A figure, and how it is found.

use serde::de::DeserializeOwned;

use super::claim::Claim;
use super::context::Context;
use super::error::{FigureError, UnknownFigure};
use super::findings::Findings;
use super::plan::Plan;
use crate::all;

/// A published figure or table that can be run again.
///
/// The same plan, size and seed give the same findings, whatever the number of threads.
#[derive(Debug)]
pub struct Figure {
    name: &'static str,
    plan: &'static str,
    run: fn(&Context<'_>) -> Result<Findings, FigureError>,
    planned: fn(&Figure, bool) -> Planned,
}

/// Claims of a size without measured values, or `None` where only a run knows them.
type Planned = Result<Option<Vec<Claim>>, FigureError>;

/// Settings of a figure, as plans hold them, and the run that they describe. Figures of one form differ in
/// their plans alone.
///
/// A form should deny unknown fields, or a slip in a key would go unseen.
pub(crate) trait Form: DeserializeOwned {
    /// Runs one seed.
    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError>;

    /// Returns the claims that a run makes, without measured values; `None` where only a run knows them.
    fn planned_claims(&self) -> Result<Option<Vec<Claim>>, String> {
        Ok(None)
    }
}

/// The figure of that name and form, whose plan is in the file of that name, perhaps with what it shares with other
/// plans.
macro_rules! figure {
    ($name:literal, $form:ty) => {
        crate::Figure::new::<$form>(
            $name,
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/plans/", $name, ".toml")),
        )
    };
    ($name:literal, $form:ty, $shared:literal) => {
        crate::Figure::new::<$form>(
            $name,
            concat!(
                include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/plans/", $name, ".toml")),
                include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/shared/", $shared, ".toml")),
            ),
        )
    };
}
pub(crate) use figure;

impl Figure {
    /// Use the macro: it finds the plan.
    pub(crate) const fn new<F: Form>(name: &'static str, plan: &'static str) -> Figure {
        let run = |context: &Context<'_>| {
            let form: F = Plan::of(context.figure)?.settings(context.figure, context.quick)?;
            form.run(context)
        };
        let planned = |figure: &Figure, quick: bool| {
            let form: F = Plan::of(figure)?.settings(figure, quick)?;
            let mistake = |reason| FigureError::Plan { figure: figure.name(), reason };
            form.planned_claims().map_err(mistake)
        };
        Figure { name, plan, run, planned }
    }

    /// Name on the command line: the paper, then the figure, such as `atp-table1`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The text of `plans/NAME.toml`; see [`Plan`] for what it holds.
    pub fn plan(&self) -> &'static str {
        self.plan
    }

    /// Returns the claims of a size without measured values, or `None` where only a run knows them.
    pub fn planned_claims(&self, quick: bool) -> Result<Option<Vec<Claim>>, FigureError> {
        (self.planned)(self, quick)
    }

    /// Runs one seed at the size that the context asks for.
    pub(super) fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        (self.run)(context)
    }
}

/// The figure of that name.
pub fn find(name: &str) -> Result<&'static Figure, UnknownFigure> {
    all().iter().find(|figure| figure.name() == name).ok_or_else(|| {
        let names: Vec<&'static str> = all().iter().map(Figure::name).collect();
        UnknownFigure { name: name.to_owned(), nearest: nearest(name, &names), names }
    })
}

/// The name that the fewest edits lead to, unless most of it would have to change.
fn nearest(name: &str, names: &[&'static str]) -> Option<&'static str> {
    let (edits, best) = names.iter().map(|known| (edits_between(name, known), *known)).min()?;
    (edits * 2 <= name.chars().count()).then_some(best)
}

/// Number of insertions, removals and replacements that turn one word into the other.
fn edits_between(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    // The edits from what was read of `from` to every beginning of `to`.
    let mut edits: Vec<usize> = (0..=to.len()).collect();
    for (read, own) in from.chars().enumerate() {
        let mut diagonal = read;
        edits[0] = read + 1;
        for (index, other) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(own != *other);
            diagonal = edits[index + 1];
            edits[index + 1] = replaced.min(diagonal + 1).min(edits[index] + 1);
        }
    }
    edits[to.len()]
}

#[cfg(test)]
impl Figure {
    /// Settings of its plan at one of its sizes.
    pub(crate) fn form<F: DeserializeOwned>(&self, quick: bool) -> F {
        Plan::of(self).unwrap().settings(self, quick).unwrap()
    }

    /// The same, if the figure has this form.
    pub(crate) fn try_form<F: DeserializeOwned>(&self, quick: bool) -> Option<F> {
        Plan::of(self).unwrap().settings(self, quick).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        let cases = [
            ("", "", 0),
            ("abc", "abc", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
        ];
        for (from, to, edits) in cases {
            assert_eq!(edits_between(from, to), edits, "{from} to {to}");
        }
    }

    #[test]
    fn a_slip_finds_its_name_and_nonsense_none() {
        let names = ["atp-table1", "atp-fig7", "mlt-fig9"];
        assert_eq!(nearest("atp-tabel1", &names), Some("atp-table1"));
        assert_eq!(nearest("atp-fig8", &names), Some("atp-fig7"));
        assert_eq!(nearest("quicksort", &names), None);
        assert_eq!(nearest("", &names), None);
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_list() {
        let error = find("atp-tabel1").err().unwrap();
        let message = error.to_string();
        assert!(message.starts_with("there is no figure \"atp-tabel1\", did you mean atp-table1?"));
        for figure in all() {
            assert!(error.names.contains(&figure.name()));
        }
        assert_eq!(find("atp-table1").ok().map(|figure| figure.name()), Some("atp-table1"));
    }
}
