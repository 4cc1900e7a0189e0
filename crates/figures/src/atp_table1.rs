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
use thalweg_report::table::Table;

use crate::frame::figure::Form;
use crate::shrink::known_model;
use crate::{Claim, Context, FigureError, Findings, Listing, Plot, Rule};
use count::{Counts, Job};
use gradients::{Draws, Gradients};

/// Workers that the paper works out a bound for, and that bound.
const PAPER_BOUND: (u32, f64) = (100, 0.2);
/// Doubling the workers halves the bound; the count has to grow by more than the workers do.
const LEAST_GROWTH: f64 = 2.0;
/// How far the growth over all rows may be from the paper's: the tail is ours.
const GROWTH_FACTOR: f64 = 3.0;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Setup {
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

impl Form for Setup {
    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        let tensors = self.check(context)?;
        let main_part = if self.other_tails.is_empty() { 1.0 } else { 0.8 };
        let main = context.part(0.0, main_part);
        let rows = self.rows(&main, &tensors, self.gradients, self.share_of_epoch)?;
        let mut tables = vec![self.table(&rows)];
        if !self.other_tails.is_empty() {
            tables.push(self.other_tails(&context.part(main_part, 1.0), &tensors)?);
        }
        Ok(Findings { claims: self.claims(&rows), plots: vec![self.plot(&rows)], tables })
    }
}

impl Setup {
    /// The sizes of the model's tensors, if the plan fits together.
    fn check(&self, context: &Context<'_>) -> Result<Vec<u64>, FigureError> {
        if self.workers.len() < 2 || self.workers.contains(&0) || self.values_a_packet == 0 {
            let reason = "give at least two numbers of workers, and packets with values";
            return Err(context.mistake(reason));
        }
        if self.workers.len() != self.paper_false_positives.len() {
            let reason = "paper-false-positives needs one number for each of workers";
            return Err(context.mistake(reason));
        }
        let model = known_model(context, &self.model)?;
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
        let bound = |workers: u32| self.job(workers, self.gradients).bound();
        let table = Table::by_column(rows.iter().zip(&self.paper_false_positives))
            .right("workers", |(row, _)| row.workers.to_string())
            .right("bound B", |(row, _)| format_number(bound(row.workers)))
            .right("packets", |(row, _)| format_number(row.packets))
            .right("flagged", |(row, _)| format_number(row.flagged))
            .right("false positives", |(row, _)| format_number(row.false_positives))
            .right("of the flagged", |(row, _)| format_percent(row.false_positives / row.flagged))
            .right("paper", |(_, paper)| format_number(**paper));
        Listing::new(table, "Packets an epoch, over all workers")
    }

    fn other_tails(&self, context: &Context<'_>, tensors: &[u64]) -> Result<Listing, FigureError> {
        let mut tails = Vec::new();
        for (index, other) in self.other_tails.iter().enumerate() {
            let share = 1.0 / self.other_tails.len() as f64;
            let part = context.part(index as f64 * share, (index + 1) as f64 * share);
            let gradients = Gradients { tail: other.tail, unit: other.unit, ..self.gradients };
            let rows = self.rows(&part, tensors, gradients, self.other_share_of_epoch)?;
            let ends = [&rows[0], &rows[rows.len() - 1]].map(|row| row.false_positives);
            tails.push((other.tail, ends));
        }
        let table = Table::by_column(tails)
            .right("tail", |(tail, _)| format_number(*tail))
            .right(format!("at {} workers", self.workers[0]), |(_, [first, _])| {
                format_count(*first as u64)
            })
            .right("growth over all rows", |(_, [first, last])| format_ratio(last / first));
        Ok(Listing::new(table, "How much hangs on the generator's tail"))
    }

    fn plot(&self, rows: &[Row]) -> Plot {
        let paper = self.paper_false_positives.iter().copied();
        let ours = rows.iter().map(|row| row.false_positives);
        let names = rows.iter().map(|row| row.workers.to_string());
        let chart = Chart::new("False positives an epoch")
            .x(Axis::categories("workers", names))
            .y(Axis::log10("packets"))
            .series(Series::curve("paper", paper))
            .series(Series::curve("ours, generated gradients", ours));
        Plot::new(chart, "Flagged packets whose sum would have fitted; the axis is logarithmic.")
    }
}

fn list(numbers: &[f64]) -> String {
    numbers.iter().map(|number| format_number(*number)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
