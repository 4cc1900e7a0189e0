//! *Arms* side by side: the same is measured of each at every *place*, and a paper says something of one
//! against others.

use serde::Deserialize;
use thalweg_report::plot::{Chart, Series};
use thalweg_report::stats::Sample;

use crate::{Context, FigureError, Point, Rule};

/// One of the ways that are compared.
pub(crate) trait Arm: Sync {
    /// What plans, drawings and tables call it.
    fn name(&self) -> &str;
}

/// An arm at a place.
#[derive(Clone, Copy)]
pub(crate) struct Cell<'a, P, A> {
    pub(crate) place: P,
    pub(crate) arm: &'a A,
}

/// What all cells of a seed gave, in their order.
pub(crate) struct Results<'a, P, A, M> {
    rows: Vec<(Cell<'a, P, A>, M)>,
}

impl<'a, P: Copy + PartialEq + Sync, A: Arm, M: Send> Results<'a, P, A, M> {
    /// Measures every cell, on all threads.
    pub(crate) fn measure(
        context: &Context<'_>,
        cells: Vec<Cell<'a, P, A>>,
        label: impl Fn(&Cell<'a, P, A>) -> String + Sync,
        work: impl Fn(&Cell<'a, P, A>, &Point<'_>) -> Result<M, FigureError> + Sync,
    ) -> Result<Results<'a, P, A, M>, FigureError> {
        let measured = context.each(&cells, label, work)?;
        Ok(Results { rows: cells.into_iter().zip(measured).collect() })
    }

    /// What one cell gave, if there was such a cell.
    pub(crate) fn of(&self, place: P, arm: &str) -> Option<&M> {
        let is = |(cell, _): &&(Cell<'a, P, A>, M)| cell.place == place && cell.arm.name() == arm;
        self.rows.iter().find(is).map(|(_, measured)| measured)
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = (&Cell<'a, P, A>, &M)> {
        self.rows.iter().map(|(cell, measured)| (cell, measured))
    }

    /// Adds bars to a chart: of every arm one at each place, where there was such a cell.
    pub(crate) fn bars(
        &self,
        mut chart: Chart,
        arms: &[A],
        places: &[P],
        value: impl Fn(&M) -> f64,
    ) -> Chart {
        for arm in arms {
            let at = |place: &P| self.of(*place, arm.name()).map_or(f64::NAN, &value);
            chart = chart.series(Series::bars(arm.name(), places.iter().map(at)));
        }
        chart
    }
}

/// Which of several values counts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Over {
    Largest,
    Smallest,
    #[default]
    Mean,
}

impl Over {
    /// The value that counts. `None` if there is none that is finite.
    pub(crate) fn of(self, values: impl IntoIterator<Item = f64>) -> Option<f64> {
        let sample = Sample::new(values)?;
        Some(match self {
            Over::Largest => sample.max(),
            Over::Smallest => sample.min(),
            Over::Mean => sample.mean(),
        })
    }

    /// The end of a claim that is about several values.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Over::Largest => ", where most",
            Over::Smallest => ", where least",
            Over::Mean => ", on average",
        }
    }
}

/// The rule of a claim in a plan, which has one of two bounds.
pub(crate) fn rule(
    context: &Context<'_>,
    at_least: Option<f64>,
    at_most: Option<f64>,
) -> Result<Rule, FigureError> {
    match (at_least, at_most) {
        (Some(least), None) => Ok(Rule::AtLeast(least)),
        (None, Some(most)) => Ok(Rule::AtMost(most)),
        _ => Err(context.mistake("a claim needs at-least or at-most")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Way(&'static str);

    impl Arm for Way {
        fn name(&self) -> &str {
            self.0
        }
    }

    #[test]
    fn cells_are_found_by_place_and_arm() {
        let ways = [Way("one"), Way("other")];
        let cells = [10, 20].into_iter().flat_map(|place| {
            let cell = move |(number, arm)| (Cell { place, arm }, place + number);
            (1..).zip(&ways).map(cell)
        });
        let results = Results { rows: cells.collect() };
        assert_eq!(results.of(20, "other"), Some(&22));
        assert_eq!((results.of(30, "other"), results.of(20, "third")), (None, None));
        let chart = results.bars(Chart::new(""), &ways, &[20, 30], |number| f64::from(*number));
        let [one, _] = chart.all_series() else { panic!("a series for each arm") };
        assert_eq!(one.points()[0].1, 21.0);
        assert!(one.points()[1].1.is_nan());
    }

    #[test]
    fn of_several_values_one_counts() {
        let values = [3.0, f64::NAN, 1.0, 5.0];
        let found = [Over::Largest, Over::Smallest, Over::Mean].map(|over| over.of(values));
        assert_eq!(found, [Some(5.0), Some(1.0), Some(3.0)]);
        assert_eq!(Over::Mean.of([f64::NAN]), None);
    }

    #[test]
    fn a_claim_has_one_bound() {
        let rule = |least, most| rule(&Context::unwatched("atp-9", 1, 1), least, most);
        assert!(matches!(rule(Some(1.0), None), Ok(Rule::AtLeast(1.0))));
        assert!(matches!(rule(None, Some(1.0)), Ok(Rule::AtMost(1.0))));
        for (least, most) in [(None, None), (Some(1.0), Some(2.0))] {
            let message = rule(least, most).unwrap_err().to_string();
            assert!(message.contains("at-least or at-most"), "{message}");
        }
    }
}
