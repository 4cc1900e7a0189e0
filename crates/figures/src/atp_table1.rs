//! ATP, Table 1: a worker that avoids overflow on its own keeps packets from the switch for nothing.
//!
//! With `n` workers and a scale `s` no sum can overflow as long as every value is at most
//! B = (2^31 − n) / (n · s). A worker that knows nothing else flags every packet with a larger value,
//! and flagged packets pass the switch by. Most of them would have fitted.

mod count;
mod gradients;

use serde::Deserialize;
use thalweg_core::Rng;
use thalweg_report::format::{Unit, format_count, format_number, format_percent, format_ratio};
use thalweg_report::plot::{Axis, Chart, Series};
use thalweg_report::table::{Column, Table};
use thalweg_workload::models;

use crate::{Claim, Context, Figure, FigureError, Findings, Listing, Plot, Rule};
use count::{Counts, Job};
use gradients::{Draws, Gradients};

/// Workers that the paper works out a bound for, and that bound.
const PAPER_BOUND: (u32, f64) = (100, 0.2);
/// Doubling the workers halves the bound; the count has to grow by more than the workers do.
const LEAST_GROWTH: f64 = 2.0;
/// How far the growth over all rows may be from the paper's: the tail is ours.
const GROWTH_FACTOR: f64 = 3.0;

pub(crate) struct AtpTable1;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Setup {
    model: String,
    workers: Vec<u32>,
    paper_false_positives: Vec<f64>,
    values_a_packet: u64,
    scale: f64,
    images_an_epoch: f64,
    images_a_worker: f64,
    gradients: Gradients,
    share_of_epoch: f64,
    other_tails: Vec<OtherTail>,
    other_share_of_epoch: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OtherTail {
    tail: f64,
    unit: f64,
}

/// One row of the table: packets an epoch.
struct Row {
    workers: u32,
    packets: f64,
    flagged: f64,
    false_positives: f64,
}

impl Figure for AtpTable1 {
    fn name(&self) -> &'static str {
        "atp-table1"
    }

    fn plan(&self) -> &'static str {
        include_str!("../plans/atp-table1.toml")
    }

    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        let setup: Setup = context.plan(self)?;
        let tensors = setup.check(self)?;
        let main_part = if setup.other_tails.is_empty() { 1.0 } else { 0.8 };
        let main = context.part(0.0, main_part);
        let rows = setup.rows(&main, &tensors, setup.gradients, setup.share_of_epoch)?;
        let mut tables = vec![setup.table(&rows)];
        if !setup.other_tails.is_empty() {
            let others = setup.other_tails(&context.part(main_part, 1.0), &tensors)?;
            tables.push(Listing { table: others, caption: OTHER_TAILS.to_owned() });
        }
        Ok(Findings {
            claims: setup.claims(&rows),
            plots: vec![setup.plot(&rows)],
            tables,
            not_measured: NOT_MEASURED.map(str::to_owned).into(),
            notes: NOTES.map(str::to_owned).into(),
        })
    }
}

const OTHER_TAILS: &str = "How much hangs on the generator's tail";

const NOT_MEASURED: [&str; 1] = [
    "gradients of a real training: ours are generated, so that the absolute numbers say little and \
     are not judged",
];

const NOTES: [&str; 4] = [
    "The growth is a property of the gradients, not of the mechanism: far out our values fall with the \
     power `tail` of their size, and each halving of the bound B multiplies the count by up to 2 to \
     the power `tail`. Tail and body are our choice, made so that the counts come out near the \
     paper's, so that agreement in size is no evidence. That the count outgrows the workers needs \
     only a tail that falls faster than 1 / x.",
    "The generator's unit is set by the one statistic of ResNet50's gradients that the paper gives: \
     18% of the values lie below 1e-5.",
    "The paper's last doubling is its steepest. No power tail does that: ours flattens slightly.",
    "Values whose amplitude is below B / 6 are not drawn: less than one in a hundred million of them \
     would be flagged, and without that they cannot overflow.",
];

impl Setup {
    /// The sizes of the model's tensors, if the plan fits together.
    fn check(&self, figure: &AtpTable1) -> Result<Vec<u64>, FigureError> {
        let mistake =
            |reason: &str| FigureError::Plan { figure: figure.name(), reason: reason.to_owned() };
        if self.workers.len() < 2 || self.workers.contains(&0) || self.values_a_packet == 0 {
            return Err(mistake("give at least two numbers of workers, and packets with values"));
        }
        if self.workers.len() != self.paper_false_positives.len() {
            return Err(mistake("paper-false-positives needs one number for each of workers"));
        }
        let model =
            models::by_name(&self.model).ok_or_else(|| mistake("there is no such model"))?;
        Ok(model.tensors().iter().map(|tensor| tensor.values).collect())
    }

    /// A row for every number of workers, scaled up to an epoch.
    fn rows(
        &self,
        context: &Context<'_>,
        tensors: &[u64],
        gradients: Gradients,
        share_of_epoch: f64,
    ) -> Result<Vec<Row>, FigureError> {
        let mut items = Vec::new();
        for &workers in &self.workers {
            let share = self.iterations_an_epoch(workers) * share_of_epoch;
            let iterations = libm::ceil(share).max(1.0) as u64;
            items.extend((0..iterations).map(|iteration| (workers, iteration)));
        }
        let label = |(workers, _): &(u32, u64)| format!("{workers} workers");
        let counts = context.each(&items, label, |&(workers, iteration), _| {
            let stream = format!("tail {}, {workers} workers", gradients.tail);
            let rng = Rng::new(context.seed).stream(&stream).substream("iteration", iteration);
            Ok(self.job(workers, gradients).iteration(tensors, &mut Draws::new(rng)))
        })?;
        let row = |&workers: &u32| {
            let of_row = items.iter().zip(&counts).filter(|((of, _), _)| *of == workers);
            let (mut sum, mut iterations) = (Counts::default(), 0.0);
            for (_, counts) in of_row {
                sum += *counts;
                iterations += 1.0;
            }
            let to_epoch = self.iterations_an_epoch(workers) / iterations;
            Row {
                workers,
                packets: sum.packets as f64 * to_epoch,
                flagged: sum.flagged as f64 * to_epoch,
                false_positives: sum.false_positives as f64 * to_epoch,
            }
        };
        Ok(self.workers.iter().map(row).collect())
    }

    fn iterations_an_epoch(&self, workers: u32) -> f64 {
        self.images_an_epoch / (self.images_a_worker * f64::from(workers))
    }

    fn job(&self, workers: u32, gradients: Gradients) -> Job {
        Job { gradients, workers, values_a_packet: self.values_a_packet, scale: self.scale }
    }

    fn claims(&self, rows: &[Row]) -> Vec<Claim> {
        let ours: Vec<f64> = rows.iter().map(|row| row.false_positives).collect();
        let paper = &self.paper_false_positives;
        let (workers, bound) = PAPER_BOUND;
        let mut claims = vec![
            Claim::measured(
                format!("the bound B for {workers} workers"),
                bound,
                self.job(workers, self.gradients).bound(),
                Unit::Plain,
                Rule::Within { of: bound, share: 0.1 },
            ),
            Claim::rising("more workers, more false positives", list(paper), &ours, Unit::Plain),
        ];
        let growth = |from: usize, to: usize, rule| {
            let (first, last) = (self.workers[from], self.workers[to]);
            Claim::measured(
                format!("growth from {first} to {last} workers"),
                paper[to] / paper[from],
                ours[to] / ours[from],
                Unit::Ratio,
                rule,
            )
        };
        let last = rows.len() - 1;
        claims.extend((0..last).map(|row| growth(row, row + 1, Rule::AtLeast(LEAST_GROWTH))));
        let overall = Rule::WithinFactor { of: paper[last] / paper[0], factor: GROWTH_FACTOR };
        claims.push(growth(0, last, overall));
        claims
    }

    fn table(&self, rows: &[Row]) -> Listing {
        let mut table = Table::new([
            Column::right("workers"),
            Column::right("bound B"),
            Column::right("packets"),
            Column::right("flagged"),
            Column::right("false positives"),
            Column::right("of the flagged"),
            Column::right("paper"),
        ]);
        for (row, paper) in rows.iter().zip(&self.paper_false_positives) {
            table.push([
                row.workers.to_string(),
                format_number(self.job(row.workers, self.gradients).bound()),
                format_number(row.packets),
                format_number(row.flagged),
                format_number(row.false_positives),
                format_percent(row.false_positives / row.flagged),
                format_number(*paper),
            ]);
        }
        Listing { table, caption: "Packets an epoch, over all workers".to_owned() }
    }

    fn other_tails(&self, context: &Context<'_>, tensors: &[u64]) -> Result<Table, FigureError> {
        let mut table = Table::new([
            Column::right("tail"),
            Column::right(format!("at {} workers", self.workers[0])),
            Column::right("growth over all rows"),
        ]);
        for (index, other) in self.other_tails.iter().enumerate() {
            let share = 1.0 / self.other_tails.len() as f64;
            let part = context.part(index as f64 * share, (index + 1) as f64 * share);
            let gradients = Gradients { tail: other.tail, unit: other.unit, ..self.gradients };
            let rows = self.rows(&part, tensors, gradients, self.other_share_of_epoch)?;
            let (first, last) = (&rows[0], &rows[rows.len() - 1]);
            table.push([
                format_number(other.tail),
                format_count(first.false_positives as u64),
                format_ratio(last.false_positives / first.false_positives),
            ]);
        }
        Ok(table)
    }

    fn plot(&self, rows: &[Row]) -> Plot {
        let points = |values: Vec<f64>| values.into_iter().enumerate().map(|(x, y)| (x as f64, y));
        let ours = rows.iter().map(|row| row.false_positives).collect();
        let names = rows.iter().map(|row| row.workers.to_string());
        let paper = points(self.paper_false_positives.clone()).collect();
        let chart = Chart::new("False positives an epoch")
            .x(Axis::categories("workers", names))
            .y(Axis::log10("packets"))
            .series(Series::line("paper", paper))
            .series(Series::line("ours, generated gradients", points(ours).collect()));
        let caption = "Flagged packets whose sum would have fitted; the axis is logarithmic.";
        Plot { chart, caption: caption.to_owned() }
    }
}

fn list(numbers: &[f64]) -> String {
    numbers.iter().map(|number| format_number(*number)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
