//! Studies: what is measured at every combination of choices, and what a plan makes of it.
//!
//! A plan has *axes* with *choices*: systems, models, loads. A *cell* has one choice of every axis. A [`Bench`]
//! measures a cell and gives numbers by name; claims, drawings and tables are data, made of [`Formula`]s over
//! these numbers.

pub(crate) mod formula;
pub(crate) mod grid;
pub(crate) mod measured;
mod show;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use toml::Table;

use crate::frame::figure::Form;
use crate::{Claim, Context, FigureError, Findings, Point, Rule};
use formula::{Formula, Results};
pub(crate) use grid::Cell;
use grid::{At, Choice};
pub(crate) use measured::Measured;

/// The keys of a plan that all studies have.
const KEYS: [&str; 8] = ["order", "axes", "grids", "derived", "rules", "claims", "plots", "tables"];

/// A comparison of cells: axes, metrics, claims, and how they are shown.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Study {
    /// Names of the axes. The last one changes fastest from cell to cell.
    order: Vec<String>,
    axes: BTreeMap<String, Vec<Choice>>,
    /// Cells that exist, if that is not all of them.
    #[serde(default)]
    grids: Vec<At>,
    #[serde(default)]
    derived: Vec<Derived>,
    #[serde(default)]
    rules: BTreeMap<String, Rule>,
    claims: Vec<show::Statement>,
    plots: Vec<show::Drawing>,
    tables: Vec<show::Listed>,
}

/// A number that each cell gets besides what was measured of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Derived {
    name: String,
    value: Formula,
}

/// A method that measures cells, with the settings of a plan that are not the study's.
pub(crate) trait Bench: DeserializeOwned + Sync {
    /// Values that all cells of a seed share.
    type Common: Default + Sync;

    /// Share of the run that the preparation takes.
    const PREPARATION: f64 = 0.0;

    /// Finds out what all cells have in common.
    fn prepare(&self, _: &Context<'_>) -> Result<Self::Common, FigureError> {
        Ok(Self::Common::default())
    }

    /// Returns `true` if cells are measured one after the other: where time is measured, they would disturb each other.
    fn is_serial(&self) -> bool {
        false
    }

    /// Measures one cell.
    fn measure(
        &self,
        common: &Self::Common,
        cell: &Cell<'_>,
        point: &Point<'_>,
    ) -> Result<Measured, FigureError>;
}

/// The form of figures that are studies.
pub(crate) struct Of<B> {
    pub(crate) study: Study,
    pub(crate) bench: B,
}

impl<'de, B: DeserializeOwned> Deserialize<'de> for Of<B> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Of<B>, D::Error> {
        let all = Table::deserialize(deserializer)?;
        let is_shared = |key: &String| KEYS.contains(&key.as_str());
        let (shared, own): (Table, Table) = all.into_iter().partition(|(key, _)| is_shared(key));
        Ok(Of {
            study: shared.try_into().map_err(D::Error::custom)?,
            bench: own.try_into().map_err(D::Error::custom)?,
        })
    }
}

impl<B: Bench> Form for Of<B> {
    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        let study = &self.study;
        let mistake = |reason: String| context.mistake(reason);
        let cells = study.cells().map_err(mistake)?;
        let common = self.bench.prepare(&context.part(0.0, B::PREPARATION))?;
        let mut rest = context.part(B::PREPARATION, 1.0);
        if self.bench.is_serial() {
            rest.threads = 1;
        }
        let measured =
            rest.each(&cells, Cell::label, |cell, point| self.bench.measure(&common, cell, point))?;
        study.findings(cells, measured).map_err(mistake)
    }

    fn planned_claims(&self) -> Result<Option<Vec<Claim>>, String> {
        self.study.planned_claims().map(Some)
    }
}

impl Study {
    /// Claims, drawings and tables of what was measured. An error is a mistake in the plan.
    pub(crate) fn findings(
        &self,
        cells: Vec<Cell<'_>>,
        measured: Vec<Measured>,
    ) -> Result<Findings, String> {
        let mut results = Results::new(self, cells, measured);
        for derived in &self.derived {
            results.derive(&derived.name, &derived.value)?;
        }
        Ok(Findings {
            claims: show::each(&results, &self.claims)?,
            plots: show::each(&results, &self.plots)?,
            tables: show::each(&results, &self.tables)?,
        })
    }

    /// Returns the claims of the plan, as cells without measurements give them.
    fn planned_claims(&self) -> Result<Vec<Claim>, String> {
        let cells = self.cells()?;
        let nothing = vec![Measured::default(); cells.len()];
        Ok(self.findings(cells, nothing)?.claims)
    }

    /// Names of all numbers that the plan asks for and does not derive.
    pub(crate) fn wanted(&self) -> BTreeSet<String> {
        let derived = self.derived.iter().map(|derived| derived.value.clone());
        let formulas: Vec<Formula> = derived
            .chain(self.claims.iter().flat_map(show::Statement::formulas))
            .chain(self.plots.iter().flat_map(show::Drawing::formulas))
            .chain(self.tables.iter().flat_map(show::Listed::formulas))
            .collect();
        let is_derived = |name: &str| self.derived.iter().any(|derived| derived.name == name);
        let names = formulas.iter().flat_map(Formula::metrics).filter(|name| !is_derived(name));
        names.map(str::to_owned).collect()
    }
}
