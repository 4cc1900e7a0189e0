//! What the service needs of the process around it.

use std::sync::Arc;

use thalweg_aggregate::Setup;
use thalweg_core::{JobId, NodeId};

/// The data plane of a parameter server.
///
/// Called from the service's thread, which serves all jobs meanwhile: hand things over, do not wait.
pub trait DataPlane: Send + Sync {
    /// The server takes on a job, or a new epoch of one. Its leaders are told afterwards.
    fn adopt(&self, setup: Arc<Setup>);

    /// The server forgets a job.
    fn retire(&self, job: JobId);

    /// Says who has not contributed to a fragment, at once or later, from any thread.
    fn missing(&self, job: JobId, sequence: u64, answer: MissingAnswer);

    /// Asks a switch for its limits. Its answer goes to
    /// [`Reporter::switch_answered`](crate::Reporter::switch_answered).
    fn probe(&self, switch: NodeId);

    /// What was counted, for a job or for none in particular.
    fn counters(&self, job: Option<JobId>) -> Vec<(String, u64)>;
}

/// Takes the answer. Dropping it means that there is none.
pub type MissingAnswer = Box<dyn FnOnce(Missing) + Send>;

/// What a server knows of a fragment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Missing {
    /// These have not contributed: the ranks of the set-up's trees, which are seats here.
    Seats(Vec<u32>),
    /// Nobody: the result was sent.
    Complete,
    /// Nothing of it has come.
    Unknown,
}
