//! Trainings in which every host is a worker and a server: MLT, Figures 15 and 16.

use serde::Deserialize;
use thalweg_core::Span;
use thalweg_scenario::{JobRecord, Outcome};
use toml::{Table, Value};

use crate::file::entries;
use crate::shrink::Trained;
use crate::{FigureError, Point};

/// How often a run says how far it is.
pub(crate) const STEP: Span = Span::from_us(500);

/// What jobs and switches are set to, over windows or bounded deliveries.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Exchange {
    bucket: String,
    chunk: String,
    /// Of bounded deliveries.
    loss_bound: f64,
    /// Of flows over windows.
    ecn_threshold: String,
    /// Of bounded deliveries, one for each priority.
    ecn_thresholds: Vec<String>,
}

impl Exchange {
    /// A training on so many hosts, by parameter servers or a ring.
    pub(crate) fn job(
        &self,
        collective: &str,
        hosts: u32,
        (trained, iterations): (&Trained, u32),
    ) -> Table {
        let hosts: Vec<u32> = (0..hosts).collect();
        let mut job = entries([
            ("json", "model.json".into()),
            ("collective", collective.into()),
            ("workers", hosts.clone().into()),
            ("iterations", iterations.into()),
            ("forward", trained.forward.as_str().into()),
            ("backward", trained.backward.as_str().into()),
            ("bucket", self.bucket.as_str().into()),
            ("chunk", self.chunk.as_str().into()),
        ]);
        if collective == "server" {
            job.insert("servers".to_owned(), hosts.into());
        }
        job
    }

    /// What it adds to a job that a part may be lost, of gradients and of parameters.
    pub(crate) fn tolerance(&self) -> [(String, Value); 2] {
        let parameters = ("parameters".to_owned(), "keep-value".into());
        [("loss".to_owned(), self.loss_bound.into()), parameters]
    }

    /// A switch that marks for windows.
    pub(crate) fn marking(&self) -> Table {
        entries([("ecn-threshold", self.ecn_threshold.as_str().into())])
    }

    /// A switch that goes by priority, and drops what is not important.
    pub(crate) fn selecting(&self) -> Table {
        entries([
            ("queues", "strict".into()),
            ("ecn-thresholds", self.ecn_thresholds.clone().into()),
            ("drop-unmarkable", true.into()),
        ])
    }
}

/// The training of a run, and how long its iterations took on average: all but the first.
pub(crate) fn steady<'a>(
    point: &Point<'_>,
    outcome: &'a Outcome,
) -> Result<(&'a JobRecord, f64), FigureError> {
    let job = outcome.jobs.first().ok_or_else(|| point.context.mistake("no job ran"))?;
    let steady = &job.iterations[1.min(job.iterations.len())..];
    let total: f64 = steady.iter().map(|span| span.as_us_f64()).sum();
    Ok((job, total / steady.len() as f64))
}
