//! Where flows come from: a sequence that is known beforehand, or a job that answers what arrives.

use std::iter::Peekable;

use thalweg_core::Time;
use thalweg_workload::FlowSpec;

use crate::training::{JobRun, Part};

/// Flows in order of time, made as they are needed.
pub(crate) type Flows = Box<dyn Iterator<Item = FlowSpec> + Send>;

/// One source of flows in a run. It is lazy, so looking changes it.
pub(crate) enum Source {
    Flows(Peekable<Flows>),
    Job(Box<JobRun>),
}

impl Source {
    /// A sequence in order of time.
    pub(crate) fn of(flows: impl Iterator<Item = FlowSpec> + Send + 'static) -> Source {
        let flows: Flows = Box::new(flows);
        Source::Flows(flows.peekable())
    }

    /// When its next flow starts, as far as that is known.
    pub(crate) fn next_start(&mut self) -> Option<Time> {
        match self {
            Source::Flows(flows) => flows.peek().map(|flow| flow.start),
            Source::Job(job) => job.next_start(),
        }
    }

    /// Its next flow, and what it is to its job if it is of one.
    pub(crate) fn next_flow(&mut self) -> Option<(FlowSpec, Option<Part>)> {
        match self {
            Source::Flows(flows) => flows.next().map(|flow| (flow, None)),
            Source::Job(job) => job.next_flow().map(|(flow, part)| (flow, Some(part))),
        }
    }

    /// The job, if it is one.
    pub(crate) fn job(&mut self) -> Option<&mut JobRun> {
        match self {
            Source::Flows(_) => None,
            Source::Job(job) => Some(job),
        }
    }
}
