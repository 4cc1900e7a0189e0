//! Events of the library, kept until Python logs them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};

use pyo3::prelude::*;
use thalweg::internal::{Event, listen};

/// Most events that are kept for a session. The oldest ones go first.
const KEPT: usize = 1_024;

/// Name of the logger in Python.
const LOGGER: &str = "thalweg";

/// Events of one session.
pub(crate) struct Notes {
    job: String,
    rank: String,
    events: Mutex<VecDeque<(bool, String)>>,
}

/// The sessions of this process.
static SESSIONS: Mutex<Vec<Weak<Notes>>> = Mutex::new(Vec::new());

/// Keeps the events of a session from now on.
pub(crate) fn of(job: &str, rank: u32) -> Arc<Notes> {
    static LISTEN: Once = Once::new();
    LISTEN.call_once(|| listen(keep));
    let (job, rank) = (job.to_owned(), rank.to_string());
    let notes = Arc::new(Notes { job, rank, events: Mutex::default() });
    let mut sessions = lock(&SESSIONS);
    sessions.retain(|session| session.strong_count() > 0);
    sessions.push(Arc::downgrade(&notes));
    notes
}

impl Notes {
    /// The events since the last call, and whether each is worth a warning.
    pub fn take(&self) -> Vec<(bool, String)> {
        lock(&self.events).drain(..).collect()
    }

    /// Logs the events since the last call, as the session's thread in Python does once there is one.
    pub fn log(&self, py: Python<'_>) -> PyResult<()> {
        let events = self.take();
        if events.is_empty() {
            return Ok(());
        }
        let log = py.import("logging")?.call_method1("getLogger", (LOGGER,))?;
        for (is_warning, text) in events {
            let level = if is_warning { "warning" } else { "info" };
            log.call_method1(level, ("%s", text))?;
        }
        Ok(())
    }

    fn is_of(&self, event: &Event) -> bool {
        event.field("job") == Some(&self.job) && event.field("rank") == Some(&self.rank)
    }
}

fn keep(event: &Event) {
    for session in lock(&SESSIONS).iter().filter_map(Weak::upgrade) {
        if session.is_of(event) {
            let mut events = lock(&session.events);
            events.push_back((event.is_warning, event.text.clone()));
            if events.len() > KEPT {
                events.pop_front();
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
