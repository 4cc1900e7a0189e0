//! State of daemons and jobs as it is shown: made from two readings of each daemon.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Instant, SystemTime};

use serde::Serialize;

use super::fetch::Answer;
use thalweg::metrics::Sample;

/// Metrics of a daemon at one moment.
pub(super) struct Reading {
    at: Instant,
    role: String,
    /// Address of its data path.
    endpoint: String,
    samples: Vec<Sample>,
}

/// A daemon that is asked again and again.
pub(super) struct Watched {
    address: String,
    before: Option<Reading>,
    last: Option<Reading>,
    silent: Option<(SystemTime, String)>,
}

/// Tables to show.
#[derive(Serialize, Debug, PartialEq)]
pub(super) struct Picture {
    pub daemons: Vec<DaemonRow>,
    pub jobs: Vec<JobRow>,
}

/// A daemon. Rates are `None` until it has answered twice.
#[derive(Serialize, Debug, PartialEq, Default)]
pub(super) struct DaemonRow {
    /// Address of its metrics.
    pub metrics: String,
    pub role: Option<String>,
    /// Address of its data path.
    pub address: Option<String>,
    pub packets_received: Option<u64>,
    pub packets_per_s: Option<f64>,
    pub aggregations_per_s: Option<f64>,
    pub collisions_per_s: Option<f64>,
    pub drops_per_s: Option<f64>,
    /// Of switches only.
    pub aggregators: Option<u64>,
    pub aggregators_occupied: Option<u64>,
    /// Of servers only: memory that is reserved for jobs, and that jobs may take.
    pub memory_reserved_bytes: Option<u64>,
    pub memory_budget_bytes: Option<u64>,
    /// Of servers only: jobs that did not fit the budgets.
    pub jobs_refused: Option<u64>,
    /// Since when it does not answer, in UTC.
    pub silent_since: Option<String>,
    pub error: Option<String>,
}

/// A job, over all daemons.
#[derive(Serialize, Debug, PartialEq, Default)]
pub(super) struct JobRow {
    pub job: String,
    /// Known to servers.
    pub name: Option<String>,
    pub ranks: Option<u64>,
    pub ranks_connected: Option<u64>,
    /// Number of aggregators that it holds.
    pub aggregators: u64,
    /// Of all aggregators.
    pub share: f64,
    /// Memory that is reserved for it at servers.
    pub memory_reserved_bytes: Option<u64>,
    pub gradients_per_s: Option<f64>,
    pub completed_per_s: Option<f64>,
    pub collisions_per_s: Option<f64>,
    pub parameters_again_per_s: Option<f64>,
}

impl Picture {
    /// Tables of these daemons. Those that do not answer count for nothing.
    pub fn of(watched: &[Watched]) -> Picture {
        let answering: Vec<&Watched> = watched.iter().filter(|w| w.silent.is_none()).collect();
        let ids = answering.iter().filter_map(|watched| watched.last.as_ref()).flat_map(|last| {
            let jobs = ["thalweg_aggregators_occupied", "thalweg_server_job_info"];
            jobs.into_iter().flat_map(|name| last.labels(name, "job"))
        });
        let ids: BTreeSet<String> = ids.collect();
        Picture {
            daemons: watched.iter().map(DaemonRow::of).collect(),
            jobs: ids.into_iter().map(|job| JobRow::of(job, &answering)).collect(),
        }
    }

    /// Packets a second that all daemons receive.
    pub fn packets_per_s(&self) -> f64 {
        self.daemons.iter().filter_map(|daemon| daemon.packets_per_s).sum()
    }
}

impl DaemonRow {
    fn of(watched: &Watched) -> DaemonRow {
        let row = DaemonRow {
            metrics: watched.address.clone(),
            role: watched.last.as_ref().map(|last| last.role.clone()),
            address: watched.last.as_ref().map(|last| last.endpoint.clone()),
            ..DaemonRow::default()
        };
        let last = match (&watched.silent, &watched.last) {
            (None, Some(last)) => last,
            (None, None) => return row,
            (Some((since, error)), _) => {
                let since = humantime::format_rfc3339_seconds(*since).to_string();
                return DaemonRow { silent_since: Some(since), error: Some(error.clone()), ..row };
            }
        };
        let rate = |name: &str| watched.rate(&format!("thalweg_{}_{name}_total", last.role), None);
        let count = |name: &str| last.sum(name, None).map(|sum| sum as u64);
        let aggregations = if last.role == "switch" {
            rate("aggregations_taken").zip(rate("aggregations_added")).map(|(a, b)| a + b)
        } else {
            rate("added")
        };
        DaemonRow {
            packets_received: count(&format!("thalweg_{}_packets_received_total", last.role)),
            packets_per_s: rate("packets_received"),
            aggregations_per_s: aggregations,
            collisions_per_s: rate("collisions"),
            drops_per_s: rate("drops"),
            aggregators: count("thalweg_switch_aggregators"),
            aggregators_occupied: count("thalweg_switch_aggregators_occupied"),
            memory_reserved_bytes: count("thalweg_server_memory_reserved_bytes"),
            memory_budget_bytes: count("thalweg_server_memory_budget_bytes"),
            jobs_refused: count("thalweg_server_jobs_refused_total"),
            ..row
        }
    }
}

impl JobRow {
    fn of(job: String, daemons: &[&Watched]) -> JobRow {
        let sum = |name: &str, job: Option<&str>| {
            let values = daemons.iter().filter_map(|daemon| daemon.last.as_ref()?.sum(name, job));
            values.reduce(|a, b| a + b)
        };
        let rate = |name: &str| {
            let name = format!("thalweg_server_{name}_total");
            let rates = daemons.iter().filter_map(|daemon| daemon.rate(&name, Some(&job)));
            rates.reduce(|a, b| a + b)
        };
        let readings = || daemons.iter().filter_map(|daemon| daemon.last.as_ref());
        let held = sum("thalweg_aggregators_occupied", Some(&job)).unwrap_or(0.0);
        let connected = sum("thalweg_server_job_ranks_connected", Some(&job));
        let all = sum("thalweg_switch_aggregators", None).unwrap_or(0.0);
        JobRow {
            name: readings().find_map(|reading| reading.name_of(&job)),
            ranks: sum("thalweg_server_job_ranks", Some(&job)).map(|ranks| ranks as u64),
            ranks_connected: connected.map(|ranks| ranks as u64),
            aggregators: held as u64,
            share: if all > 0.0 { held / all } else { 0.0 },
            memory_reserved_bytes: sum("thalweg_server_job_memory_reserved_bytes", Some(&job))
                .map(|bytes| bytes as u64),
            gradients_per_s: rate("gradients"),
            completed_per_s: rate("completed"),
            collisions_per_s: rate("collisions"),
            parameters_again_per_s: rate("parameters_again"),
            job,
        }
    }
}

impl Watched {
    /// A daemon that was not asked yet.
    pub fn new(address: &str) -> Watched {
        Watched { address: address.to_owned(), before: None, last: None, silent: None }
    }

    /// Notes what came of asking it.
    pub fn note(&mut self, answer: Answer) {
        match answer.result {
            Ok(reading) => {
                self.silent = None;
                self.before = self.last.replace(reading);
            }
            Err(text) => {
                let since = self.silent.take().map_or(answer.at, |(since, _)| since);
                self.silent = Some((since, text));
            }
        }
    }

    /// Error of a daemon that does not answer.
    pub fn trouble(&self) -> Option<String> {
        let (_, text) = self.silent.as_ref()?;
        Some(format!("{} does not answer: {text}", self.address))
    }

    /// Growth of counters per second, all of a family or those of a job. A counter that fell was started again.
    fn rate(&self, name: &str, job: Option<&str>) -> Option<f64> {
        let (before, last) = (self.before.as_ref()?, self.last.as_ref()?);
        let seconds = last.at.saturating_duration_since(before.at).as_secs_f64();
        let old: BTreeMap<_, f64> =
            before.of(name, job).map(|sample| (&sample.labels, sample.value)).collect();
        let growth = last.of(name, job).map(|sample| {
            let old = old.get(&sample.labels).copied().unwrap_or(0.0);
            if sample.value >= old { sample.value - old } else { sample.value }
        });
        (seconds > 0.0).then(|| growth.sum::<f64>() / seconds)
    }
}

impl Reading {
    /// Reading of a daemon's metrics; `None` if the samples are of another program.
    pub fn new(at: Instant, samples: Vec<Sample>) -> Option<Reading> {
        let info = samples.iter().find(|sample| sample.name == "thalweg_build_info")?;
        let label = |name: &str| info.labels.get(name).cloned();
        Some(Reading { at, role: label("role")?, endpoint: label("address")?, samples })
    }

    /// The samples of a family, all of them or those of a job.
    fn of(&self, name: &str, job: Option<&str>) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(move |sample| {
            let is_of = |job| sample.labels.get("job").is_some_and(|label| label == job);
            sample.name == name && job.is_none_or(is_of)
        })
    }

    /// Their sum, if there are any.
    fn sum(&self, name: &str, job: Option<&str>) -> Option<f64> {
        self.of(name, job).map(|sample| sample.value).reduce(|a, b| a + b)
    }

    fn labels(&self, name: &str, label: &str) -> impl Iterator<Item = String> {
        self.of(name, None).filter_map(move |sample| sample.labels.get(label).cloned())
    }

    fn name_of(&self, job: &str) -> Option<String> {
        self.of("thalweg_server_job_info", Some(job)).find_map(|s| s.labels.get("name").cloned())
    }
}

#[cfg(test)]
pub(super) mod tests;
