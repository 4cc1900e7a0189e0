//! Completion times by how much is sent and how long flows wait for an answer: MLT, Figures 2 and 19.

use serde::Deserialize;
use thalweg_report::format::{Unit, format_count, format_percent, format_ratio, format_span_us};
use thalweg_report::plot::{Axis, Chart, Series};
use thalweg_report::table::{Column, Table as Numbers};

use crate::exchange::{Cell, Cluster, System, Times};
use crate::shrink::Trained;
use crate::{Context, Figure, FigureError, Listing, Plot};

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Setup {
    cluster: Cluster,
    /// What ours may lose.
    loss: f64,
    model: Trained,
    compressions: Vec<f64>,
    /// Of DCTCP.
    least_rtos: Vec<String>,
}

/// All runs of a figure.
pub(crate) struct Sweep {
    pub(crate) compressions: Vec<f64>,
    pub(crate) least_rtos: Vec<String>,
    ours: System,
    rows: Vec<Row>,
}

struct Row {
    cell: Cell,
    compression: f64,
    times: Times,
}

impl Sweep {
    /// Runs every combination.
    pub(crate) fn run(
        figure: &'static dyn Figure,
        context: &Context<'_>,
    ) -> Result<Sweep, FigureError> {
        let setup: Setup = context.plan(figure)?;
        let ours = System::Ours { loss: setup.loss };
        let mut cells = Vec::new();
        for &compression in &setup.compressions {
            let trained = setup.model.compressed(compression);
            let cell = |system, min_rto| Cell { system, trained: trained.clone(), min_rto };
            let with = |rto: &String| cell(System::Dctcp, Some(rto.clone()));
            cells.extend(setup.least_rtos.iter().map(|rto| (compression, with(rto))));
            cells.push((compression, cell(ours, None)));
        }
        let label = |(compression, cell): &(f64, Cell)| format!("{}, {compression}×", name(cell));
        let rows = context.each(&cells, label, |(compression, cell), point| {
            let times = setup.cluster.run(figure.name(), cell, context.seed, point)?;
            Ok(Row { cell: cell.clone(), compression: *compression, times })
        })?;
        let Setup { compressions, least_rtos, .. } = setup;
        Ok(Sweep { compressions, least_rtos, ours, rows })
    }

    /// Of DCTCP.
    pub(crate) fn dctcp(&self, compression: f64, least_rto: &str) -> Option<&Times> {
        self.find(compression, |cell| cell.min_rto.as_deref() == Some(least_rto))
    }

    pub(crate) fn ours(&self, compression: f64) -> Option<&Times> {
        self.find(compression, |cell| cell.system == self.ours)
    }

    pub(crate) fn least(&self) -> f64 {
        self.compressions[0]
    }

    pub(crate) fn most(&self) -> f64 {
        self.compressions[self.compressions.len() - 1]
    }

    fn find(&self, compression: f64, is: impl Fn(&Cell) -> bool) -> Option<&Times> {
        let row = self.rows.iter().find(|row| row.compression == compression && is(&row.cell));
        row.map(|row| &row.times)
    }

    /// A number of every run over the compression.
    pub(crate) fn plot(&self, what: &str, of: fn(&Times) -> f64) -> Plot {
        let ratios = self.compressions.iter().map(|&compression| format_ratio(compression));
        let mut chart = Chart::new(format!("Completion times, {what}"))
            .x(Axis::categories("compression", ratios))
            .y(Axis::linear("completion time").unit(Unit::SpanUs));
        let value = |times: Option<&Times>| times.map_or(f64::NAN, of);
        for rto in &self.least_rtos {
            let values = self.compressions.iter().map(|&ratio| value(self.dctcp(ratio, rto)));
            chart = chart.series(Series::bars(format!("DCTCP, RTO {rto} or more"), values));
        }
        let values = self.compressions.iter().map(|&ratio| value(self.ours(ratio)));
        chart = chart.series(Series::bars(self.ours.name(), values));
        Plot { chart, caption: "Of all flows of one iteration; lower is better.".to_owned() }
    }

    pub(crate) fn table(&self) -> Listing {
        let mut table = Numbers::new([
            Column::right("compression"),
            Column::left("system"),
            Column::right("average"),
            Column::right("99th percentile"),
            Column::right("longest"),
            Column::right("waits in vain"),
            Column::right("sent again"),
            Column::right("dropped"),
            Column::right("missing"),
        ]);
        for Row { cell, compression, times } in &self.rows {
            table.push([
                format_ratio(*compression),
                name(cell),
                format_span_us(times.mean_us),
                format_span_us(times.tail_us),
                format_span_us(times.worst_us),
                format_count(times.timeouts),
                format_count(times.resent),
                format_count(times.queue_full + times.unmarkable),
                format_percent(times.lost),
            ]);
        }
        let flows = self.rows.first().map_or(0, |row| row.times.flows);
        let caption = format!("Completion times, of {} flows", format_count(flows as u64));
        Listing { table, caption }
    }
}

fn name(cell: &Cell) -> String {
    match &cell.min_rto {
        Some(rto) => format!("{}, RTO {rto} or more", cell.system.name()),
        None => cell.system.name(),
    }
}
