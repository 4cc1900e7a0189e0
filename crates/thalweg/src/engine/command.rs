//! What the engine is told.

use thalweg_collective::mesh;
use thalweg_control::ControlEvent;
use thalweg_core::{Tensor, Time};
use thalweg_stack::{Event, Host};

use super::Engine;
use crate::counters::Counters;
use crate::error::Error;
use crate::handle::Reply;
use crate::policy::Collective;

/// Something to do.
pub(crate) enum Command {
    /// Sum a tensor over all hosts. Ends with a [`Tensor`].
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
    pub via: Collective,
    pub reply: Reply,
}

impl Engine {
    pub(super) fn obey(&mut self, command: Command, events: &mut Vec<Event>) {
        if let Some(failure) = self.failure.clone() {
            return self.refuse(command, failure);
        }
        match command {
            Command::Sum(sum) => self.sum(sum, events),
            Command::Call(call, reply) => {
                let submitted = self.with_mesh(events, |mesh, now| mesh.submit(now, call));
                match submitted {
                    Ok(operation) => self.pending.call(operation, reply),
                    Err(error) => reply.fail(error),
                }
            }
            Command::Send { to, tag, bytes, reply } => {
                match self.with_mesh(events, |mesh, now| mesh.send(now, to, tag, bytes)) {
                    Ok(transfer) => self.pending.transfer(transfer, reply),
                    Err(error) => reply.fail(error),
                }
            }
            Command::Receive { from, tag, reply } => {
                match self.with_mesh(events, |mesh, now| mesh.receive(now, from, tag)) {
                    Ok(transfer) => self.pending.transfer(transfer, reply),
                    Err(error) => reply.fail(error),
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

    /// Gives the mesh a command.
    fn with_mesh<R>(
        &mut self,
        events: &mut Vec<Event>,
        command: impl FnOnce(&mut mesh::Mesh, Time) -> Result<R, mesh::SubmitError>,
    ) -> Result<R, Error> {
        let lane = self.membership.as_ref().ok_or(Error::Closed)?.mesh_lane();
        let begin = |host: &mut Host, now| host.mesh_mut(lane).map(|mesh| command(mesh, now));
        let begun = self.driver.command(begin, |event| events.push(event)).ok_or(Error::Closed)?;
        begun.map_err(|error| Error::Call(error.to_string()))
    }

    fn sum(&mut self, sum: Sum, events: &mut Vec<Event>) {
        let Sum { tensor, via, reply } = sum;
        let Some(job) = self.membership.as_ref().map(|membership| membership.job_of(via)) else {
            return reply.fail(Error::Closed);
        };
        let begin = |host: &mut Host, now| host.submit(now, job, tensor);
        match self.driver.command(begin, |event| events.push(event)) {
            Ok(operation) => self.pending.sum(self.driver.now(), job, operation, reply),
            Err(error) => reply.fail(Error::Call(error.to_string())),
        }
    }

    fn counters(&mut self) -> Counters {
        let net = *self.driver.stats();
        let job = self.membership.as_ref().map(|membership| membership.job());
        let count = |host: &mut Host, _| {
            let worker = host.worker_mut(job?)?;
            Some((worker.stats(), worker.window_bytes()))
        };
        let (worker, window_bytes) = self.driver.command(count, |_| {}).unwrap_or_default();
        Counters { net, worker, window_bytes }
    }
}
