//! Drawings and tables.

use thalweg_report::format::{Unit, format_count, format_number, format_percent};
use thalweg_report::plot::{Axis, Chart};
use thalweg_report::table::{Column, Table};

use super::claims::Metric;
use super::{Measured, Place, Results, Setup};
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
        let caption = format!("{}, at the size of the testbed.", metric.name());
        Plot { chart, caption }
    }

    pub(super) fn tables(&self, results: &Results<'_>) -> Vec<Listing> {
        let seconds = ["average, s", "least", "99th percentile", "longest"];
        let mut completions = Table::new(columns(seconds.map(str::to_owned)));
        let jobs = self.jobs.iter().map(|job| format!("{}, ms", job.name));
        let packets = ["sent again", "dropped", "of plans used"].map(str::to_owned);
        let mut iterations = Table::new(columns(jobs.chain(packets)));
        for (cell, measured) in results.rows() {
            let first = || [self.place_name(cell.place), cell.arm.name.clone()].into_iter();
            if let Some(sample) = measured.completions() {
                let all = [sample.mean(), sample.min(), sample.percentile(99.0), sample.max()];
                completions.push(first().chain(all.map(format_number)));
            }
            let of = |job| format_number(measured.iteration_ms(job).unwrap_or(f64::NAN));
            let counts = [measured.resent, measured.dropped].map(format_count);
            let used = measured.pacing.and_then(|pacing| pacing.used_part());
            let used = used.map_or(String::new(), format_percent);
            let jobs = (0..self.jobs.len()).map(of);
            iterations.push(first().chain(jobs).chain(counts).chain([used]));
        }
        vec![
            Listing { table: completions, caption: "Completion times of jobs".to_owned() },
            Listing { table: iterations, caption: "Iterations, and what was lost".to_owned() },
        ]
    }
}

fn columns(rest: impl IntoIterator<Item = String>) -> Vec<Column> {
    let first = [Column::left("at"), Column::left("by")];
    first.into_iter().chain(rest.into_iter().map(Column::right)).collect()
}
