//! Training jobs: when an iteration computes, and when its gradients are ready.
//!
//! An iteration is a forward pass, a backward pass that makes gradients ready one after the other,
//! and their exchange. When the next one starts is the caller's decision.

use std::collections::BTreeSet;

use thalweg_core::{Bytes, Span};
use thiserror::Error;

use crate::model::Model;

/// A data-parallel job: every worker computes the same plan and contributes to every gradient.
#[derive(Clone, PartialEq, Debug)]
pub struct TrainingJob {
    /// The trained model.
    pub model: Model,
    /// The hosts that train it, each an index.
    pub workers: Vec<usize>,
    /// Number of iterations.
    pub iterations: u64,
    /// Duration of computing.
    pub compute: Compute,
    /// Bytes of a value on the wire: 4 for single precision.
    pub bytes_per_value: u8,
    /// Sizes of buckets of tensors; `None` sends every tensor alone.
    pub buckets: Option<Buckets>,
}

/// Computing time of a worker in an iteration.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Compute {
    /// The work of the model at the speed of an accelerator.
    Accelerator {
        /// Operations per second that it reaches in practice, not its peak.
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
    /// Buckets of PyTorch's `DistributedDataParallel`: 1 MiB, then 25 MiB.
    fn default() -> Buckets {
        Buckets { first: Bytes::new(1 << 20), others: Bytes::new(25 << 20) }
    }
}

/// One iteration, relative to its start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IterationPlan {
    /// Duration of the forward pass.
    pub forward: Span,
    /// Time of the forward pass of each layer.
    pub layers: Vec<Span>,
    /// Duration of the backward pass after it.
    pub backward: Span,
    /// Gradients to exchange, in the order in which they get ready.
    pub gradients: Vec<Ready>,
}

/// A gradient, or a bucket of them, that is exchanged as a whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ready {
    /// Tensors in it, as indices into [`Model::tensors`], in the order in which they get ready.
    pub tensors: Vec<usize>,
    /// Size of the gradient.
    pub bytes: Bytes,
    /// When its last tensor is ready, counted from the start of the iteration.
    pub at: Span,
    /// The front layer among its tensors: an index into [`Model::layers`].
    pub layer: usize,
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
        let tensors = self.model.tensors();
        let ready = backward_ends(&self.model, backward);
        let single = self.model.ready_order().iter().zip(ready).map(|(&index, done)| Ready {
            tensors: vec![index],
            bytes: Bytes::new(tensors[index].values) * u64::from(self.bytes_per_value),
            at: forward + done,
            layer: tensors[index].layer,
        });
        let gradients = match self.buckets {
            None => single.collect(),
            Some(buckets) => buckets.fill(single),
        };
        let layers = forward_times(&self.model, forward);
        Ok(IterationPlan { forward, layers, backward, gradients })
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
    }
}

/// When each tensor's gradient is ready, in the model's ready order, in a backward pass of that
/// length. The pass is split over the layers in proportion to their work, or to their sizes where the
/// model knows no work. All tensors of a layer are ready when its work is done.
fn backward_ends(model: &Model, pass: Span) -> Vec<Span> {
    let mut remaining: Vec<u64> = model.layers().iter().map(|layer| layer.backward_flops).collect();
    if remaining.iter().all(|&flops| flops == 0) {
        model.tensors().iter().for_each(|tensor| remaining[tensor.layer] += tensor.values);
    }
    let total = remaining.iter().sum();
    let mut done = 0;
    let end = |&index: &usize| {
        done += std::mem::take(&mut remaining[model.tensors()[index].layer]);
        part(pass, done, total)
    };
    model.ready_order().iter().map(end).collect()
}

/// Time of each layer in a forward pass of that length, which is split as the backward pass is.
fn forward_times(model: &Model, pass: Span) -> Vec<Span> {
    let mut work: Vec<u64> = model.layers().iter().map(|layer| layer.forward_flops).collect();
    if work.iter().all(|&flops| flops == 0) {
        model.tensors().iter().for_each(|tensor| work[tensor.layer] += tensor.values);
    }
    let total = work.iter().sum();
    let mut done = 0;
    let mut last = Span::ZERO;
    let time = |own: u64| {
        done += own;
        let end = part(pass, done, total);
        end - std::mem::replace(&mut last, end)
    };
    work.into_iter().map(time).collect()
}

fn part(whole: Span, done: u64, total: u64) -> Span {
    let ps = u128::from(whole.as_ps()) * u128::from(done) / u128::from(total);
    Span::from_ps(ps as u64)
}

#[cfg(test)]
mod tests;
