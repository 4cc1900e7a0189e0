//! Ours: what a sum costs as the workers of a job grow in number.
//!
//! In-network aggregation sends the server one sum, however many workers there are, and takes as long
//! for 1,024 of them as for 8. A parameter server receives a tensor from each and takes as much longer.
//! A ring sends every worker about two tensors, over ever more steps.

mod measure;

use thalweg_report::format::{MISSING, Unit, format_count, format_number, format_span_us};
use thalweg_report::plot::{Axis, Chart, Series};
use thalweg_report::table::{Column, Table};

use crate::{Claim, Context, Figure, FigureError, Findings, Listing, Plot, Rule};
use measure::{Cost, Setup, Size, Variant};

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

pub(crate) struct AtpScale;

/// All sizes of a variant.
struct Line {
    variant: Variant,
    points: Vec<(Size, Cost)>,
}

impl Figure for AtpScale {
    fn name(&self) -> &'static str {
        "atp-scale"
    }

    fn plan(&self) -> &'static str {
        include_str!("../plans/atp-scale.toml")
    }

    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        let setup: Setup = context.plan(self)?;
        let mistake =
            |reason: &str| FigureError::Plan { figure: self.name(), reason: reason.to_owned() };
        setup.check().map_err(mistake)?;
        let lines = lines(&setup, context, self.name())?;
        let find = |name: &str| {
            let line = lines.iter().find(|line| line.variant.name == name);
            line.ok_or_else(|| mistake(&format!("variants need one that is called {name:?}")))
        };
        let aggregation = [find("two levels")?, find("three levels")?];
        let mut claims = Vec::new();
        for line in aggregation {
            claims.extend(aggregation_claims(line, setup.iterations()));
        }
        claims.extend(server_claims(find("parameter server")?));
        Ok(Findings {
            claims,
            plots: vec![time_plot(&lines), traffic_plot(&lines)],
            tables: vec![table(&lines)],
            not_measured: Vec::new(),
            notes: NOTES.map(str::to_owned).into(),
        })
    }
}

const NOTES: [&str; 5] = [
    "The paper has no such figure: it measures 8 workers. That 1,024 can take part (requirement A-13) \
     is shown here.",
    "Judged is an iteration after the first. In the first one, fragments collide whose indices are \
     hashed to the same aggregator, and each of them costs the server a packet of every worker: 1,024 \
     in place of 1. The column \"first\" shows it. Afterwards such fragments have other aggregators.",
    "In two levels every rack sends its sum to the server's rack and gets the result from there: of 32 \
     racks that is as much as 32 hosts can send. Uplinks that carry just that do so on average only, \
     because flows share them by hash: some get more than they carry, and everybody waits for those. In \
     three levels a pod sends one sum, and this does not happen.",
    "The parameter server is one host, as it is for aggregation. Over many hosts it would send and \
     receive what a ring does, in fewer steps.",
    "Everyone sends full frames of 1,408 bytes of values, not the paper's packets of 62 values, so that \
     numbers can be compared.",
];

/// Runs every variant at every size.
fn lines(
    setup: &Setup,
    context: &Context<'_>,
    figure: &'static str,
) -> Result<Vec<Line>, FigureError> {
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
    let costs = context.each(&items, name, |&(at, size), point| {
        setup.measure(figure, (&setup.variants[at], size), context.seed, point)
    })?;
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
        .y(Axis::log10("time").unit(Unit::SpanUs));
    let chart =
        lines.iter().map(|line| line.series(|cost| cost.time_us)).fold(chart, Chart::series);
    let caption = "From the moment the gradients are ready until every worker has the sum. Two and three \
                   levels lie on each other; both axes are logarithmic.";
    Plot { chart, caption: caption.to_owned() }
}

fn traffic_plot(lines: &[Line]) -> Plot {
    let chart = Chart::new("Traffic into the busiest host")
        .x(Axis::log10("workers"))
        .y(Axis::log10("tensors an iteration"));
    let chart =
        lines.iter().map(|line| line.series(|cost| cost.busiest_host)).fold(chart, Chart::series);
    let caption = "One tensor at the server or a worker in aggregation, about two at a worker in a \
                   ring, one of each worker at a parameter server; both axes are logarithmic.";
    Plot { chart, caption: caption.to_owned() }
}

fn table(lines: &[Line]) -> Listing {
    let mut table = Table::new([
        Column::left("sums are made by"),
        Column::right("workers"),
        Column::right("time"),
        Column::right("first"),
        Column::right("sums at the server"),
        Column::right("first"),
        Column::right("tensors into the busiest host"),
        Column::right("over all links, a worker"),
    ]);
    let sums = |sums: Option<f64>| sums.map_or_else(|| MISSING.to_owned(), format_number);
    for line in lines {
        for (size, cost) in &line.points {
            table.push([
                line.variant.name.clone(),
                format_count(size.workers().into()),
                format_span_us(cost.time_us),
                format_span_us(cost.first_time_us),
                sums(cost.server),
                sums(cost.first_server),
                format_number(cost.busiest_host),
                format_number(cost.all_links),
            ]);
        }
    }
    Listing { table, caption: "What an iteration costs, and what the first one did".to_owned() }
}

#[cfg(test)]
mod tests;
