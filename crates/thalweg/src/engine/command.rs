//! Commands to the engine.

use std::sync::Arc;

use thalweg_collective::{SubmitError, SumCall, mesh};
use thalweg_control::{ControlEvent, Failure, FromRank};
use thalweg_core::{Element, Fingerprint, JobId, Operation, Time};
use thalweg_deliver::{Endpoint, LossBound, Lost, Name, PostError, ReceiveCall, SendCall};
use thalweg_stack::{Event, HostError, Participant, TrainingHost};
use thalweg_values::{Coverage, Tensor};
use thalweg_wire::aggregate::Scale;

use super::Engine;
use super::comparison::{Begun, JointOperation, OpenPart};
use super::departure::Leaving;
use super::membership::Membership;
use super::pending::{BegunSum, Fault, Peer, Side, fault_of_mesh};
use crate::counters::{Counters, DeliveryCounters};
use crate::error::{Error, ErrorKind};
use crate::handle::Reply;
use crate::policy::{Policy, Priority};
use crate::tagging::Tagging;
use crate::tuning::LAYERS;

/// Something to do.
pub(crate) enum Command {
    /// Sum a tensor over all hosts. Ends with [`Summed`].
    Sum(Sum),
    /// An operation of other threads has begun. For the first sending thread, which numbers it.
    Begin(Arc<JointOperation>),
    /// Everybody has to fail, for this reason.
    Fail(Failure),
    /// Another sending thread of the session has failed.
    Stop(Error),
    /// The application ends the job, for this reason.
    Abort(String),
    /// A collective of all ranks. Ends with a [`mesh::Outcome`].
    Call(mesh::Request, Reply),
    /// Values to one rank. Ends with nothing.
    Send { to: u32, tag: u64, values: (Option<Element>, Vec<u8>), reply: Reply },
    /// Values of one rank, or of any, of which the type and the length in bytes may be known. Ends with the rank and
    /// their bytes.
    Receive { from: Option<u32>, tag: u64, values: (Option<Element>, Option<u64>), reply: Reply },
    /// A delivery to or from one rank. Ends with `Option<Received>`: what was received.
    Deliver(Deliver),
    /// Event of the control channel.
    Control(ControlEvent),
    /// The next operation has this number. For the first sending thread, while nothing is under way.
    CountFrom(u64),
    /// State of the engine. Ends with [`Counters`].
    Count(Reply),
    /// Leave the job. Ends with the number of operations that this rank has ended, a `u64`.
    Leave(Leaving, Reply),
}

/// A sum to make.
pub(crate) struct Sum {
    pub tensor: Tensor,
    pub policy: Policy,
    /// The operation that it is a part of.
    pub fingerprint: Fingerprint,
    /// The part of the operation that it is.
    pub part: OpenPart,
    pub reply: Reply,
}

/// A delivery to post.
// spec: M-10
pub(crate) struct Deliver {
    /// The other rank.
    pub rank: u32,
    /// Number of the delivery between the two, in this direction.
    pub number: u64,
    pub call: DeliverCall,
    pub reply: Reply,
}

/// One side of a delivery.
pub(crate) enum DeliverCall {
    Send { values: Arc<Tensor>, loss: LossBound, priority: Priority, tagging: Tagging },
    Receive { buffer: Tensor, loss: LossBound, lost: Lost },
}

/// A sum over all hosts, and which of them are in it.
pub(crate) struct Summed {
    pub tensor: Tensor,
    pub coverage: Coverage,
}

impl Engine {
    pub(super) fn obey(&mut self, command: Command, events: &mut Vec<Event>) {
        if let Some(failure) = self.failure.clone() {
            return self.refuse(command, failure);
        }
        match command {
            Command::Sum(sum) => self.sum(sum, events),
            Command::Begin(operation) => {
                self.comparison.begin_shared(self.driver.now(), operation);
            }
            Command::CountFrom(number) => self.comparison.count_from(number),
            Command::Fail(failure) => self.say(FromRank::Failing(failure)),
            Command::Stop(error) => self.fail(error),
            Command::Abort(reason) => self.abort(&reason),
            Command::Call(request, reply) => self.call(request, reply, events),
            Command::Send { to, tag, values, reply } => {
                let send = |mesh: &mut mesh::Mesh, now| mesh.send_values(now, to, tag, values);
                if let Some((transfer, reply)) = self.begin_in_mesh(events, reply, send) {
                    let at = self.driver.now();
                    self.pending.transfer(
                        transfer,
                        Peer { rank: Some(to), is_sender: false, at },
                        reply,
                    );
                }
            }
            Command::Receive { from, tag, values, reply } => {
                let receive = |mesh: &mut mesh::Mesh, now| match from {
                    Some(from) => mesh.receive_values(now, from, tag, values),
                    None => mesh.receive_any(now, tag, values),
                };
                if let Some((transfer, reply)) = self.begin_in_mesh(events, reply, receive) {
                    let at = self.driver.now();
                    self.pending.transfer(
                        transfer,
                        Peer { rank: from, is_sender: true, at },
                        reply,
                    );
                }
            }
            Command::Deliver(deliver) => self.deliver(deliver, events),
            Command::Control(event) => self.hear(event, events),
            Command::Count(reply) => reply.end(Ok(self.counters())),
            Command::Leave(how, reply) => self.depart(how, reply),
        }
    }

    fn refuse(&mut self, command: Command, failure: Error) {
        match command {
            Command::Sum(Sum { reply, .. })
            | Command::Call(_, reply)
            | Command::Send { reply, .. }
            | Command::Receive { reply, .. }
            | Command::Deliver(Deliver { reply, .. }) => reply.fail(failure),
            Command::Control(_)
            | Command::Begin(_)
            | Command::CountFrom(_)
            | Command::Fail(_)
            | Command::Stop(_)
            | Command::Abort(_) => {}
            Command::Count(reply) => reply.end(Ok(self.counters())),
            Command::Leave(how, reply) => self.depart(how, reply),
        }
    }

    /// Gives the mesh a command. What cannot begin ends with the reason.
    fn begin_in_mesh<R>(
        &mut self,
        events: &mut Vec<Event>,
        reply: Reply,
        command: impl FnOnce(&mut mesh::Mesh, Time) -> Result<R, mesh::SubmitError>,
    ) -> Option<(R, Reply)> {
        let Some(lane) = self.membership.as_ref().map(Membership::mesh_lane) else {
            reply.fail(not_joined());
            return None;
        };
        let begin =
            |host: &mut TrainingHost, now| host.mesh_mut(lane).map(|mesh| command(mesh, now));
        match self.command(begin, |event| events.push(event)) {
            Some(Ok(begun)) => return Some((begun, reply)),
            Some(Err(mesh::SubmitError::Stopped(failure))) => {
                self.fail_with_all(fault_of_mesh(&failure), reply);
            }
            Some(Err(error)) => reply.fail(Error::of(ErrorKind::Call, error)),
            None => reply.fail(not_joined()),
        }
        None
    }

    /// A transport has stopped here because of another rank. The failure that all ranks get ends the call too,
    /// so that all fail alike.
    fn fail_with_all(&mut self, fault: Fault, reply: Reply) {
        self.spread(fault);
        self.pending.doom(reply);
    }

    fn call(&mut self, request: mesh::Request, reply: Reply, events: &mut Vec<Event>) {
        let fingerprint = request.fingerprint_at(self.identity.rank);
        let submit = |mesh: &mut mesh::Mesh, now| mesh.submit(now, request);
        // The events of what ends at once are looked at after this.
        if let Some((operation, reply)) = self.begin_in_mesh(events, reply, submit) {
            let begun = self.begin(fingerprint);
            self.pending.call(begun, operation, reply);
        }
    }

    /// Numbers an operation.
    fn begin(&mut self, fingerprint: Fingerprint) -> Begun {
        self.comparison.begin(self.driver.now(), fingerprint)
    }

    fn sum(&mut self, sum: Sum, events: &mut Vec<Event>) {
        let Sum { tensor, policy, fingerprint, part, reply } = sum;
        let Some(membership) = &self.membership else { return reply.fail(not_joined()) };
        let job = membership.job_of(&policy, tensor.len());
        let loss = policy.reliability.loss();
        let layer = policy.priority.layer();
        let call = SumCall {
            layer: layer.unwrap_or(LAYERS - 1),
            layers: layer.map(|_| LAYERS),
            loss,
            fingerprint: Some(fingerprint),
            ..tensor.into()
        };
        let begin = |host: &mut TrainingHost, now| host.submit(now, job, call);
        match self.command(begin, |event| events.push(event)) {
            Ok(operation) => {
                let at = self.driver.now();
                if self.identity.thread == 0 && part.operation().number().is_none() {
                    self.comparison.begin_shared(at, Arc::clone(part.operation()));
                }
                self.pending.sum(BegunSum { part, at }, job, operation, reply);
            }
            Err(HostError::Submit(SubmitError::Stopped(failure))) => {
                self.fail_with_all(Fault::Sums(failure), reply);
            }
            Err(error) => reply.fail(Error::of(ErrorKind::Call, error)),
        }
    }

    /// Posts one side of a delivery.
    // spec: M-10
    fn deliver(&mut self, deliver: Deliver, events: &mut Vec<Event>) {
        let Deliver { rank, number, call, reply } = deliver;
        let Some(membership) = &self.membership else { return reply.fail(not_joined()) };
        let node = membership.node_of(rank).filter(|_| rank != self.identity.rank);
        let Some(peer) = node else {
            return reply.fail(Error::call(format!("rank {rank} is no other rank of the job")));
        };
        let lane = membership.delivery_lane();
        let name = Name { peer, operation: Operation(number), tensor: 0 };
        let side = match call {
            DeliverCall::Send { .. } => Side::Sends,
            DeliverCall::Receive { .. } => Side::Receives,
        };
        let post = |host: &mut TrainingHost, now| {
            host.deliveries_mut(lane).map(|endpoint| call.post(endpoint, now, name))
        };
        // What ends at once is looked at after this.
        match self.command(post, |event| events.push(event)) {
            Some(Ok(())) => {
                let is_sender = side == Side::Receives;
                let peer = Peer { rank: Some(rank), is_sender, at: self.driver.now() };
                self.pending.delivery(side, name, peer, reply);
            }
            Some(Err(error)) => reply.fail(Error::of(ErrorKind::Call, error)),
            None => reply.fail(not_joined()),
        }
    }

    fn counters(&mut self) -> Counters {
        let net = *self.driver.stats();
        let Some(membership) = &self.membership else {
            return Counters { net, ..Counters::default() };
        };
        let (job, lossy_lanes) = (membership.job(), membership.lossy_lanes());
        let posted = membership.delivery_lane();
        let count = |host: &mut TrainingHost, _| {
            let [ring_delivery, server_delivery] = lossy_lanes.map(|lane| delivery(host, lane));
            let worker = host.worker_mut(job).map(|worker| {
                let scale = worker.scale().map(Scale::value);
                (worker.stats(), worker.window_bytes(), *worker.round_trips(), scale)
            });
            let (worker, window_bytes, round_trips, scale) = worker.unwrap_or_default();
            let other_version = host.other_version();
            let posted_delivery = delivery(host, posted);
            let deliveries = Counters {
                ring_delivery,
                server_delivery,
                posted_delivery,
                other_version,
                ..Counters::default()
            };
            Counters { net, worker, window_bytes, round_trips, scale, ..deliveries }
        };
        self.command(count, |_| {})
    }
}

impl DeliverCall {
    fn post(self, endpoint: &mut Endpoint, now: Time, name: Name) -> Result<(), PostError> {
        match self {
            DeliverCall::Send { values, loss, priority, tagging } => {
                let call = SendCall {
                    loss,
                    layer: priority.layer().unwrap_or(LAYERS - 1),
                    layers: LAYERS,
                    policy: tagging.policy(),
                    ..SendCall::new(name, values)
                };
                endpoint.post_send(now, call)
            }
            DeliverCall::Receive { buffer, loss, lost } => {
                endpoint.post_receive(now, ReceiveCall { name, buffer, loss, lost })
            }
        }
    }
}

/// Sessions call operations only once they have joined.
fn not_joined() -> Error {
    Error::internal("an operation was called before the rank had joined its job")
}

/// Counters of the deliveries on a lane.
fn delivery(host: &TrainingHost, lane: JobId) -> DeliveryCounters {
    let (transport, member) = match host.participant(lane) {
        Some(Participant::Ring(ring)) => (ring.delivery_stats(), ring.counters()),
        Some(Participant::Server(node)) => (node.delivery_stats(), node.counters()),
        Some(Participant::Deliveries(endpoint)) => (Some(endpoint.stats()), Default::default()),
        _ => return DeliveryCounters::default(),
    };
    DeliveryCounters {
        transport: transport.unwrap_or_default(),
        lost_bytes: member.lost_bytes.as_u64(),
    }
}
