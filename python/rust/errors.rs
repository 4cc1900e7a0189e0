//! Errors of the library as exceptions: the only place that maps them.

use pyo3::create_exception;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use thalweg::{Error, ErrorKind};

create_exception!(
    thalweg._core,
    SessionError,
    PyRuntimeError,
    "A job failed. `thalweg.torch` raises subclasses, one for each kind."
);

/// Why an operation, or a session, failed: the kind, a text for people, the ranks at fault, and the seconds without
/// progress where that is why.
// spec: E-07
pub(crate) type Failure = (&'static str, String, Vec<u32>, Option<f64>);

/// An error for Python.
pub(crate) fn explain(error: &Error) -> Failure {
    let since_s = error.since().map(|since| since.as_secs_f64());
    (kind(error), error.to_string(), error.ranks().to_vec(), since_s)
}

/// A failure of the binding itself.
pub(crate) fn internal(text: String) -> Failure {
    ("internal", text, Vec::new(), None)
}

/// The exception for an error. Settings and arguments are the caller's fault: `ValueError`.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    let failure = explain(error);
    match failure.0 {
        "config" | "call" => PyValueError::new_err(failure.1),
        _ => session_error(py, failure),
    }
}

/// A `SessionError` that has the failure as an attribute.
pub(crate) fn session_error(py: Python<'_>, failure: Failure) -> PyErr {
    let raised = SessionError::new_err(failure.1.clone());
    match raised.value(py).setattr("failure", failure) {
        Ok(()) => raised,
        Err(other) => other,
    }
}

fn kind(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::Config => "config",
        ErrorKind::Call => "call",
        ErrorKind::Network => "network",
        ErrorKind::System => "system",
        ErrorKind::Peer => "peer",
        ErrorKind::Timeout => "timeout",
        ErrorKind::Aborted => "aborted",
        ErrorKind::Disagreement => "disagreement",
        ErrorKind::Closed => "closed",
        _ => "internal",
    }
}
