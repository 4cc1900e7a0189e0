//! ATP, Figure 10: what loss costs an all-reduce, by how it is repaired.
//!
//! SwitchML waits for a timeout, ATP's workers resend what was overtaken, and with selective repair
//! they ask for it. Every system is compared with itself without loss.

use serde::Deserialize;
use thalweg_core::{Span, Time};
use thalweg_report::format::{Unit, format_count};
use thalweg_report::plot::{Axis, Chart, Series};
use thalweg_report::table::Table;
use toml::Value;

use crate::file::{changed, entries, one, table};
use crate::frame::figure::Form;
use crate::runs::{self, no_files, run_to_end};
use crate::{Claim, Context, FigureError, Findings, Listing, Plot, Point, Rule, compare};

/// How often a run can be stopped.
const STEP: Span = Span::from_us(500);
/// The rate up to which the paper's text sees hardly any cost.
const HARMLESS_RATE: f64 = 0.001;
/// What ATP has to keep there.
const KEPT_AT_HARMLESS_RATE: f64 = 0.95;
/// By how much ATP outperforms SwitchML in the paper.
const PAPER_GAIN: f64 = 0.34;

/// The systems, in the order of the plan.
const ATP: usize = 0;
const SWITCHML: usize = 1;
const SELECTIVE: usize = 2;
const SYSTEMS: usize = 3;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Setup {
    /// A scenario without traffic and faults.
    scenario: toml::Table,
    systems: Vec<System>,
    places: Vec<Place>,
    loss_rates: Vec<f64>,
    /// The table of the all-reduce, apart from what systems add.
    job: toml::Table,
    last_rounds: usize,
    tie: f64,
    selective_keeps_least: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct System {
    name: String,
    job: toml::Table,
    aggregation: toml::Table,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Place {
    name: String,
    on: Value,
}

/// Packets that are lost: at a place, by its number, and how many.
#[derive(Clone, Copy, PartialEq)]
struct Loss {
    place: usize,
    rate: f64,
}

/// One run. Every system runs without loss as well.
type Cell<'a> = compare::Cell<'a, Option<Loss>, System>;

/// All runs of a seed.
type Results<'a> = compare::Results<'a, Option<Loss>, System, Measured>;

/// What came of it.
#[derive(Clone, Copy)]
struct Measured {
    bits_per_s: f64,
    /// Packets with values that left a second time, queries, and fragments that were waited for in vain.
    resent: u64,
    queries: u64,
    timeouts: u64,
}

impl compare::Arm for System {
    fn name(&self) -> &str {
        &self.name
    }
}

impl Form for Setup {
    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        self.check(context)?;
        let label = |cell: &Cell<'_>| self.label(cell);
        let results = Results::measure(context, self.cells(), label, |cell, point| {
            self.measure(cell, point)
        })?;
        let places = || 0..self.places.len();
        Ok(Findings {
            claims: self.claims(&results),
            plots: places().map(|at| self.plot(at, &results)).collect(),
            tables: places().map(|at| self.table(at, &results)).collect(),
        })
    }
}

impl Setup {
    fn check(&self, context: &Context<'_>) -> Result<(), FigureError> {
        let rounds = self.job.get("rounds").and_then(Value::as_integer).unwrap_or(0);
        if self.systems.len() == SYSTEMS && rounds > self.last_rounds as i64 {
            return Ok(());
        }
        Err(context.mistake("give the three systems, and rounds before the last ones"))
    }

    /// Every system without loss, then by place, system and rate.
    fn cells(&self) -> Vec<Cell<'_>> {
        let mut cells: Vec<Cell<'_>> =
            self.systems.iter().map(|arm| Cell { place: None, arm }).collect();
        for place in 0..self.places.len() {
            for arm in &self.systems {
                let losses = self.losses(place);
                cells.extend(losses.map(|loss| Cell { place: Some(loss), arm }));
            }
        }
        cells
    }

    fn losses(&self, place: usize) -> impl Iterator<Item = Loss> {
        self.loss_rates.iter().map(move |&rate| Loss { place, rate })
    }

    fn label(&self, cell: &Cell<'_>) -> String {
        let system = &cell.arm.name;
        match cell.place {
            None => format!("{system}, no loss"),
            Some(Loss { place, rate }) => {
                format!("{system}, {} at {}", percent(rate), self.places[place].name)
            }
        }
    }

    fn measure(&self, cell: &Cell<'_>, point: &Point<'_>) -> Result<Measured, FigureError> {
        let scenario = runs::scenario(point, self.scenario(cell), &no_files)?;
        let outcome = run_to_end(&scenario, STEP, point)?;
        let (job, total) = (&outcome.jobs[0], outcome.jobs[0].total());
        let bytes_a_round = job.summed_bytes[0] as f64 / job.planned_iterations as f64;
        Ok(Measured {
            bits_per_s: bits_per_s(&job.sums_at, bytes_a_round, self.last_rounds),
            resent: total.resent + total.repairs,
            queries: total.queries,
            timeouts: total.timeouts,
        })
    }

    fn scenario(&self, cell: &Cell<'_>) -> toml::Table {
        let aggregation = self.scenario["aggregation"].as_table().cloned().unwrap_or_default();
        let job = changed(&self.job, cell.arm.job.clone());
        let faults = cell.place.map(|Loss { place, rate }| {
            let on = self.places[place].on.clone();
            one("loss", table([("probability", rate.into()), ("on", on)]))
        });
        let own = entries([
            ("title", self.label(cell).into()),
            ("aggregation", changed(&aggregation, cell.arm.aggregation.clone()).into()),
            ("traffic", vec![one("all-reduce", job)].into()),
            ("faults", Value::Array(faults.into_iter().collect())),
        ]);
        changed(&self.scenario, own)
    }

    /// The share of its throughput that a system keeps at a place, by rate.
    fn kept(&self, results: &Results<'_>, place: usize, system: usize) -> Vec<f64> {
        let name = &self.systems[system].name;
        let bits_per_s = |loss| results.of(loss, name).map_or(f64::NAN, |it| it.bits_per_s);
        self.losses(place).map(|loss| bits_per_s(Some(loss)) / bits_per_s(None)).collect()
    }

    /// What one system keeps for each of what another one keeps, by rate.
    fn quotients(&self, results: &Results<'_>, place: usize, [one, other]: [usize; 2]) -> Vec<f64> {
        let kept = |system| self.kept(results, place, system);
        kept(one).iter().zip(kept(other)).map(|(one, other)| one / other).collect()
    }

    fn claims(&self, results: &Results<'_>) -> Vec<Claim> {
        let mut claims = Vec::new();
        for (at, place) in self.places.iter().enumerate() {
            let gains = self.quotients(results, at, [ATP, SWITCHML]);
            let least = gains.iter().copied().fold(f64::INFINITY, f64::min);
            let most = gains.iter().copied().fold(0.0, f64::max);
            let name = &place.name;
            let is_papers = at == 0;
            claims.push(Claim::measured(
                format!(
                    "loss at {name}: ATP keeps no less than SwitchML at any rate, its least lead"
                ),
                if is_papers { "above 1× at every rate" } else { "not shown" },
                least,
                Unit::Ratio,
                Rule::AtLeast(1.0),
            ));
            claims.push(Claim::measured(
                format!("loss at {name}: ATP keeps more than SwitchML, at most"),
                if is_papers { PAPER_GAIN.into() } else { crate::Value::from("not shown") },
                most - 1.0,
                Unit::Percent,
                Rule::AtLeast(PAPER_GAIN),
            ));
        }
        claims.push(self.harmless(results));
        claims.extend(self.claims_of_ours(results));
        claims
    }

    /// Up to one in a thousand the paper sees next to no cost.
    fn harmless(&self, results: &Results<'_>) -> Claim {
        let kept = self.loss_rates.iter().zip(self.kept(results, 0, ATP));
        let harmless = kept.filter(|(rate, _)| **rate <= HARMLESS_RATE);
        let least = harmless.map(|(_, kept)| kept).fold(f64::INFINITY, f64::min);
        Claim::measured(
            format!(
                "loss at {}, up to {}: ATP keeps",
                self.places[0].name,
                Unit::Percent.format(HARMLESS_RATE)
            ),
            "nearly everything",
            least,
            Unit::Percent,
            Rule::AtLeast(KEPT_AT_HARMLESS_RATE),
        )
    }

    fn claims_of_ours(&self, results: &Results<'_>) -> [Claim; 2] {
        let places = 0..self.places.len();
        let leads = places.flat_map(|at| self.quotients(results, at, [SELECTIVE, ATP]));
        let last = self.places.len() - 1;
        let kept = self.kept(results, last, SELECTIVE).last().copied().unwrap_or(f64::NAN);
        [
            Claim::measured(
                "selective repair keeps no less than the paper's recovery at any rate and place, its \
                 least lead",
                "not in the paper",
                leads.fold(f64::INFINITY, f64::min),
                Unit::Ratio,
                Rule::AtLeast(1.0 - self.tie),
            ),
            Claim::measured(
                format!("loss at {}, highest rate: selective repair keeps", self.places[last].name),
                "not in the paper",
                kept,
                Unit::Percent,
                Rule::AtLeast(self.selective_keeps_least),
            ),
        ]
    }

    fn plot(&self, at: usize, results: &Results<'_>) -> Plot {
        let rates = self.loss_rates.iter().map(|rate| percent(*rate));
        let curve = |(number, system): (usize, &System)| {
            Series::curve(&*system.name, self.kept(results, at, number))
        };
        let chart = Chart::new(format!("Throughput under loss at {}", self.places[at].name))
            .x(Axis::categories("packets lost", rates))
            .y(Axis::linear("of the throughput without loss").unit(Unit::Percent))
            .all(self.systems.iter().enumerate().map(curve));
        Plot::new(chart, "Aggregation throughput, each system against itself without loss.")
    }

    fn table(&self, at: usize, results: &Results<'_>) -> Listing {
        let mut rows = Vec::new();
        for system in &self.systems {
            let losses = std::iter::once(None).chain(self.losses(at).map(Some));
            let measured = losses.filter_map(|loss| Some((loss, results.of(loss, &system.name)?)));
            let without = results.of(None, &system.name).map_or(f64::NAN, |it| it.bits_per_s);
            rows.extend(measured.map(|(loss, measured)| (&*system.name, loss, measured, without)));
        }
        let table = Table::by_column(rows)
            .left("system", |(system, ..)| (*system).to_owned())
            .right("packets lost", |(_, loss, ..)| percent(loss.map_or(0.0, |loss| loss.rate)))
            .right("throughput", |(_, _, it, _)| Unit::BitsPerSecond.format(it.bits_per_s))
            .right("kept", |(_, _, it, without)| Unit::Percent.format(it.bits_per_s / without))
            .right("values sent again", |(_, _, it, _)| format_count(it.resent))
            .right("queries", |(_, _, it, _)| format_count(it.queries))
            .right("timeouts", |(_, _, it, _)| format_count(it.timeouts));
        let place = &self.places[at].name;
        Listing::new(
            table,
            format!("Loss at {place}; counts are over all workers and the whole run"),
        )
    }
}

/// Bits of sums that a worker receives in a second, from the start until the last rounds. A round ends
/// when the last worker has as many sums. It counts from the start, because a slot that falls behind
/// early on catches up later.
fn bits_per_s(sums_at: &[Vec<Time>], bytes_a_round: f64, last_rounds: usize) -> f64 {
    let counted = sums_at.iter().map(Vec::len).min().unwrap_or(0) - last_rounds;
    let ended = sums_at.iter().map(|sums| sums[counted - 1]).max().unwrap_or(Time::NEVER);
    counted as f64 * bytes_a_round * 8.0 / ended.as_s_f64()
}

/// Loss rates need more digits than shares do.
fn percent(rate: f64) -> String {
    format!("{}%", rate * 100.0)
}

#[cfg(test)]
mod tests;
