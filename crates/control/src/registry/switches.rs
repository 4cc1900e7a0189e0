//! Switches that are probed: whether they answer, and their limits.
// spec: E-06, E-09

use std::collections::{BTreeMap, BTreeSet};

use thalweg_aggregate::server::SwitchPath;
use thalweg_core::{NodeId, Span, Time};
use thalweg_net::shard_of;
use thalweg_wire::aggregate::SwitchLimits;

use super::job::Job;
use super::paths::ProbedPath;
use super::{Action, Registry};

/// The longest time that a set-up waits for a switch that has not answered yet.
pub(super) const ANSWER_WITHIN: Span = Span::from_s(3);

/// The longest time between two probes of a switch that a set-up waits for, so that many of them may be lost.
const ASK_EVERY: Span = Span::from_ms(100);

/// The longest time between two probes of any other switch.
const PROBE_EVERY_MAX: Span = Span::from_s(1);

/// Probes within `failure_after`, so that a few of them may be lost.
const PROBES: u64 = 8;

/// Answers in a row after which a switch that was away is back.
const ANSWERS_TO_RETURN: u32 = 2;

/// The switches that are probed.
#[derive(Debug, Default)]
pub(super) struct Switches {
    watched: BTreeMap<NodeId, Watched>,
    /// Paths to switches that are probed, or were lately.
    pub(super) paths: BTreeMap<SwitchPath, ProbedPath>,
    /// When the switches of all jobs were last looked for.
    listed: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
struct Watched {
    /// When it was first probed.
    asked: Time,
    /// When it was last probed.
    probed: Time,
    /// The last answer, and when it came.
    answer: Option<(Time, SwitchLimits)>,
    /// Answers since it was last away for the longest time between two probes.
    answers: u32,
}

impl Switches {
    /// Begins to watch a switch. Returns whether it is new, and so has to be probed.
    fn watch(&mut self, now: Time, switch: NodeId) -> bool {
        let is_new = !self.watched.contains_key(&switch);
        if is_new {
            let new = Watched { asked: now, probed: now, answer: None, answers: 0 };
            self.watched.insert(switch, new);
        }
        is_new
    }

    /// Watches these and no others. Returns those that are new.
    fn watch_only(&mut self, now: Time, switches: BTreeSet<NodeId>) -> Vec<NodeId> {
        self.listed = Some(now);
        self.watched.retain(|switch, _| switches.contains(switch));
        switches.into_iter().filter(|switch| self.watch(now, *switch)).collect()
    }

    /// Returns the switches whose next probe is due.
    fn due(&mut self, now: Time, every: Span) -> Vec<NodeId> {
        let mut due = Vec::new();
        for (switch, watched) in &mut self.watched {
            let is_waited_for =
                watched.answer.is_none() && now.since(watched.asked) < ANSWER_WITHIN;
            let every = if is_waited_for { ASK_EVERY.min(every) } else { every };
            if now.since(watched.probed) >= every {
                watched.probed = now;
                due.push(*switch);
            }
        }
        due
    }

    fn answer(&mut self, now: Time, switch: NodeId, limits: SwitchLimits) {
        let Some(watched) = self.watched.get_mut(&switch) else { return };
        let is_in_a_row =
            watched.answer.is_some_and(|(last, _)| now.since(last) <= PROBE_EVERY_MAX * 3);
        watched.answers = if is_in_a_row { watched.answers.saturating_add(1) } else { 1 };
        watched.answer = Some((now, limits));
    }

    /// Returns how long a switch has not answered.
    pub(super) fn silence(&self, now: Time, switch: NodeId) -> Span {
        let since = |watched: &Watched| watched.answer.map_or(watched.asked, |(at, _)| at);
        self.watched.get(&switch).map_or(Span::ZERO, |watched| now.since(since(watched)))
    }

    /// Returns the limits that a switch has reported last.
    pub(super) fn limits(&self, switch: NodeId) -> Option<SwitchLimits> {
        Some(self.watched.get(&switch)?.answer?.1)
    }

    /// Returns the node of a switch that sums for a sending thread.
    // spec: F-03
    pub(super) fn shard(&self, switch: NodeId, thread: u32) -> NodeId {
        shard_of(switch, self.limits(switch).map_or(1, |limits| limits.cores), thread)
    }

    /// Returns whether a switch that was away has answered often enough to be back.
    pub(super) fn is_back(&self, switch: NodeId) -> bool {
        self.watched.get(&switch).is_some_and(|watched| watched.answers >= ANSWERS_TO_RETURN)
    }

    /// Returns the switches that have answered, and the limits that they have reported last.
    pub(super) fn described(&self) -> impl Iterator<Item = (NodeId, SwitchLimits)> + '_ {
        self.watched.iter().filter_map(|(switch, watched)| Some((*switch, watched.answer?.1)))
    }
}

impl Registry {
    /// A switch has answered a probe. Jobs whose set-up waits for it go on.
    pub fn switch_answered(&mut self, now: Time, switch: NodeId, limits: SwitchLimits) {
        self.switches.answer(now, switch, limits);
        let waiting = self.jobs.values().filter(|job| job.plan.is_open).map(|job| job.id);
        for id in waiting.collect::<Vec<_>>() {
            self.set_up(now, id, None);
        }
    }

    /// Asks the switches that a rank brings along, if they are new: when all ranks are there, they have answered.
    pub(super) fn ask_switches(&mut self, now: Time, switch: Option<NodeId>) {
        let Some(own) = switch else { return };
        for switch in [own].into_iter().chain(self.cluster.switch) {
            if self.switches.watch(now, switch) {
                self.actions.push_back(Action::Probe { switch });
            }
        }
    }

    /// Probes the switches of all jobs, if it is time.
    pub(super) fn probe_switches(&mut self, now: Time) {
        let every = self.jobs.values().map(|job| job.settings.failure_after / PROBES).min();
        let every = every.map_or(PROBE_EVERY_MAX, |every| every.min(PROBE_EVERY_MAX));
        let mut due = self.switches.due(now, every);
        if self.switches.listed.is_none_or(|listed| now.since(listed) >= every) {
            let switches = self.jobs.values().flat_map(|job| job.switches(self.cluster.switch));
            let switches: BTreeSet<NodeId> = switches.collect();
            due.retain(|switch| switches.contains(switch));
            due.extend(self.switches.watch_only(now, switches));
        }
        self.actions.extend(due.into_iter().map(|switch| Action::Probe { switch }));
    }
}

impl Job {
    /// Switches of the server's rack and of the ranks that send: what the job would be planned with. Before all ranks
    /// are there, any of them may send.
    pub(super) fn switches(&self, servers: Option<NodeId>) -> BTreeSet<NodeId> {
        let is_leader = |rank: &u32| self.hosts.is_empty() || self.seat_of(*rank).is_some();
        let leaders = self.ranks.iter().filter(|(rank, _)| is_leader(rank));
        let own: BTreeSet<NodeId> = leaders.filter_map(|(_, leader)| leader.switch).collect();
        let servers = servers.filter(|_| !own.is_empty());
        own.into_iter().chain(servers).collect()
    }
}
