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
use crate::bucket::Bucket;
use crate::budget::CallRate;
use crate::caller::Holder;

/// The longest time that a set-up waits for a switch that has not answered yet.
pub(super) const ANSWER_WITHIN: Span = Span::from_s(3);

/// The longest time between two probes of a switch that a set-up waits for, so that many of them may be lost.
const ASK_EVERY: Span = Span::from_ms(100);

/// The longest time between two probes of any other switch.
const PROBE_EVERY_MAX: Span = Span::from_s(1);

/// Probes within `failure_after`, so that a few of them may be lost.
const PROBES: u64 = 8;

/// Number of probes, one soon after the other, of a node that has never answered. After them the time between two doubles, up to
/// [`STRANGER_EVERY_MAX`]: a rank names whatever node it likes, which may be no switch.
// spec: E-13
const STRANGER_PROBES: u32 = 8;

/// The longest time between two probes of a node that has never answered.
const STRANGER_EVERY_MAX: Span = Span::from_s(10);

/// Probes of nodes that have never answered, because of one token: as many as a large cluster has switches, and then few, so that
/// nobody has a server send to hosts of its choice.
const STRANGER_RATE: CallRate = CallRate { per_s: 20, burst: 256 };

/// Most tokens whose probes are counted before those are looked for that can be forgotten.
const HOLDERS_KEPT: usize = 1_024;

/// Answers in a row after which a switch that was away is back.
const ANSWERS_TO_RETURN: u32 = 2;

/// The switches that are probed.
#[derive(Debug, Default)]
pub(super) struct Switches {
    watched: BTreeMap<NodeId, Watched>,
    /// Probes that each token may still cause of nodes that have never answered.
    strangers: BTreeMap<Holder, Bucket>,
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
    /// Number of probes of it.
    probes: u32,
    /// Token of the rank that has named it. `None` if the operator has.
    named_by: Option<Holder>,
    /// The last answer, and when it came.
    answer: Option<(Time, SwitchLimits)>,
    /// Answers since it was last away for the longest time between two probes.
    answers: u32,
}

impl Switches {
    /// Begins to watch a switch. Returns whether it is new and has to be probed.
    fn watch(&mut self, now: Time, switch: NodeId, named_by: Option<Holder>) -> bool {
        if self.watched.contains_key(&switch) {
            return false;
        }
        let is_probed = self.may_probe(now, named_by);
        let probes = is_probed.into();
        let new = Watched { asked: now, probed: now, probes, named_by, answer: None, answers: 0 };
        self.watched.insert(switch, new);
        is_probed
    }

    /// Takes down the probe of a node that has never answered. Returns false if the token has no such probes left.
    // spec: E-13
    fn may_probe(&mut self, now: Time, named_by: Option<Holder>) -> bool {
        let Some(holder) = named_by else { return true };
        if self.strangers.len() >= HOLDERS_KEPT && !self.strangers.contains_key(&holder) {
            self.strangers.retain(|_, bucket| !bucket.is_full(now));
        }
        let bucket = self.strangers.entry(holder);
        bucket.or_insert_with(|| Bucket::new(STRANGER_RATE, now)).take(now)
    }

    /// Watches these and no others, by the tokens that have named them. Returns those that are new.
    fn watch_only(&mut self, now: Time, switches: BTreeMap<NodeId, Option<Holder>>) -> Vec<NodeId> {
        self.listed = Some(now);
        self.watched.retain(|switch, _| switches.contains_key(switch));
        let mut new = Vec::new();
        for (switch, named_by) in switches {
            if self.watch(now, switch, named_by) {
                new.push(switch);
            }
        }
        new
    }

    /// Returns the switches whose next probe is due.
    fn due(&mut self, now: Time, every: Span) -> Vec<NodeId> {
        let is_due = |watched: &Watched| now.since(watched.probed) >= watched.every(every);
        let due = self.watched.iter().filter(|(_, watched)| is_due(watched));
        let due: Vec<(NodeId, Watched)> =
            due.map(|(switch, watched)| (*switch, *watched)).collect();
        let mut probed = Vec::new();
        for (switch, watched) in due {
            if watched.answer.is_none() && !self.may_probe(now, watched.named_by) {
                continue;
            }
            let probes = watched.probes.saturating_add(1);
            self.watched.insert(switch, Watched { probed: now, probes, ..watched });
            probed.push(switch);
        }
        probed
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

impl Watched {
    /// Time between two probes of it, where it is `every` for those that have answered.
    fn every(&self, every: Span) -> Span {
        if self.answer.is_some() {
            return every;
        }
        let first = ASK_EVERY.min(every);
        if self.probes <= STRANGER_PROBES {
            return first;
        }
        let doublings = (self.probes - STRANGER_PROBES).min(10);
        (first * (1 << doublings)).min(STRANGER_EVERY_MAX)
    }
}

impl Registry {
    /// A switch has answered a probe. Jobs whose set-up waits for it go on.
    pub fn switch_answered(&mut self, now: Time, switch: NodeId, limits: SwitchLimits) {
        self.switches.answer(now, switch, limits);
        self.go_on(now);
    }

    /// Asks the switches that a rank brings along, if they are new: when all ranks are there, they have answered.
    pub(super) fn ask_switches(&mut self, now: Time, switch: Option<NodeId>, holder: Holder) {
        let Some(own) = switch else { return };
        for switch in [own].into_iter().chain(self.cluster.switch) {
            let named_by = Some(holder).filter(|_| self.cluster.switch != Some(switch));
            if self.switches.watch(now, switch, named_by) {
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
            let mut switches = BTreeMap::new();
            for job in self.jobs.values() {
                for switch in job.switches(self.cluster.switch) {
                    let holder = Some(job.owner).filter(|_| self.cluster.switch != Some(switch));
                    switches.entry(switch).or_insert(holder);
                }
            }
            due.retain(|switch| switches.contains_key(switch));
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

#[cfg(test)]
mod tests {
    use thalweg_wire::aggregate::BodyFormats;

    use super::*;

    const START: Time = Time::from_ps(1_000_000_000_000);
    const MALLORY: Option<Holder> = Some(Holder::Token(6));

    /// Probes of all nodes within a time, in steps of 100 ms.
    fn probes(switches: &mut Switches, from: Time, within: Span) -> usize {
        let steps = within.as_ps() / ASK_EVERY.as_ps();
        let at = |step| from + ASK_EVERY * step;
        (1..=steps).map(|step| switches.due(at(step), PROBE_EVERY_MAX).len()).sum()
    }

    // spec: E-13 machine
    #[test]
    fn a_node_that_never_answers_is_probed_less_and_less() {
        let mut switches = Switches::default();
        assert!(switches.watch(START, NodeId(1), MALLORY));
        let soon = probes(&mut switches, START, ANSWER_WITHIN);
        assert!((9..15).contains(&soon), "some may be lost while a set-up waits: {soon}");
        let later = probes(&mut switches, START + ANSWER_WITHIN, Span::from_s(1_000));
        assert!((95..110).contains(&later), "one in ten seconds: {later}");
    }

    // spec: E-13 machine
    #[test]
    fn nodes_that_are_no_switches_get_few_probes_because_of_one_token() {
        let mut switches = Switches::default();
        let new = (0..10_000).filter(|node| switches.watch(START, NodeId(*node), MALLORY)).count();
        assert_eq!(new, 256);
        let more = probes(&mut switches, START, Span::from_s(10));
        assert!(more <= 200, "20 in a second: {more}");
        assert!(switches.watch(START, NodeId(20_000), Some(Holder::Token(7))), "another token");
        assert!(switches.watch(START, NodeId(20_001), None), "the operator's");
    }

    // spec: E-09 machine
    #[test]
    fn a_switch_that_has_answered_is_probed_for_as_long_as_it_is_named() {
        let mut switches = Switches::default();
        switches.watch(START, NodeId(1), MALLORY);
        let limits = SwitchLimits {
            aggregators: 16,
            fragment_values: 352,
            formats: BodyFormats::ALL,
            cores: 1,
            mtu_bytes: 1_500,
        };
        switches.answer(START, NodeId(1), limits);
        assert_eq!(probes(&mut switches, START, Span::from_s(1_000)), 1_000);
        for node in 0..1_000 {
            switches.watch(START, NodeId(node), MALLORY);
        }
        let later = START + Span::from_s(1_000);
        assert!(switches.due(later + Span::from_s(1), PROBE_EVERY_MAX).contains(&NodeId(1)));
    }
}
