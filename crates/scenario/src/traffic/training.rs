//! From the table of a training job to the job.

use thalweg_core::Time;
use thalweg_workload::{
    Buckets, Compute, IterationPlan, Model, TrainingError, TrainingJob, models,
};

use super::members::{Members, chunk, delivery, layer_priorities};
use super::{Setting, Traffic};
use crate::error::Mistake;
use crate::file::TrainingTable;
use crate::job::{Forward, Job, JobKind, Ready, Script, VALUE_BYTES};

impl Setting<'_> {
    pub(super) fn training(&self, table: &TrainingTable) -> Result<Traffic, Mistake> {
        let Members { collective, workers, servers } =
            self.members(table.collective, &table.workers, table.server, table.servers.as_deref())?;
        let training = TrainingJob {
            model: self.model(table.model.as_deref(), table.json.as_deref())?,
            workers: workers.iter().map(|host| host.index()).collect(),
            iterations: table.iterations,
            compute: compute(table)?,
            // Gradients are exchanged in single precision.
            bytes_per_value: VALUE_BYTES as u8,
            buckets: table.bucket.map(|bytes| Buckets { first: bytes, others: bytes }),
        };
        let plan = training.plan().map_err(|error| training_mistake(&error))?;
        let ready = |gradient: &thalweg_workload::Ready| Ready {
            at: gradient.at,
            values: gradient.bytes.as_u64() / VALUE_BYTES,
            layer: u16::try_from(gradient.layer).unwrap_or(u16::MAX),
        };
        let layers = training.model.layers().len();
        let forward = match table.pipelined {
            true => forward(&training.model, &plan),
            false => Vec::new(),
        };
        let carrier = (table.transport, table.loss, table.parameters);
        Ok(Traffic::Job(Box::new(Job {
            kind: JobKind::Training,
            model: training.model.name().to_owned(),
            collective,
            workers,
            servers,
            chunk: chunk(collective, table.chunk)?,
            delivery: delivery(collective, carrier, layers)?,
            layers: layer_priorities(collective, table.layer_priorities, layers)?,
            start: Time::ZERO + table.start,
            compute: plan.forward + plan.backward,
            script: Script {
                tensors: plan.gradients.iter().map(ready).collect(),
                rounds: table.iterations,
                // The next round begins while sums of the last one are missing.
                open_rounds: 1 + u64::from(table.pipelined),
                forward,
            },
        })))
    }

    pub(super) fn model(&self, name: Option<&str>, json: Option<&str>) -> Result<Model, Mistake> {
        let what = "say what is trained: model = \"resnet50\" or json = \"model.json\"";
        match (name, json) {
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

/// The layers of the forward pass, each with the gradients that have tensors of it.
fn forward(model: &Model, plan: &IterationPlan) -> Vec<Forward> {
    let mut parts: Vec<_> =
        plan.layers.iter().map(|&lasts| Forward { lasts, needs: Vec::new() }).collect();
    for (number, gradient) in plan.gradients.iter().enumerate() {
        for &tensor in &gradient.tensors {
            let needs = &mut parts[model.tensors()[tensor].layer].needs;
            if needs.last() != Some(&number) {
                needs.push(number);
            }
        }
    }
    parts
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

pub(super) fn training_mistake(error: &TrainingError) -> Mistake {
    match error {
        TrainingError::NoWorkers | TrainingError::WorkerTwice(_) => Mistake::at("workers", error),
        TrainingError::NoIterations => Mistake::at("iterations", error),
        TrainingError::Speed(_) | TrainingError::NoWork(_) => Mistake::at("flops-per-s", error),
        TrainingError::NoBatch => Mistake::at("batch", error),
        TrainingError::NoBytes => Mistake::here(error),
    }
}
