//! ATP, Figure 10: what loss costs an all-reduce, by how it is repaired.
//!
//! SwitchML waits for a timeout, ATP's workers resend what was overtaken, and with selective repair
//! they ask for it. Every system is compared with itself without loss.

use serde::Deserialize;
use thalweg_core::{Span, Time};
use thalweg_report::format::{Unit, format_count};
use thalweg_report::plot::{Axis, Chart, Series};
use thalweg_report::table::{Column, Table};
use thalweg_scenario::Scenario;
use toml::Value;

use crate::runs::run_stepwise;
use crate::{Claim, Context, Figure, FigureError, Findings, Listing, Plot, Point, Rule};

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

pub(crate) struct Atp10;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Setup {
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

/// One run.
#[derive(Clone, Copy)]
struct Item<'a> {
    system: &'a System,
    loss: Option<(&'a Place, f64)>,
}

/// What came of it.
#[derive(Clone, Copy)]
struct Measured {
    bits_per_s: f64,
    /// Packets with values that left a second time, queries, and fragments that were waited for in vain.
    resent: u64,
    queries: u64,
    timeouts: u64,
}

/// All runs.
struct Measurements {
    /// By system.
    without_loss: Vec<Measured>,
    /// By place, system and rate.
    with_loss: Vec<Vec<Vec<Measured>>>,
}

impl Figure for Atp10 {
    fn name(&self) -> &'static str {
        "atp-10"
    }

    fn plan(&self) -> &'static str {
        include_str!("../plans/atp-10.toml")
    }

    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        let setup: Setup = context.plan(self)?;
        setup.check()?;
        let items = setup.items();
        let measured = context
            .each(&items, Item::label, |item, point| setup.measure(item, context.seed, point))?;
        let measurements = setup.sort(&measured);
        let places = || setup.places.iter().enumerate();
        Ok(Findings {
            claims: setup.claims(&measurements),
            plots: places().map(|(at, place)| setup.plot(at, place, &measurements)).collect(),
            tables: places().map(|(at, place)| setup.table(at, place, &measurements)).collect(),
            not_measured: NOT_MEASURED.map(str::to_owned).into(),
            notes: NOTES.map(str::to_owned).into(),
        })
    }
}

const NOT_MEASURED: [&str; 1] =
    ["training throughput under loss: only the microbenchmark was run, where communication is all"];

const NOTES: [&str; 5] = [
    "The paper's worker drops packets, without saying in which direction. Ours loses them on its cable, \
     in both, each at the rate that is given. Loss on every link is ours.",
    "SwitchML loses far more here than the paper's 34%. In the microbenchmark nothing hides a stall, and a \
     slot that waits 1 ms for its timeout falls behind the others by about nine megabytes.",
    "How much SwitchML loses depends on how many tensors are open, because its slots are bound to \
     fragments and a stalled one delays all later tensors. We keep 16 open, which favours it.",
    "A window of 120 KB is twice what the way over the server holds, and four times what the way to the \
     switch and back holds, which is all that SwitchML needs.",
    "The last tensors are left out: at the end nothing overtakes what was lost, and every system waits \
     for its timeout.",
];

impl Setup {
    fn check(&self) -> Result<(), FigureError> {
        let rounds = self.job.get("rounds").and_then(Value::as_integer).unwrap_or(0);
        if self.systems.len() == SYSTEMS && rounds > self.last_rounds as i64 {
            return Ok(());
        }
        let reason = "give the three systems, and rounds before the last ones".to_owned();
        Err(FigureError::Plan { figure: Atp10.name(), reason })
    }

    /// Every system without loss, then by place, system and rate.
    fn items(&self) -> Vec<Item<'_>> {
        let without = self.systems.iter().map(|system| Item { system, loss: None });
        let mut items: Vec<Item<'_>> = without.collect();
        for place in &self.places {
            for system in &self.systems {
                let rates = self.loss_rates.iter();
                items.extend(rates.map(|rate| Item { system, loss: Some((place, *rate)) }));
            }
        }
        items
    }

    fn sort(&self, measured: &[Measured]) -> Measurements {
        let (without, with) = measured.split_at(self.systems.len());
        let by_system = with.chunks(self.loss_rates.len()).map(<[Measured]>::to_vec);
        let by_system: Vec<Vec<Measured>> = by_system.collect();
        let with_loss = by_system.chunks(self.systems.len()).map(<[_]>::to_vec).collect();
        Measurements { without_loss: without.to_vec(), with_loss }
    }

    fn measure(
        &self,
        item: &Item<'_>,
        seed: u64,
        point: &Point<'_>,
    ) -> Result<Measured, FigureError> {
        let text = self.scenario(item).to_string();
        let no_files = |_: &str| Err("there are no files".to_owned());
        let scenario = Scenario::parse(Atp10.name(), &text, &no_files)?;
        let outcome = run_stepwise(Atp10.name(), &scenario, (seed, STEP), point, |_, _| ())?;
        let (job, total) = (&outcome.jobs[0], outcome.jobs[0].total());
        let bytes_a_round = job.summed_bytes[0] as f64 / job.planned_iterations as f64;
        Ok(Measured {
            bits_per_s: bits_per_s(&job.sums_at, bytes_a_round, self.last_rounds),
            resent: total.resent + total.repairs,
            queries: total.queries,
            timeouts: total.timeouts,
        })
    }

    fn scenario(&self, item: &Item<'_>) -> toml::Table {
        let mut scenario = self.scenario.clone();
        let mut aggregation = self.scenario["aggregation"].as_table().cloned().unwrap_or_default();
        aggregation.extend(item.system.aggregation.clone());
        let mut job = self.job.clone();
        job.extend(item.system.job.clone());
        scenario.insert("title".to_owned(), item.label().into());
        scenario.insert("aggregation".to_owned(), aggregation.into());
        scenario.insert("traffic".to_owned(), vec![one("all-reduce", job)].into());
        if let Some((place, rate)) = item.loss {
            let mut loss = one("probability", rate);
            loss.insert("on".to_owned(), place.on.clone());
            scenario.insert("faults".to_owned(), vec![one("loss", loss)].into());
        }
        scenario
    }

    fn claims(&self, measurements: &Measurements) -> Vec<Claim> {
        let mut claims = Vec::new();
        for (at, place) in self.places.iter().enumerate() {
            let gains = measurements.quotients(at, ATP, SWITCHML);
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
        claims.push(self.harmless(measurements));
        claims.extend(self.claims_of_ours(measurements));
        claims
    }

    /// Up to one in a thousand the paper sees next to no cost.
    fn harmless(&self, measurements: &Measurements) -> Claim {
        let kept = self.loss_rates.iter().zip(measurements.kept(0, ATP));
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

    fn claims_of_ours(&self, measurements: &Measurements) -> [Claim; 2] {
        let places = 0..self.places.len();
        let leads = places.flat_map(|at| measurements.quotients(at, SELECTIVE, ATP));
        let last = self.places.len() - 1;
        let kept = measurements.kept(last, SELECTIVE).last().copied().unwrap_or(f64::NAN);
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

    fn plot(&self, at: usize, place: &Place, measurements: &Measurements) -> Plot {
        let rates = self.loss_rates.iter().map(|rate| percent(*rate));
        let mut chart = Chart::new(format!("Throughput under loss at {}", place.name))
            .x(Axis::categories("packets lost", rates))
            .y(Axis::linear("of the throughput without loss").unit(Unit::Percent));
        for (number, system) in self.systems.iter().enumerate() {
            let kept = measurements.kept(at, number).into_iter().enumerate();
            let points = kept.map(|(x, kept)| (x as f64, kept)).collect();
            chart = chart.series(Series::line(system.name.clone(), points));
        }
        let caption = "Aggregation throughput, each system against itself without loss.";
        Plot { chart, caption: caption.to_owned() }
    }

    fn table(&self, at: usize, place: &Place, measurements: &Measurements) -> Listing {
        let mut table = Table::new([
            Column::left("system"),
            Column::right("packets lost"),
            Column::right("throughput"),
            Column::right("kept"),
            Column::right("values sent again"),
            Column::right("queries"),
            Column::right("timeouts"),
        ]);
        for (number, system) in self.systems.iter().enumerate() {
            let without = measurements.without_loss[number];
            let rates = self.loss_rates.iter().copied();
            let with = rates.zip(measurements.with_loss[at][number].iter().copied());
            for (rate, measured) in std::iter::once((0.0, without)).chain(with) {
                table.push([
                    system.name.clone(),
                    percent(rate),
                    Unit::BitsPerSecond.format(measured.bits_per_s),
                    Unit::Percent.format(measured.bits_per_s / without.bits_per_s),
                    format_count(measured.resent),
                    format_count(measured.queries),
                    format_count(measured.timeouts),
                ]);
            }
        }
        let caption =
            format!("Loss at {}; counts are over all workers and the whole run", place.name);
        Listing { table, caption }
    }
}

impl Item<'_> {
    fn label(&self) -> String {
        let system = &self.system.name;
        match self.loss {
            None => format!("{system}, no loss"),
            Some((place, rate)) => format!("{system}, {} at {}", percent(rate), place.name),
        }
    }
}

impl Measurements {
    /// The share of its throughput that a system keeps, by rate.
    fn kept(&self, place: usize, system: usize) -> Vec<f64> {
        let without = self.without_loss[system].bits_per_s;
        self.with_loss[place][system].iter().map(|with| with.bits_per_s / without).collect()
    }

    /// What one system keeps for each of what another one keeps, by rate.
    fn quotients(&self, place: usize, system: usize, other: usize) -> Vec<f64> {
        let others = self.kept(place, other);
        self.kept(place, system).iter().zip(others).map(|(one, other)| one / other).collect()
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

fn one(key: &str, value: impl Into<Value>) -> toml::Table {
    toml::Table::from_iter([(key.to_owned(), value.into())])
}

/// Loss rates need more digits than shares do.
fn percent(rate: f64) -> String {
    format!("{}%", rate * 100.0)
}

#[cfg(test)]
mod tests;
