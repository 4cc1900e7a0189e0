//! A training job with one parameter server, as a machine that says what to send next.
//!
//! | what happens | what follows |
//! |---|---|
//! | an iteration starts | every worker computes; its part of a gradient leaves when it is ready |
//! | a part arrives at the server | nothing, while another worker's part is missing |
//! | the last part of a gradient arrives | the server sends the result to every worker |
//! | a result arrives at its worker | nothing, while another result is missing |
//! | the last result arrives | the iteration is over, and the next one starts |
//! | a flow fails, or a host goes down | the job is over |

use std::collections::VecDeque;
use std::iter::Peekable;

use thalweg_core::{Bytes, Span, Time};
use thalweg_workload::{Contributions, FlowSpec, TrainingError, TrainingJob};

/// A job, checked.
#[derive(Clone, Debug)]
pub(crate) struct Training {
    job: TrainingJob,
    server: usize,
    start: Time,
    contributions: Contributions,
}

/// What a run made of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobRecord {
    /// What was trained.
    pub model: String,
    /// How many hosts trained it.
    pub workers: usize,
    /// How long a worker computes in every iteration.
    pub compute: Span,
    /// How many iterations were asked for.
    pub planned_iterations: u64,
    /// How long each that was completed took, computing included.
    pub iterations: Vec<Span>,
}

/// What a flow is to its job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// A worker's part of a gradient, on its way to the server.
    Gradient(usize),
    /// A sum on its way to a worker.
    Result,
}

/// A job in motion.
pub(crate) struct JobRun {
    workers: Vec<usize>,
    server: usize,
    gradients: Vec<Bytes>,
    contributions: Peekable<Contributions>,
    /// When the iteration started that is going on.
    started: Time,
    /// By gradient, how many parts the server lacks.
    missing_parts: Vec<usize>,
    /// How many results the workers lack.
    missing_results: usize,
    /// Results that may leave, with the time since when.
    results: VecDeque<FlowSpec>,
    is_over: bool,
    record: JobRecord,
}

impl Training {
    pub(crate) fn new(
        job: TrainingJob,
        server: usize,
        start: Time,
    ) -> Result<Training, TrainingError> {
        Ok(Training { contributions: job.contributions()?, job, server, start })
    }

    /// The size of the largest flow.
    pub(crate) fn largest_flow(&self) -> Bytes {
        let gradients = &self.contributions.plan().gradients;
        gradients.iter().map(|gradient| gradient.bytes).max().unwrap_or_default()
    }

    /// Every part and every result of every iteration.
    pub(crate) fn expected_flows(&self) -> u64 {
        let gradients = self.contributions.plan().gradients.len();
        let in_iteration = 2 * gradients as u64 * self.job.workers.len() as u64;
        self.job.iterations.saturating_mul(in_iteration)
    }

    /// The job before its first iteration.
    pub(crate) fn run(&self) -> JobRun {
        let plan = self.contributions.plan();
        let mut run = JobRun {
            workers: self.job.workers.clone(),
            server: self.server,
            gradients: plan.gradients.iter().map(|gradient| gradient.bytes).collect(),
            contributions: self.contributions.clone().peekable(),
            started: self.start,
            missing_parts: Vec::new(),
            missing_results: 0,
            results: VecDeque::new(),
            is_over: false,
            record: JobRecord {
                model: self.job.model.name().to_owned(),
                workers: self.job.workers.len(),
                compute: plan.forward + plan.backward,
                planned_iterations: self.job.iterations,
                iterations: Vec::new(),
            },
        };
        run.start_iteration(self.start);
        run
    }
}

impl JobRun {
    /// When its next flow starts, as far as that is known.
    pub(crate) fn next_start(&mut self) -> Option<Time> {
        if self.is_over {
            return None;
        }
        if let Some(result) = self.results.front() {
            return Some(result.start);
        }
        let iteration = self.record.iterations.len() as u64;
        let next = self.contributions.peek().filter(|next| next.iteration == iteration)?;
        // Computing may outlast time itself.
        Some(self.started + next.at).filter(|start| *start < Time::NEVER)
    }

    /// That flow.
    pub(crate) fn next_flow(&mut self) -> Option<(FlowSpec, Part)> {
        let start = self.next_start()?;
        if let Some(result) = self.results.pop_front() {
            return Some((result, Part::Result));
        }
        let next = self.contributions.next()?;
        let flow =
            FlowSpec { start, src: next.worker, dst: self.server, bytes: next.bytes, path: None };
        Some((flow, Part::Gradient(next.gradient)))
    }

    /// One of its flows has arrived whole. When the job is over, nobody is there to care.
    pub(crate) fn on_arrival(&mut self, now: Time, part: Part) {
        if self.is_over {
            return;
        }
        match part {
            Part::Gradient(gradient) => {
                self.missing_parts[gradient] -= 1;
                if self.missing_parts[gradient] == 0 {
                    self.send_result(now, gradient);
                }
            }
            Part::Result => {
                self.missing_results -= 1;
                if self.missing_results == 0 {
                    self.record.iterations.push(now.since(self.started));
                    self.start_iteration(now);
                }
            }
        }
    }

    /// One of its flows will never arrive.
    pub(crate) fn on_failure(&mut self) {
        self.is_over = true;
    }

    /// A host went down, perhaps one of its own. What that host knew of the job is lost.
    pub(crate) fn on_host_down(&mut self, host: usize) {
        self.is_over |= host == self.server || self.workers.contains(&host);
    }

    /// What it did so far.
    pub(crate) fn into_record(self) -> JobRecord {
        self.record
    }

    fn start_iteration(&mut self, now: Time) {
        self.started = now;
        self.missing_parts = vec![self.workers.len(); self.gradients.len()];
        self.missing_results = self.workers.len() * self.gradients.len();
    }

    fn send_result(&mut self, now: Time, gradient: usize) {
        let (src, bytes) = (self.server, self.gradients[gradient]);
        let result = |&dst: &usize| FlowSpec { start: now, src, dst, bytes, path: None };
        self.results.extend(self.workers.iter().map(result));
    }
}

#[cfg(test)]
mod tests;
