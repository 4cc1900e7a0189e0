//! Drawings and tables.

use thalweg_report::format::{Unit, format_count, format_number, format_percent};
use thalweg_report::plot::{Axis, Chart};
use thalweg_report::table::Table;

use super::claims::Metric;
use super::{Cell, Measured, Place, Results, Setup};
use crate::{Listing, Plot};

impl Setup {
    /// What a place is called, by what differs between places.
    pub(super) fn place_name(&self, place: Place) -> String {
        let speed = format!("{} Gbps", format_number(place.gbps));
        let loss = format!("{} loss", format_percent(place.loss));
        match (self.gbps.len() > 1, self.losses.len() > 1) {
            (true, true) => format!("{speed}, {loss}"),
            (false, true) => loss,
            _ => speed,
        }
    }

    pub(super) fn plots(&self, results: &Results<'_>) -> Vec<Plot> {
        self.drawn.iter().map(|metric| self.plot(results, metric)).collect()
    }

    fn plot(&self, results: &Results<'_>, metric: &Metric) -> Plot {
        let places = self.places();
        let chart = Chart::new(metric.name())
            .x(Axis::categories("", places.iter().map(|place| self.place_name(*place))))
            .y(Axis::linear(metric.name()).unit(Unit::SpanUs));
        let value = |measured: &Measured| metric.of(self, measured).unwrap_or(f64::NAN);
        let chart = results.bars(chart, &self.arms, &places, value);
        Plot::new(chart, format!("{}, at the size of the testbed.", metric.name()))
    }

    pub(super) fn tables(&self, results: &Results<'_>) -> Vec<Listing> {
        let place = |cell: &Cell<'_>| self.place_name(cell.place);
        let completions = Table::by_column(
            results.rows().filter_map(|(cell, measured)| Some((cell, measured.completions()?))),
        )
        .left("at", |(cell, _)| place(cell))
        .left("by", |(cell, _)| cell.arm.name.clone())
        .right("average, s", |(_, sample)| format_number(sample.mean()))
        .right("least", |(_, sample)| format_number(sample.min()))
        .right("99th percentile", |(_, sample)| format_number(sample.percentile(99.0)))
        .right("longest", |(_, sample)| format_number(sample.max()));
        let mut iterations = Table::by_column(results.rows())
            .left("at", |(cell, _)| place(cell))
            .left("by", |(cell, _)| cell.arm.name.clone());
        for (at, job) in self.jobs.iter().enumerate() {
            iterations = iterations.right(format!("{}, ms", job.name), |(_, measured)| {
                format_number(measured.iteration_ms(at).unwrap_or(f64::NAN))
            });
        }
        let iterations = iterations
            .right("sent again", |(_, measured)| format_count(measured.resent))
            .right("dropped", |(_, measured)| format_count(measured.dropped))
            .right("of plans used", |(_, measured)| {
                let used = measured.pacing.and_then(|pacing| pacing.used_part());
                used.map_or(String::new(), format_percent)
            });
        vec![
            Listing::new(completions, "Completion times of jobs"),
            Listing::new(iterations, "Iterations, and what was lost"),
        ]
    }
}
