//! The laws of a server's accounts.

use thalweg_core::Check;

use super::Server;
use super::job::{Job, Shard};
use super::judge::State;
use super::positions;
use super::queue::{Queue, Task};
use super::slot::{Slot, Values};

// spec: T-12
impl Check for Server {
    fn check(&self) {
        let most = self.config.jobs_max as usize;
        assert!(self.jobs.len() <= most, "the number of jobs is bounded");
        let reserved: u64 = self.jobs.values().map(|job| job.memory_bytes).sum();
        assert_eq!(self.reserved_bytes, reserved, "what is reserved is that of the jobs");
        assert!(reserved <= self.config.memory_bytes, "the memory of all jobs is bounded");
        let tasks: usize = self.jobs.values().map(Job::tasks_max).sum();
        assert_eq!(self.tasks_max, tasks, "the queue has room for all jobs");
        assert!(self.queue.longest() <= tasks, "{} tasks wait", self.queue.longest());
        self.jobs.values().for_each(|job| job.check(&self.queue));
    }
}

impl Job {
    /// Looks at every fragment. Panics where a sum counts other workers than those in its set, where a
    /// fragment is outside of the window, and where something to send was forgotten.
    fn check(&self, queue: &Queue) {
        self.loss_budget.check(self.job_watermark, self.setup.trees[0].workers());
        for (at, shard) in self.shards.iter().enumerate() {
            let Some(shard) = shard else { continue };
            let workers = self.setup.trees[at].workers();
            for (place, slot, taken) in shard.ring.iter() {
                slot.check(workers, taken);
                if slot.state != State::Empty {
                    self.check_place(at, shard, place, slot);
                }
                self.check_queued(slot, queue);
            }
            for (group, known) in shard.groups.iter().enumerate() {
                let task = Task::Announce(at as u32, group as u32);
                let is_queued = || queue.has(self.setup.job, task);
                assert!(!known.is_queued || is_queued(), "an announcement is due and has no task");
            }
        }
    }

    fn check_place(&self, at: usize, shard: &Shard, place: usize, slot: &Slot) {
        let sequence = slot.sequence;
        let ahead = sequence.checked_sub(self.job_watermark);
        let is_near = ahead.is_some_and(|ahead| ahead < self.window);
        assert!(
            is_near,
            "fragment {sequence} is outside of the window from {}",
            self.job_watermark
        );
        let index = sequence / self.setup.trees.len() as u64;
        let own = index as usize & (shard.ring.len() - 1);
        assert_eq!(
            (self.setup.shard(sequence), own),
            (at, place),
            "fragment {sequence} is in its place"
        );
    }

    /// Panics where something is noted to be sent and has no task.
    fn check_queued(&self, slot: &Slot, queue: &Queue) {
        let has = |task| queue.has(self.setup.job, task);
        let (sequence, outgoing) = (slot.sequence, &slot.outgoing);
        let is_sent = outgoing.tell.is_none() || has(Task::Tell(sequence));
        assert!(is_sent, "fragment {sequence} waits to be sent to all and has no task");
        let is_answered = outgoing.answer.is_none() || has(Task::Answer(sequence));
        assert!(is_answered, "fragment {sequence} waits for its answer and has no task");
        let is_asked = outgoing.ask.is_none() || has(Task::Ask(sequence));
        assert!(is_asked, "fragment {sequence} waits for its query and has no task");
    }
}

impl Slot {
    fn check(&self, workers: u32, taken: &[u64]) {
        let all: u32 = taken.iter().map(|word| word.count_ones()).sum();
        assert_eq!(self.contributors, all, "as many workers are counted as are in the set");
        assert_eq!(all, positions::count(taken, 0..workers), "only workers are in the set");
        match self.state {
            State::Empty => {
                assert_eq!(self.contributors, 0, "nobody is in an empty sum");
                assert!(matches!(self.body, Values::Length), "an empty sum has no values");
            }
            State::Partial => {
                let is_partial = (1..workers).contains(&self.contributors);
                assert!(is_partial, "{} of {workers} are in a sum that goes on", self.contributors);
            }
            State::Floats => assert!(self.contributors < workers, "a full sum is done"),
            State::Done => {
                assert!(!matches!(self.body, Values::Wide(_)), "a result is rounded");
            }
        }
        let body_bytes = self.body_bytes as usize;
        match &self.body {
            Values::Length => {}
            Values::Real(bytes) => assert_eq!(bytes.len(), body_bytes, "a sum has its values"),
            Values::Wide(bytes) => assert_eq!(bytes.len(), 2 * body_bytes, "a sum has its values"),
        }
    }
}
