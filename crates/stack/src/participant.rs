//! A node's part in one job.

use thalweg_aggregate::{Absences, Reliability, SumOptions, Worker, worker};
use thalweg_collective::{Event as SumEvent, SubmitError, SumCall, mesh, ring, server};
use thalweg_core::{Check, Operation, Packet, Reports, Time, machine_of_variants};
use thalweg_transport::JobClass;
use thalweg_values::{Coverage, Part as Lacks, Tensor};
use thalweg_wire::Prefix;
use thalweg_wire::aggregate::LossShare;

/// The machine of a node's part in one job: what a [`Host`](crate::Host) takes part in jobs with.
pub trait JobMachine: Reports<Event = JobEvent> + Check {
    /// Begins to sum a tensor over all workers of the job.
    fn submit(&mut self, now: Time, call: SumCall) -> Result<Operation, SubmitError>;

    /// Number of messages that others have not acknowledged.
    fn outgoing(&self) -> usize;

    /// Takes in a packet whose prefix the host has read.
    fn handle_checked(&mut self, now: Time, prefix: Prefix, packet: &Packet<'_>);

    /// Has its packets travel in a class from now on. Published designs that know no classes keep theirs.
    // spec: C-16
    fn set_class(&mut self, _now: Time, _class: JobClass) {}

    /// Returns true if it has nothing to send and nothing in flight.
    fn is_resting(&self) -> bool {
        self.outgoing() == 0 && !self.has_backlog()
    }
}

/// An event of a node's part in one job.
#[derive(Clone, PartialEq, Debug)]
pub enum JobEvent {
    /// The end of a sum.
    Sum(SumEvent),
    /// An event of an operation that is not a sum.
    Mesh(mesh::Event),
    /// The end of a delivery that the application posted.
    Delivery(thalweg_deliver::Completion),
}

/// A node's part in one job, by the collective that the job uses.
pub enum Participant {
    /// In-network aggregation.
    Aggregate(Box<Worker>),
    /// Parameter servers over flows or deliveries; a node may be worker, server, or both.
    Server(Box<server::Node>),
    /// A ring over flows or deliveries.
    Ring(Box<ring::Ring>),
    /// Everything but sums, over direct flows between ranks. It takes calls by
    /// [`Host::mesh_mut`](crate::Host::mesh_mut) and not by [`submit`](JobMachine::submit).
    Mesh(Box<mesh::Mesh>),
    /// Deliveries that the application posts, by [`Host::deliveries_mut`](crate::Host::deliveries_mut) and not by
    /// [`submit`](JobMachine::submit).
    // spec: M-10
    Deliveries(Box<thalweg_deliver::Endpoint>),
}

impl Participant {
    /// Sets the payload of the packets of messages that begin from now on. Fragments of aggregation have the length of
    /// their set-up.
    // spec: F-01
    pub fn set_segment_bytes(&mut self, segment_bytes: u16) {
        match self {
            Participant::Aggregate(_) => {}
            Participant::Server(node) => node.set_segment_bytes(segment_bytes),
            Participant::Ring(ring) => ring.set_segment_bytes(segment_bytes),
            Participant::Mesh(mesh) => mesh.set_segment_bytes(segment_bytes),
            Participant::Deliveries(endpoint) => endpoint.set_segment_bytes(segment_bytes),
        }
    }
}

impl JobMachine for Participant {
    fn submit(&mut self, now: Time, call: SumCall) -> Result<Operation, SubmitError> {
        match self {
            Participant::Aggregate(worker) => {
                let options = options(&call);
                Ok(worker.submit_with(now, call.tensor, options))
            }
            Participant::Server(node) => node.submit(now, call),
            Participant::Ring(ring) => ring.submit(now, call),
            Participant::Mesh(_) | Participant::Deliveries(_) => Err(SubmitError::NotAWorker),
        }
    }

    fn outgoing(&self) -> usize {
        match self {
            Participant::Server(node) => node.outgoing(),
            Participant::Ring(ring) => ring.outgoing(),
            Participant::Mesh(mesh) => mesh.outgoing(),
            Participant::Deliveries(endpoint) => endpoint.outgoing(),
            Participant::Aggregate(_) => 0,
        }
    }

    fn set_class(&mut self, now: Time, class: JobClass) {
        match self {
            Participant::Aggregate(worker) => worker.set_class(class),
            Participant::Server(node) => node.set_class(now, class),
            Participant::Ring(ring) => ring.set_class(now, class),
            Participant::Mesh(mesh) => mesh.set_class(now, class),
            Participant::Deliveries(endpoint) => endpoint.set_class(class.dscp()),
        }
    }

    #[inline]
    fn handle_checked(&mut self, now: Time, prefix: Prefix, packet: &Packet<'_>) {
        match self {
            Participant::Aggregate(worker) => worker.handle_checked(now, prefix, packet),
            Participant::Server(node) => node.handle_checked(now, prefix, packet),
            Participant::Ring(ring) => ring.handle_checked(now, prefix, packet),
            Participant::Mesh(mesh) => mesh.handle_checked(now, prefix, packet),
            Participant::Deliveries(endpoint) => endpoint.handle_checked(now, prefix, packet),
        }
    }
}

machine_of_variants!(Participant { Aggregate, Server, Ring, Mesh, Deliveries });

impl Reports for Participant {
    type Event = JobEvent;

    #[inline]
    fn poll_event(&mut self) -> Option<JobEvent> {
        match self {
            Participant::Aggregate(worker) => poll_worker(worker),
            Participant::Server(node) => node.poll_event().map(JobEvent::Sum),
            Participant::Ring(ring) => ring.poll_event().map(JobEvent::Sum),
            Participant::Mesh(mesh) => mesh.poll_event().map(JobEvent::Mesh),
            Participant::Deliveries(endpoint) => endpoint.poll_event().map(JobEvent::Delivery),
        }
    }
}

impl Check for Participant {
    fn check(&self) {
        match self {
            Participant::Aggregate(worker) => worker.check(),
            Participant::Server(node) => node.check(),
            Participant::Ring(ring) => ring.check(),
            Participant::Mesh(mesh) => mesh.check(),
            Participant::Deliveries(endpoint) => endpoint.check(),
        }
    }
}

/// Options of a sum for aggregation.
fn options(call: &SumCall) -> SumOptions {
    // A share of less than one is one of 256ths as well, and nothing of it is exact.
    let share = call.loss.and_then(|loss| LossShare::new(f64::from(loss.millionths()) / 1e6));
    let reliability = match share {
        Some(share) if share.parts() > 0 => Reliability::Bounded(share),
        _ => Reliability::Exact,
    };
    let layer = call.layers.map(|layers| (call.layer, layers));
    SumOptions { reliability, layer, fingerprint: call.fingerprint }
}

/// The worker keeps what others may lack.
fn poll_worker(worker: &mut Worker) -> Option<JobEvent> {
    let worker::Event::Finished { operation, missing_below, absences } = worker.poll_event()?;
    let tensor = worker.take(operation).unwrap_or(Tensor::Length(0));
    let coverage = coverage(missing_below, &absences, tensor.len());
    Some(JobEvent::Sum(SumEvent::Finished { operation, tensor, coverage }))
}

/// Coverage of a sum of this number of values, of which the worker knows the fragments that lack a rank.
/// Fragments below `missing_below` have no result at all: they lack every rank.
// spec: T-02, T-11
fn coverage(missing_below: u64, absences: &Absences, values: u64) -> Coverage {
    let fragment_values = u64::from(absences.fragment_values());
    let all_ranks = (0..absences.workers()).collect();
    let without_result = Lacks::new(0..values.min(missing_below * fragment_values), all_ranks);
    let incomplete = absences.fragments().filter(|(fragment, _)| *fragment >= missing_below);
    let incomplete = incomplete.map(|(fragment, ranks)| {
        let end = values.min((fragment + 1) * fragment_values);
        Lacks::new(fragment * fragment_values..end, ranks.collect())
    });
    Coverage::lacking(std::iter::once(without_result).chain(incomplete))
}
