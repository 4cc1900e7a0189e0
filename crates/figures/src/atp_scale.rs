//! Ours: what a sum costs as the workers of a job grow in number.
//!
//! In-network aggregation sends the server one sum, however many workers there are, and takes as long
//! for 1,024 of them as for 8. A parameter server receives a tensor from each and takes as much longer.
//! A ring sends every worker about two tensors, over ever more steps.

mod measure;

use thalweg_report::format::{MISSING, Unit, format_count, format_number, format_span_us};
use thalweg_report::plot::{Axis, Chart, Series};
use thalweg_report::table::Table;

use crate::frame::figure::Form;
use crate::{Claim, Context, FigureError, Findings, Listing, Plot, Rule};
pub(crate) use measure::Setup;
use measure::{Cost, Size, Variant};

/// How far the bytes at the server may be from one sum, or from a tensor of each worker.
const TOLERANCE: f64 = 0.05;
/// How much longer the largest size may take than the smallest.
const GROWTH_MAX: f64 = 1.1;
/// How far a parameter server may be from being as much slower as it has more workers.
const LINEAR_FACTOR: f64 = 1.5;
/// What the paper's two bitmaps of 32 bits name.
const PAPER_WORKERS: u32 = 1_024;
/// What is said where the paper has no number.
const NO_NUMBER: &str = "no number";

/// All sizes of a variant.
struct Line {
    variant: Variant,
    points: Vec<(Size, Cost)>,
}

impl Form for Setup {
    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        self.check().map_err(|reason| context.mistake(reason))?;
        let lines = lines(self, context)?;
        let find = |name: &str| {
            let line = lines.iter().find(|line| line.variant.name == name);
            let reason = || format!("variants need one that is called {name:?}");
            line.ok_or_else(|| context.mistake(reason()))
        };
        let aggregation = [find("two levels")?, find("three levels")?];
        let mut claims = Vec::new();
        for line in aggregation {
            claims.extend(aggregation_claims(line, self.iterations()));
        }
        claims.extend(server_claims(find("parameter server")?));
        Ok(Findings {
            claims,
            plots: vec![time_plot(&lines), traffic_plot(&lines)],
            tables: vec![table(&lines)],
        })
    }
}

/// Runs every variant at every size.
fn lines(setup: &Setup, context: &Context<'_>) -> Result<Vec<Line>, FigureError> {
    let fits = |variant: &Variant, size: Size| {
        variant.collective != "ring" || size.workers() <= setup.ring_workers_max
    };
    let mut items: Vec<(usize, Size)> = Vec::new();
    // The largest first: they take longest.
    for &size in setup.sizes.iter().rev() {
        let variants = setup.variants.iter().enumerate();
        items.extend(variants.filter(|(_, variant)| fits(variant, size)).map(|(at, _)| (at, size)));
    }
    let name = |(at, size): &(usize, Size)| {
        format!("{}, {} workers", setup.variants[*at].name, size.workers())
    };
    let costs = context
        .each(&items, name, |&(at, size), point| setup.measure(&setup.variants[at], size, point))?;
    let line = |(at, variant): (usize, &Variant)| {
        let of_line = items.iter().zip(&costs).rev().filter(|((of, _), _)| *of == at);
        let points = of_line.map(|((_, size), cost)| (*size, *cost)).collect();
        Line { variant: variant.clone(), points }
    };
    Ok(setup.variants.iter().enumerate().map(line).collect())
}

impl Line {
    fn smallest(&self) -> (f64, Cost) {
        let (size, cost) = self.points[0];
        (f64::from(size.workers()), cost)
    }

    fn largest(&self) -> (f64, Cost) {
        let (size, cost) = self.points[self.points.len() - 1];
        (f64::from(size.workers()), cost)
    }

    /// "from 8 to 1,024 workers"
    fn range(&self) -> String {
        let (from, to) = (self.smallest().0, self.largest().0);
        format!("from {} to {} workers", format_number(from), format_number(to))
    }

    fn series(&self, value: impl Fn(&Cost) -> f64) -> Series {
        let point = |(size, cost): &(Size, Cost)| (f64::from(size.workers()), value(cost));
        Series::line(self.variant.name.clone(), self.points.iter().map(point).collect())
    }
}

fn aggregation_claims(line: &Line, iterations: usize) -> [Claim; 3] {
    let name = &line.variant.name;
    let ((_, smallest), (workers, largest)) = (line.smallest(), line.largest());
    // spec: A-13
    let all = largest.fewest_sums == iterations && workers >= f64::from(PAPER_WORKERS);
    [
        Claim::judged(
            format!("workers of one job that all get every sum, {name}"),
            f64::from(PAPER_WORKERS),
            format!("{}, {} sums each", format_number(workers), largest.fewest_sums),
            format!("{} or more, and no sum missing", format_count(PAPER_WORKERS.into())),
            all,
        ),
        Claim::measured(
            format!(
                "sums that the server receives from {} workers, {name}",
                format_number(workers)
            ),
            NO_NUMBER,
            largest.server.unwrap_or(f64::NAN),
            Unit::Plain,
            Rule::Within { of: 1.0, share: TOLERANCE },
        ),
        Claim::measured(
            format!("growth of the time of an all-reduce {}, {name}", line.range()),
            NO_NUMBER,
            largest.time_us / smallest.time_us,
            Unit::Ratio,
            Rule::AtMost(GROWTH_MAX),
        ),
    ]
}

fn server_claims(line: &Line) -> [Claim; 2] {
    let ((few, smallest), (many, largest)) = (line.smallest(), line.largest());
    [
        Claim::measured(
            format!("growth of the bytes at a parameter server {}", line.range()),
            NO_NUMBER,
            largest.busiest_host / smallest.busiest_host,
            Unit::Ratio,
            Rule::Within { of: many / few, share: TOLERANCE },
        ),
        Claim::measured(
            format!("growth of its time of an all-reduce {}", line.range()),
            NO_NUMBER,
            largest.time_us / smallest.time_us,
            Unit::Ratio,
            Rule::WithinFactor { of: many / few, factor: LINEAR_FACTOR },
        ),
    ]
}

fn time_plot(lines: &[Line]) -> Plot {
    let chart = Chart::new("Time of an all-reduce")
        .x(Axis::log10("workers"))
        .y(Axis::log10("time").unit(Unit::SpanUs))
        .all(lines.iter().map(|line| line.series(|cost| cost.time_us)));
    let caption = "From the moment the gradients are ready until every worker has the sum. Two and three \
                   levels lie on each other; both axes are logarithmic.";
    Plot::new(chart, caption)
}

fn traffic_plot(lines: &[Line]) -> Plot {
    let chart = Chart::new("Traffic into the busiest host")
        .x(Axis::log10("workers"))
        .y(Axis::log10("tensors an iteration"))
        .all(lines.iter().map(|line| line.series(|cost| cost.busiest_host)));
    let caption = "One tensor at the server or a worker in aggregation, about two at a worker in a \
                   ring, one of each worker at a parameter server; both axes are logarithmic.";
    Plot::new(chart, caption)
}

fn table(lines: &[Line]) -> Listing {
    let rows = lines.iter().flat_map(|line| {
        line.points.iter().map(|(size, cost)| (&line.variant.name, size.workers(), cost))
    });
    let sums = |sums: Option<f64>| sums.map_or_else(|| MISSING.to_owned(), format_number);
    let table = Table::by_column(rows)
        .left("sums are made by", |(name, ..)| (*name).clone())
        .right("workers", |(_, workers, _)| format_count(u64::from(*workers)))
        .right("time", |(.., cost)| format_span_us(cost.time_us))
        .right("first", |(.., cost)| format_span_us(cost.first_time_us))
        .right("sums at the server", |(.., cost)| sums(cost.server))
        .right("first", |(.., cost)| sums(cost.first_server))
        .right("tensors into the busiest host", |(.., cost)| format_number(cost.busiest_host))
        .right("over all links, a worker", |(.., cost)| format_number(cost.all_links));
    Listing::new(table, "What an iteration costs, and what the first one did")
}

#[cfg(test)]
mod tests;
