//! From the table of a training job to the job.

use thalweg_core::Time;
use thalweg_workload::{Buckets, Compute, Model, TrainingError, TrainingJob, models};

use super::{Setting, Traffic};
use crate::error::Mistake;
use crate::file::TrainingTable;
use crate::training::Training;

/// Gradients are exchanged in single precision.
const BYTES_PER_VALUE: u8 = 4;

impl Setting<'_> {
    pub(super) fn training(&self, table: &TrainingTable) -> Result<Traffic, Mistake> {
        for (index, &host) in table.workers.iter().enumerate() {
            self.host(host).map_err(|message| Mistake::at(index, message).under("workers"))?;
        }
        self.host(table.server).map_err(|message| Mistake::at("server", message))?;
        if table.workers.contains(&table.server) {
            let message = format!("host {} is a worker too: give another host", table.server);
            return Err(Mistake::at("server", message));
        }
        let job = TrainingJob {
            model: self.model(table)?,
            workers: table.workers.iter().map(|&host| host as usize).collect(),
            iterations: table.iterations,
            compute: compute(table)?,
            bytes_per_value: BYTES_PER_VALUE,
            buckets: table.bucket.map(|bytes| Buckets { first: bytes, others: bytes }),
        };
        let training = Training::new(job, table.server as usize, Time::ZERO + table.start);
        let training = training.map_err(|error| training_mistake(&error))?;
        self.fits(training.largest_flow(), if table.json.is_some() { "json" } else { "model" })?;
        Ok(Traffic::Training(training))
    }

    fn model(&self, table: &TrainingTable) -> Result<Model, Mistake> {
        let what = "say what is trained: model = \"resnet50\" or json = \"model.json\"";
        match (&table.model, &table.json) {
            (None, None) => Err(Mistake::here(what)),
            (Some(_), Some(_)) => Err(Mistake::at("json", format!("{what}, not both"))),
            (Some(name), None) => models::by_name(name).ok_or_else(|| {
                let names = models::NAMES.join(", ");
                let message =
                    format!("{name:?} is not built in: write one of {names}, or use json");
                Mistake::at("model", message)
            }),
            (None, Some(file)) => {
                let text = (self.load)(file).map_err(|error| Mistake::at("json", error))?;
                let model = Model::from_json(&text);
                model.map_err(|error| Mistake::at("json", format!("{file}: {error}")))
            }
        }
    }
}

fn compute(table: &TrainingTable) -> Result<Compute, Mistake> {
    match (table.forward, table.backward, table.flops_per_s, table.batch) {
        (Some(forward), Some(backward), None, None) => Ok(Compute::Times { forward, backward }),
        (None, None, Some(flops_per_s), Some(batch)) => {
            Ok(Compute::Accelerator { flops_per_s, batch })
        }
        _ => Err(Mistake::here(
            "say how long workers compute: give forward and backward, or flops-per-s and batch",
        )),
    }
}

fn training_mistake(error: &TrainingError) -> Mistake {
    match error {
        TrainingError::NoWorkers | TrainingError::WorkerTwice(_) => Mistake::at("workers", error),
        TrainingError::NoIterations => Mistake::at("iterations", error),
        TrainingError::Speed(_) | TrainingError::NoWork(_) => Mistake::at("flops-per-s", error),
        TrainingError::NoBatch => Mistake::at("batch", error),
        TrainingError::NoBytes => Mistake::here(error),
    }
}
