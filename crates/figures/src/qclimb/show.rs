//! Drawings and tables.

use thalweg_report::format::{Unit, format_count, format_number};
use thalweg_report::plot::{Axis, Chart};
use thalweg_report::table::{Column, Table};

use super::claims::Metric;
use super::run::Flows;
use super::{Cell, Measured, Place, Results, Setup};
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
        let caption = format!("{}, for each load and each way.", metric.name());
        Plot { chart, caption }
    }

    pub(super) fn tables(&self, results: &Results<'_>) -> Vec<Listing> {
        let runs = || results.rows();
        let mut times = Table::new(times_columns());
        let mut packets = Table::new(packets_columns());
        for (cell, measured) in runs() {
            times.push(first(cell).into_iter().chain(times_cells(measured)));
            packets.push(first(cell).into_iter().chain(packets_cells(measured)));
        }
        let gains = (!self.gains.is_empty()).then(|| self.gains_listing(results));
        let mut tables: Vec<Listing> = gains.into_iter().collect();
        tables.extend([
            Listing { table: times, caption: "How long flows took".to_owned() },
            Listing { table: packets, caption: "What was lost, and what waited".to_owned() },
        ]);
        if runs().any(|(_, measured)| measured.times(Flows::All, true).flows > 0) {
            let mut beside = Table::new(beside_columns());
            for (cell, measured) in runs() {
                beside.push(first(cell).into_iter().chain(beside_cells(measured)));
            }
            let caption = "How long the flows beside them took".to_owned();
            tables.push(Listing { table: beside, caption });
        }
        tables
    }

    fn gains_listing(&self, results: &Results<'_>) -> Listing {
        let columns = [Column::left("what if"), Column::left("workload"), Column::right("load")];
        let names = ["mean lower by", "p99 lower by", "timeouts against", "timeouts of"];
        let columns = columns.into_iter().chain(names.map(Column::right));
        let mut table = Table::new(columns.collect::<Vec<_>>());
        for gain in &self.gains {
            for place in self.places() {
                let arms = [&gain.than, &gain.of].map(|arm| results.of(place, arm));
                let [Some(than), Some(of)] = arms else { continue };
                let lower =
                    |metric: Metric| Unit::Percent.format(1.0 - metric.of(of) / metric.of(than));
                let timeouts = |it: &Measured| format_count(it.timeouts[Flows::Small as usize]);
                table.push([
                    gain.what_if.clone(),
                    place.workload.to_owned(),
                    format_number(place.load),
                    lower(Metric::SmallMean),
                    lower(Metric::SmallP99),
                    timeouts(than),
                    timeouts(of),
                ]);
            }
        }
        let caption = "What small flows gain, one difference at a time".to_owned();
        Listing { table, caption }
    }
}

fn first(cell: &Cell<'_>) -> Vec<String> {
    let Place { workload, load } = cell.place;
    vec![workload.to_owned(), format_number(load), cell.arm.name.clone()]
}

fn columns(rest: &[&str]) -> Vec<Column> {
    let first = [Column::left("workload"), Column::right("load"), Column::left("by")];
    first.into_iter().chain(rest.iter().map(|name| Column::right(*name))).collect()
}

fn times_columns() -> Vec<Column> {
    columns(&["small flows", "mean", "p99", "medium, mean", "large, mean", "p99", "all, mean"])
}

fn times_cells(measured: &Measured) -> Vec<String> {
    let of = |flows| measured.times(flows, false);
    let time = |us: f64| Unit::SpanUs.format(us);
    let (small, large) = (of(Flows::Small), of(Flows::Large));
    vec![
        format_count(small.flows as u64),
        time(small.mean_us),
        time(small.p99_us),
        time(of(Flows::Medium).mean_us),
        time(large.mean_us),
        time(large.p99_us),
        time(of(Flows::All).mean_us),
    ]
}

fn beside_columns() -> Vec<Column> {
    columns(&["flows", "small, mean", "p99", "all, mean"])
}

fn beside_cells(measured: &Measured) -> Vec<String> {
    let (small, all) = (measured.times(Flows::Small, true), measured.times(Flows::All, true));
    let time = |us: f64| Unit::SpanUs.format(us);
    vec![format_count(all.flows as u64), time(small.mean_us), time(small.p99_us), time(all.mean_us)]
}

fn packets_columns() -> Vec<Column> {
    let names = ["losses found", "timeouts", "small", "sent again", "for nothing", "held, mean"];
    columns(&names).into_iter().chain([Column::right("peak")]).collect()
}

fn packets_cells(measured: &Measured) -> Vec<String> {
    let all = Flows::All as usize;
    vec![
        format_count(measured.detections[all]),
        format_count(measured.timeouts[all]),
        format_count(measured.timeouts[Flows::Small as usize]),
        format_count(measured.resent),
        format_count(measured.copies),
        Unit::Bytes.format(measured.mean_held_bytes),
        Unit::Bytes.format(measured.peak_held_bytes as f64),
    ]
}
