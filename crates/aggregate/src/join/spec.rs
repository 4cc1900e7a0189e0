//! Facts that a job is registered with.

use thalweg_core::NodeId;
use thiserror::Error;

use crate::parameters::{CheckedParameters, JobParameters, ParameterError};

/// Most workers of a job: four times what two full levels of switches hold.
pub const WORKERS_MAX: u32 = 4_096;

/// Most servers of a job.
pub const SERVERS_MAX: usize = 1_024;

/// The specification of a job. [`JobSpec::new`] has the defaults.
#[derive(Clone, PartialEq, Debug)]
pub struct JobSpec {
    /// Number of workers.
    pub workers: u32,
    /// The servers. Fragments are dealt to them in turn.
    pub servers: Vec<NodeId>,
    /// Parameters of the job.
    pub parameters: JobParameters,
}

/// A specification that a job can be made of.
#[derive(Clone, PartialEq, Debug)]
pub struct CheckedSpec {
    pub(super) workers: u32,
    pub(super) servers: Vec<NodeId>,
    pub(super) parameters: CheckedParameters,
}

/// Why a specification is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SpecError {
    /// None, or too many.
    #[error("workers is {0}, must be 1 to {WORKERS_MAX}")]
    Workers(u32),
    /// None, or too many.
    #[error("{0} servers are named, must be 1 to {SERVERS_MAX}")]
    Servers(usize),
    /// A server is there twice.
    #[error("server {0} is named twice: name it once")]
    SameServer(NodeId),
    /// Parameters that no job can have.
    #[error(transparent)]
    Parameters(#[from] ParameterError),
}

impl JobSpec {
    /// A job with default parameters.
    pub fn new(workers: u32, servers: Vec<NodeId>) -> JobSpec {
        JobSpec { workers, servers, parameters: JobParameters::default() }
    }

    /// Checks that a job can be like that.
    pub fn check(self) -> Result<CheckedSpec, SpecError> {
        if !(1..=WORKERS_MAX).contains(&self.workers) {
            return Err(SpecError::Workers(self.workers));
        }
        if !(1..=SERVERS_MAX).contains(&self.servers.len()) {
            return Err(SpecError::Servers(self.servers.len()));
        }
        let mut servers = self.servers.clone();
        servers.sort_unstable();
        if let Some(same) = servers.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(SpecError::SameServer(same[0]));
        }
        let parameters = self.parameters.check()?;
        Ok(CheckedSpec { workers: self.workers, servers: self.servers, parameters })
    }
}

impl CheckedSpec {
    /// Parameters of the job.
    pub fn parameters(&self) -> CheckedParameters {
        self.parameters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl Fn(&mut JobSpec)) -> Result<(), SpecError> {
        let mut spec = JobSpec::new(4, vec![NodeId(8), NodeId(9)]);
        change(&mut spec);
        spec.check().map(|_| ())
    }

    #[test]
    fn defaults_are_right_and_contradictions_are_refused() {
        assert_eq!(check(|_| {}), Ok(()));
        assert_eq!(check(|spec| spec.workers = 4_096), Ok(()));
        assert_eq!(check(|spec| spec.workers = 0), Err(SpecError::Workers(0)));
        assert_eq!(check(|spec| spec.workers = 4_097), Err(SpecError::Workers(4_097)));
        assert_eq!(check(|spec| spec.servers.clear()), Err(SpecError::Servers(0)));
        let same = check(|spec| spec.servers.push(NodeId(8)));
        assert_eq!(same, Err(SpecError::SameServer(NodeId(8))));
        let none = check(|spec| spec.parameters.aggregators = 0);
        assert_eq!(none, Err(ParameterError::Aggregators(0).into()));
    }
}
