//! One variant with so many workers: its scenario, and what it costs.

use serde::Deserialize;
use serde_json::json;
use thalweg_core::{NodeId, Span};
use thalweg_scenario::{Progress, Run, Scenario};
use toml::{Table, Value};

use crate::file::{cable, changed, entries, one};
use crate::runs::{self, run_stepwise};
use crate::{FigureError, Point};

/// Bytes of a value.
const VALUE_BYTES: u64 = 4;
/// How often a run is looked at: several times while workers compute, when nothing is sent.
const STEP: Span = Span::from_us(10);

/// What a plan says.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Setup {
    forward: String,
    backward: String,
    warm_up_iterations: u64,
    fragment_values: u64,
    overhead_bytes: u64,
    /// A network of three tiers without its sizes and uplinks.
    topology: Table,
    switch: Table,
    /// Without the sizes of packets.
    transport: Table,
    pub(super) variants: Vec<Variant>,
    fragments: u64,
    span_fragments: u32,
    iterations: u64,
    pub(super) ring_workers_max: u32,
    pub(super) sizes: Vec<Size>,
}

/// Who sums, and over what.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Variant {
    pub(super) name: String,
    pub(super) collective: String,
    levels: Option<u32>,
    uplink: String,
}

/// Where the workers are.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Size {
    pods: u32,
    racks_per_pod: u32,
    hosts_per_rack: u32,
}

/// What an iteration after the warm-up costs, on average.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Cost {
    /// From the last gradient's being ready until all workers have the sum.
    pub(super) time_us: f64,
    /// The same for the first iteration.
    pub(super) first_time_us: f64,
    /// What came in over the busiest cable of a host, in tensors.
    pub(super) busiest_host: f64,
    /// Gradients that the server of in-network aggregation received, in tensors.
    pub(super) server: Option<f64>,
    /// The same for the first iteration.
    pub(super) first_server: Option<f64>,
    /// What all links carried for each worker, in tensors.
    pub(super) all_links: f64,
    /// How many sums the worker has that has the fewest.
    pub(super) fewest_sums: usize,
}

/// What was counted up to some moment.
#[derive(Clone, Default)]
struct Counts {
    /// By host.
    received_bytes: Vec<u64>,
    all_links_bytes: u64,
    gradient_bytes: Option<u64>,
}

impl Size {
    pub(super) fn workers(self) -> u32 {
        self.pods * self.racks_per_pod * self.hosts_per_rack
    }
}

impl Setup {
    /// How many iterations there are.
    pub(super) fn iterations(&self) -> usize {
        self.iterations as usize
    }

    /// What a plan can get wrong besides what scenarios check.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        if self.sizes.len() < 2 || self.fragments == 0 || self.fragment_values == 0 {
            return Err("give at least two sizes, and a tensor with values");
        }
        if self.warm_up_iterations == 0 || self.iterations <= self.warm_up_iterations {
            return Err("give more iterations than the warm-up has, and that at least one");
        }
        Ok(())
    }

    /// Runs one variant with so many workers.
    pub(super) fn measure(
        &self,
        variant: &Variant,
        size: Size,
        point: &Point<'_>,
    ) -> Result<Cost, FigureError> {
        let load = |_: &str| Ok(self.model());
        let scenario = runs::scenario(point, self.file(variant, size), &load)?;
        let workers = u64::from(size.workers());
        let mut at_warm = None;
        let mut at_end = Counts::default();
        let look = |run: &mut Run<'_>, progress: &Progress| {
            let is_warm = progress.finished_sums >= workers * self.warm_up_iterations;
            if is_warm && at_warm.is_none() {
                at_warm = Some(Counts::of(run, &scenario));
            }
            if progress.ended.is_some() {
                at_end = Counts::of(run, &scenario);
            }
        };
        let outcome = run_stepwise(&scenario, STEP, point, None, look)?;
        let job = &outcome.jobs[0];
        let iterations_us: Vec<f64> =
            job.iterations.iter().map(|span| (*span - job.compute).as_us_f64()).collect();
        let measured = &iterations_us[self.warm_up_iterations as usize..];
        let at_warm = at_warm.unwrap_or_default();
        let tensors = |bytes: u64, iterations: u64| {
            bytes as f64 / (self.tensor_wire_bytes() * iterations) as f64
        };
        let after = self.iterations - self.warm_up_iterations;
        let by_host = at_end.received_bytes.iter().zip(&at_warm.received_bytes);
        let busiest = by_host.map(|(end, warm)| end - warm).max().unwrap_or(0);
        let all_links = at_end.all_links_bytes - at_warm.all_links_bytes;
        let first_server =
            at_warm.gradient_bytes.map(|warm| tensors(warm, self.warm_up_iterations));
        let server = at_end.gradient_bytes.zip(at_warm.gradient_bytes);
        Ok(Cost {
            time_us: measured.iter().sum::<f64>() / measured.len() as f64,
            first_time_us: iterations_us[0],
            busiest_host: tensors(busiest, after),
            server: server.map(|(end, warm)| tensors(end - warm, after)),
            first_server,
            all_links: tensors(all_links, after) / workers as f64,
            fewest_sums: job.sums_at.iter().map(Vec::len).min().unwrap_or(0),
        })
    }

    /// What a tensor occupies of a link.
    fn tensor_wire_bytes(&self) -> u64 {
        self.fragments * (self.fragment_values * VALUE_BYTES + self.overhead_bytes)
    }

    fn file(&self, variant: &Variant, size: Size) -> Table {
        let sizes = entries([
            ("pods", (size.pods + 1).into()),
            ("racks-per-pod", size.racks_per_pod.into()),
            ("hosts-per-rack", size.hosts_per_rack.into()),
            ("aggregation-cable", cable(&variant.uplink, "1us")),
        ]);
        let overhead = Value::from(self.overhead_bytes as i64);
        let payload = (self.fragment_values * VALUE_BYTES) as i64;
        let packets =
            entries([("segment-bytes", payload.into()), ("overhead-bytes", overhead.clone())]);
        let mut aggregation = entries([
            ("fragment-values", (self.fragment_values as i64).into()),
            ("overhead-bytes", overhead),
            ("span-fragments", self.span_fragments.into()),
        ]);
        aggregation.extend(variant.levels.map(|levels| ("levels".to_owned(), levels.into())));
        entries([
            ("title", format!("{}, {} workers", variant.name, size.workers()).into()),
            ("topology", one("three-tier", changed(&self.topology, sizes))),
            ("switch", self.switch.clone().into()),
            ("transport", changed(&self.transport, packets).into()),
            ("aggregation", aggregation.into()),
            ("traffic", vec![one("training", self.job(variant, size))].into()),
        ])
    }

    fn job(&self, variant: &Variant, size: Size) -> Table {
        let workers: Vec<Value> = (0..size.workers()).map(Value::from).collect();
        let mut job = entries([
            ("json", "one-gradient.json".into()),
            ("collective", variant.collective.clone().into()),
            ("workers", workers.into()),
            ("iterations", (self.iterations as i64).into()),
            ("forward", self.forward.clone().into()),
            ("backward", self.backward.clone().into()),
        ]);
        if variant.collective != "ring" {
            // The first host of the pod that has no workers.
            job.insert("server".to_owned(), size.workers().into());
        }
        job
    }

    fn model(&self) -> String {
        let values = self.fragments * self.fragment_values;
        let tensor =
            json!({ "name": "all", "shape": [values], "numel": values, "grad_ready_rank": 0 });
        json!({ "model": "one gradient", "parameters": [tensor] }).to_string()
    }
}

impl Counts {
    fn of(run: &mut Run<'_>, scenario: &Scenario) -> Counts {
        let topology = scenario.topology();
        let mut counts =
            Counts { received_bytes: vec![0; topology.hosts() as usize], ..Counts::default() };
        for link in topology.links() {
            let bytes = run.link_stats(link).sent_bytes;
            counts.all_links_bytes += bytes;
            let (_, to) = topology.link_ends(link);
            if topology.is_host(to) {
                counts.received_bytes[to.index()] += bytes;
            }
        }
        let mut servers = (0..topology.hosts()).map(NodeId);
        let stats = servers.find_map(|host| run.server_stats(host, 0));
        counts.gradient_bytes = stats.map(|stats| stats.gradient_bytes);
        counts
    }
}
