//! Random choices of a round: hosts of jobs, moments at which they begin, and flows beside them.

use serde::Deserialize;
use thalweg_core::Rng;

use super::Setup;

/// A training job, as the testbed had it.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Job {
    pub(super) name: String,
    pub(super) model: String,
    /// Megabytes that an iteration sums, as published.
    pub(super) megabytes: f64,
    pub(super) workers: usize,
    /// Parameter servers. Without them it is a ring.
    #[serde(default)]
    pub(super) servers: usize,
    pub(super) compute_ms: f64,
    pub(super) iterations: u32,
}

/// Flows that belong to no job: each host sends one every so often, to whomever.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Beside {
    every_ms: f64,
    /// As long as they last if they get their share.
    lasting_ms: [f64; 2],
    /// Of the link.
    share: f64,
    /// End of such flows: later than any run.
    until_ms: f64,
}

/// Hosts of a job, and the moment at which it begins.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Placement {
    pub(super) workers: Vec<u32>,
    pub(super) servers: Vec<u32>,
    pub(super) start_ms: f64,
}

/// Jobs begin within so long, so that nothing depends on their beginning together.
const SPREAD_MS: f64 = 500.0;

impl Setup {
    /// A placement for every job: workers on hosts with accelerators to spare, servers anywhere.
    pub(super) fn placements(&self, rng: &Rng) -> Vec<Placement> {
        let mut rng = rng.stream("seats");
        let mut free = vec![self.network.gpus_per_host; self.network.hosts as usize];
        let placement = |job: &Job| {
            let mut hosts = shuffled(self.network.hosts, &mut rng);
            // Even loads first, as schedulers do; the shuffle decides among equals.
            hosts.sort_by_key(|host| std::cmp::Reverse(free[*host as usize]));
            let workers: Vec<u32> = hosts.into_iter().take(job.workers).collect();
            for &host in &workers {
                free[host as usize] = free[host as usize].saturating_sub(1);
            }
            let servers = shuffled(self.network.hosts, &mut rng).into_iter().take(job.servers);
            Placement { workers, servers: servers.collect(), start_ms: rng.uniform() * SPREAD_MS }
        };
        self.jobs.iter().map(placement).collect()
    }

    /// The flows beside jobs as a table, with divided times.
    pub(super) fn flows_beside(&self, beside: &Beside, gbps: f64, rng: &Rng) -> String {
        let mut rng = rng.stream("beside");
        let bytes_per_ms = gbps * 1e6 / 8.0;
        let mut text = "start_us,src,dst,bytes\n".to_owned();
        for src in 0..self.network.hosts {
            let mut start_ms = rng.uniform() * beside.every_ms;
            while start_ms < beside.until_ms {
                let skip = 1 + rng.below(u64::from(self.network.hosts) - 1) as u32;
                let dst = (src + skip) % self.network.hosts;
                let [least, most] = beside.lasting_ms;
                let lasting_ms = least + rng.uniform() * (most - least);
                let bytes = (lasting_ms * bytes_per_ms * beside.share / self.divisor) as u64;
                let start_us = start_ms * 1e3 / self.divisor;
                text += &format!("{start_us:.3},{src},{dst},{}\n", bytes.max(1));
                start_ms += beside.every_ms;
            }
        }
        text
    }
}

fn shuffled(hosts: u32, rng: &mut Rng) -> Vec<u32> {
    let mut all: Vec<u32> = (0..hosts).collect();
    rng.shuffle(&mut all);
    all
}
