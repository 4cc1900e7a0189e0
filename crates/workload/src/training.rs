//! Training jobs: when an iteration computes, and when its gradients are ready.
//!
//! An iteration is a forward pass, a backward pass that makes gradients ready one after the other,
//! and their exchange. When the next one starts is the caller's decision: with everything exchanged,
//! or as soon as the front layers are, since they are needed first ([`Ready::needed_after`]).

use std::collections::BTreeSet;

use thalweg_core::{Bytes, Span};
use thiserror::Error;

use crate::model::Model;

/// A data-parallel job: every worker computes the same plan and contributes to every gradient.
#[derive(Clone, PartialEq, Debug)]
pub struct TrainingJob {
    /// What is trained.
    pub model: Model,
    /// The hosts that train it, each an index.
    pub workers: Vec<usize>,
    /// How many iterations there are.
    pub iterations: u64,
    /// How long computing takes.
    pub compute: Compute,
    /// What a value takes on the way: 4 for single precision.
    pub bytes_per_value: u8,
    /// How tensors are put together, `None` for every tensor alone.
    pub buckets: Option<Buckets>,
}

/// How long a worker computes in an iteration.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Compute {
    /// The work of the model at the speed of an accelerator.
    Accelerator {
        /// What it reaches in practice, not its peak.
        flops_per_s: f64,
        /// Samples per worker and iteration.
        batch: u32,
    },
    /// Measured times.
    Times {
        /// Of the forward pass.
        forward: Span,
        /// Of the backward pass.
        backward: Span,
    },
}

/// Tensors are put together in the order in which they get ready, until there is enough. A bucket is
/// closed by the tensor that fills it, so it can be larger than asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buckets {
    /// Enough for the first bucket, small so that the exchange starts early.
    pub first: Bytes,
    /// Enough for all others.
    pub others: Bytes,
}

impl Default for Buckets {
    /// What PyTorch's `DistributedDataParallel` does: 1 MiB, then 25 MiB.
    fn default() -> Buckets {
        Buckets { first: Bytes::new(1 << 20), others: Bytes::new(25 << 20) }
    }
}

/// One iteration, relative to its start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IterationPlan {
    /// How long the forward pass takes.
    pub forward: Span,
    /// How long the backward pass takes after it.
    pub backward: Span,
    /// What is exchanged, in the order in which it gets ready.
    pub gradients: Vec<Ready>,
}

/// A gradient, or a bucket of them, that is exchanged as a whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ready {
    /// Its tensors, indices into [`Model::tensors`], in the order in which they get ready.
    pub tensors: Vec<usize>,
    /// Its size.
    pub bytes: Bytes,
    /// When its last tensor is ready, counted from the start of the iteration.
    pub at: Span,
    /// The front layer among its tensors: an index into [`Model::layers`].
    pub layer: usize,
    /// How far the next forward pass gets without it. The pass ends at the latest of (arrival −
    /// `needed_after`) over all gradients, and not before its start, plus its own length.
    pub needed_after: Span,
}

/// A worker's part of a gradient, ready to leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Contribution {
    /// Counted from 0.
    pub iteration: u64,
    /// The host that has it.
    pub worker: usize,
    /// An index into [`IterationPlan::gradients`].
    pub gradient: usize,
    /// Its size.
    pub bytes: Bytes,
    /// When it is ready, counted from the start of its iteration.
    pub at: Span,
}

/// Why a job has no plan.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum TrainingError {
    /// Nobody trains.
    #[error("the job has no workers: name at least one host")]
    NoWorkers,
    /// A host is named twice.
    #[error("host {0} is named twice: a host is one worker")]
    WorkerTwice(usize),
    /// There is nothing to do.
    #[error("the job has no iterations: give at least 1")]
    NoIterations,
    /// The accelerator never finishes.
    #[error(
        "an accelerator of {0} FLOP/s finishes nothing: give its speed in FLOP/s, such as 5e13"
    )]
    Speed(f64),
    /// Nothing is computed.
    #[error("the batch is empty: give at least 1 sample")]
    NoBatch,
    /// The model does not say how much work it is.
    #[error("model {0} does not say how much work it is: give times instead of an accelerator")]
    NoWork(String),
    /// Values take no room.
    #[error("values of 0 bytes carry nothing: give bytes_per_value, such as 4")]
    NoBytes,
}

impl TrainingJob {
    /// The plan of every iteration.
    pub fn plan(&self) -> Result<IterationPlan, TrainingError> {
        self.check()?;
        let (forward, backward) = self.times()?;
        let work = Work::of(&self.model);
        let needed_after = work.forward_starts(forward);
        let tensors = self.model.tensors();
        let ready = work.backward_ends(&self.model, backward);
        let single = self.model.ready_order().iter().zip(ready).map(|(&index, done)| Ready {
            tensors: vec![index],
            bytes: Bytes::new(tensors[index].values) * u64::from(self.bytes_per_value),
            at: forward + done,
            layer: tensors[index].layer,
            needed_after: needed_after[tensors[index].layer],
        });
        let gradients = match self.buckets {
            None => single.collect(),
            Some(buckets) => buckets.fill(single),
        };
        Ok(IterationPlan { forward, backward, gradients })
    }

    /// What the job sends, made one by one: iteration by iteration, in the order in which it gets
    /// ready, in the workers' order where that is at the same time.
    pub fn contributions(&self) -> Result<Contributions, TrainingError> {
        Ok(Contributions {
            plan: self.plan()?,
            workers: self.workers.clone(),
            iterations: self.iterations,
            next: (0, 0, 0),
        })
    }

    fn check(&self) -> Result<(), TrainingError> {
        if self.workers.is_empty() {
            return Err(TrainingError::NoWorkers);
        }
        let mut seen = BTreeSet::new();
        if let Some(&twice) = self.workers.iter().find(|&&worker| !seen.insert(worker)) {
            return Err(TrainingError::WorkerTwice(twice));
        }
        if self.iterations == 0 {
            return Err(TrainingError::NoIterations);
        }
        if self.bytes_per_value == 0 {
            return Err(TrainingError::NoBytes);
        }
        Ok(())
    }

    fn times(&self) -> Result<(Span, Span), TrainingError> {
        let (flops_per_s, batch) = match self.compute {
            Compute::Times { forward, backward } => return Ok((forward, backward)),
            Compute::Accelerator { flops_per_s, batch } => (flops_per_s, batch),
        };
        if !(flops_per_s > 0.0 && flops_per_s.is_finite()) {
            return Err(TrainingError::Speed(flops_per_s));
        }
        if batch == 0 {
            return Err(TrainingError::NoBatch);
        }
        if self.model.forward_flops() == 0 {
            return Err(TrainingError::NoWork(self.model.name().to_string()));
        }
        let time = |flops: u64| Span::from_s_f64(flops as f64 * f64::from(batch) / flops_per_s);
        Ok((time(self.model.forward_flops()), time(self.model.backward_flops())))
    }
}

/// The contributions of a job.
#[derive(Clone, Debug)]
pub struct Contributions {
    plan: IterationPlan,
    workers: Vec<usize>,
    iterations: u64,
    /// Iteration, gradient and place among the workers.
    next: (u64, usize, usize),
}

impl Contributions {
    /// The plan that every iteration follows.
    pub fn plan(&self) -> &IterationPlan {
        &self.plan
    }
}

impl Iterator for Contributions {
    type Item = Contribution;

    fn next(&mut self) -> Option<Contribution> {
        let (iteration, gradient, place) = self.next;
        if iteration == self.iterations {
            return None;
        }
        self.next = if place + 1 < self.workers.len() {
            (iteration, gradient, place + 1)
        } else if gradient + 1 < self.plan.gradients.len() {
            (iteration, gradient + 1, 0)
        } else {
            (iteration + 1, 0, 0)
        };
        let Ready { bytes, at, .. } = self.plan.gradients[gradient];
        Some(Contribution { iteration, worker: self.workers[place], gradient, bytes, at })
    }
}

impl Buckets {
    /// Puts gradients together that come in the order in which they get ready.
    fn fill(self, gradients: impl Iterator<Item = Ready>) -> Vec<Ready> {
        let mut buckets: Vec<Ready> = Vec::new();
        for gradient in gradients {
            let enough = if buckets.len() > 1 { self.others } else { self.first };
            match buckets.last_mut() {
                Some(open) if open.bytes < enough => open.append(gradient),
                _ => buckets.push(gradient),
            }
        }
        buckets
    }
}

impl Ready {
    fn append(&mut self, later: Ready) {
        self.tensors.extend(later.tensors);
        self.bytes += later.bytes;
        self.at = later.at;
        self.layer = self.layer.min(later.layer);
        self.needed_after = self.needed_after.min(later.needed_after);
    }
}

/// How the time of each pass is split over the layers.
struct Work {
    forward: Vec<u64>,
    backward: Vec<u64>,
}

impl Work {
    /// In proportion to the layers' work, or to their sizes where the model knows no work.
    fn of(model: &Model) -> Work {
        let layers = model.layers();
        let mut values = vec![0; layers.len()];
        model.tensors().iter().for_each(|tensor| values[tensor.layer] += tensor.values);
        let known = |work: Vec<u64>| {
            if work.iter().any(|&flops| flops > 0) { work } else { values.clone() }
        };
        Work {
            forward: known(layers.iter().map(|layer| layer.forward_flops).collect()),
            backward: known(layers.iter().map(|layer| layer.backward_flops).collect()),
        }
    }

    /// When each layer starts, in a forward pass of that length.
    fn forward_starts(&self, pass: Span) -> Vec<Span> {
        let total = self.forward.iter().sum();
        let mut done = 0;
        let start = |&work: &u64| {
            let start = part(pass, done, total);
            done += work;
            start
        };
        self.forward.iter().map(start).collect()
    }

    /// When each tensor's gradient is ready, in the model's ready order, in a backward pass of that
    /// length. All tensors of a layer are ready when its work is done.
    fn backward_ends(&self, model: &Model, pass: Span) -> Vec<Span> {
        let total = self.backward.iter().sum();
        let mut remaining = self.backward.clone();
        let mut done = 0;
        let end = |&index: &usize| {
            done += std::mem::take(&mut remaining[model.tensors()[index].layer]);
            part(pass, done, total)
        };
        model.ready_order().iter().map(end).collect()
    }
}

fn part(whole: Span, done: u64, total: u64) -> Span {
    let ps = u128::from(whole.as_ps()) * u128::from(done) / u128::from(total);
    Span::from_ps(ps as u64)
}

#[cfg(test)]
mod tests;
