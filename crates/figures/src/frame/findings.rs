//! Results of a figure's run.

use thalweg_report::plot::Chart;
use thalweg_report::table::Table;

use super::claim::Claim;

/// Results of one seed.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Findings {
    /// Values of the paper beside our measurements. Every seed has the same claims in the same order.
    pub claims: Vec<Claim>,
    /// The drawings. The first one is the figure.
    pub plots: Vec<Plot>,
    /// More numbers than a claim holds.
    pub tables: Vec<Listing>,
}

/// A chart and one sentence about it.
#[derive(Clone, PartialEq, Debug)]
pub struct Plot {
    /// The drawing. Series from the paper stand beside the measured ones where it has numbers.
    pub chart: Chart,
    /// Observation to make in it.
    pub caption: String,
}

/// A table and one sentence about it.
#[derive(Clone, PartialEq, Debug)]
pub struct Listing {
    /// The numbers.
    pub table: Table,
    /// Meaning of the numbers.
    pub caption: String,
}

impl Plot {
    pub(crate) fn new(chart: Chart, caption: impl Into<String>) -> Plot {
        Plot { chart, caption: caption.into() }
    }
}

impl Listing {
    pub(crate) fn new(table: impl Into<Table>, caption: impl Into<String>) -> Listing {
        Listing { table: table.into(), caption: caption.into() }
    }
}
