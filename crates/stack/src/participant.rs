//! A node's part in one job.

use thalweg_aggregate::{Absences, Manner, Reliability, Worker, worker};
use thalweg_baselines::switchml;
use thalweg_collective::{
    Coverage, Failure, Part as Lacks, SubmitError, SumCall, mesh, ring, server,
};
use thalweg_core::{Check, Machine, Operation, Packet, Tensor, Time};
use thalweg_wire::aggregate::LossShare;

use crate::part::Part;

/// A node's part in one job, by the collective that the job uses.
pub enum Participant {
    /// In-network aggregation.
    Aggregate(Box<Worker>),
    /// Parameter servers over flows or deliveries; a node may be worker, server, or both.
    Server(Box<server::Node>),
    /// A ring over flows or deliveries.
    Ring(Box<ring::Ring>),
    /// Everything but sums, over flows straight between ranks. It takes calls by
    /// [`Host::mesh_mut`](crate::Host::mesh_mut) and not by [`submit`](Participant::submit).
    Mesh(Box<mesh::Mesh>),
    /// The switch as the server.
    SwitchMl(Box<switchml::Worker>),
}

/// How an operation ended.
pub(crate) enum End {
    Finished { operation: Operation, tensor: Tensor, missing_below: u64, coverage: Coverage },
    Failed { operation: Operation, failure: Failure },
    Mesh(mesh::Event),
}

impl Participant {
    /// Begins to sum a tensor over all workers of the job.
    pub fn submit(
        &mut self,
        now: Time,
        call: impl Into<SumCall>,
    ) -> Result<Operation, SubmitError> {
        let call = call.into();
        match self {
            Participant::Aggregate(worker) => {
                let options = options(&call);
                Ok(worker.submit_with(now, call.tensor, options))
            }
            Participant::Server(node) => node.submit(now, call),
            Participant::Ring(ring) => ring.submit(now, call),
            Participant::Mesh(_) => Err(SubmitError::NotAWorker),
            Participant::SwitchMl(worker) => Ok(worker.submit(now, call.tensor)),
        }
    }

    /// How many messages others have not acknowledged.
    pub fn outgoing(&self) -> usize {
        match self {
            Participant::Server(node) => node.outgoing(),
            Participant::Ring(ring) => ring.outgoing(),
            Participant::Mesh(mesh) => mesh.outgoing(),
            Participant::Aggregate(_) | Participant::SwitchMl(_) => 0,
        }
    }

    /// Whether it has nothing to send, nor anything on the way.
    pub(crate) fn rests(&self) -> bool {
        self.outgoing() == 0 && !self.part().has_more()
    }

    pub(crate) fn handle_packet(&mut self, now: Time, packet: Packet<'_>) {
        match self {
            Participant::Aggregate(worker) => worker.handle_packet(now, packet),
            Participant::Server(node) => node.handle_packet(now, packet),
            Participant::Ring(ring) => ring.handle_packet(now, packet),
            Participant::Mesh(mesh) => mesh.handle_packet(now, packet),
            Participant::SwitchMl(worker) => worker.handle_packet(now, packet),
        };
    }

    pub(crate) fn check(&self) {
        match self {
            Participant::Aggregate(worker) => worker.check(),
            Participant::Server(node) => node.check(),
            Participant::Ring(ring) => ring.check(),
            Participant::Mesh(mesh) => mesh.check(),
            // A published design, to compare with.
            Participant::SwitchMl(_) => {}
        }
    }

    pub(crate) fn poll_end(&mut self) -> Option<End> {
        match self {
            Participant::Aggregate(worker) => poll_worker(worker),
            Participant::Server(node) => node.poll_event().map(End::from),
            Participant::Ring(ring) => ring.poll_event().map(End::from),
            Participant::Mesh(mesh) => mesh.poll_event().map(End::Mesh),
            Participant::SwitchMl(worker) => poll_switchml(worker),
        }
    }

    pub(crate) fn part(&self) -> &dyn Part {
        match self {
            Participant::Aggregate(worker) => &**worker,
            Participant::Server(node) => &**node,
            Participant::Ring(ring) => &**ring,
            Participant::Mesh(mesh) => &**mesh,
            Participant::SwitchMl(worker) => &**worker,
        }
    }

    pub(crate) fn part_mut(&mut self) -> &mut dyn Part {
        match self {
            Participant::Aggregate(worker) => &mut **worker,
            Participant::Server(node) => &mut **node,
            Participant::Ring(ring) => &mut **ring,
            Participant::Mesh(mesh) => &mut **mesh,
            Participant::SwitchMl(worker) => &mut **worker,
        }
    }
}

/// How aggregation carries out a sum.
fn options(call: &SumCall) -> Manner {
    // A share of less than one is one of 256ths as well, and nothing of it is exact.
    let share = call.loss.and_then(|loss| LossShare::new(f64::from(loss.millionths()) / 1e6));
    let reliability = match share {
        Some(share) if share.parts() > 0 => Reliability::Bounded(share),
        _ => Reliability::Exact,
    };
    let layer = call.layers.map(|layers| (call.layer, layers));
    Manner { reliability, layer, fingerprint: call.fingerprint }
}

/// The worker keeps what others may lack.
fn poll_worker(worker: &mut Worker) -> Option<End> {
    let worker::Event::Finished { operation, missing_below, absences } = worker.poll_event()?;
    let tensor = worker.take(operation).unwrap_or(Tensor::Length(0));
    let coverage = coverage(&absences, tensor.len());
    Some(End::Finished { operation, tensor, missing_below, coverage })
}

/// Coverage of a sum of this number of values, of which the worker knows the fragments that lack a rank.
// spec: T-02
fn coverage(absences: &Absences, values: u64) -> Coverage {
    let fragment_values = u64::from(absences.fragment_values());
    Coverage::lacking(absences.fragments().map(|(fragment, ranks)| Lacks {
        values: fragment * fragment_values..values.min((fragment + 1) * fragment_values),
        ranks: ranks.collect(),
    }))
}

fn poll_switchml(worker: &mut switchml::Worker) -> Option<End> {
    let switchml::Event::Finished { operation } = worker.poll_event()?;
    let tensor = worker.tensor(operation).cloned().unwrap_or(Tensor::Length(0));
    worker.release(operation);
    Some(End::Finished { operation, tensor, missing_below: 0, coverage: Coverage::Exact })
}

impl From<thalweg_collective::Event> for End {
    fn from(event: thalweg_collective::Event) -> End {
        match event {
            thalweg_collective::Event::Finished { operation, tensor, coverage } => {
                End::Finished { operation, tensor, missing_below: 0, coverage }
            }
            thalweg_collective::Event::Failed { operation, failure } => {
                End::Failed { operation, failure }
            }
        }
    }
}
