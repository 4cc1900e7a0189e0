//! Events of the library, kept until Python logs them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};

use pyo3::prelude::*;
use thalweg::internal::{Event, listen};

/// Most events that are kept for a session. The oldest ones go first.
const KEPT: usize = 1_024;

/// Name of the logger in Python.
const LOGGER: &str = "thalweg";

/// An event: whether it is worth a warning, its text, and all ranks of which it speaks.
pub(crate) type Note = (bool, String, Vec<u32>);

/// Events of one session.
pub(crate) struct Notes {
    job: String,
    rank: String,
    events: Mutex<VecDeque<Note>>,
    /// Ranks that have not joined, as last reported.
    awaited: Mutex<Vec<u32>>,
}

/// The sessions of this process.
static SESSIONS: Mutex<Vec<Weak<Notes>>> = Mutex::new(Vec::new());

/// Keeps the events of a session from now on.
pub(crate) fn of(job: &str, rank: u32) -> Arc<Notes> {
    static LISTEN: Once = Once::new();
    LISTEN.call_once(|| listen(keep));
    let (job, rank) = (job.to_owned(), rank.to_string());
    let notes = Arc::new(Notes { job, rank, events: Mutex::default(), awaited: Mutex::default() });
    let mut sessions = lock(&SESSIONS);
    sessions.retain(|session| session.strong_count() > 0);
    sessions.push(Arc::downgrade(&notes));
    notes
}

impl Notes {
    /// The events since the last call.
    pub fn take(&self) -> Vec<Note> {
        lock(&self.events).drain(..).collect()
    }

    /// The ranks that have not joined, as last reported.
    pub fn awaited(&self) -> Vec<u32> {
        lock(&self.awaited).clone()
    }

    /// Logs the events since the last call, as the session's thread in Python does once there is one.
    pub fn log(&self, py: Python<'_>) -> PyResult<()> {
        let events = self.take();
        if events.is_empty() {
            return Ok(());
        }
        let log = py.import("logging")?.call_method1("getLogger", (LOGGER,))?;
        for (is_warning, text, _) in events {
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
            let ranks = ranks_of(event);
            if event.field("event") == Some("waiting") {
                lock(&session.awaited).clone_from(&ranks);
            }
            let mut events = lock(&session.events);
            events.push_back((event.is_warning, event.text.clone(), ranks));
            if events.len() > KEPT {
                events.pop_front();
            }
        }
    }
}

/// The ranks of an event, from its field: "[1, 2]".
fn ranks_of(event: &Event) -> Vec<u32> {
    let field = event.field("ranks").unwrap_or_default();
    let numbers = field.trim_matches(['[', ']']).split(", ");
    numbers.filter_map(|number| number.parse().ok()).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
