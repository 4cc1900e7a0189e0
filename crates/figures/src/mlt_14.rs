//! MLT, Figure 14: completion times of the flows of a training job, by what carries them.

use serde::Deserialize;
use thalweg_report::format::{Unit, format_count, format_percent, format_span_us};
use thalweg_report::plot::{Axis, Chart, Series};
use thalweg_report::table::Table;

use crate::exchange::{Cell, Cluster, System, Times};
use crate::frame::figure::Form;
use crate::shrink::Trained;
use crate::{Claim, Context, FigureError, Findings, Listing, Plot, Rule};

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Setup {
    cluster: Cluster,
    /// What ours may lose.
    loss: f64,
    models: Vec<Trained>,
}

/// By how much the average and the 99th percentile of ours are lower than with another system, as published.
const PUBLISHED: [(&str, System, f64, f64); 8] = [
    ("resnet50", System::Dctcp, 0.431, 0.918),
    ("resnet50", System::Pias, 0.448, 0.918),
    ("resnet50", System::Pfabric { waits: false }, 0.355, 0.886),
    ("resnet50", System::Ndp, 0.067, 0.103),
    ("googlenet", System::Dctcp, 0.351, 0.917),
    ("googlenet", System::Pias, 0.380, 0.919),
    ("googlenet", System::Pfabric { waits: false }, 0.435, 0.917),
    ("googlenet", System::Ndp, 0.077, 0.087),
];

/// A result stands when at least so much of the published gain is there.
const SHARE: f64 = 0.5;

struct Row {
    cell: Cell,
    times: Times,
}

impl Form for Setup {
    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        let label = |cell: &Cell| format!("{}, {}", cell.trained.model, cell.system.name());
        let rows = context.each(&self.cells(), label, |cell, point| {
            Ok(Row { cell: cell.clone(), times: self.cluster.run(cell, point)? })
        })?;
        Ok(Findings {
            claims: self.claims(&rows),
            plots: vec![
                self.plot(&rows, "average", |times| times.mean_us),
                self.plot(&rows, "99th percentile", |times| times.tail_us),
            ],
            tables: vec![table(&rows)],
        })
    }
}

impl Setup {
    fn systems(&self) -> Vec<System> {
        let ours = [self.loss, 0.0].map(|loss| System::Ours { loss });
        let pfabric = [false, true].map(|waits| System::Pfabric { waits });
        [&ours[..], &[System::Dctcp, System::Pias], &pfabric, &[System::Ndp]].concat()
    }

    fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for trained in &self.models {
            let cell = |system| Cell { system, trained: trained.clone(), min_rto: None };
            cells.extend(self.systems().into_iter().map(cell));
        }
        cells
    }

    fn claims(&self, rows: &[Row]) -> Vec<Claim> {
        let mut claims = Vec::new();
        for (model, system, mean, tail) in PUBLISHED {
            let ours = find(rows, System::Ours { loss: self.loss }, model);
            let (Some(ours), Some(other)) = (ours, find(rows, system, model)) else { continue };
            let what = [
                ("average", mean, ours.mean_us / other.mean_us),
                ("99th percentile", tail, ours.tail_us / other.tail_us),
            ];
            claims.extend(what.map(|(what, paper, ratio)| {
                let text = format!("{model}, {what}: lower than with {} by", system.name());
                Claim::measured(text, paper, 1.0 - ratio, Unit::Percent, rule(system, paper))
            }));
        }
        claims
    }

    fn plot(&self, rows: &[Row], what: &str, of: fn(&Times) -> f64) -> Plot {
        let bars = |system: System| {
            let time = |trained: &Trained| find(rows, system, &trained.model).map_or(f64::NAN, of);
            Series::bars(system.name(), self.models.iter().map(time))
        };
        let models = self.models.iter().map(|trained| trained.model.clone());
        let chart = Chart::new(format!("Completion times, {what}"))
            .x(Axis::categories("model", models))
            .y(Axis::linear("completion time").unit(Unit::SpanUs))
            .all(self.systems().into_iter().map(bars));
        Plot::new(chart, "Of all flows of one iteration; lower is better.")
    }
}

/// Close to NDP it is the order that counts: the published gain is small.
fn rule(system: System, paper: f64) -> Rule {
    Rule::AtLeast(if system == System::Ndp { 0.0 } else { SHARE * paper })
}

fn find<'a>(rows: &'a [Row], system: System, model: &str) -> Option<&'a Times> {
    let is = |row: &&Row| row.cell.system == system && row.cell.trained.model == model;
    rows.iter().find(is).map(|row| &row.times)
}

fn table(rows: &[Row]) -> Listing {
    let table = Table::by_column(rows)
        .left("model", |row| row.cell.trained.model.clone())
        .left("system", |row| row.cell.system.name())
        .right("average", |row| format_span_us(row.times.mean_us))
        .right("median", |row| format_span_us(row.times.median_us))
        .right("99th percentile", |row| format_span_us(row.times.tail_us))
        .right("longest", |row| format_span_us(row.times.worst_us))
        .right("waits in vain", |row| format_count(row.times.timeouts))
        .right("sent again", |row| format_count(row.times.resent))
        .right("dropped, full", |row| format_count(row.times.queue_full))
        .right("dropped, not markable", |row| format_count(row.times.unmarkable))
        .right("trimmed", |row| format_count(row.times.trimmed))
        .right("missing", |row| format_percent(row.times.lost));
    let flows = rows.first().map_or(0, |row| row.times.flows);
    let caption = format!("Completion times, of {} flows and more", format_count(flows as u64));
    Listing::new(table, caption)
}
