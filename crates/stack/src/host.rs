//! The machine of a node.

use std::collections::VecDeque;

use thalweg_aggregate::{Server, Worker, server};
use thalweg_collective::{Failure, SubmitError, SumCall, mesh};
use thalweg_core::{
    Check, JobId, Machine, NodeId, Operation, Outbox, Packet, Reports, Time, Verdict,
};
use thalweg_values::{Coverage, Tensor};
use thalweg_wire::{Kind, peek};
use thiserror::Error;

use crate::pacing::{Gated, PacedJob, Pacing};
use crate::participant::{End, Participant};
use crate::transport::Transport;
use crate::turn::Turn;

/// Everything that one node does: ordinary flows, sums for others, and its part in jobs.
///
/// The parts take turns on the interface, so that none starves another. Packets find their part by
/// kind and job.
pub struct Host {
    flows: Transport,
    /// Most hosts of a simulation have flows and nothing else.
    jobs: Option<Box<Jobs>>,
    me: NodeId,
}

struct Jobs {
    server: Server,
    participants: Vec<(JobId, Participant)>,
    /// Whose turn it is to send: 0 the flows, 1 the server, then the participants.
    turn: usize,
    /// What it may still send before it is the next one's turn.
    left_bytes: u32,
    events: VecDeque<Event>,
    /// Who says when participants send; `None` where nobody does.
    pacing: Option<Pacing>,
}

/// What a host tells the application.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// Something about a flow.
    Flow(thalweg_flow::Event),
    /// Something about the sums that it completes for others.
    Server(server::Event),
    /// A sum is here.
    Finished {
        /// Whose.
        job: JobId,
        /// Which.
        operation: Operation,
        /// The sum.
        tensor: Tensor,
        /// How many fragments at its beginning are missing: only where a worker lost its memory
        /// after all others had completed them.
        missing_below: u64,
        /// Contributions that are in it: all of them, unless it was submitted as bounded.
        coverage: Coverage,
    },
    /// Something about what is not a sum.
    Mesh {
        /// Whose.
        job: JobId,
        /// What.
        event: mesh::Event,
    },
    /// A sum will not come.
    Failed {
        /// Whose.
        job: JobId,
        /// Which.
        operation: Operation,
        /// Why.
        failure: Failure,
    },
}

/// Why an operation cannot begin. The caller is at fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum HostError {
    /// The host has no part in the job.
    #[error("this host has no part in {0:?}: join it first")]
    NoSuchJob(JobId),
    /// Its part does not take the operation.
    #[error(transparent)]
    Submit(#[from] SubmitError),
}

impl Host {
    /// A host with flows and no jobs.
    pub fn new(me: NodeId, flows: impl Into<Transport>) -> Host {
        Host { flows: flows.into(), jobs: None, me }
    }

    /// Its ordinary flows.
    pub fn flows(&self) -> &Transport {
        &self.flows
    }

    /// Its ordinary flows, to start some.
    pub fn flows_mut(&mut self) -> &mut Transport {
        &mut self.flows
    }

    /// Takes part in a job from now on, in place of the part it had.
    pub fn enter(&mut self, job: JobId, participant: Participant) {
        self.leave(job);
        self.jobs_mut().participants.push((job, participant));
    }

    /// From now on its jobs send when the scheduler of the host says so.
    pub fn pace(&mut self, pacing: Pacing) {
        self.jobs_mut().pacing = Some(pacing);
    }

    /// Tells the scheduler of the host, if there is one, what a job sends.
    pub fn enter_paced(&mut self, job: JobId, paced: &PacedJob) {
        if let Some(pacing) = self.jobs.as_mut().and_then(|jobs| jobs.pacing.as_mut()) {
            pacing.enter(job, paced);
        }
    }

    /// Who says when its jobs send, if anybody does.
    pub fn pacing(&self) -> Option<&Pacing> {
        self.jobs.as_ref()?.pacing.as_ref()
    }

    /// Takes no more part in a job.
    pub fn leave(&mut self, job: JobId) {
        if let Some(jobs) = &mut self.jobs {
            jobs.participants.retain(|(own, _)| *own != job);
            if let Some(pacing) = &mut jobs.pacing {
                pacing.leave(job);
            }
            // It may have been the turn of one that is gone.
            jobs.turn = 0;
        }
    }

    /// Takes no more part in any job, and lets go of everything that was lent to one.
    pub fn leave_all(&mut self) {
        if let Some(jobs) = &mut self.jobs {
            jobs.participants.clear();
            jobs.events.clear();
            jobs.pacing = None;
            jobs.turn = 0;
        }
    }

    /// Its part in a job.
    pub fn participant(&self, job: JobId) -> Option<&Participant> {
        let participants = self.jobs.as_ref().map(|jobs| &jobs.participants)?;
        participants.iter().find(|(own, _)| *own == job).map(|(_, participant)| participant)
    }

    /// Its part in a job, to call commands on.
    pub fn participant_mut(&mut self, job: JobId) -> Option<&mut Participant> {
        self.jobs.as_mut()?.participant(job)
    }

    /// Its worker of in-network aggregation in a job.
    pub fn worker_mut(&mut self, job: JobId) -> Option<&mut Worker> {
        match self.participant_mut(job)? {
            Participant::Aggregate(worker) => Some(worker),
            _ => None,
        }
    }

    /// Its mesh in a job.
    pub fn mesh(&self, job: JobId) -> Option<&mesh::Mesh> {
        match self.participant(job)? {
            Participant::Mesh(mesh) => Some(mesh),
            _ => None,
        }
    }

    /// Its mesh in a job, to call commands on.
    pub fn mesh_mut(&mut self, job: JobId) -> Option<&mut mesh::Mesh> {
        match self.participant_mut(job)? {
            Participant::Mesh(mesh) => Some(mesh),
            _ => None,
        }
    }

    /// How many messages of all its jobs others have not acknowledged. Whoever leaves before there is
    /// none leaves others waiting.
    pub fn outgoing(&self) -> usize {
        let participants = self.jobs.iter().flat_map(|jobs| &jobs.participants);
        participants.map(|(_, participant)| participant.outgoing()).sum()
    }

    /// Completes sums for others with these settings, and forgets what it has completed so far.
    pub fn serve(&mut self, config: server::Config) -> Result<(), server::ConfigError> {
        self.jobs_mut().server = Server::new(config)?;
        Ok(())
    }

    /// The server that completes sums of in-network aggregation, if it ever was asked for.
    pub fn server(&self) -> Option<&Server> {
        self.jobs.as_ref().map(|jobs| &jobs.server)
    }

    /// The server that completes sums of in-network aggregation.
    pub fn server_mut(&mut self) -> &mut Server {
        &mut self.jobs_mut().server
    }

    /// Begins to sum a tensor over all workers of a job.
    pub fn submit(
        &mut self,
        now: Time,
        job: JobId,
        call: impl Into<SumCall>,
    ) -> Result<Operation, HostError> {
        let jobs = self.jobs.as_mut().ok_or(HostError::NoSuchJob(job))?;
        let participant = jobs.participant(job).ok_or(HostError::NoSuchJob(job))?;
        let call = call.into();
        let bytes = tensor_bytes(&call.tensor);
        let is_resting = participant.rests();
        let operation = participant.submit(now, call)?;
        if let Some(pacing) = &mut jobs.pacing {
            pacing.rest(job, is_resting);
            pacing.handed_over(now, job, bytes);
        }
        Ok(operation)
    }

    fn jobs_mut(&mut self) -> &mut Jobs {
        let me = self.me;
        self.jobs.get_or_insert_with(|| Box::new(Jobs::new(me)))
    }

    /// Everybody sends in turn, as long as there is room and somebody has something to send.
    fn take_turns(flows: &mut Transport, jobs: &mut Jobs, now: Time, outbox: &mut dyn Outbox) {
        if let Some(pacing) = &mut jobs.pacing {
            pacing.transmit(now, outbox);
        }
        let mut idle = 0;
        while idle < jobs.parts() && outbox.room() > 0 {
            let mut turn = Turn::new(outbox, jobs.left_bytes);
            match jobs.turn {
                0 => flows.poll_transmit(now, &mut turn),
                1 => jobs.server.poll_transmit(now, &mut turn),
                own => jobs.transmit(own - 2, now, &mut turn),
            }
            let left_bytes = turn.left_bytes();
            idle = if left_bytes == jobs.left_bytes { idle + 1 } else { 0 };
            jobs.left_bytes = left_bytes;
            // Who only found no more room goes on when there is some.
            if outbox.room() > 0 || left_bytes == 0 {
                jobs.turn = (jobs.turn + 1) % jobs.parts();
                jobs.left_bytes = Turn::BYTES;
            }
        }
    }
}

impl Jobs {
    fn new(me: NodeId) -> Jobs {
        Jobs {
            server: Server::new(server::Config::new(me)).expect("the defaults work"),
            participants: Vec::new(),
            turn: 0,
            left_bytes: Turn::BYTES,
            events: VecDeque::new(),
            pacing: None,
        }
    }

    fn participant(&mut self, job: JobId) -> Option<&mut Participant> {
        let own = self.participants.iter_mut().find(|(own, _)| *own == job);
        own.map(|(_, participant)| participant)
    }

    /// How many parts take turns, with the flows.
    fn parts(&self) -> usize {
        2 + self.participants.len()
    }

    fn part(&self, turn: usize) -> &dyn Machine {
        match turn {
            0 | 1 => &self.server,
            other => self.participants[other - 2].1.part(),
        }
    }

    fn part_mut(&mut self, turn: usize) -> &mut dyn Machine {
        match turn {
            0 | 1 => &mut self.server,
            other => self.participants[other - 2].1.part_mut(),
        }
    }

    /// Has a participant send, through its gate if it has one.
    fn transmit(&mut self, index: usize, now: Time, turn: &mut Turn<'_>) {
        let (job, participant) = &mut self.participants[index];
        let Some(pacing) = &mut self.pacing else {
            return participant.part_mut().poll_transmit(now, turn);
        };
        let Some(gate) = pacing.gate(*job) else {
            return participant.part_mut().poll_transmit(now, turn);
        };
        participant.part_mut().poll_transmit(now, &mut Gated::new(turn, gate, now));
        pacing.settle(*job);
    }

    /// Hands a packet to whom it is for, if that is somebody here.
    fn handle_packet(&mut self, now: Time, packet: Packet<'_>) {
        let Ok(prefix) = peek(packet.header) else { return };
        match prefix.kind {
            Kind::AggregateGradient | Kind::AggregateQuery | Kind::AggregateNotice => {
                self.server.handle_packet(now, packet);
            }
            Kind::PaceAsk | Kind::PaceAnswer => {
                let Some(pacing) = &mut self.pacing else { return };
                let own = self.participants.iter().find(|(own, _)| *own == prefix.job);
                if let Some((job, participant)) = own {
                    pacing.rest(*job, participant.rests());
                }
                pacing.handle_packet(now, packet);
            }
            _ => {
                let Some(participant) = self.participant(prefix.job) else { return };
                participant.handle_packet(now, packet);
                self.collect(prefix.job);
            }
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        for turn in 1..self.parts() {
            if self.part(turn).poll_timeout() <= now {
                self.part_mut(turn).handle_timeout(now);
            }
        }
        if let Some(pacing) = &mut self.pacing {
            if pacing.ends_slot(now) {
                for (job, participant) in &self.participants {
                    pacing.rest(*job, participant.rests());
                }
            }
            pacing.handle_timeout(now);
        }
        for index in 0..self.participants.len() {
            self.collect(self.participants[index].0);
        }
    }

    /// Takes what a participant has to tell.
    fn collect(&mut self, job: JobId) {
        let Jobs { participants, events, pacing, .. } = self;
        let own = participants.iter_mut().find(|(own, _)| *own == job);
        let Some((_, participant)) = own else { return };
        while let Some(end) = participant.poll_end() {
            events.push_back(match end {
                End::Finished { operation, tensor, missing_below, coverage } => {
                    if let Some(pacing) = pacing {
                        pacing.summed(job, tensor_bytes(&tensor));
                    }
                    Event::Finished { job, operation, tensor, missing_below, coverage }
                }
                End::Failed { operation, failure } => Event::Failed { job, operation, failure },
                End::Mesh(event) => Event::Mesh { job, event },
            });
        }
    }
}

fn tensor_bytes(tensor: &Tensor) -> u64 {
    tensor.len() * size_of::<f32>() as u64
}

/// Whether a packet is one of a transport's.
fn is_flow(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::FlowData
            | Kind::FlowAck
            | Kind::FlowCredit
            | Kind::DeliverData
            | Kind::DeliverAck
            | Kind::DeliverOffer
            | Kind::DeliverAccept
            | Kind::DeliverHold
            | Kind::DeliverProbe
            | Kind::DeliverBitmap
            | Kind::DeliverStop
            | Kind::DeliverRefuse
    )
}

// spec: T-12
impl Check for Host {
    /// Checks the accounts of all its parts.
    fn check(&self) {
        self.flows.check();
        let Some(jobs) = &self.jobs else { return };
        jobs.server.check();
        jobs.participants.iter().for_each(|(_, participant)| participant.check());
        if let Some(pacing) = &jobs.pacing {
            pacing.check();
        }
        assert!(jobs.turn < jobs.parts(), "it is the turn of a part that is there");
        let left = jobs.left_bytes;
        assert!(left <= Turn::BYTES, "{left} bytes are left of a turn");
    }
}

impl Machine for Host {
    #[inline]
    fn handle_packet(&mut self, now: Time, packet: Packet<'_>) -> Verdict<'_> {
        let Some(jobs) = &mut self.jobs else { return self.flows.handle_packet(now, packet) };
        match peek(packet.header) {
            Ok(prefix) if is_flow(prefix.kind) && jobs.participant(prefix.job).is_none() => {
                self.flows.handle_packet(now, packet)
            }
            _ => {
                jobs.handle_packet(now, packet);
                Verdict::Consume
            }
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.flows.poll_timeout() <= now {
            self.flows.handle_timeout(now);
        }
        if let Some(jobs) = &mut self.jobs {
            jobs.handle_timeout(now);
        }
    }

    #[inline]
    fn poll_transmit(&mut self, now: Time, outbox: &mut dyn Outbox) {
        match &mut self.jobs {
            None => self.flows.poll_transmit(now, outbox),
            Some(jobs) => Host::take_turns(&mut self.flows, jobs, now, outbox),
        }
    }

    #[inline]
    fn has_backlog(&self) -> bool {
        let in_jobs = |jobs: &Jobs| {
            jobs.pacing.as_ref().is_some_and(Pacing::has_words)
                || (1..jobs.parts()).any(|turn| jobs.part(turn).has_backlog())
        };
        self.flows.has_backlog() || self.jobs.as_deref().is_some_and(in_jobs)
    }

    #[inline]
    fn poll_timeout(&self) -> Time {
        let flows = self.flows.poll_timeout();
        let Some(jobs) = &self.jobs else { return flows };
        let pacing = jobs.pacing.as_ref().map_or(Time::NEVER, Pacing::poll_timeout);
        let parts = (1..jobs.parts()).map(|turn| jobs.part(turn).poll_timeout());
        parts.fold(flows.min(pacing), Time::min)
    }
}

impl Reports for Host {
    type Event = Event;

    #[inline]
    fn poll_event(&mut self) -> Option<Event> {
        if let Some(event) = self.flows.poll_event() {
            return Some(Event::Flow(event));
        }
        let jobs = self.jobs.as_mut()?;
        if let Some(event) = jobs.server.poll_event() {
            return Some(Event::Server(event));
        }
        if jobs.events.is_empty() {
            // Commands may have finished operations without a packet.
            for index in 0..jobs.participants.len() {
                jobs.collect(jobs.participants[index].0);
            }
        }
        jobs.events.pop_front()
    }
}
