//! Errors of the library as exceptions: the only place that maps them.

use std::error::Error as _;
use std::io;

use pyo3::create_exception;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use thalweg::{Error, ErrorKind};

create_exception!(
    thalweg._core,
    SessionError,
    PyRuntimeError,
    "A job or a daemon failed. It has `kind`, `ranks` and `since`; `thalweg.torch` raises subclasses, one for each kind."
);

/// Why an operation, or a session, failed: the kind, a text for people, the ranks at fault, the seconds without
/// progress where that is why, and the source where there is one.
// spec: E-07
pub(crate) type Failure = (&'static str, String, Vec<u32>, Option<f64>, Option<Source>);

/// The source of an error: its text, and the error number of the system where it is an error of the system.
pub(crate) type Source = (Option<i32>, String);

/// An error for Python.
pub(crate) fn explain(error: &Error) -> Failure {
    let since_s = error.since().map(|since| since.as_secs_f64());
    (kind(error), error.to_string(), error.ranks().to_vec(), since_s, source(error))
}

/// The source of an error. Of the causes of causes, an error of the system says most.
fn source(error: &Error) -> Option<Source> {
    let first = error.source()?;
    let mut cause = Some(first);
    while let Some(found) = cause {
        if let Some(system) = found.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return Some((Some(system), io::Error::from_raw_os_error(system).to_string()));
        }
        cause = found.source();
    }
    Some((None, first.to_string()))
}

/// A failure of the binding itself.
pub(crate) fn internal(text: String) -> Failure {
    ("internal", text, Vec::new(), None, None)
}

/// The exception for an error. Settings and arguments are the caller's fault: `ValueError`.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    let failure = explain(error);
    match failure.0 {
        "config" | "call" => PyValueError::new_err(failure.1),
        _ => session_error(py, failure),
    }
}

/// A `SessionError` that has the failure as an attribute, its parts as others, and its source as cause.
// spec: E-07
pub(crate) fn session_error(py: Python<'_>, failure: Failure) -> PyErr {
    let (kind, text, ranks, since, source) = failure.clone();
    let raised = SessionError::new_err(text);
    let value = raised.value(py);
    let set = value
        .setattr("kind", kind)
        .and_then(|()| value.setattr("ranks", PyTuple::new(py, ranks)?))
        .and_then(|()| value.setattr("since", since))
        .and_then(|()| value.setattr("failure", failure));
    if let Err(other) = set {
        return other;
    }
    if let Some((number, text)) = source {
        let cause = match number {
            Some(number) => PyOSError::new_err((number, text)),
            None => PyRuntimeError::new_err(text),
        };
        raised.set_cause(py, Some(cause));
    }
    raised
}

fn kind(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::Config => "config",
        ErrorKind::Call => "call",
        ErrorKind::Network => "network",
        ErrorKind::Path => "path",
        ErrorKind::System => "system",
        ErrorKind::Peer => "peer",
        ErrorKind::Timeout => "timeout",
        ErrorKind::Aborted => "aborted",
        ErrorKind::Disagreement => "disagreement",
        ErrorKind::Closed => "closed",
        _ => "internal",
    }
}
