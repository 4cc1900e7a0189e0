//! Completion times by how much is sent and how long flows wait for an answer: MLT, Figures 2 and 19.

use serde::Deserialize;
use thalweg_report::format::{Unit, format_count, format_percent, format_ratio, format_span_us};
use thalweg_report::plot::{Axis, Chart, Series};
use thalweg_report::table::Table;

use crate::exchange::{Cell, Cluster, System, Times};
use crate::shrink::Trained;
use crate::{Context, FigureError, Listing, Plot};

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Setup {
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

impl Setup {
    /// Runs every combination.
    pub(crate) fn run(&self, context: &Context<'_>) -> Result<Sweep, FigureError> {
        let ours = System::Ours { loss: self.loss };
        let mut cells = Vec::new();
        for &compression in &self.compressions {
            let trained = self.model.compressed(compression);
            let cell = |system, min_rto| Cell { system, trained: trained.clone(), min_rto };
            let with = |rto: &String| cell(System::Dctcp, Some(rto.clone()));
            cells.extend(self.least_rtos.iter().map(|rto| (compression, with(rto))));
            cells.push((compression, cell(ours, None)));
        }
        let label = |(compression, cell): &(f64, Cell)| format!("{}, {compression}×", name(cell));
        let rows = context.each(&cells, label, |(compression, cell), point| {
            let times = self.cluster.run(cell, point)?;
            Ok(Row { cell: cell.clone(), compression: *compression, times })
        })?;
        let Setup { compressions, least_rtos, .. } = self;
        Ok(Sweep { compressions: compressions.clone(), least_rtos: least_rtos.clone(), ours, rows })
    }
}

impl Sweep {
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
        let value = |times: Option<&Times>| times.map_or(f64::NAN, of);
        let dctcp = self.least_rtos.iter().map(|rto| {
            let values = self.compressions.iter().map(|&ratio| value(self.dctcp(ratio, rto)));
            Series::bars(format!("DCTCP, RTO {rto} or more"), values)
        });
        let ours = self.compressions.iter().map(|&ratio| value(self.ours(ratio)));
        let chart = Chart::new(format!("Completion times, {what}"))
            .x(Axis::categories("compression", ratios))
            .y(Axis::linear("completion time").unit(Unit::SpanUs))
            .all(dctcp)
            .series(Series::bars(self.ours.name(), ours));
        Plot::new(chart, "Of all flows of one iteration; lower is better.")
    }

    pub(crate) fn table(&self) -> Listing {
        let dropped = |times: &Times| times.queue_full + times.unmarkable;
        let table = Table::by_column(&self.rows)
            .right("compression", |row| format_ratio(row.compression))
            .left("system", |row| name(&row.cell))
            .right("average", |row| format_span_us(row.times.mean_us))
            .right("99th percentile", |row| format_span_us(row.times.tail_us))
            .right("longest", |row| format_span_us(row.times.worst_us))
            .right("waits in vain", |row| format_count(row.times.timeouts))
            .right("sent again", |row| format_count(row.times.resent))
            .right("dropped", |row| format_count(dropped(&row.times)))
            .right("missing", |row| format_percent(row.times.lost));
        let flows = self.rows.first().map_or(0, |row| row.times.flows);
        Listing::new(table, format!("Completion times, of {} flows", format_count(flows as u64)))
    }
}

fn name(cell: &Cell) -> String {
    match &cell.min_rto {
        Some(rto) => format!("{}, RTO {rto} or more", cell.system.name()),
        None => cell.system.name(),
    }
}
