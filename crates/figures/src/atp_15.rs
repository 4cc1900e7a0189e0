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
use thalweg_report::table::{Column, Table};

use crate::{Claim, Context, Figure, FigureError, Findings, Listing, Plot, Rule};
use measure::{Streamed, Trained};

/// How much faster training has to be with congestion control; the paper's is 2.9 times as fast.
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

pub(crate) struct Atp15;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Setup {
    paper_images_per_s: Pair,
    paper_goodput_gbps: Pair,
    enough: f64,
    share: f64,
    steady_up_to: f64,
    unsteady_from: f64,
    /// A scenario without traffic.
    scenario: toml::Table,
    /// What all jobs share.
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

/// What every way came to, in the order of the plan.
struct Measured {
    aggregators: u32,
    streamed: Vec<Streamed>,
    trained: Vec<Trained>,
}

impl Figure for Atp15 {
    fn name(&self) -> &'static str {
        "atp-15"
    }

    fn plan(&self) -> &'static str {
        include_str!("../plans/atp-15.toml")
    }

    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        let setup: Setup = context.plan(self)?;
        setup.check()?;
        let searched = setup.search(&context.part(0.0, 0.3))?;
        let needed = setup.needed(&searched);
        let measured = setup.compare(&context.part(0.3, 1.0), needed)?;
        Ok(Findings {
            claims: setup.claims(&measured),
            plots: vec![setup.plot(&measured)],
            tables: vec![setup.table(&measured), setup.search_table(&searched, needed)],
            not_measured: NOT_MEASURED.map(str::to_owned).into(),
            notes: NOTES.map(str::to_owned).into(),
        })
    }
}

const NOT_MEASURED: [&str; 1] =
    ["the first part of §5.5: congestion control beside other traffic than aggregation"];

const NOTES: [&str; 6] = [
    "Images per second depend on how fast workers compute, which the paper does not give, and on what its \
     hosts reach. Ours are therefore not judged, only their ratio is.",
    "The server's cable has 60 Gbps, which is where the paper's server saturates. Its hosts reach 20 Gbps \
     at best, ours the rate of the cable: so goodput is higher here.",
    "Without congestion control goodput is low here, but does not go up and down. Workers notice loss when \
     something overtakes it, within a round trip, and the cable to the server never runs dry. With a larger \
     window so much is lost that they wait for timeouts, and goodput falls to 0 as in the paper.",
    "The goodput over time is that of a stream of tensors without a pause. The paper averages over a \
     second of training, which covers pauses.",
    "Sizes and computing are divided, timeouts and queues are not: at the end of an iteration what is \
     lost waits for a timeout, which weighs more here than with whole models.",
    "The window without congestion control is four bandwidth-delay products, in the last way sixteen. \
     The paper does not give its own.",
];

impl Setup {
    fn check(&self) -> Result<(), FigureError> {
        let is_timed = self.warm_up_intervals < self.intervals && self.interval_us > 0;
        let is_sized = !self.candidates.is_empty() && self.training.iterations > 1;
        if self.ways.len() == WAYS && is_timed && is_sized {
            return Ok(());
        }
        let reason =
            "give five ways, sizes to try, two iterations, and intervals after the warm-up";
        Err(FigureError::Plan { figure: Atp15.name(), reason: reason.to_owned() })
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
        let mut chart = Chart::new("Goodput of one worker")
            .x(Axis::linear("time").unit(Unit::SpanUs))
            .y(Axis::linear("goodput").unit(Unit::BitsPerSecond));
        for (way, streamed) in self.ways.iter().zip(&measured.streamed) {
            let intervals = streamed.bits_per_s.iter().enumerate();
            let middle_us = |number: usize| (number as f64 + 0.5) * self.interval_us as f64;
            let points = intervals.map(|(number, rate)| (middle_us(number), *rate)).collect();
            chart = chart.series(Series::line(way.name.clone(), points));
        }
        let caption = format!(
            "A stream of tensors with {} aggregators, half of what it needs.",
            format_count(u64::from(measured.aggregators))
        );
        Plot { chart, caption }
    }

    fn table(&self, measured: &Measured) -> Listing {
        let mut table = Table::new([
            Column::left("congestion control"),
            Column::right("images/s a worker"),
            Column::right("paper"),
            Column::right("goodput"),
            Column::right("variation"),
            Column::right("summed in the switch"),
            Column::right("dropped"),
            Column::right("values sent again"),
            Column::right("timeouts"),
        ]);
        let images = self.paper_images_per_s;
        let papers = [Some(images.with), Some(images.without), None, None, None];
        let rows = self.ways.iter().zip(papers).zip(&measured.trained).zip(&measured.streamed);
        for (((way, paper), trained), streamed) in rows {
            table.push([
                way.name.clone(),
                format_number(trained.images_per_s),
                paper.map_or_else(String::new, format_number),
                Unit::BitsPerSecond.format(self.mean_bits_per_s(streamed)),
                Unit::Percent.format(streamed.variation(self.warm_up_intervals)),
                Unit::Percent.format(streamed.summed_share),
                Unit::Percent.format(streamed.dropped_share()),
                format_count(streamed.sent_again),
                format_count(streamed.timeouts),
            ]);
        }
        let caption = format!(
            "A job with {} aggregators; all but images/s is of the stream",
            format_count(u64::from(measured.aggregators))
        );
        Listing { table, caption }
    }

    fn search_table(&self, searched: &[Trained], needed: u32) -> Listing {
        let mut table = Table::new([
            Column::right("aggregators"),
            Column::right("images/s a worker"),
            Column::right("summed in the switch"),
        ]);
        for (size, trained) in self.candidates.iter().zip(searched) {
            table.push([
                format_count(u64::from(*size)),
                format_number(trained.images_per_s),
                Unit::Percent.format(trained.summed_share),
            ]);
        }
        let caption = format!(
            "With congestion control; {} suffice for {} of the throughput with the last",
            format_count(u64::from(needed)),
            Unit::Percent.format(self.enough)
        );
        Listing { table, caption }
    }
}

#[cfg(test)]
mod tests;
