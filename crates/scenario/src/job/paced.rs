//! Flows of each host for a job in an iteration, for schedulers to plan.
//!
//! Numbers of flows, for W workers and S servers: with parameter servers, gradients of worker w to server s
//! have w × S + s, and results of server s to worker w come after all of those; a ring's member has its rank.
//! Gradients that switches sum have the numbers that they have with parameter servers; links count them as one.

use thalweg_core::{Bytes, NodeId};
use thalweg_pace::Relation;
use thalweg_stack::{PacedFlow, PacedJob};

use super::cast::{Part, Stage};
use super::{Job, VALUE_BYTES};

/// Of an iteration, how far a worker may be ahead of the slowest where switches sum. All of it: reports of the slowest
/// are a slot old, so a tighter limit would hold every worker back.
const WINDOW_PART: u64 = 1;

/// Flows of a host for a job; `None` if nothing plans them.
pub(super) fn paced(part: &Part, job: &Job, stage: Stage<'_>, node: NodeId) -> Option<PacedJob> {
    stage.pacing?;
    let round: u64 = job.script.tensors.iter().map(|tensor| tensor.values * VALUE_BYTES).sum();
    let rank = job.workers.iter().position(|&worker| worker == node);
    let flows = match part {
        Part::Server => [gradients(job, rank, round), results(job, node, round)].concat(),
        Part::Ring => vec![around(job, rank?, round)],
        // A server plans nothing, and tells workers of each other.
        Part::Aggregation(_) => rank.map_or_else(Vec::new, |rank| summed(job, rank, round)),
        Part::SwitchMl { .. } => return None,
    };
    let (segment_bytes, overhead_bytes) = match part {
        Part::Aggregation(_) => {
            let values = u32::from(stage.aggregation.parameters.fragment_values);
            (values * VALUE_BYTES as u32, stage.aggregation.parameters.overhead_bytes)
        }
        _ => (stage.transport.messages.segment_bytes, stage.transport.messages.overhead_bytes),
    };
    let round = if rank.is_some() { Bytes::new(round) } else { Bytes::ZERO };
    Some(PacedJob { round, flows, segment_bytes, overhead_bytes })
}

fn gradients(job: &Job, rank: Option<usize>, round: u64) -> Vec<PacedFlow> {
    let Some(rank) = rank else { return Vec::new() };
    let to = |(server, &to): (usize, &NodeId)| PacedFlow {
        number: gradient(job, rank, server),
        to,
        volume: Bytes::new(round / job.servers.len() as u64),
        relation: Relation::Aggregation,
        others: away(job, to).map(|worker| result(job, server, worker)).collect(),
    };
    job.servers.iter().enumerate().map(to).collect()
}

fn results(job: &Job, node: NodeId, round: u64) -> Vec<PacedFlow> {
    let Some(server) = job.servers.iter().position(|&server| server == node) else {
        return Vec::new();
    };
    let to = |(worker, &to): (usize, &NodeId)| PacedFlow {
        number: result(job, server, worker),
        to,
        volume: Bytes::new(round / job.servers.len() as u64),
        relation: Relation::Broadcast,
        others: away(job, node).map(|worker| gradient(job, worker, server)).collect(),
    };
    job.workers.iter().enumerate().map(to).collect()
}

fn around(job: &Job, rank: usize, round: u64) -> PacedFlow {
    let members = job.workers.len();
    let chunk = round / members as u64;
    PacedFlow {
        number: rank as u32,
        to: job.workers[(rank + 1) % members],
        volume: Bytes::new(2 * (members as u64 - 1) * chunk),
        relation: Relation::Ring { own_chunk: chunk },
        others: vec![((rank + members - 1) % members) as u32],
    }
}

fn summed(job: &Job, rank: usize, round: u64) -> Vec<PacedFlow> {
    let volume = round / job.servers.len() as u64;
    let others = |server: usize| {
        let others = (0..job.workers.len()).filter(move |other| *other != rank);
        others.map(move |other| gradient(job, other, server)).collect()
    };
    let to = |(server, &to): (usize, &NodeId)| PacedFlow {
        number: gradient(job, rank, server),
        to,
        volume: Bytes::new(volume),
        relation: Relation::Summed { window: volume / WINDOW_PART },
        others: others(server),
    };
    job.servers.iter().enumerate().map(to).collect()
}

fn gradient(job: &Job, worker: usize, server: usize) -> u32 {
    (worker * job.servers.len() + server) as u32
}

fn result(job: &Job, server: usize, worker: usize) -> u32 {
    let gradients = job.workers.len() * job.servers.len();
    (gradients + server * job.workers.len() + worker) as u32
}

/// Workers that are not on this host: what stays there is not planned, and nobody may wait for it.
fn away(job: &Job, host: NodeId) -> impl Iterator<Item = usize> + '_ {
    let workers = job.workers.iter().enumerate();
    workers.filter(move |(_, worker)| **worker != host).map(|(rank, _)| rank)
}
