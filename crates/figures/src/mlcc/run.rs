//! All rounds of a cell, and what is kept of them.

use thalweg_core::{Rng, Span, Time};
use thalweg_fabric::trace::Tracer;
use thalweg_report::stats::Sample;
use thalweg_scenario::{Ending, Outcome, Scenario};
use thalweg_stack::PacingStats;

use super::draw::{Job, Placement};
use super::{Choices, Setup};
use crate::runs::{run_until, sound};
use crate::study::Measured;
use crate::{FigureError, Point};

/// Results of the rounds of a cell. Times are those of the testbed: multiplied back.
#[derive(Default)]
pub(super) struct Rounds {
    /// From beginning to end of every job of every round.
    pub(super) completions_us: Vec<f64>,
    /// Durations of iterations, job by job.
    pub(super) iterations_us: Vec<Vec<f64>>,
    resent: u64,
    dropped: u64,
    /// Bits of flows beside jobs that have ended, and the time of all runs.
    others_bits: f64,
    runs_s: f64,
    /// Counters of schedulers, if there were any.
    pacing: Option<PacingStats>,
}

impl Rounds {
    pub(super) fn measured(&self, jobs: &[Job]) -> Measured {
        let of = |values: &[f64], statistic: fn(&Sample) -> f64| {
            Sample::new(values.iter().copied()).as_ref().map_or(f64::NAN, statistic)
        };
        let used = self.pacing.and_then(|pacing| pacing.used_part());
        let mut measured = Measured::of([
            ("mean-completion", of(&self.completions_us, Sample::mean)),
            ("shortest-completion", of(&self.completions_us, Sample::min)),
            ("p99-completion", of(&self.completions_us, |sample| sample.percentile(99.0))),
            ("longest-completion", of(&self.completions_us, Sample::max)),
            ("resent", self.resent as f64),
            ("dropped", self.dropped as f64),
            ("others-gbps", self.others_bits / self.runs_s / 1e9),
            ("used-plans", used.unwrap_or(f64::NAN)),
        ]);
        for (job, iterations_us) in jobs.iter().zip(&self.iterations_us) {
            measured.set(&format!("iteration of {}", job.name), of(iterations_us, Sample::mean));
        }
        measured
    }
}

impl Setup {
    pub(super) fn rounds(
        &self,
        choices: &Choices,
        point: &Point<'_>,
    ) -> Result<Rounds, FigureError> {
        let mut rounds =
            Rounds { iterations_us: vec![Vec::new(); self.jobs.len()], ..Rounds::default() };
        let together: Vec<Vec<usize>> = match self.alone {
            true => (0..self.jobs.len()).map(|job| vec![job]).collect(),
            false => vec![(0..self.jobs.len()).collect()],
        };
        let testbed = self.testbed();
        let runs = self.rounds * together.len() as u64;
        for round in 0..self.rounds {
            let rng = Rng::new(point.context.seed).substream("round", round);
            let placements = self.placements(&rng);
            for (at, jobs) in (0..).zip(&together) {
                let placed: Vec<(usize, &Placement)> =
                    jobs.iter().map(|&job| (job, &placements[job])).collect();
                let beside = self.beside.as_ref().filter(|_| choices.has_others);
                let flows = beside.map(|beside| self.flows_beside(beside, choices.gbps, &rng));
                let scenario = testbed.scenario(choices, &placed, flows, point)?;
                if let Some(ideal) = choices.ideal {
                    let spans = scenario.in_order(ideal.into(), point.context.seed);
                    self.keep_spans(&mut rounds, jobs, &spans);
                    continue;
                }
                let before = round * together.len() as u64 + at;
                let done = |share| (before as f64 + share) / runs as f64;
                let outcome = run(&scenario, point, None, done)?;
                self.keep(&mut rounds, jobs, &outcome);
            }
        }
        Ok(rounds)
    }

    /// Keeps iterations that follow each other.
    fn keep_spans(&self, rounds: &mut Rounds, jobs: &[usize], spans: &[Vec<Span>]) {
        for (&job, spans) in jobs.iter().zip(spans) {
            let spans_us = spans.iter().map(|span| span.as_us_f64() * self.divisor);
            rounds.completions_us.push(spans_us.clone().sum());
            rounds.iterations_us[job].extend(spans_us);
        }
    }

    fn keep(&self, rounds: &mut Rounds, jobs: &[usize], outcome: &Outcome) {
        for (&job, record) in jobs.iter().zip(&outcome.jobs) {
            let end = record.sums_at.iter().filter_map(|times| times.last()).max();
            let took_us = end.map_or(f64::NAN, |end| end.since(record.start).as_us_f64());
            rounds.completions_us.push(took_us * self.divisor);
            let spans = record.iterations.iter().map(|span| span.as_us_f64() * self.divisor);
            rounds.iterations_us[job].extend(spans);
        }
        rounds.resent += outcome.resent_packets;
        let ended = outcome.flows.iter().filter(|flow| flow.end.is_some());
        rounds.others_bits += ended.map(|flow| flow.spec.bytes.as_u64() as f64 * 8.0).sum::<f64>();
        rounds.runs_s += outcome.now.since(Time::ZERO).as_s_f64();
        rounds.dropped += outcome.stats.dropped();
        let pacing = rounds.pacing.into_iter().chain(outcome.pacing);
        rounds.pacing = pacing.reduce(PacingStats::merge);
    }
}

/// Runs until all jobs have ended; flows beside them may still be there. `done` turns the share of this run
/// into that of the point.
pub(super) fn run(
    scenario: &Scenario,
    point: &Point<'_>,
    tracer: Option<Box<dyn Tracer>>,
    done: impl Fn(f64) -> f64,
) -> Result<Outcome, FigureError> {
    let outcome = run_until(scenario, point, tracer, |progress| {
        let (finished, expected) = (progress.finished_sums, progress.expected_sums);
        let share = finished as f64 / expected.max(1) as f64;
        (done(share), progress.ended.is_some() || finished == expected)
    })?;
    let early = matches!(outcome.ending, Ending::Stuck | Ending::TimeUp)
        .then(|| format!("{:?}", outcome.ending));
    sound(scenario, point, outcome, early)
}
