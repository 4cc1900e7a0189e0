//! MLT, Figure 15: how fast models are trained when one machine's link loses packets without a trace.

use serde::Deserialize;
use thalweg_report::format::{Unit, format_count, format_number, format_ratio};
use thalweg_report::plot::{Axis, Chart, Series};
use thalweg_report::table::{Column, Table as Numbers};
use toml::{Table, Value};

use crate::file::{cable, entries, one_switch, table};
use crate::runs::run_stepwise;
use crate::servers::{Exchange, STEP, steady};
use crate::shrink::Trained;
use crate::{Claim, Context, Figure, FigureError, Findings, Listing, Plot, Point, Rule};

/// The figure.
pub(crate) struct Mlt15;

/// Who keeps so much of the speed holds it.
const HELD: f64 = 0.95;
/// Who loses so much of it is slowed down: a third of what the paper shows, at least.
const SLOWED: f64 = 0.1;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Setup {
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

impl Figure for Mlt15 {
    fn name(&self) -> &'static str {
        NAME
    }

    fn plan(&self) -> &'static str {
        include_str!("../plans/mlt-15.toml")
    }

    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        let setup: Setup = context.plan(self)?;
        let label = |cell: &Cell| format!("{}, loss {}", cell.system.name(), cell.loss);
        let rows = context
            .each(&setup.cells(), label, |cell, point| setup.row(*cell, (context.seed, point)))?;
        Ok(Findings {
            claims: setup.claims(&rows),
            plots: setup.plots(&rows),
            tables: vec![setup.table(&rows)],
            not_measured: NOT_MEASURED.map(str::to_owned).into(),
            notes: NOTES.map(str::to_owned).into(),
        })
    }
}

const NAME: &str = "mlt-15";

const NOT_MEASURED: [&str; 1] = [
    "the testbed's 64 GPUs: the paper does not state how long they compute, and ours is one rack of eight \
      machines with one worker each",
];

const NOTES: [&str; 3] = [
    "Speed is that of iterations, all but the first, against the same system without loss. The paper's \
     baseline is PyTorch, whose place a ring over DCTCP takes here; BytePS is servers over DCTCP.",
    "With ours up to a tenth of every message is missing, parameters too: those that were lost keep the \
     value of the round before. What that does to the training is not simulated.",
    "DCTCP here repairs every loss by selective acknowledgements within a round trip of microseconds, and \
     only its window suffers. The testbed's TCP, with round trips and timers of a kernel, suffers more.",
];

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

    fn row(&self, cell: Cell, (seed, point): (u64, &Point<'_>)) -> Result<Row, FigureError> {
        let trained = &self.models[cell.model];
        let scenario = trained.scenario(NAME, &self.file(cell, trained))?;
        let outcome = run_stepwise(NAME, &scenario, (seed, STEP), point, |_, _| ())?;
        let (job, iteration_us) = steady(NAME, &outcome)?;
        Ok(Row { cell, iteration_us, resent: job.total().resent })
    }

    fn file(&self, cell: Cell, trained: &Trained) -> Table {
        let gray =
            table([("on", table([("out-of", 0.into())])), ("probability", cell.loss.into())]);
        let job = table([("training", self.job(cell.system, trained).into())]);
        let switch = match cell.system {
            System::Ours => self.exchange.selecting(),
            System::Servers | System::Ring => self.exchange.marking(),
        };
        entries([
            ("title", cell.system.name().into()),
            ("topology", one_switch(self.hosts, cable(&self.rate, &self.delay))),
            ("switch", switch.into()),
            ("faults", Value::Array(vec![table([("loss", gray)])])),
            ("traffic", Value::Array(vec![job])),
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
            let mut chart = Chart::new(format!("Speed of {}", trained.model))
                .x(Axis::categories("loss of the link", losses))
                .y(Axis::linear("speed against none").unit(Unit::Percent));
            for system in System::ALL {
                let speed = |&loss: &f64| self.speed(rows, Cell { system, model, loss });
                chart = chart.series(Series::bars(system.name(), self.losses.iter().map(speed)));
            }
            let caption = "Iterations in a second, as a share of those without loss.".to_owned();
            Plot { chart, caption }
        };
        self.models.iter().enumerate().map(plot).collect()
    }

    fn table(&self, rows: &[Row]) -> Listing {
        let mut table = Numbers::new([
            Column::left("model"),
            Column::left("exchange"),
            Column::right("loss"),
            Column::right("iteration, ms"),
            Column::right("speed"),
            Column::right("packets sent again"),
        ]);
        for row in rows {
            table.push([
                self.models[row.cell.model].model.clone(),
                row.cell.system.name().to_owned(),
                format!("{}%", 100.0 * row.cell.loss),
                format_number(row.iteration_us / 1e3),
                format_ratio(self.speed(rows, row.cell)),
                format_count(row.resent),
            ]);
        }
        Listing { table, caption: "Iterations, and what they cost".to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_holds_its_speed_and_a_ring_of_flows_does_not() {
        let claims = Mlt15.run(&Context::unwatched(7, 2)).unwrap().claims;
        let [ours, _, ring] = &claims[..] else { panic!("three claims: {claims:?}") };
        assert!(ours.holds() && ring.holds(), "{claims:?}");
    }
}
