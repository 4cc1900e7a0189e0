//! Ends of jobs before their time.

use std::sync::Arc;

use thalweg_core::text::is_harmful;
use thalweg_core::{JobId, Time};

use super::cluster::Cluster;
use super::job::{Attendee, Job};
use super::{NAMED_MAX, Registry, explain};
use crate::message::{Failure, FailureKind, REASON_CHARS_MAX, ToRank, job_of};

impl Registry {
    /// Fails a job for a reason from outside. It is named by the id of any of its trees, here and below.
    pub fn fail_job(&mut self, now: Time, job: JobId, text: String) {
        self.fail(now, job_of(job), Failure::new(FailureKind::Other, text, Vec::new()));
    }

    /// Fails a job that does not fit the budgets of the server.
    // spec: E-12
    pub fn refuse_job(&mut self, now: Time, job: JobId, reason: &str) {
        let text = format!("the job is refused: {reason}");
        self.fail(now, job_of(job), Failure::new(FailureKind::Refused, text, Vec::new()));
    }

    pub(super) fn tick_job(&mut self, now: Time, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if job.is_unattended(now) {
            self.note_about(id, "forgotten, nobody came");
            return self.forget(id);
        }
        let is_new = job.stalls.look(now, job.settings.stall_after);
        if let Some(failure) = explain::failure(now, &self.cluster, job) {
            return self.fail(now, id, failure);
        }
        if let Some(missing) = job.waiting(now) {
            let message = ToRank::Waiting { missing };
            self.actions.extend(job.tell_all(&message));
        }
        let is_waiting = job.waits_for_welcome();
        if is_new {
            self.investigate(now, id);
        }
        if is_waiting {
            // A job that is there is welcomed or waits on.
            let _ = self.welcome(now, id, 0);
        }
    }

    /// Ends a job for everybody.
    pub(super) fn fail(&mut self, now: Time, id: JobId, failure: Failure) {
        let Some(job) = self.jobs.get(&id) else { return };
        self.note(format!("job {:?}: failed: {}", job.name, failure.text));
        let failure = Arc::new(failure);
        let Some(job) = self.jobs.get(&id) else { return };
        self.actions.extend(job.tell_all(&ToRank::Failed(Arc::clone(&failure))));
        let (name, owner) = (job.name.clone(), job.owner);
        self.forget(id);
        self.ended.fail(now, (owner, id), name, failure);
    }
}

/// The failure that a rank reports. One that names others is theirs. Ranks meet again after one of a path, so it is of that
/// kind only while all of them are there.
// spec: F-01
pub(super) fn reported(cluster: &Cluster, job: &Job, rank: u32, failure: &Failure) -> Failure {
    let (name, text) = (explain::name_of(cluster, job, rank), printable(&failure.text));
    let mut culprits = failure.culprits.clone();
    culprits.retain(|culprit| *culprit < job.workers);
    culprits.sort_unstable();
    culprits.dedup();
    // A failure is kept for those who come late, and a message has room for more than it may take.
    // spec: E-12
    culprits.truncate(NAMED_MAX);
    culprits.shrink_to_fit();
    if failure.kind == FailureKind::Path {
        let has_left = job.ranks.values().any(Attendee::has_left);
        let kind = if has_left { FailureKind::Other } else { FailureKind::Path };
        return Failure::new(kind, format!("{text} (reported by {name})"), culprits);
    }
    if culprits.is_empty() || culprits == [rank] {
        return Failure::new(failure.kind, format!("{name} gives up: {text}"), vec![rank]);
    }
    Failure::new(failure.kind, format!("{text} (reported by {name})"), culprits)
}

/// The failure of a job that the application of a rank ends.
// spec: E-03
pub(super) fn aborted(rank: u32, reason: &str) -> Failure {
    let reason = printable(reason);
    let reason = if reason.is_empty() { reason } else { format!(": {reason}") };
    Failure::new(FailureKind::Aborted, format!("aborted by rank {rank}{reason}"), vec![rank])
}

/// The failure of a job that all ranks have lost, and that others register again.
pub(super) fn restarted(job: &Job) -> Failure {
    let text = format!(
        "all ranks of job {:?} lost their control connections, and the job was registered again by other processes",
        job.name
    );
    Failure::new(FailureKind::Peer, text, Vec::new())
}

/// The failure of a job whose name belongs to another, the members of which have come back.
// spec: E-04
pub(super) fn superseded(name: &str) -> Failure {
    let text = format!(
        "the ranks of another job {name:?} came back after a restart of the server and proved that the name is \
         theirs: start this job under another name"
    );
    Failure::new(FailureKind::Other, text, Vec::new())
}

/// A text from a client, cut and without anything that could harm a terminal.
fn printable(text: &str) -> String {
    let clean = |char: char| if is_harmful(char) { ' ' } else { char };
    text.chars().take(REASON_CHARS_MAX).map(clean).collect()
}
