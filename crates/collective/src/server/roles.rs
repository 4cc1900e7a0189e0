//! Both roles of a host, and the messages between them.

use std::collections::VecDeque;

use thalweg_core::{NodeId, Operation, Time};
use thalweg_flow::Payload;

use super::config::Config;
use super::sums::{self, Sums};
use super::worker::{self, Worker};
use crate::call::{Care, SumCall};
use crate::carrier::{Leg, Parcel, Want};
use crate::event::{Event, Failure, SubmitError};
use crate::member::Part;
use crate::payload::VALUE_BYTES;
use crate::plan::Plan;
use crate::post::{MAX_MESSAGES, Post};

/// What a host does: worker, server, or both.
///
/// The push of chunk c is message 2c of a worker, its sum message 2c + 1 of a server, so a host with
/// both roles numbers no two messages to one peer alike.
pub struct Roles {
    workers: Vec<NodeId>,
    servers: Vec<NodeId>,
    worker: Option<(usize, Worker)>,
    server: Option<(usize, Sums)>,
    chunk_values: u64,
    /// What the two roles of this host have for each other.
    local: VecDeque<Local>,
}

/// A message that does not leave the host.
enum Local {
    Push { rank: usize, chunk: u64, care: Care, payload: Payload },
    Sum { chunk: u64, payload: Payload },
}

impl Roles {
    pub(super) fn new(config: Config, chunk_values: u64) -> Roles {
        let Config { workers, servers, chunks_in_flight, pushes_at_once, .. } = config;
        let delivery = config.delivery.as_ref();
        let worker = config.rank.map(|rank| {
            let plan = Plan::new(chunk_values, MAX_MESSAGES / 2).with_delivery(delivery);
            let worker = Worker::new(plan, servers.len(), chunks_in_flight, pushes_at_once);
            (rank as usize, worker)
        });
        let server =
            config.server.map(|index| (index as usize, Sums::new(workers.len(), chunks_in_flight)));
        Roles { workers, servers, worker, server, chunk_values, local: VecDeque::new() }
    }

    /// Pushes what may be pushed.
    fn push(&mut self, now: Time, post: &mut Post) -> Result<(), Failure> {
        let Some((rank, worker)) = &mut self.worker else { return Ok(()) };
        let here = self.server.as_ref().map(|(index, _)| *index);
        for (index, &server) in self.servers.iter().enumerate() {
            while let Some((chunk, care, payload)) = worker.next_push(index) {
                if here == Some(index) {
                    worker.on_pushed(chunk);
                    self.local.push_back(Local::Push { rank: *rank, chunk, care, payload });
                } else {
                    let leg = Leg::Gradient;
                    post.send(now, server, Parcel { index: 2 * chunk, care, leg, payload })?;
                }
            }
        }
        Ok(())
    }

    /// The server's role gets a contribution.
    fn on_push(
        &mut self,
        now: Time,
        post: &mut Post,
        rank: usize,
        parcel: Parcel,
    ) -> Result<(), Failure> {
        let Parcel { index, care, payload, .. } = parcel;
        let chunk = index / 2;
        let servers = self.servers.len() as u64;
        let server = self.server.as_mut().filter(|(index, _)| chunk % servers == *index as u64);
        let Some((_, sums)) = server else {
            post.refuse();
            return Ok(());
        };
        match sums.take(rank, chunk / servers, payload) {
            sums::Intake::Unexpected => post.refuse(),
            sums::Intake::Mismatch => return Err(Failure::Mismatch(self.workers[rank])),
            sums::Intake::Taken => {}
            sums::Intake::Complete(sum) => self.send_sum(now, post, chunk, care, &sum)?,
        }
        Ok(())
    }

    fn send_sum(
        &mut self,
        now: Time,
        post: &mut Post,
        chunk: u64,
        care: Care,
        sum: &Payload,
    ) -> Result<(), Failure> {
        let here = self.worker.as_ref().map(|(rank, _)| *rank);
        for (rank, &worker) in self.workers.iter().enumerate() {
            let payload = sum.clone();
            if here == Some(rank) {
                self.local.push_back(Local::Sum { chunk, payload });
            } else {
                let (index, leg) = (2 * chunk + 1, Leg::Result);
                post.send(now, worker, Parcel { index, care, leg, payload })?;
            }
        }
        Ok(())
    }

    /// The worker's role gets a sum.
    fn on_sum(
        &mut self,
        post: &mut Post,
        src: NodeId,
        chunk: u64,
        payload: &Payload,
    ) -> Result<(), Failure> {
        let is_theirs = self.servers[(chunk % self.servers.len() as u64) as usize] == src;
        let Some((_, worker)) = self.worker.as_mut().filter(|_| is_theirs) else {
            post.refuse();
            return Ok(());
        };
        match worker.take(chunk, payload) {
            worker::Intake::Unexpected => post.refuse(),
            worker::Intake::Mismatch => return Err(Failure::Mismatch(src)),
            worker::Intake::Taken => {}
            worker::Intake::Finished(finished) => post.finish(finished),
        }
        Ok(())
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
        now: Time,
        post: &mut Post,
        src: NodeId,
        parcel: Parcel,
    ) -> Result<(), Failure> {
        if parcel.index % 2 == 1 {
            return self.on_sum(post, src, parcel.index / 2, &parcel.payload);
        }
        match self.workers.iter().position(|&worker| worker == src) {
            Some(rank) => self.on_push(now, post, rank, parcel),
            None => {
                post.refuse();
                Ok(())
            }
        }
    }

    fn want(&mut self, src: NodeId, index: u64, bytes: u64) -> Want {
        let (chunk, servers) = (index / 2, self.servers.len() as u64);
        let place = (chunk % servers) as usize;
        if index % 2 == 1 {
            let worker = self.worker.as_mut().filter(|_| self.servers[place] == src);
            return worker.map_or(Want::Never, |(_, worker)| worker.want(chunk, bytes));
        }
        let rank = self.workers.iter().position(|&worker| worker == src);
        let server = self.server.as_mut().filter(|(here, _)| *here == place);
        let (Some(rank), Some((_, sums))) = (rank, server) else { return Want::Never };
        let most = self.chunk_values * VALUE_BYTES;
        match sums.wants(rank, chunk / servers) {
            false => Want::Never,
            true if bytes <= most && bytes.is_multiple_of(VALUE_BYTES) => Want::Gradient,
            true => Want::Mismatch,
        }
    }

    fn on_sent(&mut self, _: &mut Post, index: u64) {
        if let Some((_, worker)) = &mut self.worker
            && index.is_multiple_of(2)
        {
            worker.on_pushed(index / 2);
        }
    }

    fn advance(&mut self, now: Time, post: &mut Post) -> Result<(), Failure> {
        loop {
            self.push(now, post)?;
            match self.local.pop_front() {
                Some(Local::Push { rank, chunk, care, payload }) => {
                    let (index, leg) = (2 * chunk, Leg::Gradient);
                    self.on_push(now, post, rank, Parcel { index, care, leg, payload })?;
                }
                Some(Local::Sum { chunk, payload }) => {
                    let here = self.servers[(chunk % self.servers.len() as u64) as usize];
                    self.on_sum(post, here, chunk, &payload)?;
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

    fn abandon(&mut self, _: Time, post: &mut Post, failure: Failure) {
        self.local.clear();
        if let Some((_, worker)) = &mut self.worker {
            post.fail(worker.abandon(), failure);
        }
    }
}
