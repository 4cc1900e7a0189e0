//! What the engine is told.

use thalweg_collective::{Coverage, SubmitError, SumCall, mesh};
use thalweg_control::{ControlEvent, FromRank};
use thalweg_core::{JobId, Tensor, Time};
use thalweg_stack::{Event, Host, HostError, Participant};
use thalweg_wire::aggregate::Scale;

use super::Engine;
use super::membership::Membership;
use crate::counters::{Counters, DeliveryCounters};
use crate::error::Error;
use crate::handle::Reply;
use crate::policy::Policy;
use crate::tuning::LAYERS;

/// Something to do.
pub(crate) enum Command {
    /// Sum a tensor over all hosts. Ends with [`Summed`].
    Sum(Sum),
    /// A collective of all ranks. Ends with a [`mesh::Outcome`].
    Call(mesh::Call, Reply),
    /// Bytes to one rank. Ends with nothing.
    Send { to: u32, tag: u64, bytes: Vec<u8>, reply: Reply },
    /// Bytes of one rank. Ends with them.
    Receive { from: u32, tag: u64, reply: Reply },
    /// What the control channel says.
    Control(ControlEvent),
    /// How it does. Ends with [`Counters`].
    Count(Reply),
    /// Leave the job when everything is done. Ends with nothing.
    Leave(Reply),
}

/// A sum to make.
pub(crate) struct Sum {
    pub tensor: Tensor,
    pub policy: Policy,
    pub reply: Reply,
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
            Command::Call(call, reply) => {
                let submit = |mesh: &mut mesh::Mesh, now| mesh.submit(now, call);
                if let Some((operation, reply)) = self.begin_in_mesh(events, reply, submit) {
                    self.pending.call(self.driver.now(), operation, reply);
                }
            }
            Command::Send { to, tag, bytes, reply } => {
                let send = |mesh: &mut mesh::Mesh, now| mesh.send(now, to, tag, bytes);
                if let Some((transfer, reply)) = self.begin_in_mesh(events, reply, send) {
                    self.pending.transfer(transfer, reply);
                }
            }
            Command::Receive { from, tag, reply } => {
                let receive = |mesh: &mut mesh::Mesh, now| mesh.receive(now, from, tag);
                if let Some((transfer, reply)) = self.begin_in_mesh(events, reply, receive) {
                    self.pending.transfer(transfer, reply);
                }
            }
            Command::Control(event) => self.hear(event, events),
            Command::Count(reply) => reply.end(Ok(self.counters())),
            Command::Leave(reply) => self.leaving = Some((self.driver.now(), reply)),
        }
    }

    fn refuse(&mut self, command: Command, failure: Error) {
        match command {
            Command::Sum(Sum { reply, .. })
            | Command::Call(_, reply)
            | Command::Send { reply, .. }
            | Command::Receive { reply, .. } => reply.fail(failure),
            Command::Control(_) => {}
            Command::Count(reply) => reply.end(Ok(self.counters())),
            Command::Leave(reply) => self.leaving = Some((self.driver.now(), reply)),
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
            reply.fail(Error::Closed);
            return None;
        };
        let begin = |host: &mut Host, now| host.mesh_mut(lane).map(|mesh| command(mesh, now));
        match self.command(begin, |event| events.push(event)) {
            Some(Ok(begun)) => return Some((begun, reply)),
            Some(Err(mesh::SubmitError::Stopped(failure))) => self.fail_with_all(&failure, reply),
            Some(Err(error)) => reply.fail(Error::Call(error.to_string())),
            None => reply.fail(Error::Closed),
        }
        None
    }

    /// A transport has stopped here because of another rank. What everybody is told ends the call too,
    /// so that all fail alike.
    fn fail_with_all(&mut self, failure: &impl ToString, reply: Reply) {
        self.say(FromRank::Failing { text: failure.to_string() });
        self.pending.doom(reply);
    }

    fn sum(&mut self, sum: Sum, events: &mut Vec<Event>) {
        let Sum { tensor, policy, reply } = sum;
        let Some(membership) = &self.membership else { return reply.fail(Error::Closed) };
        let (job, loss) = (membership.job_of(&policy), policy.reliability.loss());
        let layer = policy.priority.layer();
        let call = SumCall {
            layer: layer.unwrap_or(LAYERS - 1),
            layers: layer.map(|_| LAYERS),
            loss,
            ..tensor.into()
        };
        let begin = |host: &mut Host, now| host.submit(now, job, call);
        match self.command(begin, |event| events.push(event)) {
            Ok(operation) => self.pending.sum(self.driver.now(), job, operation, reply),
            Err(HostError::Submit(SubmitError::Stopped(failure))) => {
                self.fail_with_all(&failure, reply);
            }
            Err(error) => reply.fail(Error::Call(error.to_string())),
        }
    }

    fn counters(&mut self) -> Counters {
        let net = *self.driver.stats();
        let Some(membership) = &self.membership else {
            return Counters { net, ..Counters::default() };
        };
        let (job, lossy_lanes) = (membership.job(), membership.lossy_lanes());
        let count = |host: &mut Host, _| {
            let [ring_delivery, server_delivery] = lossy_lanes.map(|lane| delivery(host, lane));
            let worker = host.worker_mut(job).map(|worker| {
                (worker.stats(), worker.window_bytes(), worker.scale().map(Scale::value))
            });
            let (worker, window_bytes, scale) = worker.unwrap_or_default();
            Counters { net, worker, window_bytes, scale, ring_delivery, server_delivery }
        };
        self.command(count, |_| {})
    }
}

/// Counters of the member that sums on a lane by deliveries.
fn delivery(host: &Host, lane: JobId) -> DeliveryCounters {
    let (transport, member) = match host.participant(lane) {
        Some(Participant::Ring(ring)) => (ring.delivery_stats(), ring.counters()),
        Some(Participant::Server(node)) => (node.delivery_stats(), node.counters()),
        _ => return DeliveryCounters::default(),
    };
    DeliveryCounters {
        transport: transport.unwrap_or_default(),
        lost_bytes: member.lost_bytes.as_u64(),
    }
}
