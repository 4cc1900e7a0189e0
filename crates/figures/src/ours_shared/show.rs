//! Drawings and the table.

use thalweg_report::format::{Unit, format_count};
use thalweg_report::plot::{Axis, Chart, Series};
use thalweg_report::table::Table;

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
            Plot::new(chart, caption)
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
        let count = |count: usize| format_count(count as u64);
        let time = |us: f64| Unit::SpanUs.format(us);
        let rate = |bps: f64| Unit::BitsPerSecond.format(bps);
        let table = Table::by_column(self.rows())
            .left("job", |(cell, _)| cell.place.map_or("none", Exchange::name).to_owned())
            .left("queues and who is there", |(cell, _)| cell.arm.name.clone())
            .right("iterations", |(_, it)| count(it.iterations))
            .right("mean", |(_, it)| time(it.iteration_us))
            .right("longest", |(_, it)| time(it.longest_us))
            .right("training", |(_, it)| rate(it.training_bps))
            .right("small flows", |(_, it)| count(it.small_flows))
            .right("mean", |(_, it)| time(it.small_us))
            .right("p99", |(_, it)| time(it.small_p99_us))
            .right("all, mean", |(_, it)| time(it.all_us))
            .right("flows", |(_, it)| rate(it.flows_bps))
            .right("unfinished", |(_, it)| count(it.unfinished))
            .right("dropped", |(_, it)| format_count(it.dropped))
            .right("sent again", |(_, it)| format_count(it.resent));
        Listing::new(table, "Iterations, flows, and what a worker and a host get of their links")
    }
}
