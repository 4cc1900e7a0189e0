//! Ours: flows and a training job on one network, in one set of queues and in two that take turns.
//!
//! What a fair half means is measured, not worked out: the same flows, and the same job, alone on links of
//! half the rate. Split queues are to give either of them that, whatever the other does.

mod run;
mod show;
#[cfg(test)]
mod tests;

use serde::Deserialize;
use thalweg_report::format::Unit;

use crate::frame::figure::Form;
use crate::{Claim, Context, FigureError, Findings, Rule, compare};
use run::Measured;

/// A class keeps its half where its means are no more than this above those on half the link: turns are taken
/// by packets, and a link has no half packets.
const MEAN_OF_HALF: f64 = 1.1;
/// The same for its longest times, which have fewer samples.
const TAIL_OF_HALF: f64 = 1.2;
/// Without the split somebody is worse off by so much.
const STARVED: f64 = 1.1;
/// What priorities by layer may cost an iteration.
const LAYERED: f64 = 1.05;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Setup {
    hosts: u32,
    rate_gbps: f64,
    delay: String,
    /// Of each port.
    buffer_bytes: u64,
    ecn_threshold: String,
    ecn_thresholds: Vec<String>,
    flows: Flows,
    job: Job,
    work: Work,
    /// When a run ends, whatever is on its way then.
    duration_us: u64,
    arms: Vec<Arm>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Flows {
    sizes: String,
    load: f64,
    /// The share that no bounds are known of.
    unseen: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Job {
    model: String,
    /// Of deliveries.
    loss_bound: f64,
    bucket: String,
    chunk: String,
}

/// How much there is of everything.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Work {
    cap: String,
    learned_flows: u32,
    /// Of the model's tensors.
    divisor: f64,
    forward: String,
    backward: String,
}

/// Who is there, and in which queues.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Arm {
    name: String,
    queues: String,
    /// Of flows and of training, where queues are split.
    #[serde(default)]
    weights: Option<[u32; 2]>,
    #[serde(default)]
    flows: Option<Tagger>,
    #[serde(default)]
    trains: bool,
    /// Links and memory of half the size.
    #[serde(default)]
    half: bool,
    /// Priorities by layer, and selective dropping where something may be lost.
    #[serde(default)]
    layered: bool,
}

/// What gives flows their priorities.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Tagger {
    /// Nothing.
    Plain,
    Pias,
    Qclimb,
}

/// How the job sums its gradients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Exchange {
    Aggregation,
    Deliveries,
}

impl Exchange {
    const ALL: [Exchange; 2] = [Exchange::Aggregation, Exchange::Deliveries];

    const fn name(self) -> &'static str {
        match self {
            Exchange::Aggregation => "aggregation",
            Exchange::Deliveries => "deliveries",
        }
    }
}

/// One run. Flows alone are the same beside either exchange, and run once.
type Cell<'a> = compare::Cell<'a, Option<Exchange>, Arm>;

/// All runs of a seed.
type Results<'a> = compare::Results<'a, Option<Exchange>, Arm, Measured>;

impl compare::Arm for Arm {
    fn name(&self) -> &str {
        &self.name
    }
}

impl Form for Setup {
    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        let results = Results::measure(context, self.cells(), Cell::label, |cell, point| {
            self.measure(cell, point)
        })?;
        Ok(Findings {
            claims: results.claims(),
            plots: results.plots(),
            tables: vec![results.table()],
        })
    }
}

impl Setup {
    fn cells(&self) -> Vec<Cell<'_>> {
        let mut cells = Vec::new();
        for exchange in Exchange::ALL {
            let training = self.arms.iter().filter(|arm| arm.trains);
            cells.extend(training.map(|arm| Cell { place: Some(exchange), arm }));
        }
        let alone = self.arms.iter().filter(|arm| !arm.trains);
        cells.extend(alone.map(|arm| Cell { place: None, arm }));
        cells
    }
}

impl Cell<'_> {
    fn label(&self) -> String {
        match self.place {
            Some(exchange) => format!("{}, {}", exchange.name(), self.arm.name),
            None => self.arm.name.clone(),
        }
    }
}

const SPLIT: &str = "split, QCLIMB";
const LAYERS: &str = "split, QCLIMB, all of MLT's queues";
const TOGETHER: &str = "one set of queues, QCLIMB";
const HALF_TRAINING: &str = "training alone, half the link";
const HALF_FLOWS: &str = "flows alone, half the link";

impl Results<'_> {
    /// A number of one run; not one where there was no such run.
    fn number(&self, arm: &str, exchange: Option<Exchange>, what: fn(&Measured) -> f64) -> f64 {
        self.of(exchange, arm).map_or(f64::NAN, what)
    }

    fn claims(&self) -> Vec<Claim> {
        Exchange::ALL.into_iter().flat_map(|exchange| self.claims_of(exchange)).collect()
    }

    fn claims_of(&self, exchange: Exchange) -> Vec<Claim> {
        let beside = Some(exchange);
        let by_half = |half: &str, alone: Option<Exchange>, what: fn(&Measured) -> f64| {
            self.number(SPLIT, beside, what) / self.number(half, alone, what)
        };
        let training = |what| by_half(HALF_TRAINING, beside, what);
        let flows = |what| by_half(HALF_FLOWS, None, what);
        let ratio = |arm: &str, than: &str, what: fn(&Measured) -> f64| {
            self.number(arm, beside, what) / self.number(than, beside, what)
        };
        let half = "its half, whatever the other does";
        let claim = |text: &str, said: &str, ours: f64, rule: Rule| {
            let text = format!("{}: {text}", exchange.name());
            Claim::measured(text, said, ours, Unit::Ratio, rule)
        };
        // Who suffers in one set of queues depends on who is polite: aggregation slows down at marks and has
        // the last priority, deliveries have all priorities.
        let (who, starved): (&str, fn(&Measured) -> f64) = match exchange {
            Exchange::Aggregation => ("an iteration", |it| it.iteration_us),
            Exchange::Deliveries => ("the 99th percentile of small flows", |it| it.small_p99_us),
        };
        let (mean, tail) = (Rule::AtMost(MEAN_OF_HALF), Rule::AtMost(TAIL_OF_HALF));
        vec![
            claim(
                "an iteration, split, against training alone on half the link",
                half,
                training(|it| it.iteration_us),
                mean,
            ),
            claim("the longest iteration, the same", half, training(|it| it.longest_us), tail),
            claim(
                "the mean of small flows, split, against flows alone on half the link",
                half,
                flows(|it| it.small_us),
                mean,
            ),
            claim("their 99th percentile, the same", half, flows(|it| it.small_p99_us), tail),
            claim("the mean of all flows, the same", half, flows(|it| it.all_us), mean),
            claim(
                &format!("{who}, in one set of queues against split"),
                "somebody starves",
                ratio(TOGETHER, SPLIT, starved),
                Rule::AtLeast(STARVED),
            ),
            claim(
                "an iteration with all of MLT's queues, against split alone",
                "priorities cost nothing",
                ratio(LAYERS, SPLIT, |it| it.iteration_us),
                Rule::AtMost(LAYERED),
            ),
        ]
    }
}
