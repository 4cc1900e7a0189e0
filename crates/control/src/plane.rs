//! Needs of the service that the process around it meets.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_aggregate::Setup;
use thalweg_aggregate::server::SwitchPath;
use thalweg_core::{JobId, NodeId};

/// The data plane of a parameter server.
///
/// Called from the service's thread, which serves all jobs meanwhile: hand things over, do not wait.
pub trait DataPlane: Send + Sync {
    /// The server takes on a job, or a new epoch of one. The set-up is sent to the leaders afterwards.
    fn adopt(&self, setup: Arc<Setup>);

    /// The server forgets a job.
    fn retire(&self, job: JobId);

    /// Says who has not contributed to a fragment, at once or later, from any thread.
    fn missing(&self, job: JobId, sequence: u64, answer: MissingAnswer);

    /// Asks a switch for its limits. Its answer goes to
    /// [`Reporter::switch_answered`](crate::Reporter::switch_answered).
    fn probe(&self, switch: NodeId);

    /// Asks whether packets of an MTU pass the path to a switch. The answer goes to
    /// [`Reporter::path_answered`](crate::Reporter::path_answered).
    // spec: F-01
    fn probe_path(&self, path: SwitchPath, mtu_bytes: u16);

    /// Counters of all jobs and of the whole server. Called from a thread that may wait.
    fn counters(&self) -> Counters;
}

/// Counters of a data plane, by name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Of the whole server.
    pub total: Vec<(&'static str, u64)>,
    /// Of each job.
    pub jobs: BTreeMap<JobId, Vec<(&'static str, u64)>>,
}

/// Takes the answer. Dropping it means that there is no answer.
pub type MissingAnswer = Box<dyn FnOnce(Missing) + Send>;

/// Knowledge of a server about a fragment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Missing {
    /// These have not contributed: the ranks of the set-up's trees, which are seats here.
    Seats(Vec<u32>),
    /// Nobody: the result was sent.
    Complete,
    /// Nothing of it has come.
    Unknown,
}
