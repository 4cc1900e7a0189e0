//! Switches that jobs are planned with, and whether they answer.
// spec: E-09

use std::collections::{BTreeMap, BTreeSet};

use thalweg_aggregate::join::Message;
use thalweg_core::{JobId, NodeId, Span, Time};

use super::job::{Attendee, Job};
use super::{Action, Registry};
use crate::registry::refusal::seconds;

/// The longest time between two probes of a switch.
const PROBE_EVERY_MAX: Span = Span::from_s(1);

/// Probes within `failure_after`, so that a few of them may be lost.
const PROBES: u64 = 8;

/// Answers in a row after which a switch that was away is back.
const ANSWERS_TO_RETURN: u32 = 2;

/// The switches that are probed.
#[derive(Debug, Default)]
pub(super) struct Switches {
    watched: BTreeMap<NodeId, Watched>,
    probed: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
struct Watched {
    /// When it last answered, or when it was first probed.
    answered: Time,
    /// Answers since it was last away for the longest time between two probes.
    answers: u32,
}

impl Switches {
    /// Watches these and no others, from now on those that are new.
    fn watch(&mut self, now: Time, switches: &BTreeSet<NodeId>) {
        self.watched.retain(|switch, _| switches.contains(switch));
        for switch in switches {
            self.watched.entry(*switch).or_insert(Watched { answered: now, answers: 0 });
        }
    }

    fn answer(&mut self, now: Time, switch: NodeId) {
        let Some(watched) = self.watched.get_mut(&switch) else { return };
        let is_in_a_row = now.since(watched.answered) <= PROBE_EVERY_MAX * 3;
        watched.answers = if is_in_a_row { watched.answers.saturating_add(1) } else { 1 };
        watched.answered = now;
    }

    /// Returns how long a switch has not answered. A switch that is not watched is there.
    fn silence(&self, now: Time, switch: NodeId) -> Span {
        self.watched.get(&switch).map_or(Span::ZERO, |watched| now.since(watched.answered))
    }

    fn is_away(&self, now: Time, switch: NodeId, failure_after: Span, was_away: bool) -> bool {
        let is_back = |watched: &Watched| watched.answers >= ANSWERS_TO_RETURN;
        self.silence(now, switch) >= failure_after
            || was_away && !self.watched.get(&switch).is_none_or(is_back)
    }
}

impl Job {
    /// Switches of the server's rack and of the ranks that send: what the job would be planned with.
    fn switches(&self, servers: Option<NodeId>) -> BTreeSet<NodeId> {
        let leaders = self.hosts.iter().filter_map(|leader| self.ranks.get(leader));
        let own: BTreeSet<NodeId> = leaders.filter_map(|leader| leader.switch).collect();
        let servers = servers.filter(|_| !own.is_empty());
        own.into_iter().chain(servers).collect()
    }

    /// Whether another set-up can come about: nobody who would have to answer has left.
    fn can_be_replanned(&self) -> bool {
        self.welcome.is_some()
            && self.hosts.len() > 1
            && !self.ranks.values().any(Attendee::has_left)
    }
}

impl Registry {
    /// A switch has answered a probe.
    pub fn switch_answered(&mut self, now: Time, switch: NodeId) {
        self.switches.answer(now, switch);
    }

    /// Probes the switches of all jobs, if it is time.
    pub(super) fn probe_switches(&mut self, now: Time) {
        let servers = self.cluster.switch;
        let every = self.jobs.values().map(|job| job.settings.failure_after / PROBES).min();
        let every = every.map_or(PROBE_EVERY_MAX, |every| every.min(PROBE_EVERY_MAX));
        if self.switches.probed.is_some_and(|probed| now.since(probed) < every) {
            return;
        }
        self.switches.probed = Some(now);
        let switches = self.jobs.values().flat_map(|job| job.switches(servers)).collect();
        self.switches.watch(now, &switches);
        self.actions.extend(switches.into_iter().map(|switch| Action::Probe { switch }));
    }

    /// Sets a job up again if the switches that it can be planned with are others than before.
    pub(super) fn replan_if_needed(&mut self, now: Time, id: JobId) {
        let servers = self.cluster.switch;
        let Some(job) = self.jobs.get_mut(&id).filter(|job| job.can_be_replanned()) else { return };
        let failure_after = job.settings.failure_after;
        // A switch that comes and goes does not keep the job from its work.
        if job.replanned.is_some_and(|at| now.since(at) < failure_after) {
            return;
        }
        let is_away = |switch: &NodeId| {
            self.switches.is_away(now, *switch, failure_after, job.away.contains(switch))
        };
        let away: BTreeSet<NodeId> = job.switches(servers).into_iter().filter(is_away).collect();
        if away == job.away {
            return;
        }
        let change = |switch: &NodeId| {
            let address = self.cluster.address(*switch);
            let silence = seconds(self.switches.silence(now, *switch));
            match away.contains(switch) {
                true => {
                    format!("switch {address} has not answered for {silence}: planned without it")
                }
                false => format!("switch {address} answers again: planned with it"),
            }
        };
        let changes: Vec<String> = away.symmetric_difference(&job.away).map(change).collect();
        let text = format!("job {:?}: {}", job.name, changes.join("; "));
        (job.away, job.replanned) = (away, Some(now));
        self.note(text);
        self.tell_registrar(now, id, Message::Replan { job: id });
        self.obey();
    }
}
