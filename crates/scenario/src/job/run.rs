//! A job in motion: where each worker is, and what came so far.

use std::collections::VecDeque;

use thalweg_core::{Span, Time};
use thalweg_values::Coverage;

use super::record::JobRecord;
use super::script::{Place, Ready};
use super::stats::WorkerStats;
use super::{Job, ServerUse, VALUE_BYTES};

/// A job in motion. It decides which tensor is handed over when; its caller hands it over.
#[derive(Clone, Debug)]
pub(crate) struct JobRun<'a> {
    job: &'a Job,
    /// By rank.
    places: Vec<Place>,
    /// Rounds that some worker has started and not every worker has ended.
    open: VecDeque<OpenRound>,
    iterations: Vec<Span>,
    /// End of the last iteration.
    ended_at: Time,
    sums_at: Vec<Vec<Time>>,
    summed_bytes: Vec<u64>,
    /// Of each worker's own values, those that sums in switches lack.
    missing_bytes: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct OpenRound {
    started: Time,
    /// Number of workers that have not ended it.
    unfinished: usize,
}

impl<'a> JobRun<'a> {
    /// At its start.
    pub(crate) fn new(job: &'a Job) -> JobRun<'a> {
        let workers = job.workers.len();
        JobRun {
            job,
            places: vec![Place::new(&job.script, job.start); workers],
            open: VecDeque::from([OpenRound { started: job.start, unfinished: workers }]),
            iterations: Vec::new(),
            ended_at: job.start,
            sums_at: vec![Vec::new(); workers],
            summed_bytes: vec![0; workers],
            missing_bytes: vec![0; workers],
        }
    }

    /// When a worker has something to hand over, and what.
    pub(crate) fn next(&self, rank: usize) -> Option<(Time, Ready)> {
        self.places[rank].next(&self.job.script)
    }

    /// A worker handed that over.
    pub(crate) fn on_submitted(&mut self, now: Time, rank: usize) {
        let started = self.places[rank].on_submitted(now, &self.job.script);
        self.note_start(now, started);
    }

    /// A worker has a sum.
    pub(crate) fn on_sum(&mut self, now: Time, rank: usize, operation: u64) {
        let script = &self.job.script;
        let place = &mut self.places[rank];
        let tensor = (operation % script.tensors.len() as u64) as usize;
        self.sums_at[rank].push(now);
        self.summed_bytes[rank] += script.tensors[tensor].values * VALUE_BYTES;
        // Workers may be rounds apart; the first open round is that of the slowest.
        let first = place.ended() as usize - self.iterations.len();
        let (ended, started) = place.on_sum(now, script, operation);
        for round in self.open.iter_mut().skip(first).take(ended as usize) {
            round.unfinished -= 1;
        }
        while let Some(round) = self.open.pop_front_if(|round| round.unfinished == 0) {
            // A pipelined iteration begins before the last one has ended: it takes the time between their ends.
            let begun = if script.forward.is_empty() { round.started } else { self.ended_at };
            self.iterations.push(now.since(begun));
            self.ended_at = now;
        }
        self.note_start(now, started);
    }

    /// Counts the worker's own values that the sum lacks. Where that is unreported, the member of the
    /// collective counts the bytes that it lost.
    pub(crate) fn on_coverage(&mut self, rank: usize, coverage: &Coverage) {
        self.missing_bytes[rank] += coverage.missing_of(rank as u32).unwrap_or(0) * VALUE_BYTES;
    }

    /// True if every worker has every sum.
    pub(crate) fn is_over(&self) -> bool {
        self.places.iter().all(|place| place.is_over(&self.job.script))
    }

    /// Bytes of tensors whose sums a worker has.
    pub(crate) fn summed_bytes(&self, rank: usize) -> Option<u64> {
        self.summed_bytes.get(rank).copied()
    }

    /// Results so far.
    pub(crate) fn into_record(
        self,
        mut stats: Vec<WorkerStats>,
        servers: Vec<ServerUse>,
        failure: Option<String>,
    ) -> JobRecord {
        let job = self.job;
        for (stats, missing) in stats.iter_mut().zip(&self.missing_bytes) {
            stats.lost_bytes += missing;
        }
        JobRecord {
            kind: job.kind,
            model: job.model.clone(),
            collective: job.collective,
            workers: job.workers.len(),
            compute: job.compute,
            start: job.start,
            planned_iterations: job.script.rounds,
            iterations: self.iterations,
            sums_at: self.sums_at,
            summed_bytes: self.summed_bytes,
            stats,
            servers,
            failure,
        }
    }

    fn note_start(&mut self, now: Time, round: Option<u64>) {
        let Some(round) = round else { return };
        if self.iterations.len() + self.open.len() == round as usize {
            self.open.push_back(OpenRound { started: now, unfinished: self.places.len() });
        }
    }
}
