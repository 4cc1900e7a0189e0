//! What a run of a figure gives back.

use thalweg_report::plot::Chart;
use thalweg_report::table::Table;

use super::claim::Claim;

/// What one seed showed.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Findings {
    /// What the paper says beside what we measured. Every seed has the same claims in the same order.
    pub claims: Vec<Claim>,
    /// The drawings. The first one is the figure.
    pub plots: Vec<Plot>,
    /// More numbers than a claim holds.
    pub tables: Vec<Listing>,
}

/// A chart and one sentence about it.
#[derive(Clone, PartialEq, Debug)]
pub struct Plot {
    /// What is drawn. Series from the paper stand beside ours where it has numbers.
    pub chart: Chart,
    /// What to see in it.
    pub caption: String,
}

/// A table and one sentence about it.
#[derive(Clone, PartialEq, Debug)]
pub struct Listing {
    /// The numbers.
    pub table: Table,
    /// What they are.
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
