//! One run, and what is kept of it.

use serde::Deserialize;
use thalweg_core::Bytes;
use thalweg_prioritize::evaluate::Class;
use thalweg_report::stats::Sample;
use thalweg_scenario::{FlowEnd, FlowRecord, Outcome};
use thalweg_workload::SizeDistribution;
use toml::{Table, Value};

use super::network::change;
use super::{Arm, Cell, Setup, workloads};
use crate::file::{changed, entries, one, table};
use crate::runs::{self, run_flows};
use crate::{FigureError, Point};

/// How many flows there are, and what is known of them.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Traffic {
    flows: u32,
    cap: String,
    learned_flows: u32,
    width: f64,
    swapped: f64,
    trees: u32,
    /// Other flows beside them, of which nothing is known.
    beside: Option<Beside>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Beside {
    sizes: KnownSizes,
    load: f64,
}

/// Sizes that scenarios know.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum KnownSizes {
    WebSearch,
    DataMining,
}

impl KnownSizes {
    fn word(self) -> &'static str {
        match self {
            KnownSizes::WebSearch => "web-search",
            KnownSizes::DataMining => "data-mining",
        }
    }
}

#[cfg(test)]
impl Traffic {
    /// Fewer flows.
    pub(super) fn shrink(&mut self, flows: u32) {
        self.flows = flows;
        self.learned_flows = 100;
    }
}

/// What a run gave.
pub(super) struct Measured {
    /// Small, medium, large and all flows of the workload, and then those beside them.
    times: [[Times; 4]; 2],
    /// How often small, medium, large and all flows found that something was lost.
    pub(super) detections: [u64; 4],
    /// How often their timers did.
    pub(super) timeouts: [u64; 4],
    pub(super) resent: u64,
    pub(super) copies: u64,
    pub(super) mean_held_bytes: f64,
    pub(super) peak_held_bytes: u64,
}

/// How long flows of a class took.
#[derive(Clone, Copy)]
pub(super) struct Times {
    pub(super) flows: usize,
    /// Not a number where there is no flow.
    pub(super) mean_us: f64,
    pub(super) p99_us: f64,
}

/// Which flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Flows {
    Small,
    Medium,
    Large,
    All,
}

impl Flows {
    const EVERY: [Flows; 4] = [Flows::Small, Flows::Medium, Flows::Large, Flows::All];

    fn contain(self, flow: &FlowRecord) -> bool {
        let class = Class::of(flow.spec.bytes);
        match self {
            Flows::Small => class == Class::Small,
            Flows::Medium => class == Class::Medium,
            Flows::Large => class == Class::Large,
            Flows::All => true,
        }
    }
}

impl Setup {
    pub(super) fn measure(
        &self,
        cell: &Cell<'_>,
        point: &Point<'_>,
    ) -> Result<Measured, FigureError> {
        let load = |name: &str| {
            let curve = workloads::curve(name).map(str::to_owned);
            curve.ok_or_else(|| format!("{name:?} is no workload"))
        };
        let scenario = runs::scenario(point, self.file(cell), &load)?;
        Ok(Measured::of(&run_flows(&scenario, point)?))
    }

    fn file(&self, cell: &Cell<'_>) -> Table {
        let mut file = Table::new();
        file.insert("title".to_owned(), cell.arm.name.as_str().into());
        for (key, value) in self.network.tables(cell.arm) {
            file.insert(key.to_owned(), value);
        }
        file.insert("transport".to_owned(), self.transport(cell.arm).into());
        let mut traffic = vec![self.poisson(
            one("csv", cell.place.workload),
            (self.network.host_load(cell.place.load), self.traffic.flows),
            false,
        )];
        if let Some(beside) = &self.traffic.beside {
            // As many as come in the time of the others, on average.
            let flows = self.beside_flows(cell, beside);
            let load = self.network.host_load(beside.load);
            traffic.push(self.poisson(beside.sizes.word().into(), (load, flows), true));
        }
        file.insert("traffic".to_owned(), traffic.into());
        file
    }

    fn poisson(&self, sizes: Value, (load, flows): (f64, u32), unseen: bool) -> Value {
        let poisson = table([
            ("sizes", sizes),
            ("cap", self.traffic.cap.as_str().into()),
            ("load", load.into()),
            ("load-counts", "wire".into()),
            ("flows", flows.into()),
            ("unseen", unseen.into()),
        ]);
        one("poisson", poisson)
    }

    fn beside_flows(&self, cell: &Cell<'_>, beside: &Beside) -> u32 {
        // A cap that is none is found when the scenario is read.
        let cap = self.traffic.cap.parse().unwrap_or(Bytes::ZERO);
        let mean = |sizes: SizeDistribution| sizes.capped(cap).mean();
        let own = workloads::sizes(cell.place.workload).and_then(Result::ok).map_or(1.0, mean);
        let others = mean(match beside.sizes {
            KnownSizes::WebSearch => SizeDistribution::web_search(),
            KnownSizes::DataMining => SizeDistribution::data_mining(),
        });
        let flows = f64::from(self.traffic.flows) * own / cell.place.load * beside.load / others;
        (flows as u32).max(1)
    }

    fn transport(&self, arm: &Arm) -> Table {
        let mut transport = self.network.transport(arm);
        let tagger = arm.transport.get("tagger").and_then(Value::as_str);
        let learns = matches!(tagger, Some("qclimb" | "fixed-priority" | "promotion"));
        if learns || arm.hints.is_some() {
            let Traffic { learned_flows, width, swapped, trees, .. } = self.traffic;
            let hints = entries([
                ("learned-flows", learned_flows.into()),
                ("width", width.into()),
                ("swapped", swapped.into()),
                ("trees", trees.into()),
            ]);
            let hints = changed(&hints, arm.hints.clone().unwrap_or_default());
            transport.insert("hints".to_owned(), hints.into());
        }
        change(&mut transport, &arm.transport);
        transport
    }
}

impl Measured {
    fn of(outcome: &Outcome) -> Measured {
        let times = |source: usize| Flows::EVERY.map(|flows| Times::of(outcome, flows, source));
        let count = |of: fn(&FlowEnd) -> u32| {
            Flows::EVERY.map(|flows| {
                let own = outcome.flows.iter().filter(|flow| flows.contain(flow));
                own.filter_map(|flow| flow.end).map(|end| u64::from(of(&end))).sum()
            })
        };
        Measured {
            times: [times(0), times(1)],
            detections: count(|end| end.detections),
            timeouts: count(|end| end.timeouts),
            resent: outcome.resent_packets,
            copies: outcome.arrivals.copies,
            mean_held_bytes: outcome.arrivals.mean_held_bytes(),
            peak_held_bytes: outcome.arrivals.peak_held_bytes,
        }
    }

    /// How long flows took, of the workload or of those beside it.
    pub(super) fn times(&self, flows: Flows, beside: bool) -> Times {
        self.times[usize::from(beside)][flows as usize]
    }
}

impl Times {
    fn of(outcome: &Outcome, flows: Flows, source: usize) -> Times {
        let own = outcome.flows.iter().filter(|flow| flow.source == source && flows.contain(flow));
        let spans = own.filter_map(|flow| outcome.completion(flow)).map(|span| span.as_us_f64());
        match Sample::new(spans) {
            None => Times { flows: 0, mean_us: f64::NAN, p99_us: f64::NAN },
            Some(sample) => Times {
                flows: sample.count(),
                mean_us: sample.mean(),
                p99_us: sample.percentile(99.0),
            },
        }
    }
}
