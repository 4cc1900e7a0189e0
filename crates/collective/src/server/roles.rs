//! Both roles of a host, and the messages between them.

use std::collections::{BTreeSet, VecDeque};

use thalweg_core::{NodeId, Operation, Time};
use thalweg_wire::frame::{CalledOperation, SumFrame};

use super::config::Config;
use super::sums::{self, Sums};
use super::worker::{self, Worker};
use crate::block::VALUE_BYTES;
use crate::call::SumCall;
use crate::carrier::{NumberedMessage, Phase, Want};
use crate::event::{Event, Failure, SubmitError};
use crate::member::{Offer, Part};
use crate::plan::Plan;
use crate::post::{Post, STOP_MESSAGE};

/// Roles of a host: worker, server, or both.
///
/// The push of chunk c is message 2c of a worker, its sum message 2c + 1 of a server, so a host with
/// both roles numbers no two messages to one peer alike.
pub struct Roles {
    workers: Vec<NodeId>,
    servers: Vec<NodeId>,
    worker: Option<(usize, Worker)>,
    server: Option<(usize, Sums)>,
    chunk_values: u64,
    /// Messages between the two roles of this host.
    local: VecDeque<Local>,
    /// True if another node has reported that operations differ: this node does not report it again.
    is_reported: bool,
}

/// A message that does not leave the host.
enum Local {
    Push { rank: usize, message: NumberedMessage },
    Sum { message: NumberedMessage },
}

impl Roles {
    pub(super) fn new(config: Config, chunk_values: u64) -> Roles {
        let Config { workers, servers, chunks_in_flight, pushes_at_once, .. } = config;
        let delivery = config.delivery.as_ref();
        let worker = config.rank.map(|rank| {
            let plan = Plan::new(chunk_values, STOP_MESSAGE / 2).with_delivery(delivery);
            let plan = match config.least_chunk_bytes {
                Some(bytes) => plan.divided(servers.len() as u64, bytes / VALUE_BYTES),
                None => plan,
            };
            let ranks = workers.len() as u32;
            let worker =
                Worker::new(plan, servers.len(), ranks, (chunks_in_flight, pushes_at_once));
            (rank as usize, worker)
        });
        let server =
            config.server.map(|index| (index as usize, Sums::new(workers.len(), chunks_in_flight)));
        let local = VecDeque::new();
        Roles { workers, servers, worker, server, chunk_values, local, is_reported: false }
    }

    /// Pushes what may be pushed.
    fn push(&mut self, post: &mut Post) -> Result<(), Failure> {
        let Some((rank, worker)) = &mut self.worker else { return Ok(()) };
        let here = self.server.as_ref().map(|(index, _)| *index);
        for (index, &server) in self.servers.iter().enumerate() {
            while let Some((chunk, care, called, block)) = worker.next_push(index) {
                let message = NumberedMessage::new(2 * chunk, block);
                let frame = Some(SumFrame::Values(called));
                let message = NumberedMessage { care, frame, ..message };
                if here == Some(index) {
                    worker.on_pushed(chunk);
                    self.local.push_back(Local::Push { rank: *rank, message });
                } else {
                    post.send(server, message)?;
                }
            }
        }
        Ok(())
    }

    /// The server's role gets a contribution.
    fn on_push(
        &mut self,
        post: &mut Post,
        rank: usize,
        message: NumberedMessage,
    ) -> Result<(), Failure> {
        let NumberedMessage { index, care, frame, .. } = message;
        let chunk = index / 2;
        let servers = self.servers.len() as u64;
        let server = self.server.as_mut().filter(|(index, _)| chunk % servers == *index as u64);
        let Some((_, sums)) = server else {
            post.refuse();
            return Ok(());
        };
        if message.block.is_longer_than(self.chunk_values) {
            return Err(Failure::Mismatch(self.workers[rank]));
        }
        // Of values that are only a length there is no frame.
        let called = called_in(frame).filter(|_| message.block.has_values());
        match sums.take(rank, chunk / servers, message, called) {
            sums::Intake::Unexpected => post.refuse(),
            sums::Intake::Differs(mismatch) => return Err(Failure::Differs(mismatch)),
            sums::Intake::Mismatch => return Err(Failure::Mismatch(self.workers[rank])),
            sums::Intake::Taken => {}
            sums::Intake::Complete(block, coverage) => {
                let (phase, frame) = (Phase::Result, called.map(SumFrame::Values));
                let sum = NumberedMessage::new(index + 1, block);
                let sum = NumberedMessage { care, phase, frame, coverage, ..sum };
                self.send_sum(post, &sum)?;
            }
        }
        Ok(())
    }

    fn send_sum(&mut self, post: &mut Post, sum: &NumberedMessage) -> Result<(), Failure> {
        let here = self.worker.as_ref().map(|(rank, _)| *rank);
        for (rank, &worker) in self.workers.iter().enumerate() {
            if here == Some(rank) {
                self.local.push_back(Local::Sum { message: sum.clone() });
            } else {
                post.send(worker, sum.clone())?;
            }
        }
        Ok(())
    }

    /// The worker's role gets a sum.
    fn on_sum(
        &mut self,
        post: &mut Post,
        src: NodeId,
        sum: &NumberedMessage,
    ) -> Result<(), Failure> {
        let chunk = sum.index / 2;
        let is_theirs = self.servers[(chunk % self.servers.len() as u64) as usize] == src;
        let Some((_, worker)) = self.worker.as_mut().filter(|_| is_theirs) else {
            post.refuse();
            return Ok(());
        };
        match worker.take(chunk, sum) {
            worker::Intake::Unexpected => post.refuse(),
            worker::Intake::Mismatch => return Err(Failure::Mismatch(src)),
            worker::Intake::Taken => {}
            worker::Intake::Finished(finished) => post.finish(finished),
        }
        Ok(())
    }
}

/// The operation that a message has values of.
fn called_in(frame: Option<SumFrame>) -> Option<CalledOperation> {
    match frame {
        Some(SumFrame::Values(called)) => Some(called),
        Some(SumFrame::Stop(_)) | None => None,
    }
}

impl Roles {
    /// Another node has stopped.
    fn on_stop(&mut self, src: NodeId, frame: Option<SumFrame>) -> Result<(), Failure> {
        match frame {
            Some(SumFrame::Stop(mismatch)) if self.others().contains(&src) => {
                self.is_reported = true;
                Err(Failure::Differs(mismatch))
            }
            _ => Ok(()),
        }
    }

    /// All other nodes, each once.
    fn others(&self) -> BTreeSet<NodeId> {
        let worker = self.worker.as_ref().map(|(rank, _)| self.workers[*rank]);
        let server = self.server.as_ref().map(|(index, _)| self.servers[*index]);
        let here = worker.or(server);
        let all = self.workers.iter().chain(&self.servers).copied();
        all.filter(|node| Some(*node) != here).collect()
    }
}

impl Part for Roles {
    type Call = SumCall;
    type Refusal = SubmitError;
    type Event = Event;
    type Failure = Failure;

    fn add(&mut self, _: Time, operation: Operation, call: SumCall) -> Result<(), SubmitError> {
        let (_, worker) = self.worker.as_mut().ok_or(SubmitError::NotAWorker)?;
        worker.add(operation, call)
    }

    fn on_received(
        &mut self,
        post: &mut Post,
        src: NodeId,
        message: NumberedMessage,
    ) -> Result<(), Failure> {
        if message.index == STOP_MESSAGE {
            post.refuse();
            return self.on_stop(src, message.frame);
        }
        if message.index % 2 == 1 {
            return self.on_sum(post, src, &message);
        }
        match self.workers.iter().position(|&worker| worker == src) {
            Some(rank) => self.on_push(post, rank, message),
            None => {
                post.refuse();
                Ok(())
            }
        }
    }

    fn want(&mut self, offer: &Offer) -> Result<Want, Failure> {
        let &Offer { src, index, bytes, frame } = offer;
        if index == STOP_MESSAGE {
            return self.on_stop(src, frame).map(|()| Want::Never);
        }
        let (chunk, servers) = (index / 2, self.servers.len() as u64);
        let place = (chunk % servers) as usize;
        if index % 2 == 1 {
            let worker = self.worker.as_mut().filter(|_| self.servers[place] == src);
            let Some((_, worker)) = worker else { return Ok(Want::Never) };
            return worker.want(chunk, bytes).ok_or(Failure::Mismatch(src));
        }
        let rank = self.workers.iter().position(|&worker| worker == src);
        let server = self.server.as_mut().filter(|(here, _)| *here == place);
        let (Some(rank), Some((_, sums))) = (rank, server) else { return Ok(Want::Never) };
        let most = self.chunk_values * VALUE_BYTES;
        match sums.wants(rank, chunk / servers) {
            false => Ok(Want::Never),
            true if bytes <= most && bytes.is_multiple_of(VALUE_BYTES) => Ok(Want::Gradient),
            true => Err(Failure::Mismatch(src)),
        }
    }

    fn on_sent(&mut self, _: &mut Post, index: u64) {
        if let Some((_, worker)) = &mut self.worker
            && index.is_multiple_of(2)
        {
            worker.on_pushed(index / 2);
        }
    }

    fn advance(&mut self, post: &mut Post) -> Result<(), Failure> {
        loop {
            self.push(post)?;
            match self.local.pop_front() {
                Some(Local::Push { rank, message }) => self.on_push(post, rank, message)?,
                Some(Local::Sum { message }) => {
                    let place = message.index / 2 % self.servers.len() as u64;
                    self.on_sum(post, self.servers[place as usize], &message)?;
                }
                None => return Ok(()),
            }
        }
    }

    fn lost(&self, node: NodeId) -> Failure {
        Failure::Lost(node)
    }

    fn disagrees(&self, node: NodeId) -> Failure {
        Failure::Mismatch(node)
    }

    fn check(&self) {
        if let Some((_, worker)) = &self.worker {
            worker.check();
        }
        if let Some((_, sums)) = &self.server {
            sums.check();
        }
        assert!(self.local.is_empty(), "what stays in the node is handed over at once");
    }

    fn abandon(&mut self, post: &mut Post, failure: Failure) {
        if let Failure::Differs(mismatch) = failure
            && !self.is_reported
        {
            for node in self.others() {
                post.send_stop(node, mismatch);
            }
        }
        self.local.clear();
        if let Some((_, worker)) = &mut self.worker {
            post.fail(worker.abandon(), failure);
        }
    }
}
