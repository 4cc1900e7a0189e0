//! How the workers and servers of a job agree, before they begin.

use std::sync::Arc;

use thalweg_aggregate::Setup;
use thalweg_aggregate::join::{JobSpec, JoinError, Membership, Process, RegisterError, Registrar};
use thalweg_core::NodeId;
use thiserror::Error;

/// Why there is no set-up. The file is at fault.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub(crate) enum AgreeError {
    #[error(transparent)]
    Register(#[from] RegisterError),
    #[error(transparent)]
    Join(#[from] JoinError),
}

/// The first set-up of a job. All messages arrive at once: what a control channel does to them is no
/// part of a scenario.
pub(crate) fn agree(
    registrar: &mut Registrar,
    spec: JobSpec,
    workers: &[NodeId],
    paths: Vec<Vec<Vec<NodeId>>>,
) -> Result<Arc<Setup>, AgreeError> {
    let job = registrar.register(spec)?;
    let mut members = Vec::new();
    for (rank, (&node, paths)) in (0..).zip(workers.iter().zip(paths)) {
        let member = Membership::new(job, Process { node, life: 0 }, paths);
        registrar.handle(member.join(Some(rank)))?;
        members.push(member);
    }
    while let Some(instruction) = registrar.poll() {
        for member in &mut members {
            if let Some(answer) = member.answer(&instruction, 0) {
                registrar.handle(answer)?;
            }
        }
    }
    let setup = registrar.setup(job).expect("everybody has answered");
    Ok(Arc::clone(setup))
}
