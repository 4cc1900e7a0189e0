//! All rounds of a cell, and what is kept of them.

use thalweg_core::Rng;
use thalweg_fabric::trace::Tracer;
use thalweg_report::stats::Sample;
use thalweg_scenario::{Ending, Outcome, Scenario};
use thalweg_stack::PacingStats;

use super::draw::Seat;
use super::testbed::Testbed;
use super::{Cell, Setup};
use crate::runs::{run_until, sound};
use crate::{FigureError, Point};

/// What the rounds of a cell gave. Times are those of the testbed: multiplied back.
#[derive(Default)]
pub(super) struct Measured {
    /// From beginning to end of every job of every round.
    pub(super) completions_s: Vec<f64>,
    /// How long iterations took, job by job.
    pub(super) iterations_ms: Vec<Vec<f64>>,
    pub(super) resent: u64,
    pub(super) dropped: u64,
    /// What schedulers did, if there were any.
    pub(super) pacing: Option<PacingStats>,
}

impl Measured {
    pub(super) fn completions(&self) -> Option<Sample> {
        Sample::new(self.completions_s.iter().copied())
    }

    /// How long an iteration of a job took on average, if it had any.
    pub(super) fn iteration_ms(&self, job: usize) -> Option<f64> {
        Some(Sample::new(self.iterations_ms.get(job)?.iter().copied())?.mean())
    }
}

impl Setup {
    pub(super) fn measure(
        &self,
        cell: &Cell<'_>,
        point: &Point<'_>,
    ) -> Result<Measured, FigureError> {
        let mut measured =
            Measured { iterations_ms: vec![Vec::new(); self.jobs.len()], ..Measured::default() };
        let together: Vec<Vec<usize>> = match self.alone {
            true => (0..self.jobs.len()).map(|job| vec![job]).collect(),
            false => vec![(0..self.jobs.len()).collect()],
        };
        let testbed = self.testbed();
        let runs = self.rounds * together.len() as u64;
        for round in 0..self.rounds {
            let rng = Rng::new(point.context.seed).substream("round", round);
            let seats = self.seats(&rng);
            for (at, jobs) in (0..).zip(&together) {
                let seated: Vec<(usize, &Seat)> =
                    jobs.iter().map(|&job| (job, &seats[job])).collect();
                let beside = self.beside.as_ref();
                let flows = beside.map(|beside| self.flows_beside(beside, cell.place, &rng));
                let scenario = testbed.scenario(cell, &seated, flows, point)?;
                let before = round * together.len() as u64 + at;
                let done = |share| (before as f64 + share) / runs as f64;
                let outcome = run(&scenario, point, None, done)?;
                self.keep(&mut measured, jobs, &outcome);
            }
        }
        Ok(measured)
    }

    fn keep(&self, measured: &mut Measured, jobs: &[usize], outcome: &Outcome) {
        for (&job, record) in jobs.iter().zip(&outcome.jobs) {
            let end = record.sums_at.iter().filter_map(|times| times.last()).max();
            let took_s = end.map_or(f64::NAN, |end| end.since(record.start).as_s_f64());
            measured.completions_s.push(took_s * self.divisor);
            let ms = record.iterations.iter().map(|span| span.as_us_f64() / 1e3 * self.divisor);
            measured.iterations_ms[job].extend(ms);
        }
        measured.resent += outcome.resent_packets;
        measured.dropped += outcome.stats.dropped();
        let pacing = measured.pacing.into_iter().chain(outcome.pacing);
        measured.pacing = pacing.reduce(PacingStats::merge);
    }

    fn testbed(&self) -> Testbed<'_> {
        Testbed { network: &self.network, divisor: self.divisor, jobs: &self.jobs }
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
