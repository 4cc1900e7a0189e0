//! What the registry tells people.

use std::collections::BTreeSet;

use thalweg_core::{JobId, NodeId, Span, Time};
use thalweg_wire::aggregate::SwitchLimits;

use super::Registry;
use super::job::{Attendee, Job};
use crate::clock::milliseconds;
use crate::settings::Settings;
use crate::v1;

/// A job, in a few words.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct JobSummary {
    /// Its number, which packets carry.
    pub id: JobId,
    /// Its name, which people gave it.
    pub name: String,
    /// How many ranks it has.
    pub ranks: u32,
    /// How many of them are connected.
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

impl Registry {
    /// The jobs that there are.
    pub fn summaries(&self) -> Vec<JobSummary> {
        let connected = |job: &Job| job.ranks.values().filter(|rank| rank.link.is_some()).count();
        let jobs = self.jobs.values().map(|job| JobSummary {
            id: job.id,
            name: job.name.clone(),
            ranks: job.workers,
            connected: connected(job) as u32,
            switches_left_out: job.plan.left_out().count() as u32,
        });
        jobs.collect()
    }

    /// Silence of a kernel that means death in a job. The default for a job that there is not.
    pub fn failure_after(&self, job: JobId) -> Span {
        let default = Settings::default().failure_after;
        self.jobs.get(&job).map_or(default, |job| job.settings.failure_after)
    }

    /// Who is there, and where.
    pub fn topology(&self) -> v1::TopologyResponse {
        let ranks = self.jobs.values().flat_map(|job| job.ranks.values());
        let told = ranks.filter_map(|attendee| attendee.switch);
        let switches: BTreeSet<NodeId> = told.chain(self.cluster.switch).collect();
        v1::TopologyResponse {
            servers: vec![self.text(self.cluster.server)],
            switches: switches.into_iter().map(|switch| self.text(switch)).collect(),
            jobs: self.jobs.values().map(|job| self.places(job)).collect(),
            descriptions: self.switches.described().map(|one| self.description(one)).collect(),
        }
    }

    /// How far one job is, or all of them. Counters are for the caller to add.
    pub fn statistics(&self, now: Time, only: Option<JobId>) -> Vec<v1::JobStatistics> {
        let jobs = self.jobs.values().filter(|job| only.is_none_or(|only| only == job.id));
        jobs.map(|job| v1::JobStatistics {
            name: job.name.clone(),
            job: job.id.0,
            epoch: self.registrar.setup(job.id).map_or(0, |setup| setup.epoch),
            ranks: job.ranks.iter().map(|(rank, who)| progress(now, *rank, who)).collect(),
            counters: Vec::new(),
        })
        .collect()
    }

    fn places(&self, job: &Job) -> v1::JobPlaces {
        let place = |(&rank, attendee): (&u32, &Attendee)| v1::RankPlace {
            rank,
            address: self.text(attendee.process.node),
            host: attendee.host.clone(),
            switch: attendee.switch.map(|switch| self.text(switch)),
            connected: attendee.link.is_some(),
        };
        v1::JobPlaces {
            name: job.name.clone(),
            job: job.id.0,
            workers: job.workers,
            ranks: job.ranks.iter().map(place).collect(),
            switches_left_out: job.plan.left_out().map(|switch| self.text(switch)).collect(),
        }
    }

    fn description(&self, (switch, limits): (NodeId, SwitchLimits)) -> v1::SwitchDescription {
        v1::SwitchDescription {
            address: self.text(switch),
            aggregators: limits.aggregators,
            fragment_values: limits.fragment_values.into(),
            formats: limits.formats.bits().into(),
        }
    }

    fn text(&self, node: NodeId) -> String {
        self.cluster.address(node).to_string()
    }
}

fn progress(now: Time, rank: u32, attendee: &Attendee) -> v1::RankProgress {
    let (at, last) = attendee.progress.unwrap_or((now, Default::default()));
    v1::RankProgress {
        rank,
        operation: last.operation,
        fragment: last.fragment,
        since_ms: milliseconds(last.since + now.since(at)),
        heard_ms: milliseconds(now.since(attendee.heard)),
    }
}
