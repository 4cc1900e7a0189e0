//! The machine of a node.

use std::collections::VecDeque;

use thalweg_aggregate::{Server, Worker, server};
use thalweg_collective::{Event as SumEvent, SubmitError, SumCall, mesh};
use thalweg_core::{
    Check, JobId, Machine, NodeId, Operation, Outbox, Packet, Reports, Time, Verdict,
};
use thalweg_pace::gate::Gated;
use thalweg_transport::JobClass;
use thalweg_transport::path::{PathProber, PathReport};
use thalweg_values::Tensor;
use thalweg_wire::{Kind, Prefix, PrefixError, peek};
use thiserror::Error;

use crate::pacing::{PacedJob, Pacing};
use crate::participant::{JobEvent, JobMachine, Participant};
use crate::turn::{ControlOutbox, Turn, TurnOutbox};

/// The machine of a host's ordinary flows.
pub trait Transport: Reports<Event = thalweg_flow::Event> + Check {
    /// Takes in a packet whose prefix the host has read.
    fn handle_checked(&mut self, now: Time, prefix: Prefix, packet: &Packet<'_>);
}

impl Transport for thalweg_flow::Endpoint {
    #[inline]
    fn handle_checked(&mut self, now: Time, prefix: Prefix, packet: &Packet<'_>) {
        self.handle_checked(now, prefix, packet);
    }
}

/// Source of the class of all jobs of a host, where another process paces them.
// spec: C-16, C-18
pub trait ClassSource: Send {
    /// The class of their packets now. `None` if it has not been known yet.
    fn class(&mut self, now: Time) -> Option<JobClass>;
}

/// A host that trains: its flows have windows, and its part in jobs is that of a session.
pub type TrainingHost = Host<thalweg_flow::Endpoint, Participant>;

/// Everything that one node does: ordinary flows, sums for others, and its part in jobs.
///
/// The parts take turns on the interface, so that none starves another. Packets find their part by
/// kind and job.
///
/// `T` is the [`Transport`] of its flows, `J` the [`JobMachine`] of its part in a job.
pub struct Host<T, J> {
    flows: T,
    /// Most hosts of a simulation have flows and nothing else.
    jobs: Option<Box<Jobs<J>>>,
    me: NodeId,
}

struct Jobs<J> {
    server: Server,
    /// In the order of their turns. A host has few.
    participants: Vec<(JobId, J)>,
    turn: Turn,
    /// Bytes that it may still send before it is the next one's turn.
    left_bytes: u32,
    /// Bytes that jobs out of their turn may send although others could, times [`LAST_PART`].
    owed_bytes: u64,
    events: VecDeque<Event>,
    /// Pacing that says when participants send; `None` without pacing.
    pacing: Option<Pacing>,
    /// Class of all jobs, and the one that their packets have got. `None` where nobody else paces them.
    classes: Option<(Box<dyn ClassSource>, Option<JobClass>)>,
    /// Probes the paths of its jobs, and answers others; `None` where nobody does.
    paths: Option<PathProber>,
    /// Packets of another version of the wire format.
    other_version: u64,
}

/// Events for the application.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// Something about a flow.
    Flow(thalweg_flow::Event),
    /// Something about the sums that it completes for others.
    Server(server::Event),
    /// The end of a sum. Where the worker of a host lost its memory after all others had completed a part of it, that
    /// part lacks every rank.
    Sum {
        /// Job of the sum.
        job: JobId,
        /// The end.
        event: SumEvent,
    },
    /// The end of the probes of its paths.
    // spec: F-01
    Paths(PathReport),
    /// Something about what is not a sum.
    Mesh {
        /// Job of the mesh.
        job: JobId,
        /// The event.
        event: mesh::Event,
    },
    /// The end of a delivery that the application posted.
    // spec: M-10
    Delivery {
        /// Job of the delivery.
        job: JobId,
        /// The end.
        end: thalweg_deliver::Completion,
    },
}

/// Why an operation cannot begin. The caller is at fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum HostError {
    /// The host has no part in the job.
    #[error("this host has no part in {0:?}: join it first")]
    NoSuchJob(JobId),
    /// The participant does not take the operation.
    #[error(transparent)]
    Submit(#[from] SubmitError),
}

impl<T: Transport, J: JobMachine> Host<T, J> {
    /// A host with flows and no jobs.
    pub fn new(me: NodeId, flows: T) -> Host<T, J> {
        Host { flows, jobs: None, me }
    }

    /// Number of packets that were dropped because they are of another version of the wire format.
    pub fn other_version(&self) -> u64 {
        self.jobs.as_ref().map_or(0, |jobs| jobs.other_version)
    }

    /// Ordinary flows of the host.
    pub fn flows(&self) -> &T {
        &self.flows
    }

    /// Ordinary flows of the host, to start some.
    pub fn flows_mut(&mut self) -> &mut T {
        &mut self.flows
    }

    /// Takes part in a job from now on, in place of the part it had.
    pub fn enter(&mut self, job: JobId, participant: J) {
        self.leave(job);
        let jobs = self.jobs_mut();
        jobs.participants.push((job, participant));
        if let Some((_, given)) = &mut jobs.classes {
            *given = None;
        }
    }

    /// From now on the packets of its jobs have the class that this source names.
    // spec: C-16, C-18
    pub fn follow_class(&mut self, source: Box<dyn ClassSource>) {
        self.jobs_mut().classes = Some((source, None));
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

    /// Pacing that says when its jobs send, if there is any.
    pub fn pacing(&self) -> Option<&Pacing> {
        self.jobs.as_ref()?.pacing.as_ref()
    }

    /// From now on probes its paths, and answers the probes of others.
    // spec: F-01
    pub fn set_paths(&mut self, paths: PathProber) {
        self.jobs_mut().paths = Some(paths);
    }

    /// The prober of its paths, to call commands on.
    pub fn paths_mut(&mut self) -> Option<&mut PathProber> {
        self.jobs.as_mut()?.paths.as_mut()
    }

    /// Takes no more part in a job.
    pub fn leave(&mut self, job: JobId) {
        if let Some(jobs) = &mut self.jobs {
            jobs.participants.retain(|(own, _)| *own != job);
            if let Some(pacing) = &mut jobs.pacing {
                pacing.leave(job);
            }
            // It may have been the turn of one that is gone.
            jobs.turn = Turn::Flows;
        }
    }

    /// Takes no more part in any job, and lets go of everything that was lent to one.
    pub fn leave_all(&mut self) {
        if let Some(jobs) = &mut self.jobs {
            jobs.participants.clear();
            jobs.events.clear();
            jobs.pacing = None;
            jobs.paths = None;
            jobs.turn = Turn::Flows;
        }
    }

    /// The host's participant in a job.
    pub fn participant(&self, job: JobId) -> Option<&J> {
        let jobs = self.jobs.as_ref()?;
        Some(&jobs.participants[jobs.place(job)?].1)
    }

    /// The host's participant in a job, to call commands on.
    pub fn participant_mut(&mut self, job: JobId) -> Option<&mut J> {
        let jobs = self.jobs.as_mut()?;
        let place = jobs.place(job)?;
        Some(&mut jobs.participants[place].1)
    }

    /// Number of messages of all its jobs that others have not acknowledged. A host that leaves before this is zero
    /// leaves others waiting.
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
        let place = jobs.place(job).ok_or(HostError::NoSuchJob(job))?;
        let participant = &mut jobs.participants[place].1;
        let call = call.into();
        let bytes = tensor_bytes(&call.tensor);
        let is_resting = participant.is_resting();
        let operation = participant.submit(now, call)?;
        if let Some(pacing) = &mut jobs.pacing {
            pacing.rest(job, is_resting);
            pacing.handed_over(now, job, bytes);
        }
        Ok(operation)
    }

    fn jobs_mut(&mut self) -> &mut Jobs<J> {
        let me = self.me;
        self.jobs.get_or_insert_with(|| Box::new(Jobs::new(me)))
    }

    /// Everybody sends in turn, as long as there is room and somebody has something to send.
    fn take_turns(flows: &mut T, jobs: &mut Jobs<J>, now: Time, outbox: &mut dyn Outbox) {
        jobs.follow_class(now);
        if let Some(pacing) = &mut jobs.pacing {
            pacing.transmit(now, outbox);
        }
        if let Some(paths) = &mut jobs.paths {
            paths.poll_transmit(outbox);
        }
        // Who has turns by class is asked first, then everybody: no link is idle while anybody could send.
        let mut idle = 0;
        let rounds = if jobs.has_classes() { 2 } else { 1 };
        while idle < rounds * jobs.turns() && outbox.room() > 0 {
            let waits = idle < jobs.turns() && rounds > 1 && !jobs.may_send(now);
            let mut turn = TurnOutbox::new(outbox, jobs.left_bytes);
            match jobs.turn {
                Turn::Flows => flows.poll_transmit(now, &mut turn),
                Turn::Server => jobs.server.poll_transmit(now, &mut turn),
                Turn::Participant(place) if waits => jobs.answer(place, now, &mut turn),
                Turn::Participant(place) => jobs.transmit(place, now, &mut turn),
            }
            let left_bytes = turn.left_bytes();
            idle = if left_bytes == jobs.left_bytes { idle + 1 } else { 0 };
            jobs.left_bytes = left_bytes;
            // A participant that only found no more room goes on when there is some.
            if outbox.room() > 0 || left_bytes == 0 {
                jobs.pass_turn();
            }
        }
    }
}

impl<T: Transport> Host<T, Participant> {
    /// Sets the payload of the packets of messages that begin from now on, in all its jobs.
    // spec: F-01
    pub fn set_segment_bytes(&mut self, segment_bytes: u16) {
        for (_, participant) in self.jobs.iter_mut().flat_map(|jobs| &mut jobs.participants) {
            participant.set_segment_bytes(segment_bytes);
        }
    }

    /// The host's worker of in-network aggregation in a job.
    pub fn worker_mut(&mut self, job: JobId) -> Option<&mut Worker> {
        match self.participant_mut(job)? {
            Participant::Aggregate(worker) => Some(worker),
            _ => None,
        }
    }

    /// The deliveries that the application posts in a job.
    // spec: M-10
    pub fn deliveries_mut(&mut self, job: JobId) -> Option<&mut thalweg_deliver::Endpoint> {
        match self.participant_mut(job)? {
            Participant::Deliveries(endpoint) => Some(endpoint),
            _ => None,
        }
    }

    /// The host's mesh in a job.
    pub fn mesh(&self, job: JobId) -> Option<&mesh::Mesh> {
        match self.participant(job)? {
            Participant::Mesh(mesh) => Some(mesh),
            _ => None,
        }
    }

    /// The host's mesh in a job, to call commands on.
    pub fn mesh_mut(&mut self, job: JobId) -> Option<&mut mesh::Mesh> {
        match self.participant_mut(job)? {
            Participant::Mesh(mesh) => Some(mesh),
            _ => None,
        }
    }
}

/// Of what jobs in their turn send, the part that the others of a host may send meanwhile: with theirs a twentieth.
const LAST_PART: u64 = 19;
/// Bytes that jobs out of their turn are owed before they send: a packet.
const OWED_TURN: u64 = 1_500 * LAST_PART;
/// The most that they are owed.
const OWED_MAX: u64 = 2 * OWED_TURN;

/// The part of a host that a packet is for.
enum Recipient {
    Flows,
    Server,
    Pacing,
    Paths,
    /// A participant, by its place.
    Participant(usize),
    Nobody,
}

impl<J: JobMachine> Jobs<J> {
    fn new(me: NodeId) -> Jobs<J> {
        Jobs {
            server: Server::new(server::Config::new(me)).expect("the defaults work"),
            participants: Vec::new(),
            turn: Turn::Flows,
            left_bytes: TurnOutbox::BYTES,
            owed_bytes: 0,
            events: VecDeque::new(),
            pacing: None,
            classes: None,
            paths: None,
            other_version: 0,
        }
    }

    /// The place of the participant in a job.
    #[inline]
    fn place(&self, job: JobId) -> Option<usize> {
        self.participants.iter().position(|(own, _)| *own == job)
    }

    /// The number of machines that take turns: the participants, the flows and the server.
    fn turns(&self) -> usize {
        self.participants.len() + 2
    }

    fn machines(&self) -> impl Iterator<Item = &J> {
        self.participants.iter().map(|(_, participant)| participant)
    }

    /// Has a participant send, through its gate if it has one.
    fn transmit(&mut self, place: usize, now: Time, turn: &mut TurnOutbox<'_>) {
        self.classify(place, now);
        let (job, participant) = &mut self.participants[place];
        let Some(pacing) = &mut self.pacing else { return participant.poll_transmit(now, turn) };
        let Some(gate) = pacing.gate(*job) else { return participant.poll_transmit(now, turn) };
        let before = turn.left_bytes();
        participant.poll_transmit(now, &mut Gated::new(turn, gate, now));
        let sent = u64::from(before - turn.left_bytes());
        match pacing.class(now, *job) {
            Some(JobClass::OutOfTurn { .. }) => {
                self.owed_bytes = self.owed_bytes.saturating_sub(sent * LAST_PART);
            }
            Some(JobClass::InTurn(_)) => {
                self.owed_bytes = (self.owed_bytes + sent).min(OWED_MAX);
            }
            None => {}
        }
        self.pacing.iter_mut().for_each(|pacing| pacing.settle(*job));
    }

    /// Has a participant send what others wait for, and no data: it is not its turn.
    // spec: C-16
    fn answer(&mut self, place: usize, now: Time, turn: &mut TurnOutbox<'_>) {
        self.participants[place].1.poll_transmit(now, &mut ControlOutbox(turn));
    }

    /// Gives a participant the class that its job has now.
    fn classify(&mut self, place: usize, now: Time) {
        let (job, participant) = &mut self.participants[place];
        if let Some(class) = self.pacing.as_mut().and_then(|pacing| pacing.new_class(now, *job)) {
            participant.set_class(now, class);
        }
    }

    /// Gives all participants the class that another process has chosen.
    // spec: C-16, C-18
    fn follow_class(&mut self, now: Time) {
        let Some((source, given)) = &mut self.classes else { return };
        let Some(class) = source.class(now).filter(|class| *given != Some(*class)) else { return };
        *given = Some(class);
        for (_, participant) in &mut self.participants {
            participant.set_class(now, class);
        }
    }

    /// Gives all participants their classes.
    fn classify_all(&mut self, now: Time) {
        if self.has_classes() {
            (0..self.participants.len()).for_each(|place| self.classify(place, now));
        }
    }

    /// Returns whether jobs have classes.
    fn has_classes(&self) -> bool {
        self.pacing.as_ref().is_some_and(Pacing::has_classes)
    }

    // spec: C-16
    /// Returns whether nobody with a more urgent class has something to send, or the job whose turn it is, out of its
    /// turn on the network, is owed its part of the link.
    fn may_send(&self, now: Time) -> bool {
        let Turn::Participant(place) = self.turn else { return true };
        let class = |job| self.pacing.as_ref().and_then(|pacing| pacing.class(now, job));
        let Some(own) = class(self.participants[place].0) else { return true };
        let is_before = |(job, participant): &(JobId, J)| {
            let is_urgent = |class: JobClass| class.dscp().priority() < own.dscp().priority();
            class(*job).is_some_and(is_urgent) && participant.has_backlog()
        };
        let is_owed = !own.is_in_turn() && self.owed_bytes >= OWED_TURN;
        is_owed || !self.participants.iter().any(is_before)
    }

    fn pass_turn(&mut self) {
        self.turn = self.turn.next(self.participants.len());
        self.left_bytes = TurnOutbox::BYTES;
    }

    /// Finds the recipient of a packet. Packets of a transport are the participant's if its job has one.
    #[inline]
    fn recipient(&self, prefix: &Prefix) -> Recipient {
        match prefix.kind() {
            Kind::AggregateGradient
            | Kind::AggregateQuery
            | Kind::AggregateNotice
            | Kind::AggregateDescription => Recipient::Server,
            Kind::PaceAsk | Kind::PaceAnswer => Recipient::Pacing,
            Kind::PathProbe | Kind::PathAnswer => Recipient::Paths,
            kind => match self.place(prefix.job) {
                Some(place) => Recipient::Participant(place),
                None if kind.is_transport() => Recipient::Flows,
                None => Recipient::Nobody,
            },
        }
    }

    fn handle_pacing(&mut self, now: Time, prefix: Prefix, packet: Packet<'_>) {
        let place = self.place(prefix.job);
        let Some(pacing) = &mut self.pacing else { return };
        if let Some(place) = place {
            pacing.rest(prefix.job, self.participants[place].1.is_resting());
        }
        pacing.handle_checked(now, prefix, packet);
        self.classify_all(now);
    }

    /// Answers the probe of a path in its place, or takes in an answer. Returns true if the packet must be sent.
    // spec: F-01
    fn handle_path(&mut self, now: Time, prefix: Prefix, mut packet: Packet<'_>) -> bool {
        match &mut self.paths {
            Some(paths) if prefix.kind() == Kind::PathAnswer => {
                paths.handle_answer(now, prefix, &packet);
                false
            }
            Some(paths) => paths.answer(prefix, &mut packet),
            None => self.server.answer_path(prefix, &mut packet),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if let Some(paths) = self.paths.as_mut().filter(|paths| paths.poll_timeout() <= now) {
            paths.handle_timeout(now);
        }
        if self.server.poll_timeout() <= now {
            self.server.handle_timeout(now);
        }
        for (_, participant) in &mut self.participants {
            if participant.poll_timeout() <= now {
                participant.handle_timeout(now);
            }
        }
        if let Some(pacing) = &mut self.pacing {
            if pacing.ends_slot(now) {
                for (job, participant) in &self.participants {
                    pacing.rest(*job, participant.is_resting());
                }
            }
            pacing.handle_timeout(now);
        }
        self.classify_all(now);
        self.collect_all();
    }

    fn has_backlog(&self) -> bool {
        self.pacing.as_ref().is_some_and(Pacing::has_words)
            || self.paths.as_ref().is_some_and(PathProber::has_backlog)
            || self.server.has_backlog()
            || self.machines().any(Machine::has_backlog)
    }

    fn poll_timeout(&self) -> Time {
        let pacing = self.pacing.as_ref().map_or(Time::NEVER, Pacing::poll_timeout);
        let paths = self.paths.as_ref().map_or(Time::NEVER, PathProber::poll_timeout);
        let first = pacing.min(paths).min(self.server.poll_timeout());
        self.machines().map(Machine::poll_timeout).fold(first, Time::min)
    }

    fn collect_all(&mut self) {
        for place in 0..self.participants.len() {
            self.collect(place);
        }
    }

    /// Takes over the events of a participant.
    fn collect(&mut self, place: usize) {
        let Jobs { participants, events, pacing, .. } = self;
        let (job, participant) = &mut participants[place];
        let job = *job;
        while let Some(event) = participant.poll_event() {
            events.push_back(match event {
                JobEvent::Sum(event) => {
                    if let (Some(pacing), SumEvent::Finished { tensor, .. }) =
                        (&mut *pacing, &event)
                    {
                        pacing.summed(job, tensor_bytes(tensor));
                    }
                    Event::Sum { job, event }
                }
                JobEvent::Mesh(event) => Event::Mesh { job, event },
                JobEvent::Delivery(end) => Event::Delivery { job, end },
            });
        }
    }
}

fn tensor_bytes(tensor: &Tensor) -> u64 {
    tensor.len() * size_of::<f32>() as u64
}

// spec: T-12
impl<T: Transport, J: JobMachine> Check for Host<T, J> {
    /// Checks the accounts of all its parts.
    fn check(&self) {
        self.flows.check();
        let Some(jobs) = &self.jobs else { return };
        jobs.server.check();
        jobs.machines().for_each(Check::check);
        if let Some(pacing) = &jobs.pacing {
            pacing.check();
        }
        if let Turn::Participant(place) = jobs.turn {
            assert!(place < jobs.participants.len(), "it is the turn of a part that is there");
        }
        let left = jobs.left_bytes;
        assert!(left <= TurnOutbox::BYTES, "{left} bytes are left of a turn");
    }
}

impl<T: Transport, J: JobMachine> Machine for Host<T, J> {
    #[inline]
    fn handle_packet(&mut self, now: Time, packet: Packet<'_>) -> Verdict<'_> {
        let Some(jobs) = &mut self.jobs else { return self.flows.handle_packet(now, packet) };
        let prefix = match peek(packet.header) {
            Ok(prefix) => prefix,
            Err(error) => {
                // spec: E-05
                jobs.other_version += u64::from(matches!(error, PrefixError::Version { .. }));
                return Verdict::Consume;
            }
        };
        match jobs.recipient(&prefix) {
            Recipient::Flows => self.flows.handle_checked(now, prefix, &packet),
            Recipient::Server => jobs.server.handle_checked(now, prefix, packet),
            Recipient::Pacing => jobs.handle_pacing(now, prefix, packet),
            Recipient::Paths => {
                if jobs.handle_path(now, prefix, packet) {
                    return Verdict::Forward;
                }
            }
            Recipient::Participant(place) => {
                jobs.participants[place].1.handle_checked(now, prefix, &packet);
                jobs.collect(place);
            }
            Recipient::Nobody => {}
        }
        Verdict::Consume
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
            Some(jobs) => Self::take_turns(&mut self.flows, jobs, now, outbox),
        }
    }

    #[inline]
    fn has_backlog(&self) -> bool {
        self.flows.has_backlog() || self.jobs.as_ref().is_some_and(|jobs| jobs.has_backlog())
    }

    #[inline]
    fn poll_timeout(&self) -> Time {
        let flows = self.flows.poll_timeout();
        self.jobs.as_ref().map_or(flows, |jobs| flows.min(jobs.poll_timeout()))
    }
}

impl<T: Transport, J: JobMachine> Reports for Host<T, J> {
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
        if let Some(report) = jobs.paths.as_mut().and_then(PathProber::poll_report) {
            return Some(Event::Paths(report));
        }
        if jobs.events.is_empty() {
            // Commands may have finished operations without a packet.
            jobs.collect_all();
        }
        jobs.events.pop_front()
    }
}
