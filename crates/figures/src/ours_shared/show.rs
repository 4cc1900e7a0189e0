//! Drawings and the table.

use thalweg_report::format::{Unit, format_count};
use thalweg_report::plot::{Axis, Chart, Series};
use thalweg_report::table::{Column, Table};

use super::{Exchange, Results};
use crate::ours_shared::run::Measured;
use crate::{Listing, Plot};

impl Results<'_> {
    pub(super) fn plots(&self) -> Vec<Plot> {
        Exchange::ALL.into_iter().flat_map(|exchange| self.plots_of(exchange)).collect()
    }

    fn plots_of(&self, exchange: Exchange) -> [Plot; 2] {
        let bars = |title: &str, what: fn(&Measured) -> f64, caption: &str| {
            let is = |found: Option<Exchange>| found.is_none_or(|found| found == exchange);
            let own =
                self.rows().filter(|(cell, measured)| is(cell.place) && what(measured).is_finite());
            let (names, values): (Vec<String>, Vec<f64>) =
                own.map(|(cell, measured)| (cell.arm.name.clone(), what(measured))).unzip();
            let chart = Chart::new(format!("{}: {title}", exchange.name()))
                .x(Axis::categories("queues and who is there", names))
                .y(Axis::linear(title).unit(Unit::SpanUs))
                .series(Series::bars(exchange.name(), values));
            Plot { chart, caption: caption.to_owned() }
        };
        [
            bars(
                "an iteration",
                |measured| measured.iteration_us,
                "Training is starved in one set of queues, and has its half where they are split.",
            ),
            bars(
                "small flows, 99th percentile",
                |measured| measured.small_p99_us,
                "Small flows with training beside them, and alone.",
            ),
        ]
    }

    pub(super) fn table(&self) -> Listing {
        let names = [
            "iterations",
            "mean",
            "longest",
            "training",
            "small flows",
            "mean",
            "p99",
            "all, mean",
            "flows",
            "unfinished",
            "dropped",
            "sent again",
        ];
        let first = [Column::left("job"), Column::left("queues and who is there")];
        let columns = first.into_iter().chain(names.map(Column::right));
        let mut table = Table::new(columns.collect::<Vec<_>>());
        for (cell, measured) in self.rows() {
            let job = cell.place.map_or("none", Exchange::name);
            table.push([job.to_owned(), cell.arm.name.clone()].into_iter().chain(cells(measured)));
        }
        let caption =
            "Iterations, flows, and what a worker and a host get of their links".to_owned();
        Listing { table, caption }
    }
}

fn cells(measured: &Measured) -> [String; 12] {
    let time = |us: f64| Unit::SpanUs.format(us);
    let rate = |bps: f64| Unit::BitsPerSecond.format(bps);
    [
        format_count(measured.iterations as u64),
        time(measured.iteration_us),
        time(measured.longest_us),
        rate(measured.training_bps),
        format_count(measured.small_flows as u64),
        time(measured.small_us),
        time(measured.small_p99_us),
        time(measured.all_us),
        rate(measured.flows_bps),
        format_count(measured.unfinished as u64),
        format_count(measured.dropped),
        format_count(measured.resent),
    ]
}
