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
    /// What the paper's figure shows and ours does not.
    pub not_measured: Vec<String>,
    /// Where our set-up departs from the paper's, and what a reader should know.
    pub notes: Vec<String>,
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
