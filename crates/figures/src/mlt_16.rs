//! MLT, Figures 16 and 17: what each part of bounded deliveries adds to the speed of training.

mod parts;

use serde::Deserialize;
use thalweg_core::NodeId;
use thalweg_report::format::{Unit, format_number, format_percent, format_ratio};
use thalweg_report::plot::{Axis, Chart, Series};
use thalweg_report::table::Table;
use thalweg_scenario::{Progress, Run};
use thalweg_stack::Participant;

use crate::frame::figure::Form;
use crate::runs::run_stepwise;
use crate::servers::{Exchange, STEP, steady};
use crate::shrink::Trained;
use crate::{Claim, Context, FigureError, Findings, Listing, Plot, Point, Rule};
use parts::{Drops, Parts};

/// Queues that select change the speed "slightly": so much slower is still no slower.
const SLIGHTLY: f64 = 0.98;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Setup {
    racks: u32,
    hosts_per_rack: u32,
    spines: u32,
    rate: String,
    delay: String,
    port_buffer: String,
    exchange: Exchange,
    iterations: u32,
    models: Vec<Trained>,
}

/// One run.
#[derive(Clone, Copy, PartialEq)]
struct Cell {
    parts: Option<Parts>,
    model: usize,
}

/// What a run gave.
struct Row {
    cell: Cell,
    iteration_us: f64,
    drops: Drops,
    /// Of all bytes of gradients and parameters.
    missing: f64,
}

impl Form for Setup {
    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        let label = |cell: &Cell| name(cell.parts);
        let rows = context.each(&self.cells(), label, |cell, point| self.row(*cell, point))?;
        Ok(Findings {
            claims: self.claims(&rows),
            plots: self.plots(&rows),
            tables: vec![self.table(&rows)],
        })
    }
}

impl Setup {
    fn cells(&self) -> Vec<Cell> {
        let mut systems = vec![None];
        systems.extend(Parts::ALL.map(Some));
        let models = 0..self.models.len();
        let of = |model| systems.iter().map(move |&parts| Cell { parts, model });
        models.flat_map(of).collect()
    }

    fn hosts(&self) -> u32 {
        self.racks * self.hosts_per_rack
    }

    fn row(&self, cell: Cell, point: &Point<'_>) -> Result<Row, FigureError> {
        let trained = &self.models[cell.model];
        let scenario = trained.scenario(point, &self.file(cell.parts, trained))?;
        let counted = parts::Counted::default();
        let tracer = Box::new(counted.clone());
        let mut sent = (0, 0);
        let look = |run: &mut Run<'_>, _: &Progress| sent = self.sent(run);
        let outcome = run_stepwise(&scenario, STEP, point, Some(tracer), look)?;
        let (job, iteration_us) = steady(point, &outcome)?;
        // Every value is pushed by each worker and comes back to it, but for those of its own server.
        let summed: u64 = job.summed_bytes.iter().sum();
        let travelled = 2.0 * summed as f64 * (1.0 - 1.0 / f64::from(self.hosts()));
        Ok(Row {
            cell,
            iteration_us,
            drops: counted.drops(sent),
            missing: job.total().lost_bytes as f64 / travelled,
        })
    }

    /// How many packets of deliveries were sent, and how many of them were important.
    fn sent(&self, run: &Run<'_>) -> (u64, u64) {
        let stats = (0..self.hosts()).filter_map(|host| match run.participant(NodeId(host), 0) {
            Some(Participant::Server(node)) => node.delivery_stats(),
            _ => None,
        });
        stats.fold((0, 0), |(packets, important), stats| {
            (packets + stats.packets, important + stats.important)
        })
    }

    fn time(&self, rows: &[Row], parts: Option<Parts>, model: usize) -> f64 {
        let row = rows.iter().find(|row| row.cell == Cell { parts, model });
        row.map_or(f64::NAN, |row| row.iteration_us)
    }

    /// How many times as fast as another, for the model that gains least.
    fn gain(&self, rows: &[Row], parts: Option<Parts>, before: Option<Parts>) -> f64 {
        let gain = |model| self.time(rows, before, model) / self.time(rows, parts, model);
        (0..self.models.len()).map(gain).fold(f64::INFINITY, f64::min)
    }

    fn claims(&self, rows: &[Row]) -> Vec<Claim> {
        let steps = [
            (None, Parts::A, "faster", 1.0),
            (Some(Parts::A), Parts::AB, "faster", SLIGHTLY),
            (Some(Parts::AB), Parts::ABC, "remarkably faster", 1.0),
            (None, Parts::C, "effectively faster", 1.0),
            (Some(Parts::C), Parts::BC, "slightly faster", SLIGHTLY),
            (Some(Parts::BC), Parts::ABC, "further faster", 1.0),
        ];
        let mut claims: Vec<Claim> = steps
            .into_iter()
            .map(|(before, parts, paper, least)| {
                let text = format!("speed with {}, by that with {}", parts.name(), name(before));
                let gain = self.gain(rows, Some(parts), before);
                Claim::measured(text, paper, gain, Unit::Ratio, Rule::AtLeast(least))
            })
            .collect();
        let important = |parts| {
            let of = |row: &&Row| row.cell == Cell { parts: Some(parts), model: 0 };
            rows.iter().find(of).map_or(f64::NAN, |row| row.drops.important)
        };
        claims.push(Claim::measured(
            "important packets that are dropped with A and B, by those with A alone",
            "selective dropping preserves important gradients",
            important(Parts::AB) / important(Parts::A),
            Unit::Ratio,
            Rule::AtMost(0.5),
        ));
        claims
    }

    fn plots(&self, rows: &[Row]) -> Vec<Plot> {
        let plot = |(model, trained): (usize, &Trained)| {
            let systems = self.cells().into_iter().filter(|cell| cell.model == model);
            let systems: Vec<Option<Parts>> = systems.map(|cell| cell.parts).collect();
            let speed = |parts: &Option<Parts>| {
                self.time(rows, None, model) / self.time(rows, *parts, model)
            };
            let chart = Chart::new(format!("Speed of {}", trained.model))
                .x(Axis::categories("parts", systems.iter().map(|&parts| name(parts))))
                .y(Axis::linear("speed against BytePS").unit(Unit::Ratio))
                .series(Series::bars("speed", systems.iter().map(speed)));
            Plot::new(chart, "Iterations in a second, by those over DCTCP.")
        };
        let models = || self.models.iter().enumerate();
        models().map(plot).chain(models().map(|(model, _)| self.losses(rows, model))).collect()
    }

    /// What a training needs to know that loses as much.
    fn losses(&self, rows: &[Row], model: usize) -> Plot {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.cell.model == model).collect();
        let bars = |title, share: fn(&Row) -> f64| {
            Series::bars(
                title,
                rows.iter().map(|row| if share(row).is_nan() { 0.0 } else { share(row) }),
            )
        };
        let chart = Chart::new(format!("Losses of {}", self.models[model].model))
            .x(Axis::categories("parts", rows.iter().map(|row| name(row.cell.parts))))
            .y(Axis::linear("share").unit(Unit::Percent))
            .series(bars("missing", |row| row.missing))
            .series(bars("dropped of the important", |row| row.drops.important))
            .series(bars("dropped of the others", |row| row.drops.others));
        Plot::new(chart, "What was missing in the end, and which packets were dropped on the way.")
    }

    fn table(&self, rows: &[Row]) -> Listing {
        let speed = |row: &Row| self.time(rows, None, row.cell.model) / row.iteration_us;
        let table = Table::by_column(rows)
            .left("model", |row| self.models[row.cell.model].model.clone())
            .left("parts", |row| name(row.cell.parts))
            .right("iteration, ms", |row| format_number(row.iteration_us / 1e3))
            .right("speed", |row| format_ratio(speed(row)))
            .right("missing", |row| format_percent(row.missing))
            .right("packets dropped", |row| format_percent(row.drops.all))
            .right("of the important", |row| format_percent(row.drops.important))
            .right("of the others", |row| format_percent(row.drops.others));
        Listing::new(table, "Iterations, what was missing, and which packets were dropped")
    }
}

fn name(parts: Option<Parts>) -> String {
    parts.map_or("BytePS".to_owned(), Parts::name)
}
