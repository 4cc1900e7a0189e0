//! Waits that handle signals, and values that stay with their process.

use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::session::lock;

/// Longest time until a signal is handled.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// Runs a call that blocks on a thread of its own, without the lock of the interpreter, and handles signals
/// meanwhile. Returns `None` if it takes longer than `limit`. In that case, and when a signal raises an exception,
/// the call goes on until it ends by itself.
// spec: E-02
pub(crate) fn wait<T: Send + 'static>(
    py: Python<'_>,
    limit: Option<Duration>,
    call: impl FnOnce() -> T + Send + 'static,
) -> PyResult<Option<T>> {
    wait_doing(py, limit, call, || Ok(()))
}

/// [`wait`] that does something again and again meanwhile. An error of that ends the wait as a signal does.
pub(crate) fn wait_doing<T: Send + 'static>(
    py: Python<'_>,
    limit: Option<Duration>,
    call: impl FnOnce() -> T + Send + 'static,
    meanwhile: impl Fn() -> PyResult<()>,
) -> PyResult<Option<T>> {
    let (sender, result) = channel();
    let run = move || {
        // Nobody may wait any more.
        let _ = sender.send(call());
    };
    std::thread::Builder::new()
        .name("thalweg-wait".into())
        .spawn(run)
        .map_err(|error| PyRuntimeError::new_err(format!("no thread to wait on: {error}")))?;
    // Only this thread uses it: the lock lets it cross into the call without the interpreter's lock.
    let result = Mutex::new(result);
    let ends_at = limit.map(|limit| Instant::now() + limit);
    loop {
        let left = ends_at.map(|end| end.saturating_duration_since(Instant::now()));
        let slice = left.unwrap_or(SIGNALS_EVERY).min(SIGNALS_EVERY);
        match py.detach(|| lock(&result).recv_timeout(slice)) {
            Ok(value) => return Ok(Some(value)),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("the thread that waited has panicked"));
            }
            Err(RecvTimeoutError::Timeout) if left.is_some_and(|left| left.is_zero()) => {
                return Ok(None);
            }
            Err(RecvTimeoutError::Timeout) => {
                py.check_signals()?;
                meanwhile()?;
            }
        }
    }
}

/// A value that is dropped only in the process that made it.
///
/// A forked process has the memory of its parent and none of its threads: to join these would wait for ever or
/// panic, and to close connections would end what is the parent's.
pub(crate) struct OfProcess<T> {
    value: Option<T>,
    process: u32,
}

impl<T> OfProcess<T> {
    pub(crate) fn new(value: T) -> OfProcess<T> {
        OfProcess { value: Some(value), process: std::process::id() }
    }

    /// The value, unless it was taken or belongs to another process.
    pub(crate) fn get(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.is_own())
    }

    /// [`OfProcess::get`] by value.
    pub(crate) fn take(&mut self) -> Option<T> {
        if self.is_own() { self.value.take() } else { None }
    }

    fn is_own(&self) -> bool {
        self.process == std::process::id()
    }
}

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if !self.is_own() {
            std::mem::forget(self.value.take());
        }
    }
}
