//! ATP, Figure 15: a job with half of the aggregators that it needs, with congestion control and
//! without.
//!
//! What finds no aggregator goes to the server from all workers at once. With congestion control
//! windows shrink until the aggregators suffice; without it the queue to the server overflows, and
//! what is sent again overflows it again.

mod measure;

use serde::Deserialize;
use thalweg_report::format::{Unit, format_count, format_number};
use thalweg_report::plot::{Axis, Chart, Series};
use thalweg_report::table::Table;

use crate::frame::figure::Form;
use crate::{Claim, Context, FigureError, Findings, Listing, Plot, Rule};
use measure::{Streamed, Trained};

/// Smallest speed-up of training with congestion control; the paper's is 2.9.
const LEAST_SPEEDUP: f64 = 2.0;
/// Congestion control is there to avoid loss.
const MOST_DROPPED: f64 = 0.001;

/// The ways, in the order of the plan.
const WITH: usize = 0;
const WITHOUT: usize = 1;
const SELECTIVE_WITH: usize = 2;
const SELECTIVE_WITHOUT: usize = 3;
const LARGER_WITHOUT: usize = 4;
const WAYS: usize = 5;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Setup {
    paper_images_per_s: Pair,
    paper_goodput_gbps: Pair,
    enough: f64,
    share: f64,
    steady_up_to: f64,
    unsteady_from: f64,
    /// A scenario without traffic.
    scenario: toml::Table,
    /// Settings that all jobs share.
    job: toml::Table,
    stream: toml::Table,
    ways: Vec<Way>,
    training: Training,
    candidates: Vec<u32>,
    interval_us: u64,
    intervals: usize,
    warm_up_intervals: usize,
}

/// With congestion control and without.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pair {
    with: f64,
    without: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Way {
    name: String,
    aggregation: toml::Table,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Training {
    model: String,
    batch: u32,
    flops_per_s: f64,
    bucket_bytes: u64,
    divisor: u32,
    iterations: u64,
}

/// Results of every way, in the order of the plan.
struct Measured {
    aggregators: u32,
    streamed: Vec<Streamed>,
    trained: Vec<Trained>,
}

impl Form for Setup {
    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        self.check(context)?;
        let searched = self.search(&context.part(0.0, 0.3))?;
        let needed = self.needed(&searched);
        let measured = self.compare(&context.part(0.3, 1.0), needed)?;
        Ok(Findings {
            claims: self.claims(&measured),
            plots: vec![self.plot(&measured)],
            tables: vec![self.table(&measured), self.search_table(&searched, needed)],
        })
    }
}

impl Setup {
    fn check(&self, context: &Context<'_>) -> Result<(), FigureError> {
        let is_timed = self.warm_up_intervals < self.intervals && self.interval_us > 0;
        let is_sized = !self.candidates.is_empty() && self.training.iterations > 1;
        if self.ways.len() == WAYS && is_timed && is_sized {
            return Ok(());
        }
        Err(context.mistake(
            "give five ways, sizes to try, two iterations, and intervals after the warm-up",
        ))
    }

    /// The fewest aggregators that suffice.
    fn needed(&self, searched: &[Trained]) -> u32 {
        let best = searched.last().map_or(0.0, |trained| trained.images_per_s);
        let mut sizes = self.candidates.iter().zip(searched);
        let found = sizes.find(|(_, trained)| trained.images_per_s >= self.enough * best);
        found.map_or(0, |(size, _)| *size)
    }

    fn claims(&self, measured: &Measured) -> Vec<Claim> {
        let images = |way: usize| measured.trained[way].images_per_s;
        let mean = |way: usize| self.mean_bits_per_s(&measured.streamed[way]);
        let (paper_images, paper_goodput) = (self.paper_images_per_s, self.paper_goodput_gbps);
        let mut claims = vec![
            Claim::measured(
                "training throughput with congestion control, against without",
                paper_images.with / paper_images.without,
                images(WITH) / images(WITHOUT),
                Unit::Ratio,
                Rule::AtLeast(LEAST_SPEEDUP),
            ),
            Claim::measured(
                "goodput of a worker with congestion control, against without",
                format!("{} Gbps against 0 to {} Gbps", paper_goodput.with, paper_goodput.without),
                mean(WITH) / mean(WITHOUT),
                Unit::Ratio,
                Rule::AtLeast(paper_goodput.with / paper_goodput.without),
            ),
            Claim::measured(
                "packets that the switch drops with congestion control",
                "it avoids loss",
                measured.streamed[WITH].dropped_share(),
                Unit::Percent,
                Rule::AtMost(MOST_DROPPED),
            ),
            Claim::measured(
                "the same ratio of training throughput with selective repair",
                "not in the paper",
                images(SELECTIVE_WITH) / images(SELECTIVE_WITHOUT),
                Unit::Ratio,
                Rule::AtLeast(LEAST_SPEEDUP),
            ),
        ];
        claims.extend(self.claims_of_steadiness(measured));
        claims
    }

    fn claims_of_steadiness(&self, measured: &Measured) -> [Claim; 3] {
        let claim = |text: &str, paper: &str, way: usize, rule| {
            let variation = measured.streamed[way].variation(self.warm_up_intervals);
            let text = format!("standard deviation of goodput {text}, by its mean");
            Claim::measured(text, paper, variation, Unit::Percent, rule)
        };
        let (steady, unsteady) =
            (Rule::AtMost(self.steady_up_to), Rule::AtLeast(self.unsteady_from));
        [
            claim("with congestion control", "steady", WITH, steady),
            claim("without", "up to 4 Gbps and down to 0", WITHOUT, unsteady),
            claim("without, larger window", "its window is not known", LARGER_WITHOUT, unsteady),
        ]
    }

    fn mean_bits_per_s(&self, streamed: &Streamed) -> f64 {
        streamed.mean_bits_per_s(self.warm_up_intervals)
    }

    fn plot(&self, measured: &Measured) -> Plot {
        let line = |(way, streamed): (&Way, &Streamed)| {
            let intervals = streamed.bits_per_s.iter().enumerate();
            let middle_us = |number: usize| (number as f64 + 0.5) * self.interval_us as f64;
            let points = intervals.map(|(number, rate)| (middle_us(number), *rate)).collect();
            Series::line(way.name.clone(), points)
        };
        let chart = Chart::new("Goodput of one worker")
            .x(Axis::linear("time").unit(Unit::SpanUs))
            .y(Axis::linear("goodput").unit(Unit::BitsPerSecond))
            .all(self.ways.iter().zip(&measured.streamed).map(line));
        let caption = format!(
            "A stream of tensors with {} aggregators, half of what it needs.",
            format_count(u64::from(measured.aggregators))
        );
        Plot::new(chart, caption)
    }

    fn table(&self, measured: &Measured) -> Listing {
        let images = self.paper_images_per_s;
        let papers = [Some(images.with), Some(images.without), None, None, None];
        let rows =
            self.ways.iter().zip(papers).zip(measured.trained.iter().zip(&measured.streamed));
        let percent = |share: f64| Unit::Percent.format(share);
        let goodput = |it: &Streamed| Unit::BitsPerSecond.format(self.mean_bits_per_s(it));
        let warm_up = self.warm_up_intervals;
        let table = Table::by_column(rows)
            .left("congestion control", |((way, _), _)| way.name.clone())
            .right("images/s a worker", |(_, (it, _))| format_number(it.images_per_s))
            .right("paper", |((_, paper), _)| paper.map_or_else(String::new, format_number))
            .right("goodput", |(_, (_, it))| goodput(it))
            .right("variation", |(_, (_, it))| percent(it.variation(warm_up)))
            .right("summed in the switch", |(_, (_, it))| percent(it.summed_share))
            .right("dropped", |(_, (_, it))| percent(it.dropped_share()))
            .right("values sent again", |(_, (_, it))| format_count(it.sent_again))
            .right("timeouts", |(_, (_, it))| format_count(it.timeouts));
        let caption = format!(
            "A job with {} aggregators; all but images/s is of the stream",
            format_count(u64::from(measured.aggregators))
        );
        Listing::new(table, caption)
    }

    fn search_table(&self, searched: &[Trained], needed: u32) -> Listing {
        let table = Table::by_column(self.candidates.iter().zip(searched))
            .right("aggregators", |(size, _)| format_count(u64::from(**size)))
            .right("images/s a worker", |(_, it)| format_number(it.images_per_s))
            .right("summed in the switch", |(_, it)| Unit::Percent.format(it.summed_share));
        let caption = format!(
            "With congestion control; {} suffice for {} of the throughput with the last",
            format_count(u64::from(needed)),
            Unit::Percent.format(self.enough)
        );
        Listing::new(table, caption)
    }
}

#[cfg(test)]
mod tests;
