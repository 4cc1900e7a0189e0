//! The largest packets that the paths of a job carry.
//!
//! Before every set-up the server probes the paths between itself and the switches of the job, and between these; then
//! leaders probe theirs, to their switch, to the server and to each other. Probes begin with the least MTU that ranks,
//! switches and server announce. The set-up is made for what passes everywhere.
// spec: F-01

use thalweg_aggregate::server::SwitchPath;
use thalweg_core::{MTU_BYTES, MTU_BYTES_MAX, NodeId, Span, Time, mtu_of_body_bytes};
use thalweg_transport::path::{PathOutcome, PathReport, PathSearch};

use super::job::Job;
use super::plan::Plan;
use super::{Action, Registry, explain};
use crate::message::{Failure, FailureKind, JobTree, ToRank};

/// Time for which the outcome of a search holds for the set-ups of other jobs, or of other threads.
const FRESH: Span = Span::from_s(1);

/// A path to a switch that is probed.
#[derive(Debug)]
pub(super) struct ProbedPath {
    most: u16,
    search: PathSearch,
    /// The outcome, and when it came.
    outcome: Option<(Time, PathOutcome)>,
}

/// MTU that a set-up begins with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Offer {
    /// Least of those that ranks, switches and server announce.
    announced: u16,
    /// Part of it that the paths between server and switches carry.
    mtu_bytes: u16,
    /// The path that carries less than announced, if one does.
    narrow: Option<Narrow>,
}

/// A path that carries less than was announced, or that nothing is known of.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Narrow {
    mtu_bytes: u16,
    /// Both ends, for people.
    ends: String,
    is_silent: bool,
}

impl Job {
    /// A rank whose interface does not carry the packets of a tree, and its MTU: one that has come later than others. Those
    /// that announce none have the usual one.
    fn narrow_rank(&self, plan: &Plan) -> Option<(u32, u16)> {
        // A length that no packet has is refused with the settings of the job.
        let needed = plan.needed_mtu().filter(|needed| *needed <= MTU_BYTES_MAX.into())?;
        self.narrowest().filter(|(_, mtu)| u32::from(*mtu) < needed)
    }

    /// Returns whether all ranks know of probes.
    pub(super) fn probes_paths(&self) -> bool {
        self.announced_mtu().is_some()
    }
}

impl Plan {
    /// The MTU that the packets of a tree need, once their length is decided: it stays while the job lives.
    fn needed_mtu(&self) -> Option<u32> {
        self.fragment_values.map(|values| mtu_of_body_bytes(u32::from(values) * 4))
    }
}

impl Registry {
    /// Probes the paths between the server and the switches of a tree, if it is about to be set up. Returns `false` while
    /// one of them is not known.
    pub(super) fn find_paths(&mut self, now: Time, at: JobTree) -> bool {
        let Some((job, plan)) = self.planned(at) else { return false };
        // A round that is over needs nothing.
        if self.registrar.unanswered(at.id()) == 0 {
            return true;
        }
        if let Some(failure) = self.narrow_interface(job, plan) {
            self.fail(now, at.job, failure);
            return false;
        }
        let Some(announced) = self.announced(job, plan) else {
            self.offer(at, None);
            self.set_parameters(now, at);
            return true;
        };
        let paths = self.paths_of(at.tree, plan);
        let count = paths.len();
        let mut outcomes = Vec::new();
        for path in paths {
            let Some(outcome) = self.find_path(now, path, announced) else { continue };
            outcomes.push((path, outcome));
        }
        let Some(job) = self.jobs.get(&at.job) else { return false };
        if outcomes.len() < count {
            return false;
        }
        let narrow = outcomes.into_iter().filter_map(|(path, outcome)| {
            let own = self.cluster.server_of(at.tree);
            let end = path.via.unwrap_or(own);
            let ends = format!("{} and {}", self.end(job, end), self.end(job, path.switch));
            narrow_by(outcome, announced, ends)
        });
        let narrow = narrow.min_by_key(|narrow| narrow.mtu_bytes);
        let mtu_bytes = narrow.as_ref().map_or(announced, |narrow| narrow.mtu_bytes);
        self.offer(at, Some(Offer { announced, mtu_bytes, narrow }));
        true
    }

    /// The failure of a job whose packets a rank that has come later cannot send.
    fn narrow_interface(&self, job: &Job, plan: &Plan) -> Option<Failure> {
        let (rank, mtu_bytes) = job.narrow_rank(plan)?;
        let ends = format!("{} and others", explain::name_of(&self.cluster, job, rank));
        let narrow = Narrow { mtu_bytes, ends, is_silent: false };
        Some(narrowed(&narrow, plan.needed_mtu()?))
    }

    fn offer(&mut self, at: JobTree, offer: Option<Offer>) {
        if let Some(plan) = self.plan_mut(at) {
            if offer.is_none() {
                // What was probed for others says nothing of a rank that answers no probes.
                plan.mtu = None;
            }
            plan.offered = offer;
        }
    }

    /// The least MTU that the ranks of a job, the switches of a tree of it, and the server announce.
    fn announced(&self, job: &Job, plan: &Plan) -> Option<u16> {
        let switches = plan.planned().filter_map(|switch| self.switches.limits(switch));
        let switches = switches.map(|limits| limits.mtu()).min();
        let least = job.announced_mtu()?.min(self.cluster.mtu_bytes);
        Some(switches.map_or(least, |switches| switches.min(least)))
    }

    /// The paths between the server and the switches of a tree, and those between these.
    fn paths_of(&self, tree: u32, plan: &Plan) -> Vec<SwitchPath> {
        let shard = |switch| self.switches.shard(switch, tree);
        let planned: Vec<NodeId> =
            plan.planned().filter(|switch| self.answers_probes(*switch)).collect();
        let top = self.cluster.switch.filter(|top| planned.contains(top)).map(shard);
        let mut paths = Vec::new();
        for switch in planned.into_iter().map(shard) {
            paths.push(SwitchPath { switch, via: None });
            let via = top.filter(|top| *top != switch);
            paths.extend(via.map(|via| SwitchPath { switch, via: Some(via) }));
        }
        paths
    }

    /// Returns whether a node is a switch that answers probes of paths: those of older versions announce no MTU.
    fn answers_probes(&self, switch: NodeId) -> bool {
        let limits = self.switches.limits(switch);
        limits.is_some_and(|limits| limits.mtu_bytes > 0) && !self.cluster.is_server(switch)
    }

    /// Returns what is known of a path, or begins to probe it.
    fn find_path(&mut self, now: Time, path: SwitchPath, most: u16) -> Option<PathOutcome> {
        let known = self.switches.paths.get(&path).filter(|known| known.most == most);
        let is_old = |at: Time| now.since(at) > FRESH;
        match known.map(|known| known.outcome) {
            Some(Some((at, outcome))) if !is_old(at) => return Some(outcome),
            Some(None) => return None,
            _ => {}
        }
        let search = PathSearch::new(now, most);
        self.switches.paths.insert(path, ProbedPath { most, search, outcome: None });
        self.probe_path(now, path);
        None
    }

    /// Sends the probes of a path that are due, and takes down the outcome if there is one.
    fn probe_path(&mut self, now: Time, path: SwitchPath) {
        let Some(known) = self.switches.paths.get_mut(&path) else { return };
        let sizes = known.search.poll(now);
        self.actions.extend(sizes.map(|mtu_bytes| Action::ProbePath { path, mtu_bytes }));
        if known.outcome.is_none() {
            known.outcome = known.search.outcome(now).map(|outcome| (now, outcome));
        }
    }

    /// Probes the paths that are searched, and forgets those that nobody needs any more.
    pub(super) fn probe_paths(&mut self, now: Time) {
        let is_needed =
            |known: &ProbedPath| known.outcome.is_none_or(|(at, _)| now.since(at) <= FRESH);
        self.switches.paths.retain(|_, known| is_needed(known));
        let paths: Vec<SwitchPath> = self.switches.paths.keys().copied().collect();
        for path in paths {
            self.probe_path(now, path);
        }
        self.go_on(now);
    }

    /// A switch has answered a probe of its path with a body of this length. Jobs whose set-up waits for it go on.
    pub fn path_answered(&mut self, now: Time, path: SwitchPath, body_bytes: usize) {
        let Some(known) = self.switches.paths.get_mut(&path) else { return };
        let Some(mtu_bytes) = known.search.mtu_of(body_bytes) else { return };
        known.search.confirm(mtu_bytes);
        self.probe_path(now, path);
        self.go_on(now);
    }

    /// Set-ups that wait for switches or paths go on.
    pub(super) fn go_on(&mut self, now: Time) {
        for id in self.waiting.iter().copied().collect::<Vec<_>>() {
            let job = self.jobs.get(&id);
            // spec: E-12
            if job.is_some_and(|job| !self.set_ups.take(now, job.owner, job.work())) {
                continue;
            }
            self.waiting.remove(&id);
            let Some(job) = job else { continue };
            let all = job.all_trees().zip(&job.trees).filter(|(_, plan)| plan.is_open);
            for at in all.map(|(at, _)| at).collect::<Vec<_>>() {
                self.set_up(now, at, None);
            }
        }
    }

    /// The probes that the leader of a host makes before it answers a round.
    pub(super) fn probes_before(&self, at: JobTree, host: u32, round: u32) -> Option<ToRank> {
        let (job, plan) = self.planned(at)?;
        let offer = plan.offered.as_ref()?;
        let leader = job.ranks.get(job.hosts.get(host as usize)?)?;
        let is_probed = |switch: &NodeId| plan.has(*switch) && self.answers_probes(*switch);
        let switch = leader.switch.filter(is_probed);
        let switch = switch.map(|switch| self.switches.shard(switch, at.tree));
        let nodes = [self.cluster.server_of(at.tree)].into_iter().chain(switch).collect();
        Some(ToRank::ProbePaths { round, mtu_bytes: offer.mtu_bytes, nodes })
    }

    /// A leader reports what its paths carry.
    pub(super) fn note_paths(&mut self, at: JobTree, rank: u32, round: u32, report: PathReport) {
        let Some(host) = self.jobs.get(&at.job).and_then(|job| job.seat_of(rank)) else { return };
        if let Some(plan) = self.plan_mut(at) {
            plan.reports.insert(host, (round, report));
        }
    }

    /// All leaders have answered: decides about the MTU, and gives the registrar the parameters of the set-up. Returns
    /// `false` if the job fails.
    pub(super) fn conclude(&mut self, now: Time, at: JobTree, round: u32) -> bool {
        let Some((job, plan)) = self.planned(at) else { return false };
        // Without probes the parameters were known before anybody was asked.
        let Some(offer) = plan.offered.clone() else { return true };
        let narrow = self.narrow_paths(job, (plan, &offer), round);
        let needed = plan.needed_mtu().unwrap_or(0);
        // Nothing is known of a path that is silent: what it carried before may still pass.
        let is_too_narrow =
            |narrow: &&Narrow| u32::from(narrow.mtu_bytes) < needed && !narrow.is_silent;
        let too_narrow = narrow.iter().find(is_too_narrow).map(|narrow| narrowed(narrow, needed));
        if let Some(failure) = too_narrow.or_else(|| self.narrow_interface(job, plan)) {
            self.fail(now, at.job, failure);
            return false;
        }
        // Leaders that answered early may have been asked for less, and others have come since.
        let reports = plan.reports.values().filter(|(of, _)| *of == round);
        let proven = reports.filter_map(|(_, report)| report.mtu_bytes);
        let proven = proven.chain([job.announced_mtu().unwrap_or(MTU_BYTES)]).min();
        self.settle(at, &offer, narrow.into_iter().next(), proven);
        self.set_parameters(now, at);
        self.jobs.contains_key(&at.job)
    }

    /// Takes down the MTU of a set-up, at most what probes have proven, tells all ranks, and warns of a path that is narrower
    /// than announced.
    fn settle(&mut self, at: JobTree, offer: &Offer, narrow: Option<Narrow>, proven: Option<u16>) {
        let announced = offer.announced;
        let mtu_bytes = narrow.as_ref().map_or(announced, |narrow| narrow.mtu_bytes);
        let mtu_bytes = proven.map_or(mtu_bytes, |proven| mtu_bytes.min(proven));
        let Some(plan) = self.plan_mut(at) else { return };
        let before = plan.mtu.replace(mtu_bytes);
        let Some(job) = self.jobs.get(&at.job) else { return };
        self.actions.extend(job.tell_all_of(at.tree, &ToRank::PathMtu { mtu_bytes }));
        // One line for all trees that found the same.
        let is_noted = |other: &Plan| other.mtu == Some(mtu_bytes);
        let is_noted = job.trees.iter().take(at.tree as usize).any(is_noted);
        let narrow = narrow.filter(|_| before != Some(mtu_bytes) && !is_noted);
        let Some(Narrow { ends, is_silent, .. }) = narrow else { return };
        let name = &job.name;
        let text = if is_silent {
            format!(
                "job {name:?}: no probe of the path between {ends} was answered: packets have at most {mtu_bytes} bytes \
                 in place of {announced}"
            )
        } else {
            format!(
                "job {name:?}: the path between {ends} carries packets of {mtu_bytes} bytes and not of {announced}, which \
                 all announce: the job uses {mtu_bytes}. Raise the MTU of the links between them, or announce less (--mtu)"
            )
        };
        self.actions.push_back(Action::Warn(text));
    }

    /// The paths of a tree that are narrower than announced, the narrowest first.
    fn narrow_paths(&self, job: &Job, (plan, offer): (&Plan, &Offer), round: u32) -> Vec<Narrow> {
        let mut paths: Vec<Narrow> = offer.narrow.iter().cloned().collect();
        for (host, (of, report)) in &plan.reports {
            let leader = job.hosts.get(*host as usize).filter(|_| *of == round);
            let Some(leader) = leader else { continue };
            let own = explain::name_of(&self.cluster, job, *leader);
            let ends = |node: NodeId| format!("{own} and {}", self.end(job, node));
            let narrow =
                report.narrow.map(|path| (path.node, PathOutcome::Carries(path.mtu_bytes)));
            let silent = report.silent.map(|node| (node, PathOutcome::Silent));
            let outcomes = narrow.into_iter().chain(silent);
            paths.extend(
                outcomes
                    .filter_map(|(node, outcome)| narrow_by(outcome, offer.announced, ends(node))),
            );
        }
        paths.sort_by_key(|path| (path.mtu_bytes, path.is_silent));
        paths
    }

    /// The node at the end of a path, for people.
    fn end(&self, job: &Job, node: NodeId) -> String {
        let address = self.cluster.address(node);
        if self.cluster.is_server(node) {
            return format!("the server ({address})");
        }
        let rank = job.ranks.iter().find(|(_, rank)| rank.nodes().any(|own| own == node));
        match rank {
            Some((rank, _)) => explain::name_of(&self.cluster, job, *rank),
            None => format!("switch {address}"),
        }
    }
}

/// The meaning of an outcome for a job, if it is less than announced.
fn narrow_by(outcome: PathOutcome, announced: u16, ends: String) -> Option<Narrow> {
    let (mtu_bytes, is_silent) = match outcome {
        PathOutcome::Carries(mtu_bytes) => (mtu_bytes, false),
        // Nearly every network carries as much, and older switches and servers answer no probes.
        PathOutcome::Silent => (MTU_BYTES, true),
    };
    (mtu_bytes < announced).then_some(Narrow { mtu_bytes, ends, is_silent })
}

/// The failure of a job one of whose paths has become too narrow.
fn narrowed(narrow: &Narrow, needed: u32) -> Failure {
    let Narrow { mtu_bytes, ends, .. } = narrow;
    let text = format!(
        "the path between {ends} carries packets of {mtu_bytes} bytes, and those of the job have {needed}: start the job \
         again, and it uses shorter ones"
    );
    Failure::new(FailureKind::Other, text, Vec::new())
}
