//! Tasks that wait for the interface.

use std::collections::VecDeque;

use thalweg_core::JobId;

/// Something to send, of which every packet is made at the last moment. Slots and groups know
/// themselves whether they wait, so that nothing waits twice and the queue stays bounded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Task {
    /// The result or the repeat of a fragment, to all.
    Tell(u64),
    /// The same, to one worker that asked.
    Answer(u64),
    /// The wish for what is missing of a fragment.
    Ask(u64),
    /// The group of a switch: which tree, and which of its groups.
    Announce(u32, u32),
}

/// Most tasks of a fragment in one of the two queues: one to all and one to a worker, or a question.
pub(super) const FRAGMENT_TASKS: usize = 2;

/// Most bytes of tasks for a fragment: of as many again that are over, in both queues, which double when they grow.
// spec: E-12
pub(super) const FRAGMENT_BYTES: u64 =
    (2 * FRAGMENT_TASKS * 2 * 2 * size_of::<(JobId, Task)>()) as u64;

/// Outcome of sending a packet of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// A packet was sent, another follows.
    More,
    /// Nothing follows.
    Finished,
    /// There was no room.
    NoRoom,
}

/// Tasks in the order in which they came, small packets before sums.
#[derive(Debug, Default)]
pub(super) struct Queue {
    small: VecDeque<(JobId, Task)>,
    sums: VecDeque<(JobId, Task)>,
}

impl Queue {
    pub(super) fn push_small(&mut self, job: JobId, task: Task) {
        self.small.push_back((job, task));
    }

    pub(super) fn push_sum(&mut self, job: JobId, task: Task) {
        self.sums.push_back((job, task));
    }

    pub(super) fn front(&self) -> Option<(JobId, Task)> {
        self.small.front().or(self.sums.front()).copied()
    }

    pub(super) fn pop(&mut self) {
        if self.small.pop_front().is_none() {
            self.sums.pop_front();
        }
    }

    /// Returns whether a task waits.
    pub(super) fn has(&self, job: JobId, task: Task) -> bool {
        self.small.contains(&(job, task)) || self.sums.contains(&(job, task))
    }

    /// Length of the longer of the two queues.
    pub(super) fn longest(&self) -> usize {
        self.small.len().max(self.sums.len())
    }

    /// Drops tasks that are over.
    pub(super) fn retain(&mut self, mut is_pending: impl FnMut(JobId, Task) -> bool) {
        self.small.retain(|(job, task)| is_pending(*job, *task));
        self.sums.retain(|(job, task)| is_pending(*job, *task));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.small.is_empty() && self.sums.is_empty()
    }

    /// Drops the tasks of a job whose slots and groups are about to go.
    pub(super) fn forget(&mut self, job: JobId) {
        self.retain(|of, _| of != job);
        // The memory of a job is another one's when it has ended.
        // spec: E-12
        self.small.shrink_to(2 * self.small.len());
        self.sums.shrink_to(2 * self.sums.len());
    }
}
