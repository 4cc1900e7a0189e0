//! Probes of a rank's paths: before every set-up, and when something does not move.
// spec: F-01

use thalweg_control::{Failure, FailureKind, FromRank};
use thalweg_core::{NodeId, Time, body_bytes_of_mtu};
use thalweg_net::Network;
use thalweg_stack::TrainingHost;
use thalweg_transport::path::{NarrowPath, PathReport};

use super::Engine;
use super::membership::Membership;

/// State of the probes of a rank's paths.
#[derive(Debug, Default)]
pub(super) struct Paths {
    /// Probes of the latest round.
    asked: Option<Asked>,
    /// Outcome of those probes.
    report: Option<PathReport>,
    /// Answer that waits for the outcome.
    waiting: Option<Answer>,
    /// MTU of the job, from the first set-up on.
    mtu_bytes: Option<u16>,
    /// True while paths are probed again because something does not move.
    is_checking: bool,
    /// Packets that exceeded the MTU of the interface, as last seen.
    oversize_packets: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Asked {
    round: u32,
    mtu_bytes: u16,
    /// The server, and the switch of this rank if there is one.
    nodes: Vec<NodeId>,
}

/// Answer of a leader in a round.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub round: u32,
    pub message: FromRank,
}

impl Engine {
    /// Begins to probe, unless these probes are under way or their outcome is known.
    pub(super) fn probe_paths(&mut self, round: u32, mtu_bytes: u16, nodes: Vec<NodeId>) {
        let asked = Asked { round, mtu_bytes, nodes };
        if self.paths.asked.as_ref() == Some(&asked) && !self.paths.is_checking {
            return;
        }
        (self.paths.report, self.paths.is_checking) = (None, false);
        self.start_probes(&asked, mtu_bytes);
        self.paths.asked = Some(asked);
    }

    fn start_probes(&mut self, asked: &Asked, mtu_bytes: u16) {
        let rank = self.identity.rank;
        let leaders = self.membership.as_ref().map(|own| own.other_leader_nodes(rank));
        let nodes: Vec<NodeId> =
            asked.nodes.iter().copied().chain(leaders.into_iter().flatten()).collect();
        let start = |host: &mut TrainingHost, now: Time| {
            if let Some(paths) = host.paths_mut() {
                paths.start(now, &nodes, mtu_bytes);
            }
        };
        self.command(start, |_| {});
    }

    /// Answers in a round, once the probes of the round have an outcome.
    pub(super) fn answer_when_probed(&mut self, answer: Answer) {
        let is_asked = self.paths.asked.as_ref().is_some_and(|asked| asked.round == answer.round);
        match (&self.paths.report, is_asked) {
            (None, true) => self.paths.waiting = Some(answer),
            (report, _) => {
                let report = report.clone().filter(|_| is_asked);
                self.say_answer(answer, report);
            }
        }
    }

    fn say_answer(&self, answer: Answer, report: Option<PathReport>) {
        let Answer { round, message } = answer;
        if let Some(report) = report {
            self.say(FromRank::Paths { round, report });
        }
        self.say(message);
    }

    /// Takes in the outcome of probes.
    pub(super) fn take_paths(&mut self, report: PathReport) {
        if std::mem::take(&mut self.paths.is_checking) {
            if let Some(narrow) = report.narrow {
                let failure = self.narrowed(narrow);
                self.say(FromRank::Failing(failure));
            }
            return;
        }
        let round = self.paths.asked.as_ref().map(|asked| asked.round);
        let waiting = self.paths.waiting.take().filter(|answer| Some(answer.round) == round);
        if let Some(answer) = waiting {
            self.say_answer(answer, Some(report.clone()));
        }
        self.paths.report = Some(report);
    }

    /// Takes over the MTU of the job: messages that begin from now on have packets of that length.
    pub(super) fn set_mtu(&mut self, mtu_bytes: u16) {
        self.paths.mtu_bytes = Some(mtu_bytes);
        let segment_bytes = body_bytes_of_mtu(mtu_bytes);
        self.command(|host, _| host.set_segment_bytes(segment_bytes), |_| {});
        if self.membership.as_ref().is_some_and(|own| !own.is_leader()) {
            self.be_ready();
        }
    }

    /// Probes the paths again if the interface has refused packets for their length.
    pub(super) fn check_oversize(&mut self) {
        let packets = self.driver.stats().dropped_oversize;
        if packets > self.paths.oversize_packets {
            self.paths.oversize_packets = packets;
            self.check_paths();
        }
    }

    /// Probes the paths again, because something does not move: one of them may carry less than before.
    pub(super) fn check_paths(&mut self) {
        let (Some(asked), Some(mtu_bytes)) = (self.paths.asked.clone(), self.paths.mtu_bytes)
        else {
            return;
        };
        // A round that is open probes anyway.
        let is_open = self.membership.as_ref().is_none_or(Membership::is_paused);
        if !is_open && !self.paths.is_checking {
            self.paths.is_checking = true;
            self.start_probes(&asked, mtu_bytes);
        }
    }

    /// The failure of an operation because of a path that has become narrow.
    fn narrowed(&self, narrow: NarrowPath) -> Failure {
        let NarrowPath { node, mtu_bytes } = narrow;
        let before = self.paths.mtu_bytes.unwrap_or(mtu_bytes);
        let network = Network::of(self.driver.local_address().ip());
        let address = network.address(node).map_or_else(String::new, |at| format!(" ({at})"));
        let is_server =
            self.paths.asked.as_ref().and_then(|asked| asked.nodes.first()) == Some(&node);
        let rank = self.membership.as_ref().and_then(|own| own.rank_of(node));
        let name = match rank {
            Some(rank) => format!("rank {rank}"),
            None if is_server => "the server".into(),
            None => "its switch".into(),
        };
        let own = self.identity.rank;
        let text = format!(
            "the path between rank {own} and {name}{address} carries packets of {mtu_bytes} bytes, and those of the job \
             have up to {before}"
        );
        Failure::new(FailureKind::Path, text, Vec::new())
    }
}
