//! Measurements of a cell.

use std::collections::BTreeMap;

/// Numbers by name, and what has more than one point.
#[derive(Clone, Default, Debug)]
pub(crate) struct Measured {
    numbers: BTreeMap<String, f64>,
    traces: BTreeMap<String, Vec<(f64, f64)>>,
}

impl Measured {
    /// Numbers alone.
    pub(crate) fn of<N: Into<String>>(numbers: impl IntoIterator<Item = (N, f64)>) -> Measured {
        let numbers = numbers.into_iter().map(|(name, number)| (name.into(), number));
        Measured { numbers: numbers.collect(), traces: BTreeMap::new() }
    }

    /// The same with a curve.
    #[must_use]
    pub(crate) fn trace(mut self, name: impl Into<String>, points: Vec<(f64, f64)>) -> Measured {
        self.traces.insert(name.into(), points);
        self
    }

    pub(crate) fn set(&mut self, name: &str, number: f64) {
        self.numbers.insert(name.to_owned(), number);
    }

    /// A number, which is none where nothing has that name.
    pub(crate) fn number(&self, name: &str) -> f64 {
        self.numbers.get(name).copied().unwrap_or(f64::NAN)
    }

    /// A curve, which is empty where nothing has that name.
    pub(crate) fn points(&self, name: &str) -> &[(f64, f64)] {
        self.traces.get(name).map_or(&[], Vec::as_slice)
    }
}
