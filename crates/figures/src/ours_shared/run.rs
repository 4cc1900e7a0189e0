//! One run, and what is kept of it.

use thalweg_core::Time;
use thalweg_prioritize::evaluate::Class;
use thalweg_report::stats::Sample;
use thalweg_scenario::{Ending, FlowRecord, JobRecord, Outcome};
use toml::{Table, Value};

use super::{Arm, Cell, Exchange, Setup, Tagger};
use crate::file::{cable, entries, one, one_switch, table};
use crate::runs::{run_until, sound};
use crate::shrink::scenario;
use crate::{FigureError, Point};

/// What a run gave. What there is none of is not a number.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) iterations: usize,
    pub(super) iteration_us: f64,
    pub(super) longest_us: f64,
    pub(super) training_bps: f64,
    pub(super) small_flows: usize,
    pub(super) small_us: f64,
    pub(super) small_p99_us: f64,
    pub(super) all_us: f64,
    /// Of a host.
    pub(super) flows_bps: f64,
    pub(super) unfinished: usize,
    pub(super) dropped: u64,
    pub(super) resent: u64,
}

/// More than there is time for.
const ITERATIONS: u32 = 100_000;

impl Setup {
    pub(super) fn measure(
        &self,
        cell: &Cell<'_>,
        point: &Point<'_>,
    ) -> Result<Measured, FigureError> {
        let model = (self.job.model.as_str(), self.work.divisor);
        let scenario = scenario(point, model, &self.file(cell))?;
        let outcome = run_until(&scenario, point, None, |progress| {
            let now_us = progress.now.since(Time::ZERO).as_us_f64();
            (now_us / self.duration_us as f64, progress.ended.is_some())
        })?;
        let stuck = (outcome.ending == Ending::Stuck).then(|| "nothing moves".to_owned());
        let outcome = sound(&scenario, point, outcome, stuck)?;
        Ok(self.measured(&outcome))
    }

    fn measured(&self, outcome: &Outcome) -> Measured {
        let time = |flow: &FlowRecord| outcome.completion(flow).map(|span| span.as_us_f64());
        let is_small = |flow: &&FlowRecord| Class::of(flow.spec.bytes) == Class::Small;
        let small = Sample::new(outcome.flows.iter().filter(is_small).filter_map(time));
        let all = Sample::new(outcome.flows.iter().filter_map(time));
        let arrived = outcome.flows.iter().filter(|flow| time(flow).is_some());
        let bytes: u64 = arrived.map(|flow| flow.spec.bytes.as_u64()).sum();
        let bits_per_host = bytes as f64 * 8.0 / f64::from(self.hosts);
        let job = outcome.jobs.first();
        let spans = job.into_iter().flat_map(|job| &job.iterations);
        let iterations = Sample::new(spans.map(|span| span.as_us_f64()));
        let mean = |sample: &Option<Sample>| sample.as_ref().map_or(f64::NAN, Sample::mean);
        let resent_by_job = job.map_or(0, |job| job.total().resent);
        Measured {
            iterations: iterations.as_ref().map_or(0, Sample::count),
            iteration_us: mean(&iterations),
            longest_us: iterations.as_ref().map_or(f64::NAN, Sample::max),
            training_bps: job
                .and_then(JobRecord::goodput_bytes_per_s)
                .map_or(f64::NAN, |bytes| 8.0 * bytes),
            small_flows: small.as_ref().map_or(0, Sample::count),
            small_us: mean(&small),
            small_p99_us: small.as_ref().map_or(f64::NAN, |sample| sample.percentile(99.0)),
            all_us: mean(&all),
            flows_bps: all.map_or(f64::NAN, |_| bits_per_host / (self.duration_us as f64 / 1e6)),
            unfinished: outcome.unfinished(),
            dropped: outcome.stats.dropped(),
            resent: outcome.resent_packets + resent_by_job,
        }
    }

    /// The scenario of a run.
    pub(super) fn file(&self, cell: &Cell<'_>) -> Table {
        let arm = cell.arm;
        let mut file = Table::new();
        let mut set = |key: &str, value: Value| _ = file.insert(key.to_owned(), value);
        set("title", cell.label().into());
        set("stop-after", format!("{}us", self.duration_us).into());
        set("topology", self.topology(arm));
        set("switch", Value::Table(self.switch(cell)));
        if let Some(tagger) = arm.flows {
            set("transport", Value::Table(self.transport(tagger)));
        }
        if arm.layered {
            // Packets of front layers overtake others, so order says nothing about loss.
            set("aggregation", table([("reordering-packets", 0.into())]));
        }
        let flows = arm.flows.map(|_| self.poisson(arm));
        let training = cell.place.map(|exchange| self.training(exchange, arm.layered));
        set("traffic", Value::Array(flows.into_iter().chain(training).collect()));
        file
    }

    fn topology(&self, arm: &Arm) -> Value {
        let rate_gbps = if arm.half { self.rate_gbps / 2.0 } else { self.rate_gbps };
        one_switch(self.hosts, cable(&format!("{rate_gbps}Gbps"), &self.delay))
    }

    fn switch(&self, cell: &Cell<'_>) -> Table {
        let arm = cell.arm;
        // Who is alone in split queues has one class, and so half of the memory already.
        let is_alone = arm.flows.is_none() || !arm.trains;
        let whole = if is_alone && !arm.half { 2 } else { 1 };
        let buffer_bytes = self.buffer_bytes * whole;
        let mut switch = Table::new();
        let mut set = |key: &str, value: Value| _ = switch.insert(key.to_owned(), value);
        set("queues", arm.queues.as_str().into());
        set("port-buffer", format!("{buffer_bytes}B").into());
        set("ecn-threshold", self.ecn_threshold.as_str().into());
        set("ecn-counts", "port".into());
        if let Some(weights) = arm.weights {
            set("class-weights", Value::Array(weights.map(Value::from).into()));
        }
        if arm.layered && cell.place == Some(Exchange::Deliveries) {
            set("ecn-thresholds", self.ecn_thresholds.clone().into());
            set("drop-unmarkable", true.into());
        }
        switch
    }

    fn transport(&self, tagger: Tagger) -> Table {
        match tagger {
            Tagger::Plain => Table::new(),
            Tagger::Pias => entries([("tagger", "pias".into())]),
            Tagger::Qclimb => {
                let hints = table([
                    ("learned-flows", self.work.learned_flows.into()),
                    ("unseen", self.flows.unseen.into()),
                ]);
                entries([
                    ("tagger", "qclimb".into()),
                    ("loss-detection", "by-priority".into()),
                    ("hints", hints),
                ])
            }
        }
    }

    fn poisson(&self, arm: &Arm) -> Value {
        // The same flows on links of half the rate.
        let load = if arm.half { 2.0 * self.flows.load } else { self.flows.load };
        let poisson = table([
            ("sizes", self.flows.sizes.as_str().into()),
            ("cap", self.work.cap.as_str().into()),
            ("load", load.into()),
            ("load-counts", "wire".into()),
            ("lasting", format!("{}us", self.duration_us).into()),
        ]);
        one("poisson", poisson)
    }

    fn training(&self, exchange: Exchange, layered: bool) -> Value {
        let last = i64::from(self.hosts) - 1;
        let workers: Vec<i64> = (0..last).collect();
        let mut job = entries([
            ("json", "model.json".into()),
            ("workers", workers.clone().into()),
            ("iterations", ITERATIONS.into()),
            ("forward", self.work.forward.as_str().into()),
            ("backward", self.work.backward.as_str().into()),
            ("bucket", self.job.bucket.as_str().into()),
        ]);
        job.extend(match exchange {
            Exchange::Aggregation => entries([
                ("collective", "aggregate".into()),
                ("server", last.into()),
                ("layer-priorities", layered.into()),
            ]),
            Exchange::Deliveries => entries([
                ("collective", "server".into()),
                ("servers", workers.into()),
                ("chunk", self.job.chunk.as_str().into()),
                ("transport", "deliver".into()),
                ("loss", self.job.loss_bound.into()),
            ]),
        });
        one("training", job)
    }
}
