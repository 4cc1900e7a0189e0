//! Probes of all paths of a worker.

use thalweg_core::{
    BodySize, FRAME_OVERHEAD_BYTES, NodeId, Outbox, Packet, Purpose, Tag, Time, body_bytes_of_mtu,
};
use thalweg_wire::Prefix;
use thalweg_wire::path::PathProbe;
use thalweg_wire::tag;

use super::search::{PathOutcome, PathSearch};
use crate::credentials::Credentials;
use crate::envelope::Envelope;

/// Most searches at a time, so that the probes of a large job do not fill queues.
const SEARCHES: usize = 64;

/// Most paths: as many as a job has hosts, and two more.
const PATHS_MAX: usize = 1 << 13;

/// Bits of a probe's number below that of the run: the place of its path.
const PLACE_BITS: u32 = 16;

/// Outcome of the probes of all paths of a worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathReport {
    /// Largest MTU that passes all paths that were answered. `None` if none was.
    pub mtu_bytes: Option<u16>,
    /// The first of the paths that carry no more than that, if it is less than what was asked for.
    pub narrow: Option<NarrowPath>,
    /// The first node that answered nothing.
    pub silent: Option<NodeId>,
}

/// A path that carries less than others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NarrowPath {
    /// Node at its other end.
    pub node: NodeId,
    /// Largest MTU that passes.
    pub mtu_bytes: u16,
}

/// Probes the paths from a worker to other nodes, and answers the probes of others.
///
/// [`start`](PathProber::start) begins a run; when all paths are known, [`poll_report`](PathProber::poll_report) returns the
/// outcome, once. Packets that make no sense change nothing.
#[derive(Debug)]
pub struct PathProber {
    credentials: Credentials,
    most: u16,
    paths: Vec<Path>,
    /// Paths before this one are known or under way.
    begun: usize,
    /// Number of the run: answers to probes of an earlier one are void.
    run: u16,
    is_reported: bool,
    /// Probes that wait to be sent: place of the path, and MTU.
    waiting: Vec<(usize, u16)>,
}

#[derive(Debug)]
struct Path {
    node: NodeId,
    /// `None` before the search begins.
    search: Option<PathSearch>,
    outcome: Option<PathOutcome>,
}

impl PathProber {
    /// A prober whose packets are sealed with these credentials.
    pub fn new(credentials: Credentials) -> PathProber {
        PathProber {
            credentials,
            most: 0,
            paths: Vec::new(),
            begun: 0,
            run: 0,
            is_reported: true,
            waiting: Vec::new(),
        }
    }

    /// Probes the paths to these nodes from an MTU downward, in place of a run that is under way.
    pub fn start(&mut self, now: Time, nodes: &[NodeId], mtu_bytes: u16) {
        self.run = self.run.wrapping_add(1);
        self.most = mtu_bytes;
        let path = |node: &NodeId| Path { node: *node, search: None, outcome: None };
        self.paths = nodes.iter().take(PATHS_MAX).map(path).collect();
        self.begun = 0;
        self.is_reported = false;
        self.waiting.clear();
        self.advance(now);
    }

    /// Returns whether a run is under way, or its report was not taken yet.
    pub fn is_probing(&self) -> bool {
        !self.is_reported
    }

    /// Answers the probe of another node, in its place. Returns true if the packet must be sent.
    pub fn answer(&self, prefix: Prefix, packet: &mut Packet<'_>) -> bool {
        self.is_own(prefix) && super::answer(prefix, packet, self.credentials.key.as_ref())
    }

    /// Takes in an answer.
    pub fn handle_answer(&mut self, now: Time, prefix: Prefix, packet: &Packet<'_>) {
        let body_bytes = packet.body.len();
        let key = self.credentials.key.as_ref();
        let is_sealed = key.is_none_or(|key| tag::verify_sized(packet.header, body_bytes, key));
        let probe = PathProbe::decode_checked(prefix, packet.header).ok();
        let Some(probe) = probe.filter(|it| it.is_answer && is_sealed && self.is_own(prefix))
        else {
            return;
        };
        let place = (probe.number & ((1 << PLACE_BITS) - 1)) as usize;
        let is_current = probe.number >> PLACE_BITS == u32::from(self.run);
        let Some(path) = self.paths.get_mut(place).filter(|_| is_current) else { return };
        if let Some(search) = path.search.as_mut().filter(|_| path.node == packet.meta.src)
            && let Some(mtu_bytes) = search.mtu_of(body_bytes)
        {
            search.confirm(mtu_bytes);
            self.advance(now);
        }
    }

    /// Time passes.
    pub fn handle_timeout(&mut self, now: Time) {
        self.advance(now);
    }

    /// Returns when time has to pass.
    pub fn poll_timeout(&self) -> Time {
        let open = self.paths[..self.begun].iter().filter(|path| path.outcome.is_none());
        let next = open.filter_map(|path| path.search.as_ref()).map(PathSearch::poll_timeout);
        next.min().unwrap_or(Time::NEVER)
    }

    /// Returns whether probes wait to be sent.
    pub fn has_backlog(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Sends probes, as long as there is room.
    pub fn poll_transmit(&mut self, outbox: &mut dyn Outbox) {
        while outbox.room() > 0
            && let Some(&(place, mtu_bytes)) = self.waiting.last()
        {
            let body = BodySize::Length(body_bytes_of_mtu(mtu_bytes).into());
            let Some(mut packet) = outbox.lend(body, Purpose::Control) else { return };
            let probe = PathProbe {
                job: self.credentials.job,
                epoch: self.credentials.epoch,
                number: u32::from(self.run) << PLACE_BITS | place as u32,
                is_answer: false,
            };
            let envelope = Envelope {
                dst: self.paths[place].node,
                tag: Tag::training(),
                entropy: 0,
                overhead_bytes: FRAME_OVERHEAD_BYTES,
                key: self.credentials.key.as_ref(),
            };
            envelope.fill_sized(&mut packet, |header| probe.encode(header));
            self.waiting.pop();
        }
    }

    /// Returns the outcome of the run, once.
    pub fn poll_report(&mut self) -> Option<PathReport> {
        if self.is_reported || self.paths.iter().any(|path| path.outcome.is_none()) {
            return None;
        }
        self.is_reported = true;
        let carried = |path: &Path| match path.outcome {
            Some(PathOutcome::Carries(mtu_bytes)) => {
                Some(NarrowPath { node: path.node, mtu_bytes })
            }
            _ => None,
        };
        let least = self.paths.iter().filter_map(carried).min_by_key(|path| path.mtu_bytes);
        let is_silent = |path: &&Path| path.outcome == Some(PathOutcome::Silent);
        let report = PathReport {
            mtu_bytes: least.map(|path| path.mtu_bytes),
            narrow: least.filter(|path| path.mtu_bytes < self.most),
            silent: self.paths.iter().find(is_silent).map(|path| path.node),
        };
        // Every turn of a driver asks for the next time.
        (self.paths, self.begun) = (Vec::new(), 0);
        self.waiting.clear();
        Some(report)
    }

    fn is_own(&self, prefix: Prefix) -> bool {
        (prefix.job, prefix.epoch()) == (self.credentials.job, self.credentials.epoch)
    }

    /// Begins searches, has those that are under way try again, and takes down their outcomes.
    fn advance(&mut self, now: Time) {
        let PathProber { paths, begun, waiting, most, .. } = self;
        let mut open = 0;
        for (place, path) in paths.iter_mut().enumerate() {
            if path.outcome.is_some() {
                continue;
            }
            if open == SEARCHES {
                break;
            }
            let search = path.search.get_or_insert_with(|| PathSearch::new(now, *most));
            path.outcome = search.outcome(now);
            if path.outcome.is_some() {
                continue;
            }
            open += 1;
            // What waits already was not sent for want of room.
            if !waiting.iter().any(|(waits, _)| *waits == place) {
                waiting.extend(search.poll(now).map(|mtu_bytes| (place, mtu_bytes)));
            }
            *begun = (*begun).max(place + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use thalweg_core::testing::{OwnedBody, OwnedPacket, TestOutbox};
    use thalweg_core::{JobId, Span};
    use thalweg_wire::peek;
    use thalweg_wire::tag::Key;

    use super::*;

    const WORKER: NodeId = NodeId(1);
    const CREDENTIALS: Credentials =
        Credentials { job: JobId(9), epoch: 1, key: Some(Key([5; 16])) };

    fn prober() -> PathProber {
        PathProber::new(CREDENTIALS)
    }

    fn sent(prober: &mut PathProber) -> Vec<OwnedPacket> {
        let mut outbox = TestOutbox::with_room(WORKER, usize::MAX);
        prober.poll_transmit(&mut outbox);
        assert!(!prober.has_backlog());
        outbox.packets
    }

    fn body_bytes(packet: &OwnedPacket) -> usize {
        match &packet.body {
            OwnedBody::Bytes(bytes) => bytes.len(),
            OwnedBody::Length(bytes) => *bytes as usize,
        }
    }

    /// Hands a probe to its receiver, which answers in its place. `None` if it does not.
    fn answered(by: &PathProber, mut probe: OwnedPacket) -> Option<OwnedPacket> {
        let prefix = peek(&probe.header).unwrap();
        let to = probe.meta.dst;
        let is_answered = by.answer(prefix, &mut probe.lend());
        assert!(!is_answered || probe.meta.dst == WORKER, "it goes back to where it came from");
        // The receiver is the sender of the answer.
        (probe.meta.src, probe.meta.dst) = (to, WORKER);
        is_answered.then_some(probe)
    }

    fn hand(prober: &mut PathProber, now: Time, packet: &mut OwnedPacket) {
        let prefix = peek(&packet.header).unwrap();
        prober.handle_answer(now, prefix, &packet.lend());
    }

    /// Runs a prober over paths that carry packets up to an MTU each, `None` for nobody there.
    fn run(most: u16, carries: &[Option<u16>]) -> PathReport {
        let (mut own, other) = (prober(), prober());
        let nodes: Vec<NodeId> = (0..carries.len() as u32).map(|node| NodeId(100 + node)).collect();
        let mut now = Time::ZERO;
        own.start(now, &nodes, most);
        loop {
            for probe in sent(&mut own) {
                let place = (probe.meta.dst.0 - 100) as usize;
                let needed = body_bytes(&probe) as u32 + 92;
                let bytes = body_bytes(&probe);
                if carries[place].is_some_and(|carried| needed <= carried.into()) {
                    let mut answer = answered(&other, probe).unwrap();
                    assert_eq!(body_bytes(&answer), bytes, "an answer is as long as its probe");
                    hand(&mut own, now, &mut answer);
                }
            }
            if let Some(report) = own.poll_report() {
                assert_eq!((own.poll_report(), own.poll_timeout()), (None, Time::NEVER));
                return report;
            }
            if own.has_backlog() {
                continue;
            }
            now = own.poll_timeout().max(now + Span::from_us(1));
            own.handle_timeout(now);
        }
    }

    // spec: F-01 machine
    #[test]
    fn the_narrowest_path_counts_and_is_named() {
        let report = run(9_000, &[Some(9_000), Some(9_000)]);
        let all = PathReport { mtu_bytes: Some(9_000), narrow: None, silent: None };
        assert_eq!(report, all);
        let report = run(9_000, &[Some(9_000), Some(1_500), Some(4_100)]);
        let narrow = Some(NarrowPath { node: NodeId(101), mtu_bytes: 1_500 });
        assert_eq!(report, PathReport { mtu_bytes: Some(1_500), narrow, silent: None });
        let report = run(1_500, &[Some(1_500), None]);
        let silent = Some(NodeId(101));
        assert_eq!(report, PathReport { mtu_bytes: Some(1_500), narrow: None, silent });
        assert_eq!(run(9_000, &[]), PathReport { mtu_bytes: None, narrow: None, silent: None });
    }

    #[test]
    fn many_paths_are_probed_a_few_at_a_time() {
        let nodes: Vec<NodeId> = (0..200).map(NodeId).collect();
        let mut own = prober();
        own.start(Time::ZERO, &nodes, 9_000);
        assert_eq!(sent(&mut own).len(), 64);
        assert_eq!(run(9_000, &[Some(9_000); 200]).mtu_bytes, Some(9_000));
    }

    // spec: F-01 machine
    #[test]
    fn probes_that_the_key_does_not_seal_are_not_answered() {
        let mut own = prober();
        own.start(Time::ZERO, &[NodeId(100)], 1_500);
        let probe = sent(&mut own).remove(0);
        let other = |credentials| answered(&PathProber::new(credentials), probe.clone());
        assert!(other(CREDENTIALS).is_some());
        assert!(other(Credentials { key: Some(Key([6; 16])), ..CREDENTIALS }).is_none());
        assert!(other(Credentials { job: JobId(8), ..CREDENTIALS }).is_none());
        assert!(other(Credentials { epoch: 2, ..CREDENTIALS }).is_none());
        // A tag covers the length: nobody makes a long answer of a short probe.
        let longer = OwnedPacket { body: OwnedBody::Length(8_896), ..probe.clone() };
        assert!(answered(&prober(), longer).is_none());
        let answer = answered(&prober(), probe).unwrap();
        assert!(answered(&prober(), answer).is_none(), "answers are not answered");
    }

    #[test]
    fn answers_of_others_and_of_earlier_runs_are_void() {
        let (mut own, other) = (prober(), prober());
        own.start(Time::ZERO, &[NodeId(100)], 9_000);
        let probe = sent(&mut own).remove(0);
        let answer = answered(&other, probe).unwrap();
        let mut foreign = answer.clone();
        foreign.meta.src = NodeId(101);
        hand(&mut own, Time::ZERO, &mut foreign);
        assert_eq!(own.poll_report(), None, "another node has answered");
        own.start(Time::ZERO, &[NodeId(100)], 9_000);
        hand(&mut own, Time::ZERO, &mut answer.clone());
        assert_eq!(own.poll_report(), None, "the probe was of an earlier run");
        let mut answer = answered(&other, sent(&mut own).remove(0)).unwrap();
        hand(&mut own, Time::ZERO, &mut answer);
        assert!(own.poll_report().is_some());
    }
}
