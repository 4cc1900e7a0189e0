//! QCLIMB, Table 2: how many flows lie within the bounds of a forest, and what the bounds are worth.
//!
//! A constant bound of one byte and of the largest size would hold all flows. So the lower bounds of
//! small, medium and large flows stand beside the share: they have to tell the three apart.

mod measure;

use serde::Deserialize;
use thalweg_prioritize::evaluate::Class;
use thalweg_report::format::{Unit, format_count, format_number};
use thalweg_report::plot::{Axis, Chart, Series};
use thalweg_report::table::{ByColumn, Table};

use crate::frame::figure::Form;
use crate::{Claim, Context, FigureError, Findings, Listing, Plot, Rule};
use measure::{Measured, Point};

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Setup {
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

impl Form for Setup {
    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        let points = self.points();
        let measured = context.each(&points, Point::label, |point, at| self.measure(point, at))?;
        let results = Results { points: &points, measured: &measured };
        Ok(Findings {
            claims: self.claims(&results),
            plots: vec![self.plot_of_widths(&results), self.plot_of_trees(&results)],
            tables: vec![self.table(&results), self.sweep_table(&results)],
        })
    }
}

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
        let both = |workload| self.depths.map(|depth| (workload, depth));
        let rows = self.workloads.iter().flat_map(both).filter_map(|(workload, depth)| {
            Some(((workload, depth), results.plain(self, workload, depth)?))
        });
        let table = Table::by_column(rows)
            .left("workload", |((workload, _), _)| workload.name.clone())
            .left("depth", |((_, depth), _)| depth.to_string());
        let caption = format!(
            "{} flows of each workload, {} trees, w = {}",
            format_count(self.flows as u64),
            self.trees,
            self.width
        );
        Listing::new(measured_columns(table), caption)
    }

    fn sweep_table(&self, results: &Results<'_>) -> Listing {
        let rows = self.swept_widths(results).chain(self.swept_trees(results));
        let table = Table::by_column(rows)
            .left("w", |(point, _)| format_number(point.width))
            .left("trees", |(point, _)| point.trees.to_string());
        let caption = format!("{}, depth {}", self.workloads[0].name, self.depths[1]);
        Listing::new(measured_columns(table), caption)
    }
}

fn plot(title: &str, x: Axis, measured: Vec<&Measured>, caption: &str) -> Plot {
    let curve = |class: Class| {
        let lower = measured.iter().map(|measured| measured.lower_bytes[class as usize]);
        Series::curve(format!("{} flows", class.name()), lower)
    };
    let chart = Chart::new(title)
        .x(x)
        .y(Axis::log10("mean lower bound").unit(Unit::Bytes))
        .all(Class::ALL.map(curve));
    Plot::new(chart, caption)
}

/// Adds what was measured.
fn measured_columns<T>(table: ByColumn<(T, &Measured)>) -> ByColumn<(T, &Measured)> {
    let bytes = |bytes: f64| Unit::Bytes.format(bytes);
    table
        .right("within bounds", |(_, it)| format!("{:.3}%", it.share * 100.0))
        .right("below", |(_, it)| format_count(it.below as u64))
        .right("above", |(_, it)| format_count(it.above as u64))
        .right("lower: small", |(_, it)| bytes(it.lower_bytes[0]))
        .right("medium", |(_, it)| bytes(it.lower_bytes[1]))
        .right("large", |(_, it)| bytes(it.lower_bytes[2]))
        .right("gap of small", |(_, it)| bytes(it.small_gap_bytes))
        .right("mean error", |(_, it)| bytes(it.error_bytes))
}

#[cfg(test)]
mod tests;
