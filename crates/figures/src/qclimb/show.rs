//! Drawings and tables.

use thalweg_report::format::{Unit, format_count, format_number};
use thalweg_report::plot::{Axis, Chart};
use thalweg_report::table::{ByColumn, Table};

use super::claims::Metric;
use super::run::Flows;
use super::{Cell, Gain, Measured, Place, Results, Setup};
use crate::{Listing, Plot};

impl Setup {
    /// For each workload what the plan wants drawn, by load, or by arm where there is one load.
    pub(super) fn plots(&self, results: &Results<'_>) -> Vec<Plot> {
        let mut plots = Vec::new();
        for workload in &self.workloads {
            plots.extend(self.drawn.iter().map(|metric| self.plot(results, workload, *metric)));
        }
        plots
    }

    fn plot(&self, results: &Results<'_>, workload: &str, metric: Metric) -> Plot {
        let loads = self.loads.iter().map(|load| format_number(*load));
        let chart = Chart::new(format!("{workload}: {}", metric.name()))
            .x(Axis::categories("load", loads))
            .y(Axis::linear(metric.name()).unit(metric.unit()));
        let places: Vec<Place<'_>> = self.places_of(workload).collect();
        let chart = results.bars(chart, &self.arms, &places, |measured| metric.of(measured));
        Plot::new(chart, format!("{}, for each load and each way.", metric.name()))
    }

    pub(super) fn tables(&self, results: &Results<'_>) -> Vec<Listing> {
        let gains = (!self.gains.is_empty()).then(|| self.gains_listing(results));
        let mut tables: Vec<Listing> = gains.into_iter().collect();
        tables.push(Listing::new(times(runs(results)), "How long flows took"));
        tables.push(Listing::new(packets(runs(results)), "What was lost, and what waited"));
        if results.rows().any(|(_, measured)| measured.times(Flows::All, true).flows > 0) {
            let caption = "How long the flows beside them took";
            tables.push(Listing::new(beside(runs(results)), caption));
        }
        tables
    }

    fn gains_listing(&self, results: &Results<'_>) -> Listing {
        let of_gain = |gain| self.places().map(move |place| (gain, place));
        let rows = self.gains.iter().flat_map(of_gain).filter_map(|(gain, place): (&Gain, _)| {
            Some((gain, place, results.of(place, &gain.than)?, results.of(place, &gain.of)?))
        });
        let lower = |metric: Metric, than: &Measured, of: &Measured| {
            Unit::Percent.format(1.0 - metric.of(of) / metric.of(than))
        };
        let timeouts = |it: &Measured| format_count(it.timeouts[Flows::Small as usize]);
        let table = Table::by_column(rows)
            .left("what if", |(gain, ..)| gain.what_if.clone())
            .left("workload", |(_, place, ..)| place.workload.to_owned())
            .right("load", |(_, place, ..)| format_number(place.load))
            .right("mean lower by", |(.., than, of)| lower(Metric::SmallMean, than, of))
            .right("p99 lower by", |(.., than, of)| lower(Metric::SmallP99, than, of))
            .right("timeouts against", |(.., than, _)| timeouts(than))
            .right("timeouts of", |(.., of)| timeouts(of));
        Listing::new(table, "What small flows gain, one difference at a time")
    }
}

/// Runs, and what they gave.
type Runs<'a> = ByColumn<(&'a Cell<'a>, &'a Measured)>;

fn runs<'a>(results: &'a Results<'a>) -> Runs<'a> {
    Table::by_column(results.rows())
        .left("workload", |(cell, _)| cell.place.workload.to_owned())
        .right("load", |(cell, _)| format_number(cell.place.load))
        .left("by", |(cell, _)| cell.arm.name.clone())
}

fn times(runs: Runs<'_>) -> Runs<'_> {
    let time = |us: f64| Unit::SpanUs.format(us);
    let of = |it: &Measured, flows| it.times(flows, false);
    runs.right("small flows", |(_, it)| format_count(of(it, Flows::Small).flows as u64))
        .right("mean", |(_, it)| time(of(it, Flows::Small).mean_us))
        .right("p99", |(_, it)| time(of(it, Flows::Small).p99_us))
        .right("medium, mean", |(_, it)| time(of(it, Flows::Medium).mean_us))
        .right("large, mean", |(_, it)| time(of(it, Flows::Large).mean_us))
        .right("p99", |(_, it)| time(of(it, Flows::Large).p99_us))
        .right("all, mean", |(_, it)| time(of(it, Flows::All).mean_us))
}

fn beside(runs: Runs<'_>) -> Runs<'_> {
    let time = |us: f64| Unit::SpanUs.format(us);
    let of = |it: &Measured, flows| it.times(flows, true);
    runs.right("flows", |(_, it)| format_count(of(it, Flows::All).flows as u64))
        .right("small, mean", |(_, it)| time(of(it, Flows::Small).mean_us))
        .right("p99", |(_, it)| time(of(it, Flows::Small).p99_us))
        .right("all, mean", |(_, it)| time(of(it, Flows::All).mean_us))
}

fn packets(runs: Runs<'_>) -> Runs<'_> {
    let (small, all) = (Flows::Small as usize, Flows::All as usize);
    runs.right("losses found", |(_, it)| format_count(it.detections[all]))
        .right("timeouts", |(_, it)| format_count(it.timeouts[all]))
        .right("small", |(_, it)| format_count(it.timeouts[small]))
        .right("sent again", |(_, it)| format_count(it.resent))
        .right("for nothing", |(_, it)| format_count(it.copies))
        .right("held, mean", |(_, it)| Unit::Bytes.format(it.mean_held_bytes))
        .right("peak", |(_, it)| Unit::Bytes.format(it.peak_held_bytes as f64))
}
