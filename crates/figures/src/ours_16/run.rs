//! One combination, and what is kept of it.

use thalweg_core::Span;
use thalweg_report::stats::Sample;
use thalweg_scenario::Outcome;

use super::Setup;
use super::planes::{Plane, Planes};
use crate::runs::{self, sound};
use crate::{FigureError, Point};

/// Flows up to this size are small.
const SMALL_BYTES: u64 = 100_000;

/// What a run gave. Not a number where nothing ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    pub(super) iteration_us: f64,
    pub(super) iteration_p99_us: f64,
    /// Iterations of both trainings that ended.
    pub(super) iterations: usize,
    /// Bytes of sums that a worker had of both trainings, in a second.
    pub(super) goodput_bps: f64,
    pub(super) small_us: f64,
    pub(super) small_p99_us: f64,
    pub(super) flows_us: f64,
    pub(super) flows: usize,
    /// Packets that found no room, of all.
    pub(super) dropped: f64,
    /// Of gradients, the part that sums lack.
    pub(super) missing: f64,
}

/// Looks at whether to stop.
const LOOKS: u64 = 40;

impl Setup {
    pub(super) fn measure(
        &self,
        planes: Planes,
        point: &Point<'_>,
    ) -> Result<Measured, FigureError> {
        let scenario = runs::scenario(point, self.file(planes), &|_| Ok(self.model()))?;
        let mut run = scenario.run_bare(point.context.seed);
        let no_time = |_| point.context.mistake(format!("{:?} is no time", self.lasting));
        let lasting: Span = self.lasting.parse().map_err(no_time)?;
        for look in 1..=LOOKS {
            run.advance_until(thalweg_core::Time::ZERO + lasting * look / LOOKS);
            point.reached(look as f64 / LOOKS as f64)?;
        }
        let outcome = sound(&scenario, point, run.outcome(), None)?;
        Ok(Measured::of(&outcome))
    }

    /// A model of equal layers.
    fn model(&self) -> String {
        let values = self.model_bytes / 4 / u64::from(self.layers);
        let layer = |number: u32| {
            let rank = self.layers - 1 - number;
            format!(
                r#"{{"name": "l{number}.w", "shape": [{values}], "numel": {values}, "grad_ready_rank": {rank}}}"#
            )
        };
        let parameters: Vec<String> = (0..self.layers).map(layer).collect();
        format!(r#"{{"model": "equal layers", "parameters": [{}]}}"#, parameters.join(", "))
    }

    fn file(&self, planes: Planes) -> String {
        let Setup { hosts_per_rack, spines, rate, uplink_rate, delay, loss, slot, .. } = self;
        let pacing = if planes.has(Plane::Pace) {
            format!("[pacing]\nslot = \"{slot}\"\n")
        } else {
            String::new()
        };
        format!(
            r#"
title = "{name}"
stop-after = "{lasting}"
[topology.leaf-spine]
racks = 2
hosts-per-rack = {hosts_per_rack}
spines = {spines}
host-cable = {{ rate = "{rate}", delay = "{delay}" }}
uplink = {{ rate = "{uplink_rate}", delay = "{delay}" }}
{ports}
{pacing}
{job}
{job}
[[traffic]]
[traffic.poisson]
sizes = "web-search"
cap = "{cap}"
load = {flow_load}
lasting = "{lasting}"
[[faults]]
[faults.loss]
on = "everywhere"
probability = {loss}
"#,
            name = planes.name(),
            lasting = self.lasting,
            ports = self.ports(planes.has(Plane::Prioritize)),
            job = self.job(planes),
            cap = self.flow_cap,
            flow_load = self.flow_load,
        )
    }

    fn ports(&self, prioritize: bool) -> String {
        let Setup { port_buffer, ecn_threshold, learned_flows, .. } = self;
        let port =
            format!("port-buffer = \"{port_buffer}\"\necn-threshold = \"{ecn_threshold}\"\n");
        if !prioritize {
            return format!("[switch]\n{port}");
        }
        format!(
            "[switch]\nqueues = \"fair\"\n{port}[transport]\ntagger = \"qclimb\"\n\
             loss-detection = \"by-priority\"\n[transport.hints]\nlearned-flows = {learned_flows}\n"
        )
    }

    fn job(&self, planes: Planes) -> String {
        let Setup { workers, server, forward, backward, chunk, loss_bound, .. } = self;
        let collective = if planes.has(Plane::Aggregate) {
            "collective = \"aggregate\"".to_owned()
        } else {
            format!("collective = \"server\"\nchunk = \"{chunk}\"")
        };
        let transport = if planes.has(Plane::Deliver) {
            format!("transport = \"deliver\"\nloss = {loss_bound}\n")
        } else {
            String::new()
        };
        format!(
            r#"
[[traffic]]
[traffic.training]
json = "model.json"
{collective}
{transport}workers = {workers:?}
server = {server}
iterations = 1_000_000
forward = "{forward}"
backward = "{backward}"
"#
        )
    }
}

impl Measured {
    fn of(outcome: &Outcome) -> Measured {
        let iterations: Vec<f64> = outcome
            .jobs
            .iter()
            .flat_map(|job| job.iterations.iter().map(|span| span.as_us_f64()))
            .collect();
        let times = |most: u64| -> Vec<f64> {
            let flows = outcome.flows.iter().filter(|flow| flow.spec.bytes.as_u64() <= most);
            flows.filter_map(|flow| outcome.completion(flow)).map(|span| span.as_us_f64()).collect()
        };
        let (small, all) = (times(SMALL_BYTES), times(u64::MAX));
        let mean = |values: &[f64]| of(values, Sample::mean);
        let p99 = |values: &[f64]| of(values, |sample| sample.percentile(99.0));
        let summed: u64 = outcome.jobs.iter().map(|job| job.summed_bytes.iter().sum::<u64>()).sum();
        let workers: usize = outcome.jobs.iter().map(|job| job.workers).sum();
        let lost: u64 =
            outcome.jobs.iter().flat_map(|job| &job.stats).map(|stats| stats.lost_bytes).sum();
        let stats = &outcome.stats;
        Measured {
            iteration_us: mean(&iterations),
            iteration_p99_us: p99(&iterations),
            iterations: iterations.len(),
            goodput_bps: summed as f64 * 8.0 / (workers as f64 / 2.0) / outcome.now.as_s_f64(),
            small_us: mean(&small),
            small_p99_us: p99(&small),
            flows_us: mean(&all),
            flows: all.len(),
            dropped: outcome.links.iter().map(|link| link.stats.dropped_packets).sum::<u64>()
                as f64
                / stats.created_packets.max(1) as f64,
            missing: lost as f64 / summed.max(1) as f64,
        }
    }
}

fn of(values: &[f64], statistic: impl Fn(&Sample) -> f64) -> f64 {
    Sample::new(values.iter().copied()).map_or(f64::NAN, |sample| statistic(&sample))
}
