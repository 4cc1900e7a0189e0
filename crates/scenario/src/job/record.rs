//! Results of one job of a run.

use thalweg_aggregate::server;
use thalweg_core::{NodeId, Span, Time};

use super::Collective;
use super::stats::WorkerStats;

/// Results of one job of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobRecord {
    /// Kind of the job.
    pub kind: JobKind,
    /// Name of the trained model, or `all-reduce`.
    pub model: String,
    /// Collective that summed the tensors.
    pub collective: Collective,
    /// Number of hosts that had tensors.
    pub workers: usize,
    /// Computing time of a worker in every iteration.
    pub compute: Span,
    /// When it was to start.
    pub start: Time,
    /// Number of iterations, or rounds, in the scenario.
    pub planned_iterations: u64,
    /// Duration of each completed iteration: from the first worker's start until the last worker had all sums. A worker
    /// starts its next one when it has its own sums, so they may overlap.
    pub iterations: Vec<Span>,
    /// When sums came, by rank, in order of time.
    pub sums_at: Vec<Vec<Time>>,
    /// Bytes of tensors whose sums came, by rank.
    pub summed_bytes: Vec<u64>,
    /// Counters of the workers, by rank. Of a collective without switches and with servers, also the
    /// servers that are no workers, after the workers.
    pub stats: Vec<WorkerStats>,
    /// Counters of its servers of in-network aggregation.
    pub servers: Vec<ServerUse>,
    /// Why it ended early, if it did.
    pub failure: Option<String>,
}

/// Kind of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobKind {
    /// Iterations that compute and exchange gradients.
    Training,
    /// Tensors one after the other, and nothing else.
    AllReduce,
}

impl JobKind {
    /// Name in files.
    pub const fn name(self) -> &'static str {
        match self {
            JobKind::Training => "training",
            JobKind::AllReduce => "all-reduce",
        }
    }
}

/// A server of in-network aggregation and what it counted for one job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerUse {
    /// The host.
    pub host: NodeId,
    /// Counters of the server.
    pub stats: server::Stats,
}

impl JobRecord {
    /// Bytes of sums that a worker received in a second, averaged over the workers: from the start of
    /// the job until the last sum. `None` before any came.
    pub fn goodput_bytes_per_s(&self) -> Option<f64> {
        let last = self.sums_at.iter().filter_map(|times| times.last()).max()?;
        let seconds = last.since(self.start).as_s_f64();
        let bytes: u64 = self.summed_bytes.iter().sum();
        (seconds > 0.0).then(|| bytes as f64 / self.workers as f64 / seconds)
    }

    /// Sum of the counters of all hosts.
    pub fn total(&self) -> WorkerStats {
        let mut sum = WorkerStats::default();
        self.stats.iter().for_each(|one| sum += one);
        sum
    }
}
