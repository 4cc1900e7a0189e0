//! MLT, Figure 15: how fast models are trained when one machine's link loses packets without a trace.

use serde::Deserialize;
use thalweg_report::format::{Unit, format_count, format_number, format_ratio};
use thalweg_report::plot::{Axis, Chart, Series};
use thalweg_report::table::Table as Numbers;
use toml::Table;

use crate::file::{cable, entries, one, one_switch, table};
use crate::frame::figure::Form;
use crate::runs::run_to_end;
use crate::servers::{Exchange, STEP, steady};
use crate::shrink::Trained;
use crate::{Claim, Context, FigureError, Findings, Listing, Plot, Point, Rule};

/// Who keeps so much of the speed holds it.
const HELD: f64 = 0.95;
/// Who loses so much of it is slowed down: a third of what the paper shows, at least.
const SLOWED: f64 = 0.1;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Setup {
    hosts: u32,
    rate: String,
    delay: String,
    exchange: Exchange,
    iterations: u32,
    losses: Vec<f64>,
    models: Vec<Trained>,
}

/// How gradients are exchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum System {
    Ours,
    Servers,
    Ring,
}

impl System {
    const ALL: [System; 3] = [System::Ours, System::Servers, System::Ring];

    const fn name(self) -> &'static str {
        match self {
            System::Ours => "ours, servers",
            System::Servers => "servers over DCTCP",
            System::Ring => "ring over DCTCP",
        }
    }
}

/// One run.
#[derive(Clone, Copy)]
struct Cell {
    system: System,
    model: usize,
    loss: f64,
}

/// What a run gave.
struct Row {
    cell: Cell,
    iteration_us: f64,
    resent: u64,
}

impl Form for Setup {
    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        let label = |cell: &Cell| format!("{}, loss {}", cell.system.name(), cell.loss);
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
        let mut cells = Vec::new();
        for model in 0..self.models.len() {
            for system in System::ALL {
                cells.extend(self.losses.iter().map(|&loss| Cell { system, model, loss }));
            }
        }
        cells
    }

    fn row(&self, cell: Cell, point: &Point<'_>) -> Result<Row, FigureError> {
        let trained = &self.models[cell.model];
        let scenario = trained.scenario(point, &self.file(cell, trained))?;
        let outcome = run_to_end(&scenario, STEP, point)?;
        let (job, iteration_us) = steady(point, &outcome)?;
        Ok(Row { cell, iteration_us, resent: job.total().resent })
    }

    fn file(&self, cell: Cell, trained: &Trained) -> Table {
        let gray = table([("on", one("out-of", 0)), ("probability", cell.loss.into())]);
        let job = one("training", self.job(cell.system, trained));
        let switch = match cell.system {
            System::Ours => self.exchange.selecting(),
            System::Servers | System::Ring => self.exchange.marking(),
        };
        entries([
            ("title", cell.system.name().into()),
            ("topology", one_switch(self.hosts, cable(&self.rate, &self.delay))),
            ("switch", switch.into()),
            ("faults", vec![one("loss", gray)].into()),
            ("traffic", vec![job].into()),
        ])
    }

    fn job(&self, system: System, trained: &Trained) -> Table {
        let collective = if system == System::Ring { "ring" } else { "server" };
        let mut job = self.exchange.job(collective, self.hosts, (trained, self.iterations));
        if system == System::Ours {
            job.insert("transport".to_owned(), "deliver".into());
            job.extend(self.exchange.tolerance());
        }
        job
    }

    /// The speed of a run against the same without loss.
    fn speed(&self, rows: &[Row], cell: Cell) -> f64 {
        let time = |loss: f64| {
            let is = |row: &&Row| {
                let Cell { system, model, loss: own } = row.cell;
                system == cell.system && model == cell.model && own == loss
            };
            rows.iter().find(is).map_or(f64::NAN, |row| row.iteration_us)
        };
        time(0.0) / time(cell.loss)
    }

    /// The speed of a system at a loss, of the model that suffers most.
    fn slowest(&self, rows: &[Row], system: System, loss: f64) -> f64 {
        let speed = |model| self.speed(rows, Cell { system, model, loss });
        (0..self.models.len()).map(speed).fold(f64::INFINITY, f64::min)
    }

    fn claims(&self, rows: &[Row]) -> Vec<Claim> {
        let most = self.losses.iter().copied().fold(0.0, f64::max);
        let mut claims = vec![Claim::measured(
            format!("speed that ours keeps at a loss of {}%", 100.0 * most),
            "all",
            self.slowest(rows, System::Ours, most),
            Unit::Percent,
            Rule::AtLeast(HELD),
        )];
        for (system, paper) in
            [(System::Servers, "31.2% to 61.3%"), (System::Ring, "25.7% to 61.7%")]
        {
            claims.push(Claim::measured(
                format!("speed that {} lose at a loss of {}%", system.name(), 100.0 * most),
                paper,
                1.0 - self.slowest(rows, system, most),
                Unit::Percent,
                Rule::AtLeast(SLOWED),
            ));
        }
        claims
    }

    fn plots(&self, rows: &[Row]) -> Vec<Plot> {
        let plot = |(model, trained): (usize, &Trained)| {
            let losses = self.losses.iter().map(|loss| format!("{}%", 100.0 * loss));
            let bars = |system: System| {
                let speed = |&loss: &f64| self.speed(rows, Cell { system, model, loss });
                Series::bars(system.name(), self.losses.iter().map(speed))
            };
            let chart = Chart::new(format!("Speed of {}", trained.model))
                .x(Axis::categories("loss of the link", losses))
                .y(Axis::linear("speed against none").unit(Unit::Percent))
                .all(System::ALL.map(bars));
            Plot::new(chart, "Iterations in a second, as a share of those without loss.")
        };
        self.models.iter().enumerate().map(plot).collect()
    }

    fn table(&self, rows: &[Row]) -> Listing {
        let table = Numbers::by_column(rows)
            .left("model", |row| self.models[row.cell.model].model.clone())
            .left("exchange", |row| row.cell.system.name().to_owned())
            .right("loss", |row| format!("{}%", 100.0 * row.cell.loss))
            .right("iteration, ms", |row| format_number(row.iteration_us / 1e3))
            .right("speed", |row| format_ratio(self.speed(rows, row.cell)))
            .right("packets sent again", |row| format_count(row.resent));
        Listing::new(table, "Iterations, and what they cost")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_holds_its_speed_and_a_ring_of_flows_does_not() {
        let claims = Context::unwatched("mlt-15", 7, 2).findings().unwrap().claims;
        let [ours, _, ring] = &claims[..] else { panic!("three claims: {claims:?}") };
        assert!(ours.holds() && ring.holds(), "{claims:?}");
    }
}
