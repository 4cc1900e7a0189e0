//! Switches that a job is planned with, and the parameters that follow from their limits.
//!
//! The first set-up of a job asks every switch for its limits, and waits for [`ANSWER_WITHIN`]. Fragments are as long as
//! the smallest limit and the paths allow, and stay so while the job lives: workers number them by it. The number of aggregators
//! may change with every set-up. Values of 16 bits travel as such where all of these switches sum them, and stay so too. A switch that does not answer, or that cannot sum what the job sends, is left out with
//! a warning; when that changes, the job is set up again.
// spec: E-06, E-09

use std::collections::BTreeMap;

use thalweg_aggregate::join::Message;
use thalweg_aggregate::{
    AGGREGATORS, CheckedParameters, FRAGMENT_VALUES, JobParameters, Numeric,
    server::{self, BudgetError, SPAN_LEAST},
};
use thalweg_core::{JobId, MTU_BYTES, NodeId, Time, body_bytes_of_mtu};
use thalweg_transport::path::PathReport;
use thalweg_wire::aggregate::SwitchLimits;

use super::amounts::Amount;
use super::job::Job;
use super::paths::Offer;
use super::refusal::seconds;
use super::switches::ANSWER_WITHIN;
use super::{Action, Registry};
use crate::message::JobTree;

/// Switches and fragments that a tree of a job is planned with.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// The switches that were decided about: `None` for one that the tree is planned with.
    switches: BTreeMap<NodeId, Option<Absence>>,
    /// Values of a fragment, from the first plan on.
    pub(super) fragment_values: Option<u16>,
    /// True if values of 16 bits travel in single precision, from the first plan on: ranks ask for it, or a switch of the
    /// first plan does not sum them.
    pub(super) widens_halves: Option<bool>,
    /// Span in fragments, from the first plan on: what ranks ask for, or what fits the memory of the server.
    pub(super) span_fragments: Option<u16>,
    /// True while a set-up waits for the answers of switches.
    pub(super) is_open: bool,
    /// MTU that all announce and the paths between the server and switches carry. `None` if the job does not probe its
    /// paths.
    pub(super) offered: Option<Offer>,
    /// Outcomes of the probes of leaders, by host, and their rounds.
    pub(super) reports: BTreeMap<u32, (u32, PathReport)>,
    /// MTU of the last set-up, if the job probes its paths.
    pub(super) mtu: Option<u16>,
    /// Bytes of the data plane that the tree can come to, from the first plan on.
    pub(super) memory_bytes: u64,
    /// Time of the last change.
    replanned: Option<Time>,
}

/// The reason why a job is planned without a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Absence {
    /// The switch does not answer.
    Silent,
    /// The switch sums fragments of at most this number of values, and those of the job are longer.
    Fragments(u16),
    /// The switch does not sum the numbers of the job.
    Format,
    /// The switch does not sum values of 16 bits, and the job sends them.
    Halves,
}

impl Plan {
    /// Returns whether the tree is planned with a switch.
    pub(super) fn has(&self, switch: NodeId) -> bool {
        self.switches.get(&switch) == Some(&None)
    }

    /// Returns the switches that the tree is planned without.
    pub(super) fn left_out(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.switches.iter().filter(|(_, absence)| absence.is_some()).map(|(switch, _)| *switch)
    }

    /// Returns the switches that the tree is planned with.
    pub(super) fn planned(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.switches.iter().filter(|(_, absence)| absence.is_none()).map(|(switch, _)| *switch)
    }
}

impl Job {
    /// The plan of a tree, if another set-up of it can come about: nobody who would have to answer has left.
    fn replannable(&self, tree: u32) -> Option<&Plan> {
        let is_replannable = self.welcome.is_some() && self.hosts.len() > 1 && !self.has_departed();
        self.plan(tree).filter(|plan| is_replannable && !plan.is_open)
    }

    /// The reason why a switch with these limits is of no use to a tree.
    fn misfit(&self, plan: &Plan, limits: &SwitchLimits) -> Option<Absence> {
        if !limits.formats.contains(self.settings.parameters.numeric.numbers()) {
            return Some(Absence::Format);
        }
        let is_float = self.settings.parameters.numeric == Numeric::Float;
        let sends_halves = is_float && plan.widens_halves == Some(false);
        if sends_halves && !limits.formats.has_halves() {
            return Some(Absence::Halves);
        }
        // spec: F-01
        let longest = limits.fragment_values.min(body_bytes_of_mtu(limits.mtu()) / 4);
        let is_short = plan.fragment_values.is_some_and(|values| longest < values);
        is_short.then_some(Absence::Fragments(longest))
    }
}

impl Registry {
    /// A tree of a job, with what it is planned with.
    pub(super) fn planned(&self, at: JobTree) -> Option<(&Job, &Plan)> {
        let job = self.jobs.get(&at.job)?;
        Some((job, job.plan(at.tree)?))
    }

    /// Plan of a tree.
    pub(super) fn plan_mut(&mut self, at: JobTree) -> Option<&mut Plan> {
        self.jobs.get_mut(&at.job)?.plan_mut(at.tree)
    }

    /// Decides about the switches that are new to a tree, and gives it the parameters of its next set-up. Returns
    /// `false` while some of them may still answer.
    pub(super) fn plan(&mut self, now: Time, at: JobTree) -> bool {
        let Some((job, plan)) = self.planned(at) else { return false };
        let mut switches = BTreeMap::new();
        for switch in job.switches(self.cluster.switch) {
            let limits = self.switches.limits(switch);
            let is_unfit = || limits.is_some_and(|limits| job.misfit(plan, &limits).is_some());
            let kept = plan.switches.get(&switch).copied();
            let kept = kept.filter(|absence| absence.is_some() || !is_unfit());
            let decided = kept.or_else(|| self.judge(now, (job, plan), switch));
            let Some(decided) = decided else { return false };
            switches.insert(switch, decided);
        }
        self.decide(now, at, switches);
        self.find_paths(now, at)
    }

    /// Sets trees up again whose switches are others than before, of the jobs that have a turn. Those that have none are the next.
    // spec: E-12
    pub(super) fn replan_all(&mut self, now: Time) {
        let first = std::mem::take(&mut self.next_replan);
        let ids: Vec<JobId> =
            self.jobs.range(first..).chain(self.jobs.range(..first)).map(|(id, _)| *id).collect();
        let mut refused = None;
        for id in ids {
            let Some(job) = self.jobs.get(&id).filter(|_| !self.waiting.contains(&id)) else {
                continue;
            };
            let trees = job.all_trees();
            if !self.replans.take(now, job.owner, job.work()) {
                refused.get_or_insert(id);
                continue;
            }
            trees.for_each(|at| self.replan_if_needed(now, at));
        }
        self.next_replan = refused.unwrap_or_default();
    }

    /// Sets a tree up again if the switches that it can be planned with are others than before.
    fn replan_if_needed(&mut self, now: Time, at: JobTree) {
        let Some(job) = self.jobs.get(&at.job) else { return };
        let Some(plan) = job.replannable(at.tree) else { return };
        // A switch that comes and goes does not keep the job from its work.
        if plan.replanned.is_some_and(|last| now.since(last) < job.settings.failure_after) {
            return;
        }
        let judge = |switch: NodeId| Some((switch, self.judge(now, (job, plan), switch)?));
        let switches: BTreeMap<_, _> =
            job.switches(self.cluster.switch).into_iter().filter_map(judge).collect();
        if switches == plan.switches {
            return;
        }
        let before: Vec<NodeId> = plan.planned().collect();
        self.decide(now, at, switches);
        let Some(plan) = self.plan_mut(at) else { return };
        plan.replanned = Some(now);
        if plan.planned().eq(before) {
            return;
        }
        self.tell_registrar(now, at, Message::Replan { job: at.id() });
        // Leaders that have not answered in the round that this has ended are asked in the next one.
        self.set_up(now, at, None);
    }

    /// The reason why a tree has to be planned without a switch, `Some(None)` if it can be planned with it, and `None`
    /// if the switch has not answered and still may.
    fn judge(
        &self,
        now: Time,
        (job, plan): (&Job, &Plan),
        switch: NodeId,
    ) -> Option<Option<Absence>> {
        // The tree of a rank that takes the server for a switch is an error, which says so.
        if self.cluster.is_server(switch) {
            return Some(None);
        }
        let known = plan.switches.get(&switch);
        let failure_after = job.settings.failure_after;
        let within = if known.is_some() { failure_after } else { failure_after.min(ANSWER_WITHIN) };
        let is_away = known == Some(&Some(Absence::Silent)) && !self.switches.is_back(switch);
        if is_away || self.silence(now, job, switch) >= within {
            return Some(Some(Absence::Silent));
        }
        self.switches.limits(switch).map(|limits| job.misfit(plan, &limits))
    }

    /// Takes down what was decided, with a line for the operator about each change: one for all trees that change alike.
    fn decide(&mut self, now: Time, at: JobTree, switches: BTreeMap<NodeId, Option<Absence>>) {
        let Some(plan) = self.plan_mut(at) else { return };
        let before = std::mem::replace(&mut plan.switches, switches);
        let Some((job, plan)) = self.planned(at) else { return };
        let mut lines = Vec::new();
        for (switch, after) in &plan.switches {
            let before = before.get(switch).copied().flatten();
            let is_noted = |other: &Plan| other.switches.get(switch) == Some(after);
            let is_noted = job.trees.iter().take(at.tree as usize).any(is_noted);
            if before != *after && !is_noted {
                let text = self.explain_absence(now, (job, plan), *switch, before, *after);
                let line = format!("job {:?}: {text}", job.name);
                lines.push(if after.is_some() { Action::Warn(line) } else { Action::Note(line) });
            }
        }
        self.actions.extend(lines);
    }

    fn explain_absence(
        &self,
        now: Time,
        (job, plan): (&Job, &Plan),
        switch: NodeId,
        before: Option<Absence>,
        after: Option<Absence>,
    ) -> String {
        let name = format!("switch {}", self.cluster.address(switch));
        match (before, after) {
            (_, Some(Absence::Silent)) => {
                let silence = seconds(self.silence(now, job, switch));
                format!("{name} has not answered for {silence}: planned without it")
            }
            (_, Some(Absence::Fragments(values))) => {
                let own = plan.fragment_values.unwrap_or(FRAGMENT_VALUES);
                format!(
                    "{name} sums fragments of at most {values} values, and those of the job have {own}: planned \
                     without it until the job starts again"
                )
            }
            (_, Some(Absence::Format)) => {
                let numeric = job.settings.parameters.numeric;
                format!("{name} cannot sum the numbers of the job, {numeric:?}: planned without it")
            }
            (_, Some(Absence::Halves)) => {
                format!(
                    "{name} does not sum values of 16 bits, which the job sends: planned without it until the job \
                     starts again"
                )
            }
            (Some(Absence::Silent), None) => format!("{name} answers again: planned with it"),
            (_, None) => format!("{name} can sum what the job sends again: planned with it"),
        }
    }

    /// Gives the registrar the parameters of a tree's next set-up.
    pub(super) fn set_parameters(&mut self, now: Time, at: JobTree) {
        let Some(job) = self.jobs.get_mut(&at.job) else { return };
        let asked = job.settings.parameters;
        let Some(plan) = job.plan_mut(at.tree) else { return };
        // spec: F-01
        let of_mtu = body_bytes_of_mtu(plan.mtu.unwrap_or(MTU_BYTES)) / 4;
        let limits: Vec<SwitchLimits> =
            plan.planned().filter_map(|switch| self.switches.limits(switch)).collect();
        let longest = limits.iter().map(|limits| limits.fragment_values).min();
        let longest = longest.unwrap_or(of_mtu).min(of_mtu);
        let fragment_values = *plan.fragment_values.get_or_insert(longest);
        let aggregators = limits.iter().map(|limits| limits.aggregators).min();
        // spec: F-02
        let has_halves = limits.iter().all(|limits| limits.formats.has_halves());
        let widens_halves = asked.widens_halves || !has_halves;
        let widens_halves = *plan.widens_halves.get_or_insert(widens_halves);
        let parameters = JobParameters {
            fragment_values,
            widens_halves,
            aggregators: aggregators.unwrap_or(AGGREGATORS),
            span_fragments: plan.span_fragments.unwrap_or_else(|| span(&asked, fragment_values)),
            ..asked
        };
        match parameters.check() {
            Ok(parameters) => self.fit_parameters(now, at, parameters),
            Err(error) => {
                self.fail_job(now, at.job, format!("the job cannot be set up: {error}"));
            }
        }
    }

    /// Gives the registrar parameters with which a tree fits its part of the job's memory at the server. One that needs more
    /// is slowed down by a smaller span, or refused where that does not help, and where it does not fit beside the other jobs
    /// of its token; with it, the job is refused.
    /// The span stays as it is while the job lives: workers may be a span apart, and servers know what they can have
    /// forgotten by it.
    // spec: E-12, F-04
    fn fit_parameters(&mut self, now: Time, at: JobTree, parameters: CheckedParameters) {
        let Some((job, plan)) = self.planned(at) else { return };
        let (hosts, trees) = (job.hosts.len() as u32, job.trees.len() as u64);
        let most = self.job_memory_bytes.min(self.budgets.memory_bytes);
        let fitting = match plan.span_fragments {
            Some(_) => server::check_fit(parameters, hosts, most / trees).map(|()| parameters),
            None => server::fit(parameters, hosts, most / trees),
        };
        let reserved = fitting.and_then(|fitting| {
            let needed_bytes = server::needed_bytes(&fitting, hosts);
            self.check_memory(at, needed_bytes).map(|()| (fitting, needed_bytes))
        });
        let (fitting, needed_bytes) = match reserved {
            Ok(reserved) => reserved,
            Err(error) => {
                self.refused_jobs.note(error);
                return self.refuse_job(now, at.job, &error.to_string());
            }
        };
        let (span, asked) = (fitting.span_fragments, parameters.span_fragments);
        let Some(plan) = self.plan_mut(at) else { return };
        plan.memory_bytes = needed_bytes;
        let is_first = plan.span_fragments.replace(span).is_none() && at.tree == 0;
        self.count(at.job);
        let Some(job) = self.jobs.get(&at.job) else { return };
        if is_first && span < asked {
            let (name, most) = (&job.name, most >> 20);
            let text = format!(
                "job {name:?}: at most {span} fragments are in flight in place of {asked}: one job may take {most} MiB of \
                 the server (--job-memory, --token-memory)"
            );
            self.actions.push_back(Action::Warn(text));
        }
        // A job that is over needs none.
        let _ = self.registrar.set_parameters(at.id(), fitting);
    }

    /// Checks that a tree fits the memory of its token beside the others of the job and the token's other jobs, and that of
    /// the server beside all jobs. The cores of a server know nothing of each other's jobs: what they share is counted here.
    // spec: E-12, F-03
    fn check_memory(&self, at: JobTree, needed_bytes: u64) -> Result<(), BudgetError> {
        let Some((job, plan)) = self.planned(at) else { return Ok(()) };
        let (owner, own_bytes) = (job.owner, plan.memory_bytes);
        let reserved = |all: Amount| all.memory_bytes.saturating_sub(own_bytes);
        let fits = |reserved_bytes: u64, budget_bytes: u64| {
            needed_bytes <= budget_bytes.saturating_sub(reserved_bytes)
        };
        let (reserved_bytes, budget_bytes) =
            (reserved(self.amounts.of(owner)), self.budgets.memory_bytes);
        if !fits(reserved_bytes, budget_bytes) {
            return Err(BudgetError::TokenMemory { needed_bytes, reserved_bytes, budget_bytes });
        }
        let (reserved_bytes, budget_bytes) = (reserved(self.amounts.total()), self.memory_bytes);
        if !fits(reserved_bytes, budget_bytes) {
            return Err(BudgetError::Memory { needed_bytes, reserved_bytes, budget_bytes });
        }
        Ok(())
    }
}

/// The span of a job: as many bytes as ranks ask for, whatever the length of fragments.
// spec: F-01
fn span(asked: &JobParameters, fragment_values: u16) -> u16 {
    let bytes = u32::from(asked.span_fragments) * u32::from(FRAGMENT_VALUES);
    let longer = bytes / u32::from(fragment_values.max(FRAGMENT_VALUES));
    // At most what was asked for, which has 16 bits.
    (longer as u16).max(SPAN_LEAST.min(asked.span_fragments))
}
