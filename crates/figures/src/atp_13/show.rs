//! From runs to claims, charts and tables.

use thalweg_report::format::{Unit, format_count, format_number, format_ratio};
use thalweg_report::plot::{Axis, Chart, Series};
use thalweg_report::table::Table;

use super::phases::{convergence, with_and_without};
use super::{Cell, Results, Setup, Trained};
use crate::tenants::{Interval, Merges, Sharing};
use crate::{Claim, Findings, Listing, Plot, Rule};

/// What the paper says of the worst shortage.
const PAPER_GAIN: f64 = 1.38;
/// What counts as clearly ahead.
const LEAST_GAIN: f64 = 1.2;
/// The upper end of what half of the aggregators cost in the paper.
const MOST_COST: f64 = 0.1;
/// What counts as no worse.
const AS_GOOD: f64 = 0.95;
/// What may be left to the server once indices have moved apart.
const MOST_LEFT: f64 = 0.05;
/// How many intervals are the beginning.
const FIRST_INTERVALS: usize = 5;

const SHARINGS: [Sharing; 4] =
    [Sharing::Static, Sharing::SwitchMl, Sharing::Dynamic, Sharing::Selective];

impl Results {
    fn trained(&self, sharing: Sharing, share: f64, unevenness: Option<&str>) -> Option<&Trained> {
        let wanted = Cell { share, sharing, unevenness: unevenness.map(str::to_owned) };
        self.cells.iter().find(|(cell, _)| *cell == wanted).map(|(_, trained)| trained)
    }

    /// Images a second of each worker.
    fn images(&self, sharing: Sharing, share: f64, unevenness: Option<&str>) -> f64 {
        self.trained(sharing, share, unevenness).map_or(f64::NAN, |run| run.images_per_s)
    }

    /// How much faster than with fixed shares.
    fn gain(&self, sharing: Sharing, share: f64, unevenness: Option<&str>) -> f64 {
        let fixed = self.images(Sharing::Static, share, unevenness);
        self.images(sharing, share, unevenness) / fixed
    }

    fn intervals(&self, share: f64) -> &[Interval] {
        self.trained(Sharing::Dynamic, share, None).map_or(&[], |run| &run.intervals)
    }
}

impl Setup {
    pub(super) fn findings(&self, results: &Results) -> Findings {
        let mut tables = vec![self.throughputs(results)];
        if !self.unevenness.is_empty() {
            tables.push(self.out_of_step(results));
        }
        Findings {
            claims: self.claims(results),
            plots: vec![
                self.plot(results),
                series(
                    "Additions at the server",
                    "All aggregators: collisions at first, then none",
                    results.intervals(1.0),
                    |merges| merges.at_server,
                ),
                series(
                    "Additions in the switch",
                    "The fewest aggregators: while one job computes, the others get more",
                    results.intervals(self.least()),
                    |merges| merges.at_switch,
                ),
            ],
            tables,
        }
    }

    fn claims(&self, results: &Results) -> Vec<Claim> {
        let (half, least) = (self.half(), self.least());
        let percent = |share: f64| Unit::Percent.format(share);
        let gain = |share| results.gain(Sharing::Dynamic, share, None);
        let gains: Vec<f64> = self.shares.iter().map(|&share| gain(share)).collect();
        let images = |share| results.images(Sharing::Dynamic, share, None);
        let (first, last) = convergence(results.intervals(1.0), FIRST_INTERVALS);
        let phases = with_and_without(results.intervals(least));
        let mut claims = vec![
            Claim::measured(
                "all aggregators: dynamic over static",
                "about the same",
                gains[0],
                Unit::Ratio,
                Rule::AtLeast(AS_GOOD),
            ),
            Claim::rising("the fewer, the further ahead", "so drawn", &gains, Unit::Ratio),
            Claim::measured(
                format!("{} of them: dynamic over static", percent(least)),
                PAPER_GAIN,
                gain(least),
                Unit::Ratio,
                Rule::AtLeast(LEAST_GAIN),
            ),
            Claim::measured(
                format!("{} of them cost dynamic", percent(half)),
                "5 to 10%",
                1.0 - images(half) / images(1.0),
                Unit::Percent,
                Rule::AtMost(MOST_COST),
            ),
            Claim::measured(
                "additions left to the server at the end, with all aggregators",
                "none",
                last,
                Unit::Percent,
                Rule::AtMost(MOST_LEFT),
            ),
            Claim::rising("fewer than at the beginning", "so drawn", &[last, first], Unit::Percent),
            Claim::measured(
                "additions in the switch while another job is off, over those while none is",
                "more",
                phases.map_or(f64::NAN, |(with, without)| without / with),
                Unit::Ratio,
                Rule::AtLeast(1.1),
            ),
        ];
        if let Some(up_to) = self.unevenness.first() {
            let uneven = |sharing: Sharing| {
                let text =
                    format!("{}, out of step by {up_to}: {}", percent(least), sharing.name());
                let gain = results.gain(sharing, least, Some(up_to));
                let text = format!("{text} over static");
                Claim::measured(text, PAPER_GAIN, gain, Unit::Ratio, Rule::AtLeast(1.0))
            };
            claims.extend([Sharing::Dynamic, Sharing::Selective].map(uneven));
        }
        claims
    }

    fn plot(&self, results: &Results) -> Plot {
        let names = self.shares.iter().map(|&share| Unit::Percent.format(share));
        let curve = |sharing: Sharing| {
            let images = self.shares.iter().map(|&share| results.images(sharing, share, None));
            Series::curve(sharing.name(), images)
        };
        let chart = Chart::new("Training throughput")
            .x(Axis::categories("of the peak throughput aggregators", names))
            .y(Axis::linear("images a second and worker"))
            .all(SHARINGS.map(curve));
        Plot::new(chart, "With fixed shares, half of the aggregators are half of the window.")
    }

    fn throughputs(&self, results: &Results) -> Listing {
        let aggregators = |share: f64| (f64::from(results.peak_aggregators) * share) as u64;
        let mut table = Table::by_column(&self.shares)
            .right("share", |share| Unit::Percent.format(**share))
            .right("aggregators", |share| format_count(aggregators(**share)));
        for one in SHARINGS {
            let images = |share| results.images(one, share, None);
            table = table.right(one.name(), |share| format_number(images(**share)));
        }
        let gain = |share| results.gain(Sharing::Dynamic, share, None);
        let table = table.right("dynamic over static", |share| format_ratio(gain(**share)));
        Listing::new(table, "Images a second and worker, workers in step")
    }

    fn out_of_step(&self, results: &Results) -> Listing {
        let shares = [1.0, self.half(), self.least()];
        let rows = self.unevenness.iter().flat_map(|up_to| shares.map(|share| (up_to, share)));
        let images = |sharing: Sharing, &(up_to, share): &(&String, f64)| {
            format_number(results.images(sharing, share, Some(up_to)))
        };
        let gain = |sharing: Sharing, &(up_to, share): &(&String, f64)| {
            format_ratio(results.gain(sharing, share, Some(up_to)))
        };
        let table = Table::by_column(rows)
            .right("out of step by", |(up_to, _)| (*up_to).clone())
            .right("share", |(_, share)| Unit::Percent.format(*share))
            .right("static", |row| images(Sharing::Static, row))
            .right("dynamic", |row| images(Sharing::Dynamic, row))
            .right("over static", |row| gain(Sharing::Dynamic, row))
            .right("selective repair", |row| images(Sharing::Selective, row))
            .right("over static", |row| gain(Sharing::Selective, row));
        Listing::new(table, "Images a second and worker, workers out of step")
    }
}

fn series(title: &str, caption: &str, intervals: &[Interval], of: fn(&Merges) -> u64) -> Plot {
    let steps = |job: usize| {
        let points = intervals.iter().enumerate();
        let points = points.map(|(at, interval)| (at as f64, of(&interval[job]) as f64));
        Series::step(format!("job {}", job + 1), points.collect())
    };
    let chart = Chart::new(title)
        .x(Axis::linear("interval"))
        .y(Axis::linear("additions of an interval"))
        .all((0..intervals.first().map_or(0, Vec::len)).map(steps));
    Plot::new(chart, caption)
}
