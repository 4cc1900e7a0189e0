//! QCLIMB, Table 2: how many flows lie within the bounds of a forest, and what the bounds are worth.
//!
//! A constant bound of one byte and of the largest size would hold all flows. So the lower bounds of
//! small, medium and large flows stand beside the share: they have to tell the three apart.

mod measure;

use serde::Deserialize;
use thalweg_prioritize::evaluate::Class;
use thalweg_report::format::{Unit, format_count, format_number};
use thalweg_report::plot::{Axis, Chart, Series};
use thalweg_report::table::{Column, Table};

use crate::{Claim, Context, Figure, FigureError, Findings, Listing, Plot, Rule};
use measure::{Measured, Point};

pub(crate) struct QclimbTable2;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Setup {
    learned: f64,
    depths: [u32; 2],
    most_out: f64,
    paper_small_gap_bytes: f64,
    gap_factor: f64,
    width: f64,
    swapped: f64,
    trees: u32,
    widths: Vec<f64>,
    tree_counts: Vec<u32>,
    workloads: Vec<Workload>,
    flows: usize,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Workload {
    name: String,
    /// At the two depths.
    paper_shares: [f64; 2],
    /// The greatest mean of small, medium and large flows over the paper's settings.
    paper_lower_bytes: [f64; 3],
}

impl Figure for QclimbTable2 {
    fn name(&self) -> &'static str {
        "qclimb-table2"
    }

    fn plan(&self) -> &'static str {
        include_str!("../plans/qclimb-table2.toml")
    }

    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        let setup: Setup = context.plan(self)?;
        let points = setup.points();
        let label = |point: &Point<'_>| point.label();
        let measured =
            context.each(&points, label, |point, at| setup.measure(point, context.seed, at))?;
        let results = Results { points: &points, measured: &measured };
        Ok(Findings {
            claims: setup.claims(&results),
            plots: vec![setup.plot_of_widths(&results), setup.plot_of_trees(&results)],
            tables: vec![setup.table(&results), setup.sweep_table(&results)],
            not_measured: NOT_MEASURED.map(str::to_owned).into(),
            notes: NOTES.map(str::to_owned).into(),
        })
    }
}

const NOT_MEASURED: [&str; 1] = [
    "the paper's own traces: their features are not to be had, so both sizes and features are generated",
];

const NOTES: [&str; 5] = [
    "A flow's only feature is ln(size) + uniform(-w, w), now and then another flow's. It takes the place of \
     the sizes of the last five flows. With w = 0 sizes are known; the larger w, the less.",
    "The paper does not say how many trees it has. More trees bound more flows, with lower bounds that are \
     lower: both tables of the sweep show the trade.",
    "Small is up to 100 KB as in the paper, large beyond 10 MB as in PIAS: the paper does not say.",
    "The paper's lower bounds are ranges over its settings; the upper ends stand here.",
    "A hint that is another flow's puts a flow out of its bounds when no flow like that was learned from. \
     So the share depends on how many flows there are to learn from, too.",
];

/// What was measured where.
struct Results<'a> {
    points: &'a [Point<'a>],
    measured: &'a [Measured],
}

impl Results<'_> {
    fn of(
        &self,
        is_wanted: impl Fn(&Point<'_>) -> bool,
    ) -> impl Iterator<Item = (&Point<'_>, &Measured)> {
        self.points.iter().zip(self.measured).filter(move |(point, _)| is_wanted(point))
    }

    /// The one at that depth with everything else as it stands in the plan.
    fn plain(&self, setup: &Setup, workload: &Workload, depth: u32) -> Option<&Measured> {
        let is_plain = |point: &Point<'_>| {
            point.workload.name == workload.name
                && (point.depth, point.trees) == (depth, setup.trees)
                && point.width == setup.width
        };
        self.of(is_plain).next().map(|(_, measured)| measured)
    }
}

impl Setup {
    /// Every workload at both depths; then, of the first one, every width and every number of trees.
    fn points(&self) -> Vec<Point<'_>> {
        let point =
            |workload, depth| Point { workload, depth, trees: self.trees, width: self.width };
        let both = |workload| self.depths.map(|depth| point(workload, depth));
        let mut points: Vec<Point<'_>> = self.workloads.iter().flat_map(both).collect();
        let swept = point(&self.workloads[0], self.depths[1]);
        points.extend(self.widths.iter().map(|&width| Point { width, ..swept }));
        points.extend(self.tree_counts.iter().map(|&trees| Point { trees, ..swept }));
        points
    }

    fn claims(&self, results: &Results<'_>) -> Vec<Claim> {
        let mut claims = Vec::new();
        for workload in &self.workloads {
            for (depth, paper) in self.depths.into_iter().zip(workload.paper_shares) {
                let measured = results.plain(self, workload, depth);
                claims.push(Claim::measured(
                    format!("{}, depth {depth}: flows out of their bounds", workload.name),
                    1.0 - paper,
                    measured.map_or(f64::NAN, |measured| 1.0 - measured.share),
                    Unit::Percent,
                    Rule::AtMost(self.most_out),
                ));
            }
            let measured = results.plain(self, workload, self.depths[1]);
            let lower = measured.map_or([f64::NAN; 3], |measured| measured.lower_bytes);
            let paper =
                workload.paper_lower_bytes.map(|bytes| Unit::Bytes.format(bytes)).join(", ");
            claims.push(Claim::rising(
                format!("{}: mean lower bound of small, medium and large flows", workload.name),
                paper,
                &lower,
                Unit::Bytes,
            ));
        }
        claims.push(self.claim_of_gap(results));
        claims.push(self.claim_of_widths(results));
        claims
    }

    fn claim_of_gap(&self, results: &Results<'_>) -> Claim {
        let workload = &self.workloads[0];
        let measured = results.plain(self, workload, self.depths[1]);
        let paper = self.paper_small_gap_bytes;
        Claim::measured(
            format!("{}: mean gap of small flows to their lower bound", workload.name),
            paper,
            measured.map_or(f64::NAN, |measured| measured.small_gap_bytes),
            Unit::Bytes,
            Rule::WithinFactor { of: paper, factor: self.gap_factor },
        )
    }

    /// The less is known, the lower the lower bounds of large flows.
    fn claim_of_widths(&self, results: &Results<'_>) -> Claim {
        let large: Vec<f64> =
            self.swept_widths(results).map(|(_, measured)| measured.lower_bytes[2]).collect();
        let falling: Vec<f64> = large.into_iter().rev().collect();
        Claim::rising(
            "mean lower bound of large flows, from the widest hints to precise ones",
            "not in the paper",
            &falling,
            Unit::Bytes,
        )
    }

    fn swept_widths<'a>(
        &'a self,
        results: &'a Results<'a>,
    ) -> impl Iterator<Item = (&'a Point<'a>, &'a Measured)> {
        let first = self.depths.len() * self.workloads.len();
        results.points.iter().zip(results.measured).skip(first).take(self.widths.len())
    }

    fn swept_trees<'a>(
        &'a self,
        results: &'a Results<'a>,
    ) -> impl Iterator<Item = (&'a Point<'a>, &'a Measured)> {
        let first = self.depths.len() * self.workloads.len() + self.widths.len();
        results.points.iter().zip(results.measured).skip(first)
    }

    fn plot_of_widths(&self, results: &Results<'_>) -> Plot {
        let names = self.widths.iter().map(|width| format_number(*width));
        let of = self.swept_widths(results).map(|(_, measured)| measured).collect();
        let caption = "What hints are worth: from precise knowledge to next to none.";
        plot("Lower bounds by width of the hints", Axis::categories("w", names), of, caption)
    }

    fn plot_of_trees(&self, results: &Results<'_>) -> Plot {
        let names = self.tree_counts.iter().map(|trees| trees.to_string());
        let of = self.swept_trees(results).map(|(_, measured)| measured).collect();
        let caption = "More trees keep more flows within their bounds, which are wider.";
        plot("Lower bounds by number of trees", Axis::categories("trees", names), of, caption)
    }

    fn table(&self, results: &Results<'_>) -> Listing {
        let mut table = Table::new(columns(&["workload", "depth"]));
        for workload in &self.workloads {
            for depth in self.depths {
                let Some(measured) = results.plain(self, workload, depth) else { continue };
                table.push(
                    [workload.name.clone(), depth.to_string()].into_iter().chain(measured.cells()),
                );
            }
        }
        let caption = format!(
            "{} flows of each workload, {} trees, w = {}",
            format_count(self.flows as u64),
            self.trees,
            self.width
        );
        Listing { table, caption }
    }

    fn sweep_table(&self, results: &Results<'_>) -> Listing {
        let mut table = Table::new(columns(&["w", "trees"]));
        for (point, measured) in self.swept_widths(results).chain(self.swept_trees(results)) {
            let cells = [format_number(point.width), point.trees.to_string()];
            table.push(cells.into_iter().chain(measured.cells()));
        }
        let caption = format!("{}, depth {}", self.workloads[0].name, self.depths[1]);
        Listing { table, caption }
    }
}

fn plot(title: &str, x: Axis, measured: Vec<&Measured>, caption: &str) -> Plot {
    let mut chart = Chart::new(title).x(x).y(Axis::log10("mean lower bound").unit(Unit::Bytes));
    for class in Class::ALL {
        let points = measured.iter().enumerate();
        let points = points
            .map(|(at, measured)| (at as f64, measured.lower_bytes[class as usize]))
            .collect();
        chart = chart.series(Series::line(format!("{} flows", class.name()), points));
    }
    Plot { chart, caption: caption.to_owned() }
}

fn columns(first: &[&str]) -> Vec<Column> {
    let first = first.iter().map(|name| Column::left(*name));
    let rest = [
        "within bounds",
        "below",
        "above",
        "lower: small",
        "medium",
        "large",
        "gap of small",
        "mean error",
    ];
    first.chain(rest.map(Column::right)).collect()
}

#[cfg(test)]
mod tests;
