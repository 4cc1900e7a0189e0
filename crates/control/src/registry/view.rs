//! Views of the registry for people.
//!
//! A [`View`] is taken as fast as it can be copied, while the registry waits; texts are made of it afterwards, elsewhere
//! and for as many callers as ask.
// spec: E-12

use std::collections::{BTreeMap, BTreeSet};

use thalweg_aggregate::server;
use thalweg_core::{JobId, NodeId, Span, Time};
use thalweg_wire::aggregate::SwitchLimits;

use super::Registry;
use super::cluster::Cluster;
use super::job::{Attendee, Job};
use crate::caller::{Caller, Holder};
use crate::clock::milliseconds;
use crate::plane::Counters;
use crate::settings::Settings;
use crate::v1;

/// Bytes that a job, a rank, a switch, an address and a counter take in an answer, at most, beside names.
const JOB_BYTES: usize = 64;
const RANK_BYTES: usize = 96;
const SWITCH_BYTES: usize = 64;
const ADDRESS_BYTES: usize = 24;
const COUNTER_BYTES: usize = 24;

/// A job, in a few words.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct JobSummary {
    /// Number of the job, which packets carry.
    pub id: JobId,
    /// Name of the job, which people gave it.
    pub name: String,
    /// Number of its ranks.
    pub ranks: u32,
    /// Number of its ranks that are connected.
    pub connected: u32,
    /// Number of switches that it is planned without.
    pub switches_left_out: u32,
}

impl JobSummary {
    /// A job without ranks.
    pub fn new(id: JobId, name: impl Into<String>) -> JobSummary {
        JobSummary { id, name: name.into(), ranks: 0, connected: 0, switches_left_out: 0 }
    }
}

/// All jobs at one moment, and the memory of the data plane that is reserved for them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Listing {
    /// The jobs.
    pub jobs: Vec<JobSummary>,
    /// Bytes that are reserved for the jobs of each holder of credentials.
    // spec: E-12
    pub memory_bytes_by_holder: BTreeMap<Holder, u64>,
    /// Jobs that were refused before the data plane had to.
    pub refused: server::Refusals,
}

/// All jobs at one moment.
#[derive(Clone, Debug)]
pub struct View {
    cluster: Cluster,
    switches: Vec<(NodeId, SwitchLimits)>,
    jobs: Vec<JobView>,
}

#[derive(Clone, Debug)]
struct JobView {
    id: JobId,
    name: String,
    workers: u32,
    epoch: u32,
    left_out: Vec<NodeId>,
    ranks: Vec<RankView>,
    /// Bytes of the names of its ranks' hosts.
    hosts_bytes: usize,
}

impl JobView {
    /// Bytes that it takes in an answer, at most, with the names of hosts or without.
    fn bytes(&self, hosts_bytes: usize) -> usize {
        let places = RANK_BYTES * self.ranks.len() + ADDRESS_BYTES * self.left_out.len();
        JOB_BYTES + self.name.len() + places + hosts_bytes
    }
}

#[derive(Clone, Debug)]
struct RankView {
    rank: u32,
    node: NodeId,
    host: String,
    switch: Option<NodeId>,
    is_connected: bool,
    progress: v1::RankProgress,
}

impl Registry {
    /// The jobs that there are, and their memory.
    pub fn listing(&self) -> Listing {
        let mut memory_bytes_by_holder = BTreeMap::new();
        for job in self.jobs.values().filter(|job| job.memory_bytes() > 0) {
            *memory_bytes_by_holder.entry(job.owner).or_insert(0) += job.memory_bytes();
        }
        Listing { jobs: self.summaries(), memory_bytes_by_holder, refused: self.refused_jobs }
    }

    /// The jobs that there are.
    fn summaries(&self) -> Vec<JobSummary> {
        let jobs = self.jobs.values().map(|job| JobSummary {
            id: job.id,
            name: job.name.clone(),
            ranks: job.workers,
            connected: job.connected() as u32,
            switches_left_out: job.left_out().len() as u32,
        });
        jobs.collect()
    }

    /// The latest epoch of the trees of a job, 0 before the first.
    fn epoch(&self, job: &Job) -> u32 {
        let setups = job.all_trees().filter_map(|at| self.registrar.setup(at.id()));
        setups.map(|setup| setup.epoch).max().unwrap_or(0)
    }

    /// Silence of a kernel that means death in a job. The default for a job that there is not.
    pub fn failure_after(&self, job: JobId) -> Span {
        let default = Settings::default().failure_after;
        self.jobs.get(&job).map_or(default, |job| job.settings.failure_after)
    }

    /// All jobs as they are now.
    pub fn view(&self, now: Time) -> View {
        let rank = |(&rank, attendee): (&u32, &Attendee)| RankView {
            rank,
            node: attendee.process.node,
            host: attendee.host.clone(),
            switch: attendee.switch,
            is_connected: attendee.link.is_some(),
            progress: progress(now, rank, attendee),
        };
        let job = |job: &Job| JobView {
            id: job.id,
            name: job.name.clone(),
            workers: job.workers,
            epoch: self.epoch(job),
            left_out: job.left_out().into_iter().collect(),
            hosts_bytes: job.ranks.values().map(|attendee| attendee.host.len()).sum(),
            ranks: job.ranks.iter().map(rank).collect(),
        };
        View {
            cluster: self.cluster,
            switches: self.switches.described().collect(),
            jobs: self.jobs.values().map(job).collect(),
        }
    }
}

impl View {
    /// Places of the ranks, of the jobs that a caller may see. A tenant learns of no switch but those of its jobs.
    // spec: E-04
    pub fn topology(&self, caller: &Caller) -> v1::TopologyResponse {
        let ranks = self.seen(caller).flat_map(|job| &job.ranks);
        let named: BTreeSet<NodeId> =
            ranks.filter_map(|rank| rank.switch).chain(self.cluster.switch).collect();
        let described = self.switches.iter();
        let described =
            described.filter(|(switch, _)| caller.is_operator() || named.contains(switch));
        v1::TopologyResponse {
            servers: vec![self.text(self.cluster.server)],
            switches: named.iter().map(|switch| self.text(*switch)).collect(),
            jobs: self.seen(caller).map(|job| self.places(job)).collect(),
            descriptions: described.map(|one| self.description(one)).collect(),
        }
    }

    /// Progress of one job, or of all, of those that a caller may see. Counters of the whole server are an operator's.
    // spec: E-04
    pub fn statistics(
        &self,
        caller: &Caller,
        only: Option<JobId>,
        counters: &Counters,
    ) -> v1::StatisticsResponse {
        let of_job = |job: JobId| counters.jobs.get(&job).map(Vec::as_slice).unwrap_or_default();
        let jobs = self.seen(caller).filter(|job| only.is_none_or(|only| only == job.id));
        let jobs = jobs.map(|job| v1::JobStatistics {
            name: job.name.clone(),
            job: job.id.0,
            epoch: job.epoch,
            ranks: job.ranks.iter().map(|rank| rank.progress).collect(),
            counters: named(of_job(job.id)),
        });
        let total = if caller.is_operator() { &counters.total[..] } else { &[] };
        v1::StatisticsResponse { jobs: jobs.collect(), counters: named(total) }
    }

    /// Bytes of the answer about places, at most: memory for it is taken before it is made.
    // spec: E-12
    pub fn topology_bytes(&self, caller: &Caller) -> usize {
        let jobs: usize = self.seen(caller).map(|job| job.bytes(job.hosts_bytes)).sum();
        // Ranks may name a switch each, and the server has one.
        let named = 1 + self.seen(caller).map(|job| job.ranks.len()).sum::<usize>();
        let known = self.switches.len();
        let described = if caller.is_operator() { known } else { known.min(named) };
        jobs + ADDRESS_BYTES * (named + 1) + SWITCH_BYTES * described
    }

    /// Bytes of the answer about progress, at most.
    // spec: E-12
    pub fn statistics_bytes(
        &self,
        caller: &Caller,
        only: Option<JobId>,
        counters: &Counters,
    ) -> usize {
        let bytes = |counters: &[(&'static str, u64)]| -> usize {
            counters.iter().map(|(name, _)| COUNTER_BYTES + name.len()).sum()
        };
        let jobs = self.seen(caller).filter(|job| only.is_none_or(|only| only == job.id));
        let jobs = jobs.map(|job| {
            let counters = counters.jobs.get(&job.id).map_or(0, |counters| bytes(counters));
            job.bytes(0) + counters
        });
        jobs.sum::<usize>() + bytes(&counters.total)
    }

    fn seen<'a>(&'a self, caller: &'a Caller) -> impl Iterator<Item = &'a JobView> {
        self.jobs.iter().filter(|job| caller.sees(&job.name))
    }

    fn places(&self, job: &JobView) -> v1::JobPlaces {
        let place = |rank: &RankView| v1::RankPlace {
            rank: rank.rank,
            address: self.text(rank.node),
            host: rank.host.clone(),
            switch: rank.switch.map(|switch| self.text(switch)),
            connected: rank.is_connected,
        };
        v1::JobPlaces {
            name: job.name.clone(),
            job: job.id.0,
            workers: job.workers,
            ranks: job.ranks.iter().map(place).collect(),
            switches_left_out: job.left_out.iter().map(|switch| self.text(*switch)).collect(),
        }
    }

    fn description(&self, (switch, limits): &(NodeId, SwitchLimits)) -> v1::SwitchDescription {
        v1::SwitchDescription {
            address: self.text(*switch),
            aggregators: limits.aggregators,
            fragment_values: limits.fragment_values.into(),
            formats: limits.formats.bits().into(),
            cores: limits.cores.into(),
        }
    }

    fn text(&self, node: NodeId) -> String {
        self.cluster.address(node).to_string()
    }
}

fn named(counters: &[(&'static str, u64)]) -> Vec<v1::Counter> {
    let counter = |(name, value): &(&str, u64)| v1::Counter { name: (*name).into(), value: *value };
    counters.iter().map(counter).collect()
}

/// Progress of a rank, in the tree in which it has not moved for longest.
fn progress(now: Time, rank: u32, attendee: &Attendee) -> v1::RankProgress {
    let all = attendee.progress.keys().rev().filter_map(|tree| attendee.progress_in(*tree));
    let slowest = all.max_by_key(|(_, progress)| progress.since);
    let (at, last) = slowest.unwrap_or((now, Default::default()));
    v1::RankProgress {
        rank,
        operation: last.operation,
        fragment: last.fragment,
        since_ms: milliseconds(last.since + now.since(at)),
        heard_ms: milliseconds(now.since(attendee.heard)),
    }
}
