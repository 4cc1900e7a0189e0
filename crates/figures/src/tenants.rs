//! Jobs that share the aggregators of one switch, and nothing else.
//!
//! Every job has hosts of its own: its workers, then its server. Jobs with a fixed share of the
//! aggregators therefore meet nowhere, and one of them, alone with its share, stands for all.

mod phases;
mod sharers;

use serde::Deserialize;
use thalweg_core::{NodeId, Span};
use thalweg_scenario::{JobRecord, Run};
use toml::{Table, Value};

use crate::file::{changed, entries, one, table};
use crate::runs::{self, run_stepwise};
use crate::simulated::files;
use crate::{FigureError, Point};
pub(crate) use sharers::Sharers;

/// Hosts at the switch, and settings that the switch and the jobs have in common.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Tenants {
    workers_a_job: u32,
    worker_cable: Table,
    server_cable: Table,
    /// The tables `switch` and `aggregation` of the scenario, apart from what is varied.
    switch: Table,
    aggregation: Table,
}

/// Allocation of aggregators to jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Sharing {
    /// A fixed share, one aggregator for each packet in flight; sums go through the server.
    Static,
    /// The same share of the memory as SwitchML uses it: slots of two versions, no server.
    SwitchMl,
    /// Whatever is free, found by hashing; losses and stalls as in the paper.
    Dynamic,
    /// The same with selective repair.
    Selective,
    /// Whatever is free, one index after the other, which are the same for all jobs.
    Linear,
}

/// Number of aggregators, and evenness of the workers.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Room {
    /// Number of jobs that share them.
    jobs: u32,
    /// In the whole switch.
    aggregators: u32,
    /// Most aggregators that a job can use at once, where it takes what is free.
    most_a_job: u32,
    /// Every packet is late by a random time up to this, so that workers are not in step.
    unevenness: Option<String>,
}

/// Counters of every job in an interval.
type Interval = Vec<Merges>;

/// Additions of two partial sums of a fragment, by where they were made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Merges {
    at_switch: u64,
    at_server: u64,
}

/// Results of a run.
struct Shared {
    jobs: Vec<JobRecord>,
    intervals: Vec<Interval>,
}

impl Merges {
    /// Growth since another count. Fragments that are not complete move from one place to the other.
    fn since(self, before: Merges) -> Merges {
        Merges {
            at_switch: self.at_switch.saturating_sub(before.at_switch),
            at_server: self.at_server.saturating_sub(before.at_server),
        }
    }
}

impl Sharing {
    /// True if jobs do not notice each other.
    fn is_fixed(self) -> bool {
        matches!(self, Sharing::Static | Sharing::SwitchMl)
    }

    fn has_server(self) -> bool {
        self != Sharing::SwitchMl
    }

    /// Number of jobs that are run in place of `jobs`.
    fn jobs_run(self, jobs: u32) -> u32 {
        if self.is_fixed() { 1 } else { jobs }
    }

    /// Settings that it adds to the table of aggregation.
    fn settings(self, room: &Room, packet_bytes: u32) -> Table {
        let share = (room.aggregators / room.jobs).max(1);
        let recovery = if self == Sharing::Selective { "selective" } else { "paper" };
        let recovery = ("recovery", recovery.into());
        match self {
            Sharing::Static => entries([
                recovery,
                ("aggregators", share.into()),
                ("span-fragments", share.into()),
                ("indexing", "linear".into()),
                // The window is the share.
                ("window", format!("{}B", share * packet_bytes).into()),
            ]),
            Sharing::SwitchMl => {
                // A slot has memory for two sums.
                let slots = (share / 2).max(1);
                entries([recovery, ("aggregators", slots.into()), ("slots", slots.into())])
            }
            Sharing::Dynamic | Sharing::Selective | Sharing::Linear => {
                let indexing = if self == Sharing::Linear { "linear" } else { "hashed" };
                entries([
                    recovery,
                    ("indexing", indexing.into()),
                    ("aggregators", room.aggregators.into()),
                    ("span-fragments", room.most_a_job.into()),
                ])
            }
        }
    }
}

impl Tenants {
    /// Runs `jobs` jobs to their end, and counts in every interval. `job` makes the traffic of one from its number: the
    /// kind, and its table without the hosts.
    fn run(
        &self,
        sharing: Sharing,
        room: &Room,
        job: impl Fn(u32) -> (&'static str, Table),
        interval: Span,
        point: &Point<'_>,
    ) -> Result<Shared, FigureError> {
        let jobs = sharing.jobs_run(room.jobs);
        let traffic = (0..jobs).map(|number| {
            let (kind, mut table) = job(number);
            table.extend(self.members(sharing, number));
            one(kind, table)
        });
        let own = sharing.settings(room, self.packet_bytes());
        let file = entries([
            ("title", format!("{}, {sharing:?}", point.context.figure.name()).into()),
            ("topology", self.topology(jobs)),
            ("switch", self.switch.clone().into()),
            ("aggregation", changed(&self.aggregation, own).into()),
            ("traffic", Value::Array(traffic.collect())),
            ("faults", Value::Array(room.unevenness.iter().map(|up_to| jitter(up_to)).collect())),
        ]);
        let scenario = runs::scenario(point, file, &files::load)?;
        let mut intervals = Vec::new();
        let mut before = vec![Merges::default(); jobs as usize];
        let outcome = run_stepwise(&scenario, interval, point, None, |run, _| {
            let now = self.merges(run, jobs);
            intervals.push(now.iter().zip(&before).map(|(now, then)| now.since(*then)).collect());
            before = now;
        })?;
        Ok(Shared { jobs: outcome.jobs, intervals })
    }

    /// Additions so far, by where they were made. A fragment takes one addition less than it has workers; what the
    /// server did not make, the switch did.
    fn merges(&self, run: &Run<'_>, jobs: u32) -> Interval {
        let of_job = |job: u32| {
            // A job that did not begin has no server yet.
            let Some(stats) = run.server_stats(self.server(job), job as usize) else {
                return Merges::default();
            };
            let all = stats.completed * u64::from(self.workers_a_job - 1);
            let at_server = stats.added.saturating_sub(stats.completed);
            Merges { at_switch: all.saturating_sub(at_server), at_server }
        };
        (0..jobs).map(of_job).collect()
    }

    fn server(&self, job: u32) -> NodeId {
        NodeId(job * (self.workers_a_job + 1) + self.workers_a_job)
    }

    fn members(&self, sharing: Sharing, job: u32) -> Table {
        let server = self.server(job).0;
        let workers: Vec<Value> = (server - self.workers_a_job..server).map(Value::from).collect();
        let collective = if sharing == Sharing::SwitchMl { "switchml" } else { "aggregate" };
        let mut table = entries([("workers", workers.into()), ("collective", collective.into())]);
        if sharing.has_server() {
            table.insert("server".to_owned(), server.into());
        }
        table
    }

    fn topology(&self, jobs: u32) -> Value {
        let (mut hosts, mut cables) = (Vec::new(), Vec::new());
        for host in 0..jobs * (self.workers_a_job + 1) {
            let is_server = host % (self.workers_a_job + 1) == self.workers_a_job;
            let name = format!("host {host}");
            let mut cable = if is_server { &self.server_cable } else { &self.worker_cable }.clone();
            let ends = vec![Value::from(name.as_str()), SWITCH.into()];
            cable.insert("ends".to_owned(), Value::Array(ends));
            hosts.push(Value::from(name));
            cables.push(Value::Table(cable));
        }
        let switches = vec![Value::from(SWITCH)].into();
        let list = [("hosts", hosts.into()), ("switches", switches), ("cables", cables.into())];
        one("list", table(list))
    }

    /// Bytes that a full packet occupies of a link.
    fn packet_bytes(&self) -> u32 {
        let number = |key: &str| self.aggregation.get(key).and_then(Value::as_integer).unwrap_or(0);
        (number("fragment-values") * 4 + number("overhead-bytes")) as u32
    }
}

fn jitter(up_to: &str) -> Value {
    one("jitter", table([("on", "host-cables".into()), ("up-to", up_to.into())]))
}

const SWITCH: &str = "switch";

/// The fewest aggregators of one job, in steps of `step`, with which `measure` gives all but a
/// hundredth of what it gives with `most`. It must not fall when there are more.
fn fewest(
    step: u32,
    most: u32,
    mut measure: impl FnMut(u32) -> Result<f64, FigureError>,
) -> Result<u32, FigureError> {
    let enough = 0.99 * measure(most)?;
    // In steps: too few, and enough.
    let (mut few, mut many) = (0, most / step);
    while many - few > 1 {
        let middle = few + (many - few) / 2;
        if measure(middle * step)? >= enough {
            many = middle;
        } else {
            few = middle;
        }
    }
    Ok(many * step)
}

/// Arrivals in a second, averaged over jobs, given when each one came: after the first `warm_up` of a job, and until
/// the first job had its last. A job that is so slow that nothing is left has its next one counted. `None` if a job has
/// none.
fn steady_rate(jobs: &[Vec<f64>], warm_up: usize) -> Option<f64> {
    let ends: Option<Vec<f64>> = jobs.iter().map(|times| times.last().copied()).collect();
    let until = ends?.into_iter().fold(f64::MAX, f64::min);
    let rate = |times: &Vec<f64>| {
        let warm = times.get(warm_up..)?;
        let count = warm.partition_point(|&time| time <= until).max(2);
        let (first, last) = (*warm.first()?, *warm.get(count - 1)?);
        (last > first).then(|| (count - 1) as f64 / (last - first))
    };
    let rates: Option<Vec<f64>> = jobs.iter().map(rate).collect();
    rates.map(|rates| rates.iter().sum::<f64>() / rates.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_memory() {
        let room = Room { jobs: 3, aggregators: 990, most_a_job: 500, unevenness: None };
        let number = |sharing: Sharing, key: &str| {
            sharing.settings(&room, 306).get(key).and_then(Value::as_integer)
        };
        assert_eq!(number(Sharing::Static, "aggregators"), Some(330));
        assert_eq!(number(Sharing::Static, "span-fragments"), Some(330));
        let window = Sharing::Static.settings(&room, 306)["window"].clone();
        assert_eq!(window.as_str(), Some("100980B"));
        assert_eq!(number(Sharing::SwitchMl, "slots"), Some(165));
        assert_eq!(number(Sharing::Dynamic, "aggregators"), Some(990));
        assert_eq!(number(Sharing::Linear, "span-fragments"), Some(500));
        let jobs =
            [Sharing::Static, Sharing::SwitchMl, Sharing::Dynamic].map(|one| one.jobs_run(3));
        assert_eq!(jobs, [1, 1, 3]);
    }

    #[test]
    fn the_fewest_that_are_enough_are_found() {
        let mut tried = Vec::new();
        let found = fewest(20, 1_000, |aggregators| {
            tried.push(aggregators);
            Ok(f64::from(aggregators.min(345)))
        });
        // 342 is a hundredth below 345.
        assert_eq!(found.unwrap(), 360);
        assert!(tried.len() <= 8, "{tried:?}");
        assert_eq!(fewest(10, 40, |aggregators| Ok(f64::from(aggregators))).unwrap(), 40);
    }

    #[test]
    fn rates_are_of_the_time_in_which_all_jobs_are_at_it() {
        let every = |gap: u32| (1..=10).map(|time| f64::from(time * gap)).collect::<Vec<f64>>();
        // After 3 and 6, until 10, the last of the faster one.
        assert_eq!(steady_rate(&[every(1), every(2)], 2), Some(0.75));
        assert_eq!(steady_rate(&[every(1)], 0), Some(1.0));
        assert_eq!(steady_rate(&[every(1), every(8)], 2), Some(0.5625));
        assert_eq!(steady_rate(&[every(1)], 9), None);
        assert_eq!(steady_rate(&[every(1), Vec::new()], 0), None);
    }
}
