//! MLT, Figure 14: completion times of the flows of a training job, by what carries them.

use serde::Deserialize;
use thalweg_report::format::{Unit, format_count, format_percent, format_span_us};
use thalweg_report::plot::{Axis, Chart, Series};
use thalweg_report::table::{Column, Table as Numbers};

use crate::exchange::{Cell, Cluster, System, Times};
use crate::shrink::Trained;
use crate::{Claim, Context, Figure, FigureError, Findings, Listing, Plot, Rule};

/// The figure.
pub(crate) struct Mlt14;

const NAME: &str = "mlt-14";

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Setup {
    cluster: Cluster,
    /// What ours may lose.
    loss: f64,
    models: Vec<Trained>,
}

/// What the paper says that ours is lower by than another system.
struct Published {
    system: System,
    model: &'static str,
    mean: f64,
    tail: f64,
}

const PUBLISHED: [Published; 8] = [
    Published { system: System::Dctcp, model: "resnet50", mean: 0.431, tail: 0.918 },
    Published { system: System::Pias, model: "resnet50", mean: 0.448, tail: 0.918 },
    Published {
        system: System::Pfabric { waits: false },
        model: "resnet50",
        mean: 0.355,
        tail: 0.886,
    },
    Published { system: System::Ndp, model: "resnet50", mean: 0.067, tail: 0.103 },
    Published { system: System::Dctcp, model: "googlenet", mean: 0.351, tail: 0.917 },
    Published { system: System::Pias, model: "googlenet", mean: 0.380, tail: 0.919 },
    Published {
        system: System::Pfabric { waits: false },
        model: "googlenet",
        mean: 0.435,
        tail: 0.917,
    },
    Published { system: System::Ndp, model: "googlenet", mean: 0.077, tail: 0.087 },
];

/// A result stands when at least so much of the published gain is there.
const SHARE: f64 = 0.5;

struct Row {
    cell: Cell,
    times: Times,
}

impl Figure for Mlt14 {
    fn name(&self) -> &'static str {
        NAME
    }

    fn plan(&self) -> &'static str {
        include_str!("../plans/mlt-14.toml")
    }

    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        let setup: Setup = context.plan(self)?;
        let label = |cell: &Cell| format!("{}, {}", cell.trained.model, cell.system.name());
        let rows = context.each(&setup.cells(), label, |cell, point| {
            let times = setup.cluster.run(NAME, cell, context.seed, point)?;
            Ok(Row { cell: cell.clone(), times })
        })?;
        Ok(Findings {
            claims: setup.claims(&rows),
            plots: setup.plots(&rows),
            tables: vec![table(&rows)],
            not_measured: NOT_MEASURED.map(str::to_owned).into(),
            notes: NOTES.map(str::to_owned).into(),
        })
    }
}

const NOT_MEASURED: [&str; 1] = ["networks of other sizes"];

const NOTES: [&str; 5] = [
    "Every tensor is a flow from each worker to one server, and one back. Flows start as on a perfect \
     network, the same for every system: a gradient when it is computed, its sum when the server's link \
     could have taken in all of them.",
    "With ours up to a tenth of every tensor is missing, gradients and parameters.",
    "The least wait is 10 ms for DCTCP, PIAS and the questions of ours, as in the paper. pFabric waits three \
     round trips, as it was published, and NDP 1 ms; the paper may have given them 10 ms as well, so pFabric \
     is in the table with that, too.",
    "PIAS has the thresholds that let as many flows end in each of its priorities.",
    "Sizes and times of computing are divided by the same number; the network, its buffers and the waits \
     are not.",
];

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
        for published in PUBLISHED {
            let Published { system, model, mean, tail } = published;
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

    fn plots(&self, rows: &[Row]) -> Vec<Plot> {
        let plot = |what: &str, of: fn(&Times) -> f64| {
            let models = self.models.iter().map(|trained| trained.model.clone());
            let mut chart = Chart::new(format!("Completion times, {what}"))
                .x(Axis::categories("model", models))
                .y(Axis::linear("completion time").unit(Unit::SpanUs));
            for system in self.systems() {
                let time =
                    |trained: &Trained| find(rows, system, &trained.model).map_or(f64::NAN, of);
                chart = chart.series(Series::bars(system.name(), self.models.iter().map(time)));
            }
            Plot { chart, caption: "Of all flows of one iteration; lower is better.".to_owned() }
        };
        vec![plot("average", |times| times.mean_us), plot("99th percentile", |times| times.tail_us)]
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
    let mut table = Numbers::new([
        Column::left("model"),
        Column::left("system"),
        Column::right("average"),
        Column::right("median"),
        Column::right("99th percentile"),
        Column::right("longest"),
        Column::right("waits in vain"),
        Column::right("sent again"),
        Column::right("dropped, full"),
        Column::right("dropped, not markable"),
        Column::right("trimmed"),
        Column::right("missing"),
    ]);
    for Row { cell, times } in rows {
        table.push([
            cell.trained.model.clone(),
            cell.system.name(),
            format_span_us(times.mean_us),
            format_span_us(times.median_us),
            format_span_us(times.tail_us),
            format_span_us(times.worst_us),
            format_count(times.timeouts),
            format_count(times.resent),
            format_count(times.queue_full),
            format_count(times.unmarkable),
            format_count(times.trimmed),
            format_percent(times.lost),
        ]);
    }
    let flows = rows.first().map_or(0, |row| row.times.flows);
    let caption = format!("Completion times, of {} flows and more", format_count(flows as u64));
    Listing { table, caption }
}
