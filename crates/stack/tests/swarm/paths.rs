//! Ranks that probe their paths before every set-up and when nothing moves, and jobs that end because a path has become
//! narrower. The director plays the registry and the sessions; probes go through real hosts, switches and servers.
// spec: F-01 simulator

use std::sync::Arc;

use thalweg_aggregate::join::Message;
use thalweg_core::{Checked, JobId, NodeId, Span, Time, body_bytes_of_mtu, mtu_of_body_bytes};
use thalweg_fabric::{Effect, Hosts, Place, Rule};
use thalweg_stack::TrainingHost;
use thalweg_transport::Credentials;
use thalweg_transport::path::{NarrowPath, PathProber, PathReport, probe_scope};
use thalweg_wire::tag::Key;

use crate::director::{Mail, Swarm};
use crate::plan::{JobPlan, Plan};

/// Time between two checks of a rank's progress.
const WATCH_GAP: Span = Span::from_ms(20);

/// Probes of the paths of a job.
pub struct Probing {
    /// No probe of it was sent before.
    since: Time,
    /// True once the first set-up has decided about the length of fragments.
    is_set_up: bool,
    ranks: Vec<RankPaths>,
    /// True once a path was found to be too narrow.
    has_failed: bool,
    /// True once another job goes on with its operations.
    pub is_followed: bool,
}

/// Probes of one rank.
#[derive(Clone, Default)]
struct RankPaths {
    /// Round that the last probes were for, and their outcome.
    round: Option<u32>,
    report: Option<PathReport>,
    /// Answer in that round, which waits for the outcome.
    waiting: Option<Message>,
    /// True while paths are probed because nothing moves.
    is_checking: bool,
    /// Latest report that the registry has, and its round.
    reported: Option<(u32, PathReport)>,
    /// Operations that had finished, and the watermark, when the rank was last looked at.
    seen: Option<(usize, u64)>,
    /// True once its application has the error.
    has_ended: bool,
}

impl Probing {
    pub fn new(since: Time, ranks: usize) -> Probing {
        let ranks = vec![RankPaths::default(); ranks];
        Probing { since, is_set_up: false, ranks, has_failed: false, is_followed: false }
    }

    /// Returns whether the registry has ended the job.
    pub fn has_ended(&self) -> bool {
        self.has_failed
    }

    /// Returns whether the application of a rank knows it.
    pub fn has_ended_at(&self, rank: usize) -> bool {
        self.ranks[rank].has_ended
    }
}

impl Swarm<'_> {
    /// Lets a host of a worker probe the paths of the job that goes on, and answer others.
    pub(crate) fn give_prober(&self, node: NodeId, host: &mut TrainingHost) {
        let job = self.jobs.last().filter(|_| self.plan.probes_paths);
        if let Some(job) = job.filter(|job| job.plan.workers.contains(&node)) {
            host.set_paths(PathProber::new(self.credentials(job.id)));
        }
    }

    fn credentials(&self, id: JobId) -> Credentials {
        let (job, epoch) = probe_scope(id);
        let key = self.plan.secret.map(|secret| Key::derive(&secret, job, epoch));
        Credentials { job, epoch, key }
    }

    /// Nodes at the other ends of a rank's paths: the servers, its switch, and the other ranks.
    fn path_ends(&self, job: usize, rank: usize) -> Vec<NodeId> {
        let plan = &self.jobs[job].plan;
        let me = plan.workers[rank];
        let switch = self.plan.path(plan, me, plan.servers[0]).first().copied();
        let others = plan.workers.iter().filter(|worker| **worker != me);
        plan.servers.iter().chain(&switch).chain(others).copied().collect()
    }

    /// Answers in a round, once the probes of the round have an outcome.
    pub(crate) fn answer_when_probed(
        &mut self,
        now: Time,
        (job, node): (usize, NodeId),
        round: u32,
        answer: Message,
        hosts: &mut Hosts<'_, Checked<TrainingHost>>,
    ) {
        let rank = self.rank_of(job, node);
        let ends = self.path_ends(job, rank);
        let Some(own) = self.rank_paths(job, rank) else { return };
        if own.round != Some(round) || own.is_checking {
            (own.round, own.report, own.is_checking) = (Some(round), None, false);
            own.waiting = Some(answer);
            let most = self.plan.announced_mtu;
            hosts.machine(node).paths_mut().expect("it has one").start(now, &ends, most);
        } else if let Some(report) = own.report.clone() {
            self.send(now, Mail::Probed { job, rank, round, report, answer });
        } else {
            own.waiting = Some(answer);
        }
    }

    fn rank_paths(&mut self, job: usize, rank: usize) -> Option<&mut RankPaths> {
        Some(&mut self.jobs[job].probing.as_mut()?.ranks[rank])
    }

    fn rank_of(&self, job: usize, node: NodeId) -> usize {
        let rank = self.jobs[job].plan.workers.iter().position(|&worker| worker == node);
        rank.expect("a worker of it")
    }

    /// Takes in the outcome of a rank's probes.
    pub(crate) fn take_paths(&mut self, now: Time, node: NodeId, report: PathReport) {
        let job = self.jobs.len() - 1;
        let rank = self.rank_of(job, node);
        let Some(own) = self.rank_paths(job, rank) else { return };
        if std::mem::take(&mut own.is_checking) {
            if let Some(narrow) = report.narrow {
                self.fail_for(now, job, node, narrow);
            }
            return;
        }
        own.report = Some(report.clone());
        if let (Some(answer), Some(round)) = (own.waiting.take(), own.round) {
            self.send(now, Mail::Probed { job, rank, round, report, answer });
        }
    }

    /// The registry gets the report of a rank, and its answer.
    pub(crate) fn note_paths(
        &mut self,
        now: Time,
        (job, rank): (usize, usize),
        round: u32,
        report: PathReport,
        answer: Message,
    ) {
        let id = self.jobs[job].id;
        let Some(probing) = self.jobs[job].probing.as_mut().filter(|own| !own.has_failed) else {
            return;
        };
        probing.ranks[rank].reported = Some((round, report));
        let is_last = self.registrar.round(id) == Some(round)
            && self.registrar.unanswered(id) == 1
            && self.registrar.is_awaited(id, rank as u32);
        if !is_last || self.conclude(now, job, round) {
            self.tell(answer);
        }
    }

    /// All ranks have answered: the first set-up decides about the length of fragments, and a later one fails the job if they
    /// no longer pass.
    fn conclude(&mut self, now: Time, job: usize, round: u32) -> bool {
        let state = &self.jobs[job];
        let Some(probing) = &state.probing else { return true };
        let reports = state.plan.workers.iter().zip(&probing.ranks);
        let of_round = |(node, own): (&NodeId, &RankPaths)| {
            let (_, report) = own.reported.as_ref().filter(|(of, _)| *of == round)?;
            Some((*node, report.clone()))
        };
        let reports: Vec<(NodeId, PathReport)> = reports.filter_map(of_round).collect();
        if probing.is_set_up {
            let needed = needed_mtu(&state.plan);
            let narrow = reports.iter().filter_map(|(node, report)| Some((*node, report.narrow?)));
            let narrow = narrow.min_by_key(|(_, narrow)| narrow.mtu_bytes);
            if let Some((node, narrow)) =
                narrow.filter(|(_, path)| u32::from(path.mtu_bytes) < needed)
            {
                self.fail_for(now, job, node, narrow);
                return false;
            }
            return true;
        }
        let passes = reports.iter().filter_map(|(_, report)| report.mtu_bytes).min();
        let Some(mtu_bytes) = passes.filter(|_| reports.iter().all(|(_, it)| it.silent.is_none()))
        else {
            self.failure.get_or_insert(format!("job {job}: probes were not answered"));
            return false;
        };
        self.choose(now, job, mtu_bytes);
        true
    }

    /// Begins with the longest fragments that pass.
    fn choose(&mut self, now: Time, job: usize, mtu_bytes: u16) {
        let state = &mut self.jobs[job];
        let Some(probing) = &mut state.probing else { return };
        probing.is_set_up = true;
        let (least, most) = self.plan.proven_mtu(&state.plan, probing.since, now);
        if !(least..=most).contains(&mtu_bytes) {
            let text =
                format!("job {job} begins with an MTU of {mtu_bytes}, not {least} to {most}");
            self.failure.get_or_insert(text);
        }
        self.short_setups += u64::from(mtu_bytes < self.plan.announced_mtu);
        let fragment_values = body_bytes_of_mtu(mtu_bytes) / 4;
        state.plan = Arc::new(JobPlan { fragment_values, ..JobPlan::clone(&state.plan) });
        state.number(self.plan.seed, job);
        let (id, plan) = (state.id, Arc::clone(&state.plan));
        let parameters = self.parameters(&plan).check().expect("the length of an MTU");
        self.registrar.set_parameters(id, parameters).expect("it is registered");
    }

    /// Begins to look after the progress of a job.
    pub(crate) fn watch_from(&mut self, now: Time, job: usize) {
        if self.jobs[job].probing.is_some() {
            self.post(now + WATCH_GAP, Mail::Watch(job));
        }
    }

    /// Has ranks that make no progress probe their paths, as engines do. An open round probes anyway.
    pub(crate) fn watch(
        &mut self,
        now: Time,
        job: usize,
        hosts: &mut Hosts<'_, Checked<TrainingHost>>,
    ) {
        let (id, plan) = (self.jobs[job].id, Arc::clone(&self.jobs[job].plan));
        let has_ended = self.jobs[job].probing.as_ref().is_none_or(Probing::has_ended);
        if has_ended {
            return;
        }
        for (rank, &node) in plan.workers.iter().enumerate() {
            let (begun, finished) = self.jobs[job].progress(rank);
            let Some(worker) = hosts.machine(node).worker_mut(id) else { continue };
            let seen = Some((finished, worker.watermark()));
            let is_open = self.registrar.unanswered(id) > 0;
            let ends = self.path_ends(job, rank);
            let Some(own) = self.rank_paths(job, rank) else { continue };
            let is_stalled = begun > finished && own.seen == seen;
            own.seen = seen;
            if is_stalled && !is_open && !own.is_checking && own.waiting.is_none() {
                own.is_checking = true;
                let most = needed_mtu(&plan) as u16;
                hosts.machine(node).paths_mut().expect("it has one").start(now, &ends, most);
            }
        }
        self.post(now + WATCH_GAP, Mail::Watch(job));
    }

    /// A path has become too narrow: every rank gets the error, one after the other.
    fn fail_for(&mut self, now: Time, job: usize, node: NodeId, narrow: NarrowPath) {
        let (id, plan) = (self.jobs[job].id, Arc::clone(&self.jobs[job].plan));
        let Some(probing) = self.jobs[job].probing.as_mut().filter(|own| !own.has_failed) else {
            return;
        };
        probing.has_failed = true;
        let (since, needed) = (probing.since, needed_mtu(&plan));
        let ends = (node, narrow.node);
        let least = self.plan.narrowest(ends, since, now, needed);
        let is_true = |least: u16| (least.into()..needed).contains(&u32::from(narrow.mtu_bytes));
        if !least.is_some_and(is_true) {
            let text =
                format!("job {job}: {ends:?} carries {narrow:?} of {needed}, in truth {least:?}");
            self.failure.get_or_insert(text);
        }
        self.registrar.end(id).expect("it is registered");
        for rank in 0..plan.workers.len() {
            let delay = Span::from_us(5 + self.rng.below(2_000));
            self.post(now + delay, Mail::End { job, rank });
        }
        let delay = Span::from_us(5 + self.rng.below(2_000));
        self.post(now + delay, Mail::Retire(job));
    }

    /// The servers of a job that has ended forget it.
    pub(crate) fn retire(&mut self, job: usize, hosts: &mut Hosts<'_, Checked<TrainingHost>>) {
        let Swarm { jobs, .. } = self;
        for &server in &jobs[job].plan.servers {
            hosts.machine(server).server_mut().retire(jobs[job].id);
        }
    }

    /// A rank gets the error for all operations that it has begun. When all have it, they agree where they go on.
    pub(crate) fn end_rank(
        &mut self,
        now: Time,
        (job, rank): (usize, usize),
        hosts: &mut Hosts<'_, Checked<TrainingHost>>,
    ) {
        let (id, node) = (self.jobs[job].id, self.jobs[job].plan.workers[rank]);
        hosts.machine(node).leave(id);
        let Some(probing) = &mut self.jobs[job].probing else { return };
        probing.ranks[rank].has_ended = true;
        if probing.ranks.iter().all(|own| own.has_ended) {
            self.follow(now, job, hosts);
        }
    }

    /// Ranks go on in another job after the most that any has begun, and with the last operation again.
    fn follow(&mut self, now: Time, job: usize, hosts: &mut Hosts<'_, Checked<TrainingHost>>) {
        let state = &mut self.jobs[job];
        state.probing.iter_mut().for_each(|probing| probing.is_followed = true);
        let ranks: Vec<(usize, usize)> =
            (0..state.plan.workers.len()).map(|rank| state.progress(rank)).collect();
        let first = ranks.iter().map(|(begun, _)| *begun).max().unwrap_or(0);
        self.narrowed += ranks.iter().map(|(_, finished)| (first - finished) as u64).sum::<u64>();
        let old = Arc::clone(&state.plan);
        let places: Vec<usize> =
            (first..old.operations.len()).chain([first.saturating_sub(1)]).collect();
        let plan = Arc::new(JobPlan {
            operations: places.iter().map(|&at| old.operations[at]).collect(),
            reliabilities: places.iter().map(|&at| old.reliabilities[at]).collect(),
            elements: places.iter().map(|&at| old.elements[at]).collect(),
            stall: None,
            ..JobPlan::clone(&old)
        });
        self.register(Arc::clone(&plan), now + Span::from_us(100));
        for &worker in &plan.workers {
            self.give_prober(worker, hosts.machine(worker));
        }
    }
}

/// MTU that the fragments of a job need.
fn needed_mtu(plan: &JobPlan) -> u32 {
    mtu_of_body_bytes(u32::from(plan.fragment_values) * 4)
}

impl Plan {
    /// Largest MTU of which a probe passes links of an MTU.
    fn passing(&self, limit: u16) -> u16 {
        const STEPS: [u16; 8] = [6_000, 4_000, 3_000, 2_000, 1_500, 1_400, 1_280, 576];
        let most = self.announced_mtu;
        let sizes = [most].into_iter().chain(STEPS.into_iter().filter(|step| *step < most));
        let passes =
            |size: &u16| mtu_of_body_bytes(body_bytes_of_mtu(*size).into()) <= limit.into();
        sizes.into_iter().find(passes).expect("the least passes every link")
    }

    /// The least and the most that the first set-up of a job may begin with.
    fn proven_mtu(&self, job: &JobPlan, since: Time, now: Time) -> (u16, u16) {
        let passing = |limit: Option<u16>| limit.map_or(self.announced_mtu, |it| self.passing(it));
        let pairs = job.workers.iter().flat_map(|worker| {
            let ends = job.servers.iter().chain(&job.workers);
            ends.filter(move |end| *end != worker).map(move |end| (*worker, *end))
        });
        let lasts = |rule: &&Rule| rule.from <= since && now < rule.until;
        let concerns = |rule: &&Rule| pairs.clone().any(|ends| self.crosses(rule.place, ends));
        let lasting = self.narrow_links(since, now).filter(lasts).filter(concerns);
        let least = self.narrow_links(since, now).map(limit).min();
        (passing(least), passing(lasting.map(limit).min()))
    }

    /// The least MTU of which probes have passed between two nodes while the path was narrower than needed. `None` if it never
    /// was.
    fn narrowest(
        &self,
        ends: (NodeId, NodeId),
        since: Time,
        now: Time,
        needed: u32,
    ) -> Option<u16> {
        let links = self.narrow_links(since, now);
        let limits = links.filter(|rule| self.crosses(rule.place, ends)).map(limit);
        let least = limits.min().filter(|limit| u32::from(*limit) < needed)?;
        Some(self.passing(least))
    }

    /// Links that were narrow at any moment of a time.
    fn narrow_links(&self, since: Time, now: Time) -> impl Iterator<Item = &Rule> {
        let holds = move |rule: &&Rule| rule.from <= now && since < rule.until;
        self.narrow_links.iter().filter(holds)
    }

    /// Returns whether packets between two nodes, or their answers, pass such links.
    fn crosses(&self, place: Place, (from, to): (NodeId, NodeId)) -> bool {
        let rack = |node: NodeId| (node.0 < self.hosts()).then(|| node.0 / self.hosts_per_rack);
        match place {
            Place::Into(host) | Place::OutOf(host) => host == from || host == to,
            // The only switch that a rank probes is that of its rack.
            Place::SwitchCables => rack(to).is_some() && rack(from) != rack(to),
            _ => true,
        }
    }
}

/// MTU of a link that is narrow.
fn limit(rule: &Rule) -> u16 {
    match rule.effect {
        Effect::Mtu(bytes) => bytes,
        _ => u16::MAX,
    }
}
