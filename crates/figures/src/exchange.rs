//! Parameter servers as flows: the traffic of a training job over one transport or another.

use serde::Deserialize;
use thalweg_core::Span;
use thalweg_fabric::DropReason;
use thalweg_report::stats::Sample;
use thalweg_scenario::{Outcome, Scenario};
use toml::{Table, Value};

use crate::file::{cable, entries, one, table};
use crate::runs::run_to_end;
use crate::shrink::{Trained, known_model};
use crate::{FigureError, Point};

/// How often a run says how far it is.
const STEP: Span = Span::from_us(500);

/// What carries flows.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum System {
    /// Ours, where so much of every flow may be lost.
    Ours {
        loss: f64,
    },
    Dctcp,
    /// DCTCP with priorities by what a flow has sent.
    Pias,
    /// With its own wait, or another.
    Pfabric {
        waits: bool,
    },
    Ndp,
}

impl System {
    pub(crate) fn name(self) -> String {
        match self {
            System::Ours { loss } => format!("ours, p = {loss}"),
            System::Dctcp => "DCTCP".to_owned(),
            System::Pias => "PIAS".to_owned(),
            System::Pfabric { waits: false } => "pFabric".to_owned(),
            System::Pfabric { waits: true } => "pFabric, waits like DCTCP".to_owned(),
            System::Ndp => "NDP".to_owned(),
        }
    }
}

/// Racks of workers and servers, and what their switches are set to.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Cluster {
    racks: u32,
    hosts_per_rack: u32,
    /// The last hosts of every rack; the others are workers. 0: every host is both.
    servers_per_rack: u32,
    spines: u32,
    uplinks_per_spine: u32,
    rate: String,
    delay: String,
    port_buffer: String,
    /// Of flows over windows.
    ecn_threshold: String,
    /// Of ours, one for each priority.
    ecn_thresholds: Vec<String>,
    /// Of flows over windows, and of the questions of ours.
    min_rto: String,
    /// How late workers may be.
    jitter: String,
    iterations: u32,
}

/// One run.
#[derive(Clone)]
pub(crate) struct Cell {
    pub(crate) system: System,
    pub(crate) trained: Trained,
    /// In place of the cluster's.
    pub(crate) min_rto: Option<String>,
}

/// What came of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) flows: usize,
    pub(crate) mean_us: f64,
    pub(crate) median_us: f64,
    pub(crate) tail_us: f64,
    pub(crate) worst_us: f64,
    /// Waits for an answer that did not come.
    pub(crate) timeouts: u64,
    pub(crate) resent: u64,
    pub(crate) queue_full: u64,
    pub(crate) unmarkable: u64,
    pub(crate) trimmed: u64,
    /// Bytes that flows were complete without, as a share of all.
    pub(crate) lost: f64,
}

impl Cluster {
    /// Runs the traffic of a model.
    pub(crate) fn run(&self, cell: &Cell, point: &Point<'_>) -> Result<Times, FigureError> {
        let scenario = self.scenario(cell, point)?;
        let outcome = run_to_end(&scenario, STEP, point)?;
        let missing = || format!("{}: not every flow arrived", cell.system.name());
        Times::of(&outcome).ok_or_else(|| point.context.failed(missing()))
    }

    fn scenario(&self, cell: &Cell, point: &Point<'_>) -> Result<Scenario, FigureError> {
        let trained = &cell.trained;
        let model = known_model(point.context, &trained.model)?;
        let bytes = |tensor: &thalweg_workload::Tensor| {
            (4.0 * tensor.values as f64 / trained.divisor).max(4.0) as u64
        };
        let sizes = model.tensors().iter().map(bytes).collect();
        trained.scenario(point, &self.file(cell, sizes))
    }

    /// `sizes` are those of the tensors.
    fn file(&self, cell: &Cell, sizes: Vec<u64>) -> Table {
        let cable = || cable(&self.rate, &self.delay);
        let racks = table([
            ("racks", self.racks.into()),
            ("hosts-per-rack", self.hosts_per_rack.into()),
            ("spines", self.spines.into()),
            ("uplinks-per-spine", self.uplinks_per_spine.into()),
            ("host-cable", cable()),
            ("uplink", cable()),
        ]);
        let (switch, transport) = self.settings(cell, sizes);
        entries([
            ("title", Value::from(cell.system.name())),
            ("topology", one("leaf-spine", racks)),
            ("switch", switch),
            ("transport", transport),
            ("traffic", vec![one("tensors", self.tensors(&cell.trained))].into()),
        ])
    }

    /// What switches and hosts are set to, as published for each system.
    fn settings(&self, cell: &Cell, sizes: Vec<u64>) -> (Value, Value) {
        let buffer = ("port-buffer", text(&self.port_buffer));
        let min_rto = ("min-rto", text(cell.min_rto.as_ref().unwrap_or(&self.min_rto)));
        match cell.system {
            System::Ours { loss } => (
                table([
                    buffer,
                    ("queues", "strict".into()),
                    ("ecn-thresholds", self.ecn_thresholds.clone().into()),
                    ("drop-unmarkable", true.into()),
                    ("routing", "explicit".into()),
                ]),
                table([("control", "deliver".into()), ("loss", loss.into()), min_rto]),
            ),
            System::Dctcp => (
                table([buffer, ("ecn-threshold", text(&self.ecn_threshold))]),
                table([("control", "dctcp".into()), min_rto]),
            ),
            System::Pias => (
                table([
                    buffer,
                    ("queues", "strict".into()),
                    ("ecn-threshold", text(&self.ecn_threshold)),
                    ("ecn-counts", "port".into()),
                ]),
                table([
                    ("control", "dctcp".into()),
                    ("tagger", "pias".into()),
                    ("thresholds", equal_split(sizes).into()),
                    min_rto,
                ]),
            ),
            System::Pfabric { waits } => {
                let control = ("control", "pfabric".into());
                (
                    table([buffer, ("queues", "urgency".into()), ("routing", "per-packet".into())]),
                    if waits { table([control, min_rto]) } else { table([control]) },
                )
            }
            System::Ndp => (
                table([buffer, ("queues", "trimming".into()), ("routing", "explicit".into())]),
                table([("control", "ndp".into())]),
            ),
        }
    }

    fn tensors(&self, trained: &Trained) -> Value {
        let hosts = self.racks * self.hosts_per_rack;
        let first_server = self.hosts_per_rack - self.servers_per_rack;
        let is_server = |host: &u32| host % self.hosts_per_rack >= first_server;
        let (servers, workers): (Vec<u32>, Vec<u32>) = (0..hosts).partition(is_server);
        let servers = if servers.is_empty() { workers.clone() } else { servers };
        table([
            ("json", "model.json".into()),
            ("workers", workers.into()),
            ("servers", servers.into()),
            ("iterations", self.iterations.into()),
            ("forward", text(&trained.forward)),
            ("backward", text(&trained.backward)),
            ("jitter", text(&self.jitter)),
        ])
    }
}

impl Times {
    /// `None` if not every flow arrived.
    fn of(outcome: &Outcome) -> Option<Times> {
        let completions = outcome.flows.iter().map(|flow| outcome.completion(flow));
        let spans: Option<Vec<f64>> = completions.map(|span| Some(span?.as_us_f64())).collect();
        let sample = Sample::new(spans?)?;
        let dropped = |reason: DropReason| {
            let place = DropReason::ALL.iter().position(|other| *other == reason);
            place.map_or(0, |place| outcome.stats.dropped_packets[place])
        };
        let bytes: u64 = outcome.flows.iter().map(|flow| flow.spec.bytes.as_u64()).sum();
        let ends = outcome.flows.iter().filter_map(|flow| flow.end);
        Some(Times {
            flows: sample.count(),
            mean_us: sample.mean(),
            median_us: sample.percentile(50.0),
            tail_us: sample.percentile(99.0),
            worst_us: sample.max(),
            timeouts: ends.map(|end| u64::from(end.timeouts)).sum(),
            resent: outcome.resent_packets,
            queue_full: dropped(DropReason::QueueFull),
            unmarkable: dropped(DropReason::Unmarkable),
            trimmed: outcome.trimmed_packets(),
            lost: outcome.lost_of_flows.as_u64() as f64 / bytes as f64,
        })
    }
}

/// Thresholds of PIAS that give each of eight priorities as many flows to end in: what its paper falls back
/// to where the best ones are not known. Equal ones are one.
fn equal_split(mut sizes: Vec<u64>) -> Vec<String> {
    sizes.sort_unstable();
    let mut edges: Vec<u64> = (1..8).map(|eighth| sizes[sizes.len() * eighth / 8]).collect();
    edges.dedup();
    edges.into_iter().map(|bytes| format!("{bytes}B")).collect()
}

fn text(text: &str) -> Value {
    Value::from(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_flows_end_in_every_priority() {
        let sizes: Vec<u64> = (1..=80).rev().collect();
        assert_eq!(equal_split(sizes), ["11B", "21B", "31B", "41B", "51B", "61B", "71B"]);
        assert_eq!(equal_split(vec![4, 4, 4, 4, 4, 4, 9, 9]), ["4B", "9B"]);
    }
}
