//! Runs of the job: as a stream without pauses, and as a training.

use thalweg_core::{NodeId, Span, Time};
use thalweg_scenario::{Outcome, Run, SwitchStats};
use thalweg_stack::Participant;
use toml::{Table, Value};

use super::{Measured, Setup, WITH, Way};
use crate::file::{changed, entries, one};
use crate::runs::{self, no_files, run_to_end, sound};
use crate::{Context, FigureError, Point, shrink};

/// Time between two moments at which a training can be stopped.
const STEP: Span = Span::from_us(500);
/// The worker that is watched.
const WATCHED: NodeId = NodeId(0);

/// Results of a stream of tensors.
#[derive(Default)]
pub(super) struct Streamed {
    /// Goodput of the watched worker, interval by interval.
    pub(super) bits_per_s: Vec<f64>,
    /// The share of all gradient packets that the switch did not leave to the server.
    pub(super) summed_share: f64,
    /// Packets that hosts and the switch sent, and those that its queues dropped.
    pub(super) sent: u64,
    pub(super) dropped: u64,
    /// Packets with values that left a second time.
    pub(super) sent_again: u64,
    /// Fragments that workers waited for in vain.
    pub(super) timeouts: u64,
}

/// Results of a training.
pub(super) struct Trained {
    /// Of one worker, as if nothing had been divided.
    pub(super) images_per_s: f64,
    /// The share of all gradient packets that the switch did not leave to the server.
    pub(super) summed_share: f64,
}

enum Measurement {
    Streamed(Streamed),
    Trained(Trained),
}

impl Streamed {
    /// The mean after the warm-up.
    pub(super) fn mean_bits_per_s(&self, warm_up: usize) -> f64 {
        let steady = &self.bits_per_s[warm_up..];
        steady.iter().sum::<f64>() / steady.len() as f64
    }

    /// The standard deviation after the warm-up, as a share of the mean.
    pub(super) fn variation(&self, warm_up: usize) -> f64 {
        let mean = self.mean_bits_per_s(warm_up);
        let steady = &self.bits_per_s[warm_up..];
        let squares: f64 = steady.iter().map(|rate| (rate - mean) * (rate - mean)).sum();
        libm::sqrt(squares / steady.len() as f64) / mean
    }

    pub(super) fn dropped_share(&self) -> f64 {
        self.dropped as f64 / (self.sent + self.dropped) as f64
    }
}

impl Setup {
    /// The training with congestion control, for every candidate.
    pub(super) fn search(&self, context: &Context<'_>) -> Result<Vec<Trained>, FigureError> {
        let label = |size: &u32| format!("{size} aggregators");
        context
            .each(&self.candidates, label, |size, point| self.train(&self.ways[WITH], *size, point))
    }

    /// The stream and the training, every way.
    pub(super) fn compare(
        &self,
        context: &Context<'_>,
        needed: u32,
    ) -> Result<Measured, FigureError> {
        let aggregators = ((f64::from(needed) * self.share) as u32).max(1);
        let both = |way| [(way, true), (way, false)];
        let items: Vec<(&Way, bool)> = self.ways.iter().flat_map(both).collect();
        let label = |(way, is_training): &(&Way, bool)| {
            format!("{}, {}", if *is_training { "training" } else { "stream" }, way.name)
        };
        let results = context.each(&items, label, |(way, is_training), point| {
            Ok(if *is_training {
                Measurement::Trained(self.train(way, aggregators, point)?)
            } else {
                Measurement::Streamed(self.stream(way, aggregators, point)?)
            })
        })?;
        let mut measured = Measured { aggregators, streamed: Vec::new(), trained: Vec::new() };
        for result in results {
            match result {
                Measurement::Streamed(streamed) => measured.streamed.push(streamed),
                Measurement::Trained(trained) => measured.trained.push(trained),
            }
        }
        Ok(measured)
    }

    fn stream(
        &self,
        way: &Way,
        aggregators: u32,
        point: &Point<'_>,
    ) -> Result<Streamed, FigureError> {
        let file = self.scenario(way, aggregators, ("all-reduce", self.stream.clone()));
        let scenario = runs::scenario(point, file, &no_files)?;
        let mut run = scenario.run_bare(point.context.seed);
        let interval = Span::from_us(self.interval_us);
        let mut bits_per_s = Vec::new();
        let mut completed_before = 0;
        for number in 1..=self.intervals as u64 {
            run.advance_until(Time::ZERO + interval * number);
            let completed = completed_bytes(&run);
            bits_per_s.push((completed - completed_before) as f64 * 8.0 / interval.as_s_f64());
            completed_before = completed;
            point.reached(number as f64 / self.intervals as f64)?;
        }
        let outcome = sound(&scenario, point, run.outcome(), None)?;
        Ok(streamed(bits_per_s, &outcome))
    }

    fn train(
        &self,
        way: &Way,
        aggregators: u32,
        point: &Point<'_>,
    ) -> Result<Trained, FigureError> {
        let training = &self.training;
        let divisor = f64::from(training.divisor);
        let bucket_bytes = training.bucket_bytes / u64::from(training.divisor);
        let job = entries([
            ("json", "model.json".into()),
            ("iterations", Value::Integer(training.iterations as i64)),
            ("batch", training.batch.into()),
            ("flops-per-s", (training.flops_per_s * divisor).into()),
            ("bucket", format!("{bucket_bytes}B").into()),
        ]);
        let file = self.scenario(way, aggregators, ("training", job));
        let scenario = shrink::scenario(point, (&training.model, divisor), &file)?;
        let outcome = run_to_end(&scenario, STEP, point)?;
        // Windows and indices find their place in the first iteration.
        let iterations = &outcome.jobs[0].iterations[1..];
        let seconds: f64 = iterations.iter().map(|span| span.as_s_f64()).sum();
        let images = f64::from(training.batch) * iterations.len() as f64;
        let images_per_s = images / (seconds * divisor);
        Ok(Trained { images_per_s, summed_share: summed_share(&outcome) })
    }

    fn scenario(&self, way: &Way, aggregators: u32, (kind, job): (&str, Table)) -> Table {
        let mut aggregation = self.scenario["aggregation"].as_table().cloned().unwrap_or_default();
        aggregation.extend(way.aggregation.clone());
        aggregation.insert("aggregators".to_owned(), aggregators.into());
        let own = entries([
            ("title", way.name.as_str().into()),
            ("aggregation", aggregation.into()),
            ("traffic", vec![one(kind, changed(&self.job, job))].into()),
        ]);
        changed(&self.scenario, own)
    }
}

/// Bytes of sums that the watched worker has, fragment by fragment.
fn completed_bytes(run: &Run<'_>) -> u64 {
    match run.participant(WATCHED, 0) {
        Some(Participant::Aggregate(worker)) => worker.stats().completed_bytes,
        _ => 0,
    }
}

fn streamed(bits_per_s: Vec<f64>, outcome: &Outcome) -> Streamed {
    let total = outcome.jobs[0].total();
    Streamed {
        bits_per_s,
        summed_share: summed_share(outcome),
        sent: outcome.links.iter().map(|link| link.stats.sent_packets).sum(),
        dropped: outcome.links.iter().map(|link| link.stats.dropped_packets).sum(),
        sent_again: total.resent + total.repairs,
        timeouts: total.timeouts,
    }
}

fn summed_share(outcome: &Outcome) -> f64 {
    let (mut gradients, mut passed) = (0, 0);
    for switch in &outcome.switches {
        if let SwitchStats::Aggregate(stats) = &switch.stats {
            gradients += stats.gradients;
            passed += stats.passed;
        }
    }
    1.0 - passed as f64 / gradients as f64
}
