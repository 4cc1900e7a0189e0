//! A rank's place in its job, and what the control channel says about it.

use std::sync::Arc;

use thalweg_aggregate::{JobParameters, Setup, Worker};
use thalweg_collective::{Delivery, mesh, ring, server};
use thalweg_control::{
    ControlEvent, Diagnosis, Failure, FailureKind, FromRank, JobTree, LANES, Place, Welcome,
};
use thalweg_core::{JobId, NodeId, Time};
use thalweg_stack::{Event, Participant, TrainingHost};
use thalweg_transport::Credentials;
use thalweg_transport::path::PathProber;
use thalweg_wire::tag::Key;

use super::paths::Answer;
use super::{Deadlines, Engine, HostDriver, Identity, lock};
use crate::error::{Error, ErrorKind};
use crate::events::Note;
use crate::policy::{Collective, Policy};
use crate::tagging::Tagging;
use crate::tuning::{self, Sending};

/// The lanes of a job: ids next to its own, each with a key of its own, for transports beside
/// aggregation.
const MESH_LANE: usize = 1;
const RING_LANE: usize = 2;
const SERVER_LANE: usize = 3;
/// The same two over deliveries, for sums that may lack something.
const LOSSY_RING_LANE: usize = 4;
const LOSSY_SERVER_LANE: usize = 5;
const _: () = assert!(LOSSY_SERVER_LANE == LANES, "every lane has a key, and every key a lane");
/// Deliveries that the application posts, with the key of the mesh: seals cover the lane.
const DELIVERY_LANE: usize = 6;
/// Lanes are set up once.
const LANE_EPOCH: u32 = 1;

/// The job as a rank finds it when all ranks are there.
#[derive(Clone, Debug)]
pub(crate) struct Joined {
    pub welcome: Arc<Welcome>,
    /// By host number, the paths of gradients to the server. Empty at ranks that do not sum.
    pub paths: Vec<Path>,
    /// Fragments that a worker can be ahead of the slowest.
    pub span_fragments: u16,
}

/// The node that a rank's gradients leave from, and the first one that they go to: a switch, or the server of the tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Path {
    pub from: NodeId,
    pub first_hop: NodeId,
}

/// The place of a sending thread of a rank in its job.
pub(super) struct Membership {
    welcome: Arc<Welcome>,
    /// Number of the tree of the thread, and its id, which the packets of the thread carry.
    tree: u32,
    job: JobId,
    is_leader: bool,
    /// The latest round that it answered in, and the epoch that it has adopted; 0 for none.
    answered_round: u32,
    epoch: u32,
    /// See [`Joined`].
    paths: Vec<Path>,
    span_fragments: u16,
}

impl Membership {
    pub fn job(&self) -> JobId {
        self.job
    }

    /// The job whose participant carries out sums of this kind, of tensors of this number of values.
    pub fn job_of(&self, policy: &Policy, values: u64) -> JobId {
        let is_lossy = policy.reliability.loss().is_some();
        // Values travel in single precision.
        let is_ring = || tuning::is_ring(self.hosts(), values.saturating_mul(4));
        match policy.collective {
            Collective::Auto | Collective::Aggregate => self.job,
            Collective::Direct if is_lossy => lane(self.job, LOSSY_SERVER_LANE),
            Collective::Direct if is_ring() => lane(self.job, RING_LANE),
            Collective::Direct => lane(self.job, SERVER_LANE),
            Collective::Ring if is_lossy => lane(self.job, LOSSY_RING_LANE),
            Collective::Ring => lane(self.job, RING_LANE),
            Collective::Server if is_lossy => lane(self.job, LOSSY_SERVER_LANE),
            Collective::Server => lane(self.job, SERVER_LANE),
        }
    }

    /// The lanes of sums that may lack something: that of the ring, and that of the servers.
    pub fn lossy_lanes(&self) -> [JobId; 2] {
        [LOSSY_RING_LANE, LOSSY_SERVER_LANE].map(|at| lane(self.job, at))
    }

    /// The lanes of sums that go directly between hosts.
    pub fn direct_lanes(&self) -> [JobId; 4] {
        let lanes = [RING_LANE, SERVER_LANE, LOSSY_RING_LANE, LOSSY_SERVER_LANE];
        lanes.map(|at| lane(self.job, at))
    }

    /// The rank that leads a host.
    pub fn leader(&self, seat: u32) -> Option<u32> {
        let host = |place: &Place| place.host == seat;
        self.welcome.roster.iter().position(host).map(|rank| rank as u32)
    }

    /// Number of hosts.
    fn hosts(&self) -> u64 {
        self.welcome.roster.iter().map(|place| u64::from(place.host) + 1).max().unwrap_or(1)
    }

    /// Returns true if the rank leads its host.
    pub fn is_leader(&self) -> bool {
        self.is_leader
    }

    /// The nodes of the leaders of the other hosts.
    pub fn other_leader_nodes(&self, rank: u32) -> Vec<NodeId> {
        let node = |rank: u32| self.welcome.roster.get(rank as usize)?.node_of(self.tree);
        self.other_leaders(rank).into_iter().filter_map(node).collect()
    }

    /// The leaders of the other hosts.
    pub fn other_leaders(&self, rank: u32) -> Vec<u32> {
        let is_other = |other: &u32| *other != rank && self.welcome.is_leader(*other);
        (0..self.welcome.roster.len() as u32).filter(is_other).collect()
    }

    /// The other ranks of a rank's host.
    pub fn mates(&self, rank: u32) -> Vec<u32> {
        let host = |of: u32| self.welcome.roster.get(of as usize).map(|place| place.host);
        let is_mate = |other: &u32| *other != rank && host(*other) == host(rank);
        (0..self.welcome.roster.len() as u32).filter(is_mate).collect()
    }

    /// The rank at a node.
    pub fn rank_of(&self, node: NodeId) -> Option<u32> {
        let is_there = |place: &Place| place.node_of(self.tree) == Some(node);
        let place = self.welcome.roster.iter().position(is_there);
        place.map(|rank| rank as u32)
    }

    /// Returns whether it has answered for a set-up that has not come yet.
    pub fn is_paused(&self) -> bool {
        self.answered_round > self.epoch
    }

    /// The lane of deliveries that the application posts.
    pub fn delivery_lane(&self) -> JobId {
        lane(self.job, DELIVERY_LANE)
    }

    /// The node of a rank.
    pub fn node_of(&self, rank: u32) -> Option<NodeId> {
        self.welcome.roster.get(rank as usize)?.node_of(self.tree)
    }

    pub fn mesh_lane(&self) -> JobId {
        lane(self.job, MESH_LANE)
    }

    pub fn mesh<'a>(&self, driver: &'a HostDriver) -> Option<&'a mesh::Mesh> {
        driver.machine().machine().machine().mesh(self.mesh_lane())
    }
}

impl Engine {
    /// Does what the control channel says.
    pub(super) fn hear(&mut self, event: ControlEvent, events: &mut Vec<Event>) {
        match event {
            ControlEvent::Waiting { missing } => {
                let (now, stall_after) = (self.driver.now(), self.deadlines.stall_after);
                let report = self.watch.gathering.report(now, &missing, stall_after);
                report.into_iter().for_each(|note| self.notes.send(note));
            }
            ControlEvent::Welcome(welcome) => {
                self.watch.gathering.end();
                self.enter(welcome);
            }
            ControlEvent::ProbePaths { round, mtu_bytes, nodes } => {
                self.probe_paths(round, mtu_bytes, nodes);
            }
            ControlEvent::PathMtu { mtu_bytes } => self.set_mtu(mtu_bytes),
            ControlEvent::Report { round, seat } => self.report(round, seat),
            ControlEvent::Adopt { seat, key, setup } => self.adopt(seat, key, &setup, events),
            ControlEvent::Joined { .. } | ControlEvent::Retire { .. } => {}
            ControlEvent::ReportOperations => {
                let first_open = self.first_open();
                for report in self.comparison.all_reports(first_open) {
                    self.say(report);
                }
            }
            ControlEvent::Diagnosis(diagnosis) => {
                let Diagnosis { text, culprits, .. } = &*diagnosis;
                self.notes.send(Note::Stalled { text: text.clone(), ranks: culprits.clone() });
            }
            ControlEvent::Left { rank, operations } => self.departures.note(rank, operations),
            ControlEvent::Failed(failure) => self.fail(Error::failed((*failure).clone())),
            ControlEvent::Disconnected { text, .. } => self.notes.send(Note::Disconnected(text)),
            ControlEvent::GaveUp { text, is_refused } => {
                self.fail(Error::without_server(text, is_refused));
            }
        }
    }

    /// Everybody is there: takes part in all lanes.
    fn enter(&mut self, welcome: Arc<Welcome>) {
        if let Some(membership) = &self.membership {
            let before = membership.welcome.roster.iter();
            let is_other = |(rank, (before, now)): (u32, _)| (before != now).then_some(rank);
            let others: Vec<u32> =
                (0..).zip(before.zip(&welcome.roster)).filter_map(is_other).collect();
            if let Some(rank) = others.first().filter(|_| self.identity.thread == 0) {
                let text =
                    format!("rank {rank} is another process than before: start all ranks again");
                self.say(FromRank::Failing(Failure::new(FailureKind::Peer, text, others)));
            }
            for report in self.comparison.reports_again() {
                self.say(report);
            }
            return;
        }
        let Identity { rank, thread: tree, .. } = self.identity;
        let job = JobTree { job: welcome.ticket.job, tree }.id();
        let Some(lane_keys) = welcome.lane_keys.get(tree as usize) else { return };
        let is_leader = welcome.is_leader(rank);
        let settings = (self.deadlines, &self.sending, &self.tagging);
        let entered = match participants(&welcome, self.identity, settings) {
            Ok(participants) => participants,
            Err(error) => return self.fail(error),
        };
        let probes = Credentials {
            job: lane(job, MESH_LANE),
            epoch: LANE_EPOCH,
            key: Some(lane_keys[MESH_LANE - 1]),
        };
        let enter = |host: &mut TrainingHost, _now: Time| {
            host.set_paths(PathProber::new(probes));
            for (job, participant) in entered {
                host.enter(job, participant);
            }
        };
        self.command(enter, |_| {});
        self.membership = Some(Membership {
            welcome: Arc::clone(&welcome),
            tree,
            job,
            is_leader,
            answered_round: 0,
            epoch: 0,
            paths: Vec::new(),
            span_fragments: 0,
        });
        // The others wait for the length of packets.
        let is_waiting = welcome.probes_paths && !is_alone(&welcome);
        if is_alone(&welcome) || !(is_leader || is_waiting) {
            self.be_ready();
        }
    }

    pub(super) fn be_ready(&mut self) {
        if let (Some((_, joining)), Some(membership)) = (self.joining.take(), &self.membership) {
            let Membership { welcome, paths, span_fragments, .. } = membership;
            joining.end(Ok(Joined {
                welcome: Arc::clone(welcome),
                paths: paths.clone(),
                span_fragments: *span_fragments,
            }));
        }
    }

    /// Pauses, and says what it remembers.
    // spec: A-41
    fn report(&mut self, round: u32, seat: u32) {
        let Some(membership) = &mut self.membership else { return };
        if round < membership.answered_round || round <= membership.epoch {
            return;
        }
        membership.answered_round = round;
        let (job, has_memory) = (membership.job, membership.epoch > 0);
        let pause = |host: &mut TrainingHost, _now: Time| host.worker_mut(job).map(Worker::pause);
        let watermark = self.command(pause, |_| {}).filter(|_| has_memory);
        let message = FromRank::Answer { round, seat, watermark };
        self.answer_when_probed(Answer { round, message });
    }

    fn adopt(&mut self, seat: u32, key: Key, setup: &Arc<Setup>, events: &mut Vec<Event>) {
        let Some(membership) = &mut self.membership else { return };
        let Membership { job, answered_round, epoch, .. } = *membership;
        if setup.job != job || setup.epoch != answered_round || setup.epoch <= epoch {
            return;
        }
        membership.epoch = setup.epoch;
        membership.span_fragments = setup.parameters.span_fragments;
        let tree = &setup.trees[0];
        let path = |seat| Path { from: tree.node(seat), first_hop: tree.first_hop(seat) };
        membership.paths = (0..tree.workers()).map(path).collect();
        let adopt = |host: &mut TrainingHost, now: Time| {
            let Some(worker) = host.worker_mut(job) else { return false };
            worker.set_key(Some(key));
            worker.adopt(now, Arc::clone(setup), seat)
        };
        if self.command(adopt, |event| events.push(event)) {
            self.watch_epoch(setup);
            if self.identity.thread == 0 {
                self.note_set_up(setup);
            }
            self.remember();
            self.be_ready();
        } else {
            let rank = self.identity.rank;
            let text = format!("rank {rank} was given a set-up that does not follow its last one");
            self.say(FromRank::Failing(Failure::new(FailureKind::Other, text, vec![rank])));
        }
    }

    /// Reports the numbers of a set-up, and whether the switch of this rank is left out of it.
    // spec: E-06
    fn note_set_up(&self, setup: &Setup) {
        let epoch = setup.epoch;
        let JobParameters { fragment_values, aggregators, .. } = *setup.parameters;
        self.notes.send(Note::SetUp { epoch, fragment_values, aggregators });
        let tree = &setup.trees[0];
        let own = (0..tree.workers()).find(|leader| tree.node(*leader) == self.identity.node);
        let hop = own.map(|leader| tree.first_hop(leader));
        if self.identity.switch.is_some() && hop == Some(tree.server()) {
            self.notes.send(Note::WithoutSwitch { epoch });
        }
    }

    /// Keeps what the registrar would have to know if it forgot the job.
    pub(super) fn remember(&mut self) {
        let Some(membership) = &self.membership else { return };
        if !membership.is_leader {
            return;
        }
        let Membership { job, epoch, .. } = *membership;
        let watermark =
            |host: &mut TrainingHost, _| host.worker_mut(job).map(|worker| worker.watermark());
        let watermark = self.command(watermark, |_| {}).filter(|_| epoch > 0);
        if let (Some(watermark), Some(control)) = (watermark, &*lock(&self.control)) {
            control.set_watermark(self.identity.thread, watermark);
        }
    }
}

/// Returns whether there is nobody to sum with.
fn is_alone(welcome: &Welcome) -> bool {
    welcome.roster.len() == 1
}

/// The job whose packets are those of the ring of a tree.
pub(crate) fn ring_of(tree: JobId) -> JobId {
    lane(tree, RING_LANE)
}

fn lane(job: JobId, lane: usize) -> JobId {
    // An id is a random name: the one after the largest is the smallest.
    JobId(job.0.wrapping_add(lane as u64))
}

/// A rank's machines: the mesh of all ranks, and among leaders those that sum.
fn participants(
    welcome: &Welcome,
    identity: Identity,
    (deadlines, sending, tagging): (Deadlines, &Sending, &Tagging),
) -> Result<Vec<(JobId, Participant)>, Error> {
    let tree = identity.thread;
    let job = JobTree { job: welcome.ticket.job, tree }.id();
    let lane_keys = &welcome.lane_keys[tree as usize];
    let flow = |at: usize| {
        let key = lane_keys[at - 1];
        tuning::flow(lane(job, at), LANE_EPOCH, key, deadlines.give_up_after(), sending.window)
    };
    let nodes = welcome.roster.iter().filter_map(|place| place.node_of(tree)).collect();
    let config = tuning::mesh((nodes, identity.rank), sending.window, flow(MESH_LANE));
    let mesh = mesh::Mesh::new(config).map_err(|error| Error::of(ErrorKind::Internal, error))?;
    let delivery = |at: usize, key: usize| {
        let key = Some(lane_keys[key - 1]);
        let credentials = Credentials { job: lane(job, at), epoch: LANE_EPOCH, key };
        let delivery =
            tuning::delivery(credentials, deadlines.give_up_after(), sending, identity.rank);
        Delivery { policy: tagging.policy(), ..delivery }
    };
    let Delivery { endpoint, rng, .. } = delivery(DELIVERY_LANE, MESH_LANE);
    let deliveries = thalweg_deliver::Endpoint::new(endpoint, rng.stream("delivery"))
        .map_err(|error| Error::of(ErrorKind::Internal, error))?;
    let mut all = vec![
        (lane(job, MESH_LANE), Participant::Mesh(Box::new(mesh))),
        (lane(job, DELIVERY_LANE), Participant::Deliveries(Box::new(deliveries))),
    ];
    if !welcome.is_leader(identity.rank) {
        return Ok(all);
    }
    let worker = Worker::new(tuning::worker(sending.window, sending.paths));
    let worker = worker.map_err(|error| Error::of(ErrorKind::Internal, error))?;
    all.push((job, Participant::Aggregate(Box::new(worker))));
    let delivery = |at: usize| delivery(at, at);
    let (leaders, seat) = leaders(welcome, identity);
    for (at, delivery) in [(RING_LANE, None), (LOSSY_RING_LANE, Some(delivery(LOSSY_RING_LANE)))] {
        let (chunk_bytes, pieces_in_flight) = match delivery {
            None => (tuning::CHUNK_BYTES, tuning::PIECES_IN_FLIGHT),
            Some(_) => (tuning::LOSSY_CHUNK_BYTES, tuning::LOSSY_PIECES_IN_FLIGHT),
        };
        let config = ring::Config {
            chunk_bytes,
            pieces_in_flight,
            flow: tuning::ring_flow(sending.window, flow(at)),
            delivery,
            ..ring::Config::new(leaders.clone(), seat)
        };
        let ring =
            ring::Ring::new(config).map_err(|error| Error::of(ErrorKind::Internal, error))?;
        all.push((lane(job, at), Participant::Ring(Box::new(ring))));
    }
    for (at, delivery) in
        [(SERVER_LANE, None), (LOSSY_SERVER_LANE, Some(delivery(LOSSY_SERVER_LANE)))]
    {
        let mut config = server::Config::new(leaders.clone(), leaders.clone());
        (config.rank, config.server, config.flow) = (Some(seat), Some(seat), flow(at));
        // An offer and its answer come before a delivery: short ones are not worth it.
        config.least_chunk_bytes = delivery.is_none().then_some(tuning::LEAST_CHUNK_BYTES);
        (config.chunk_bytes, config.delivery) = (tuning::CHUNK_BYTES, delivery);
        let node =
            server::Node::new(config).map_err(|error| Error::of(ErrorKind::Internal, error))?;
        all.push((lane(job, at), Participant::Server(Box::new(node))));
    }
    Ok(all)
}

/// The nodes of the leaders in a tree by host number, and the host number of one of them.
fn leaders(welcome: &Welcome, identity: Identity) -> (Vec<NodeId>, u32) {
    let Identity { rank, thread: tree, .. } = identity;
    let is_leader = |rank: &u32| welcome.is_leader(*rank);
    let ranks: Vec<u32> = (0..welcome.roster.len() as u32).filter(is_leader).collect();
    let seat = ranks.iter().position(|leader| *leader == rank).unwrap_or(0);
    let node = |rank: &u32| welcome.roster[*rank as usize].node_of(tree);
    let nodes = ranks.iter().filter_map(node).collect();
    (nodes, seat as u32)
}
