//! Learning goes on while traffic does.
//!
//! A [`Learner`] keeps the latest finished flows and says when there is enough new to learn from. The owner trains a
//! [`Model`] where it likes, on a thread of its own or at a moment of simulated time, and puts it into a [`Newest`]. Every
//! [`Reader`] of it takes up the new one between two predictions: it never waits for a lock, never for training, and
//! never frees a large forest.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use thalweg_core::Bytes;

use crate::bounds::Model;
use crate::features::NewFlow;

/// Keeps finished flows to learn from.
// spec: Q-11
#[derive(Clone, Debug)]
pub struct Learner {
    flows: VecDeque<(NewFlow, Bytes)>,
    capacity: usize,
    due_after: usize,
    new: usize,
}

impl Learner {
    /// Learns from at most `capacity` flows, the latest, and is due whenever `due_after` more have
    /// ended. Both are at least 1.
    pub fn new(capacity: usize, due_after: usize) -> Learner {
        let (capacity, due_after) = (capacity.max(1), due_after.max(1));
        Learner { flows: VecDeque::new(), capacity, due_after, new: 0 }
    }

    /// Notes a flow that has ended, as it was described when it began.
    pub fn finished(&mut self, flow: NewFlow, bytes: Bytes) {
        if self.flows.len() == self.capacity {
            self.flows.pop_front();
        }
        self.flows.push_back((flow, bytes));
        self.new += 1;
    }

    /// The flows that it keeps, oldest first.
    pub fn flows(&self) -> impl Iterator<Item = &(NewFlow, Bytes)> {
        self.flows.iter()
    }

    /// Flows to train on, when it is time to: the latest ones, oldest first.
    pub fn take_due(&mut self) -> Option<Vec<(NewFlow, Bytes)>> {
        if self.new < self.due_after {
            return None;
        }
        self.new = 0;
        Some(self.flows.iter().copied().collect())
    }
}

/// The place where a new model replaces the old one.
#[derive(Default, Debug)]
pub struct Newest {
    /// Grows with every model; 0 before the first.
    version: AtomicU64,
    models: Mutex<Models>,
}

#[derive(Default, Debug)]
struct Models {
    current: Option<Arc<Model>>,
    /// Replaced, but somebody may still be reading it. Kept so that the reader does not free it.
    retired: Vec<Arc<Model>>,
}

impl Newest {
    /// A place without a model.
    pub fn new() -> Arc<Newest> {
        Arc::default()
    }

    /// Puts a new model in place. Frees old ones that nobody reads any more.
    // spec: Q-11
    pub fn publish(&self, model: Model) {
        let model = Arc::new(model);
        let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        let replaced = models.current.replace(model);
        models.retired.extend(replaced);
        let is_unread = |model: &mut Arc<Model>| Arc::strong_count(model) == 1;
        let unread: Vec<Arc<Model>> = models.retired.extract_if(.., is_unread).collect();
        self.version.fetch_add(1, Ordering::Release);
        drop(models);
        // Readers are not kept waiting while the memory goes.
        drop(unread);
    }

    /// Somebody who predicts.
    pub fn reader(self: &Arc<Newest>) -> Reader {
        Reader { newest: Arc::clone(self), version: 0, model: None }
    }
}

/// Reads the newest model.
#[derive(Debug)]
pub struct Reader {
    newest: Arc<Newest>,
    version: u64,
    model: Option<Arc<Model>>,
}

impl Reader {
    /// The newest model; the one before it while the newest is being put in place. `None` before the
    /// first. Never waits.
    // spec: Q-11
    pub fn model(&mut self) -> Option<&Model> {
        if self.newest.version.load(Ordering::Acquire) != self.version {
            self.take_up();
        }
        self.model.as_deref()
    }

    fn take_up(&mut self) {
        let models = match self.newest.models.try_lock() {
            Ok(models) => models,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // The next prediction will find it.
            Err(TryLockError::WouldBlock) => return,
        };
        // Under the lock the version belongs to the model.
        self.version = self.newest.version.load(Ordering::Acquire);
        self.model.clone_from(&models.current);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::Options;
    use crate::bounds::tests::{flow, flows, model};
    use crate::forest::Scratch;

    fn numbered(seed: u64) -> Model {
        model(20, seed, Options::default())
    }

    // spec: Q-11 machine
    #[test]
    fn finished_flows_are_learned_from_when_there_are_enough() {
        let mut learner = Learner::new(30, 20);
        let all = flows(50, 1);
        let mut due = Vec::new();
        for (flow, bytes) in &all {
            learner.finished(*flow, *bytes);
            due.extend(learner.take_due());
        }
        assert_eq!(due.len(), 2, "after 20 and after 40");
        assert_eq!(due[0], all[..20]);
        assert_eq!(due[1], all[10..40], "the latest 30");
        assert_eq!(learner.take_due(), None);
    }

    // spec: Q-11 machine
    #[test]
    fn a_new_model_takes_over_between_two_predictions() {
        let newest = Newest::new();
        let mut reader = newest.reader();
        assert!(reader.model().is_none());
        newest.publish(numbered(1));
        assert!(reader.model() == Some(&numbered(1)));
        newest.publish(numbered(2));
        assert!(reader.model() == Some(&numbered(2)));
        assert!(newest.reader().model() == Some(&numbered(2)));
    }

    // spec: Q-11 machine
    #[test]
    fn a_reader_does_not_wait() {
        let newest = Newest::new();
        newest.publish(numbered(1));
        let mut reader = newest.reader();
        reader.model();
        newest.publish(numbered(2));
        // Somebody is at work in the place, for ever.
        let held = newest.models.lock().unwrap();
        assert!(reader.model() == Some(&numbered(1)), "the old one goes on");
        drop(held);
        assert!(reader.model() == Some(&numbered(2)));
    }

    #[test]
    fn a_publisher_frees_old_models() {
        let newest = Newest::new();
        newest.publish(numbered(1));
        let mut reader = newest.reader();
        reader.model();
        newest.publish(numbered(2));
        let retired = || newest.models.lock().unwrap().retired.len();
        assert_eq!(retired(), 1, "it is still read");
        reader.model();
        assert_eq!(retired(), 1, "the reader gave it back, and did not free it");
        newest.publish(numbered(3));
        newest.publish(numbered(4));
        assert_eq!(retired(), 1, "the second, which the reader has");
    }

    // spec: Q-11 machine
    #[test]
    fn predictions_go_on_while_another_thread_trains() {
        let newest = Newest::new();
        newest.publish(numbered(1));
        let mut reader = newest.reader();
        let mut scratch = Scratch::default();
        thread::scope(|scope| {
            let trainer = scope.spawn(|| (2..30).for_each(|seed| newest.publish(numbered(seed))));
            while !trainer.is_finished() {
                let bounds =
                    reader.model().and_then(|model| model.bounds(&flow(9, 1, 80), &mut scratch));
                let lower = bounds.expect("some model is always there").lower;
                assert!((1_000..1_100).contains(&lower.as_u64()));
            }
        });
        assert!(reader.model() == Some(&numbered(29)));
    }
}
