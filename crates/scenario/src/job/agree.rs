//! Agreement of a job's workers and servers on a set-up, before they begin.

use std::sync::Arc;

use thalweg_aggregate::join::{JobSpec, JoinError, Membership, Process, Registrar};
use thalweg_aggregate::{Setup, TreeError};
use thalweg_core::NodeId;

use crate::error::Mistake;

/// The first set-up of a job. All messages arrive at once: what a control channel does to them is no
/// part of a scenario.
pub(crate) fn agree(
    registrar: &mut Registrar,
    spec: JobSpec,
    workers: &[NodeId],
    paths: Vec<Vec<Vec<NodeId>>>,
) -> Result<Arc<Setup>, Mistake> {
    let job = registrar.register(spec).map_err(Mistake::here)?;
    let mut members = Vec::new();
    for (rank, (&node, paths)) in (0..).zip(workers.iter().zip(paths)) {
        let member = Membership::new(job, Process { node, life: 0 }, paths);
        registrar.handle(member.join(Some(rank))).map_err(|error| mistake(&error))?;
        members.push(member);
    }
    while let Some(instruction) = registrar.poll() {
        for member in &mut members {
            if let Some(answer) = member.answer(&instruction, 0) {
                registrar.handle(answer).map_err(|error| mistake(&error))?;
            }
        }
    }
    let setup = registrar.setup(job).expect("everybody has answered");
    Ok(Arc::clone(setup))
}

fn mistake(error: &JoinError) -> Mistake {
    match error {
        JoinError::Tree(TreeError::TwoParents(_)) => {
            Mistake::here(format!("{error}: write levels = 2 in [aggregation]"))
        }
        _ => Mistake::here(error),
    }
}
