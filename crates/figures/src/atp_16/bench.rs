//! One run: a job, perhaps a flow beside it, and what both get over time.

use thalweg_core::{NodeId, Span, Time};
use thalweg_fabric::LinkId;
use thalweg_scenario::{Outcome, Run, Scenario};
use thalweg_stack::Participant;
use thalweg_workload::Model;
use toml::Value;

use super::{Case, Direction, Setup, Work};
use crate::file::{cable, entries, one, one_switch, table};
use crate::shrink::{known_model, model_json};
use crate::{Context, FigureError, Point, runs};

/// Payload of a packet of a flow, and what it occupies of a link.
const FLOW_PACKET: (f64, f64) = (1_460.0, 1_500.0);

/// Runs cases.
pub(super) struct Bench<'a> {
    setup: &'a Setup,
    model: Model,
    /// Payload of a packet of the job, and what it occupies of a link.
    job_packet: (f64, f64),
}

/// Results of a case.
pub(super) struct Measured {
    pub(super) samples: Vec<Sample>,
    /// Goodput of the job from its start to its end.
    pub(super) life_bps: f64,
    /// Goodput of both while the job was settled.
    pub(super) job_bps: f64,
    pub(super) flow_bps: f64,
    /// Of the window of the first worker.
    pub(super) mark_halvings: u64,
    pub(super) loss_halvings: u64,
}

/// Goodput of both in an interval.
pub(super) struct Sample {
    /// End of the interval.
    pub(super) at_us: f64,
    pub(super) job_bps: f64,
    pub(super) flow_bps: f64,
}

/// Payload that had arrived at a moment.
#[derive(Clone, Copy)]
struct Arrived {
    at: Time,
    job_bytes: f64,
    flow_bytes: f64,
}

impl<'a> Bench<'a> {
    /// A bench, if the plan fits together.
    pub(super) fn new(setup: &'a Setup, context: &Context<'_>) -> Result<Bench<'a>, FigureError> {
        let missing = "aggregation needs fragment-values and overhead-bytes";
        let number = |key: &str| {
            let value = setup.aggregation.get(key).and_then(Value::as_integer);
            value.ok_or_else(|| context.mistake(missing))
        };
        let payload_bytes = (number("fragment-values")? * 4) as f64;
        let overhead_bytes = number("overhead-bytes")? as f64;
        let model = known_model(context, &setup.model)?;
        Ok(Bench { setup, model, job_packet: (payload_bytes, payload_bytes + overhead_bytes) })
    }

    /// Shares that a job and a flow have of half of the link each.
    pub(super) fn of_halves(&self, measured: &Measured) -> (f64, f64) {
        let half_bps = self.setup.rate_gbps * 1e9 / 2.0;
        let (job, flow) = self.wire_bps(measured);
        (job / half_bps, flow / half_bps)
    }

    /// The share of the link that both use.
    pub(super) fn link_use(&self, measured: &Measured) -> f64 {
        let (job, flow) = self.wire_bps(measured);
        (job + flow) / (self.setup.rate_gbps * 1e9)
    }

    fn wire_bps(&self, measured: &Measured) -> (f64, f64) {
        let job = measured.job_bps * self.job_packet.1 / self.job_packet.0;
        (job, measured.flow_bps * FLOW_PACKET.1 / FLOW_PACKET.0)
    }

    /// Runs one case.
    pub(super) fn run(&self, case: Case<'_>, point: &Point<'_>) -> Result<Measured, FigureError> {
        let scenario = self.scenario(case, point)?;
        let mut run = scenario.run_bare(point.context.seed);
        let mut arrived = vec![self.arrived(&mut run, case)];
        let stop = Time::ZERO + span_ms(self.setup.stop_ms);
        while run.now() < stop {
            let next = (run.now() + Span::from_us(self.setup.interval_us)).min(stop);
            let progress = run.advance_until(next);
            arrived.push(Arrived { at: next, ..self.arrived(&mut run, case) });
            if progress.ended.is_some() {
                break;
            }
            point.reached(run.now().as_s_f64() / stop.as_s_f64())?;
        }
        self.judge(&arrived, &run.outcome(), point.context)
    }

    /// Bytes that have arrived by now. A flow counts at the cable of its other host, which nothing else uses.
    fn arrived(&self, run: &mut Run<'_>, case: Case<'_>) -> Arrived {
        let of_worker = match run.participant(NodeId(0), 0) {
            Some(Participant::Aggregate(worker)) => worker.watermark(),
            _ => 0,
        };
        let cable = self.other_host() * 2;
        let link = case.other.map(|other| match other.direction {
            Direction::Up => LinkId(cable + 1),
            Direction::Down => LinkId(cable),
        });
        let wire_bytes = link.map_or(0, |link| run.link_stats(link).sent_bytes);
        Arrived {
            at: run.now(),
            job_bytes: of_worker as f64 * self.job_packet.0,
            flow_bytes: wire_bytes as f64 * FLOW_PACKET.0 / FLOW_PACKET.1,
        }
    }

    fn judge(
        &self,
        arrived: &[Arrived],
        outcome: &Outcome,
        context: &Context<'_>,
    ) -> Result<Measured, FigureError> {
        let failed = |reason: &str| context.failed(reason);
        let job = outcome.jobs.first().ok_or_else(|| failed("there was no job"))?;
        if let Some(why) = &job.failure {
            return Err(failed(why));
        }
        let last = arrived.last().ok_or_else(|| failed("nothing was measured"))?;
        let is_over = job.iterations.len() as u64 == job.planned_iterations;
        let last_sum = job.sums_at.first().and_then(|times| times.last().copied());
        let end = last_sum.filter(|_| is_over).unwrap_or(last.at);
        let settled = job.start + span_ms(self.setup.lasting_ms * self.setup.settled_after);
        let until = end.min(job.start + span_ms(self.setup.lasting_ms));
        let within: Vec<Arrived> = arrived
            .iter()
            .copied()
            .filter(|sample| sample.at >= settled && sample.at <= until)
            .collect();
        let (Some(first), Some(final_one)) = (within.first(), within.last()) else {
            return Err(failed("the job ended before it had settled"));
        };
        let (job_bps, flow_bps) = rates(first, final_one);
        let worker = job.stats.first().copied().unwrap_or_default();
        let samples = arrived.windows(2).map(|pair| {
            let (job_bps, flow_bps) = rates(&pair[0], &pair[1]);
            Sample { at_us: pair[1].at.as_us_f64(), job_bps, flow_bps }
        });
        Ok(Measured {
            samples: samples.collect(),
            life_bps: last.job_bytes * 8.0 / end.since(job.start).as_s_f64(),
            job_bps,
            flow_bps,
            mark_halvings: worker.mark_halvings,
            loss_halvings: worker.loss_halvings,
        })
    }

    fn scenario(&self, case: Case<'_>, point: &Point<'_>) -> Result<Scenario, FigureError> {
        let setup = self.setup;
        let mut traffic = vec![self.job(case.work)];
        let cable = cable(&format!("{}Gbps", setup.rate_gbps), &setup.delay);
        let mut file = entries([
            ("title", point.context.figure.name().into()),
            ("stop-after", text_ms(setup.stop_ms)),
            ("topology", one_switch(self.other_host() + 1, cable)),
            ("switch", setup.switch.clone().into()),
            ("aggregation", setup.aggregation.clone().into()),
        ]);
        if let Some(other) = case.other {
            let (from, to) = match other.direction {
                Direction::Up => (0, self.other_host()),
                Direction::Down => (self.other_host(), 0),
            };
            // More than the link carries before the end.
            let bytes = setup.rate_gbps * 1e9 / 8.0 * setup.stop_ms * 1e-3;
            let flow = table([
                ("senders", vec![from].into()),
                ("receiver", to.into()),
                ("bytes-each", format!("{bytes:.0}B").into()),
            ]);
            traffic.push(one("incast", flow));
            file.insert("transport".to_owned(), one("control", other.control.as_str()));
        }
        file.insert("traffic".to_owned(), traffic.into());
        runs::scenario(point, file, &|_| Ok(model_json(&self.model, setup.divisor)))
    }

    fn job(&self, work: Work) -> Value {
        let setup = self.setup;
        let mut job = entries([
            ("workers", (0..setup.workers).collect::<Vec<u32>>().into()),
            ("server", setup.workers.into()),
            ("collective", "aggregate".into()),
            ("start", text_ms(setup.start_ms)),
        ]);
        match work {
            Work::Training => {
                let flops = self.model.forward_flops() + self.model.backward_flops();
                let flops_per_s = setup.flops_per_s * setup.divisor;
                let compute_s = flops as f64 * f64::from(setup.batch) / flops_per_s;
                job.extend(entries([
                    ("json", "model.json".into()),
                    ("flops-per-s", flops_per_s.into()),
                    ("batch", setup.batch.into()),
                    ("iterations", times(setup.lasting_ms * 1e-3 / compute_s)),
                ]));
                one("training", job)
            }
            Work::Benchmark => {
                let half_bps = setup.rate_gbps * 1e9 / 2.0 * self.job_packet.0 / self.job_packet.1;
                let bytes = half_bps / 8.0 * setup.lasting_ms * 1e-3;
                job.extend(entries([
                    ("bytes", format!("{}B", setup.tensor_bytes).into()),
                    ("in-flight", Value::Integer(setup.tensors_in_flight as i64)),
                    ("rounds", times(bytes / setup.tensor_bytes as f64)),
                ]));
                one("all-reduce", job)
            }
        }
    }

    /// After the workers and the server.
    fn other_host(&self) -> u32 {
        self.setup.workers + 1
    }
}

impl Measured {
    /// Goodput of the job alone, as it is drawn: of bursts the mean.
    pub(super) fn peak_bps(&self, work: Work) -> f64 {
        match work {
            Work::Training => self.life_bps,
            Work::Benchmark => self.job_bps,
        }
    }
}

/// Bits that arrived between two moments, in a second.
fn rates(from: &Arrived, to: &Arrived) -> (f64, f64) {
    let seconds = to.at.since(from.at).as_s_f64();
    let of = |from: f64, to: f64| if seconds > 0.0 { (to - from) * 8.0 / seconds } else { 0.0 };
    (of(from.job_bytes, to.job_bytes), of(from.flow_bytes, to.flow_bytes))
}

fn times(count: f64) -> Value {
    Value::Integer(libm::round(count).max(1.0) as i64)
}

fn span_ms(ms: f64) -> Span {
    Span::from_s_f64(ms * 1e-3)
}

fn text_ms(ms: f64) -> Value {
    Value::from(format!("{ms}ms"))
}
