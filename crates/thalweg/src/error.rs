//! Errors of sessions, operations and daemons.

mod causes;

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use thalweg_control::Failure;

/// Why an operation, a session or a daemon failed.
///
/// The text, [`Display`](fmt::Display), is one line for people: it names the ranks, the operation and what to
/// change, and contains the text of its source. Programs look at the [kind](Error::kind), the
/// [ranks](Error::ranks) at fault and the [source](StdError::source).
///
/// One failure may end many operations, at every rank of the job: a clone costs a reference count.
// spec: E-07
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    text: String,
    ranks: Vec<u32>,
    operation: Option<u64>,
    since: Option<Duration>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// Kind of an [`Error`]: who can do something about it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A setting is invalid, the ranks of the job differ in one, or the job does not fit the budgets of the server. The
    /// text names the setting.
    Config,
    /// Nodes cannot reach each other, or are not in one network.
    Network,
    /// The system of this host refused something: an address, a thread, shared memory.
    System,
    /// A rank or its host failed, and the job with it.
    Peer,
    /// Something took too long: ranks that did not join, or an operation that did not progress.
    Timeout,
    /// A program ended the job, or cancelled this wait.
    Aborted,
    /// Ranks called different operations.
    Disagreement,
    /// The arguments of an operation are invalid. The session goes on.
    Call,
    /// A path of the job carries shorter packets than before. The operation has failed here; the session goes on with
    /// shorter packets. Other ranks may have the result of the same operation.
    // spec: F-01
    Path,
    /// The session was left before the operation ended.
    Closed,
    /// A defect of this library.
    Internal,
}

impl Error {
    /// Kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The ranks at fault, in ascending order, where that is known.
    pub fn ranks(&self) -> &[u32] {
        &self.0.ranks
    }

    /// Number of the operation that failed, where one did. Operations are counted from 0, in the order of the
    /// calls.
    pub fn operation(&self) -> Option<u64> {
        self.0.operation
    }

    /// Time that there had been no progress, where that is why it failed.
    pub fn since(&self) -> Option<Duration> {
        self.0.since
    }

    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Error {
        let text = text.into();
        let (ranks, operation, since, source) = (Vec::new(), None, None, None);
        Error(Arc::new(Inner { kind, text, ranks, operation, since, source }))
    }

    /// An invalid setting.
    pub(crate) fn config(text: impl Into<String>) -> Error {
        Error::new(ErrorKind::Config, text)
    }

    /// Invalid arguments of an operation.
    pub(crate) fn call(text: impl Into<String>) -> Error {
        Error::new(ErrorKind::Call, text)
    }

    /// A defect.
    pub(crate) fn internal(text: impl Into<String>) -> Error {
        Error::new(ErrorKind::Internal, text)
    }

    /// The end of a job, as the registrar reports it.
    pub(crate) fn failed(failure: Failure) -> Error {
        failure.into()
    }

    /// The end of a job whose server is out of reach, or refuses the rank.
    pub(crate) fn without_server(text: String, is_refused: bool) -> Error {
        Error::new(if is_refused { ErrorKind::Config } else { ErrorKind::Network }, text)
    }

    /// The end of a session that was left.
    pub(crate) fn closed() -> Error {
        Error::new(ErrorKind::Closed, "the session is over")
    }

    /// A refusal of the system, while this was tried.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |error| Error::caused(ErrorKind::System, format!("{what}: {error}"), error)
    }

    /// Two nodes of different networks.
    pub(crate) fn other_network(own: SocketAddr, other: SocketAddr) -> Error {
        let text = format!(
            "{own} and {other} are not in one network: nodes of a cluster share the first 16 bits of their \
             IPv4 address (the first 112 of an IPv6 one); bind to another address"
        );
        Error::new(ErrorKind::Network, text)
    }

    /// An error with a source, whose text this one contains.
    pub(crate) fn caused(
        kind: ErrorKind,
        text: impl Into<String>,
        source: impl StdError + Send + Sync + 'static,
    ) -> Error {
        let source: Arc<dyn StdError + Send + Sync> = Arc::new(source);
        Error::new(kind, text).with(|inner| inner.source = Some(source))
    }

    /// An error with the text of its source.
    pub(crate) fn of(kind: ErrorKind, source: impl StdError + Send + Sync + 'static) -> Error {
        Error::caused(kind, source.to_string(), source)
    }

    pub(crate) fn with_ranks(self, ranks: impl Into<Vec<u32>>) -> Error {
        let mut ranks = ranks.into();
        ranks.sort_unstable();
        ranks.dedup();
        self.with(|inner| inner.ranks = ranks)
    }

    pub(crate) fn with_operation(self, operation: Option<u64>) -> Error {
        self.with(|inner| inner.operation = operation)
    }

    pub(crate) fn with_since(self, since: Option<Duration>) -> Error {
        self.with(|inner| inner.since = since)
    }

    fn with(mut self, change: impl FnOnce(&mut Inner)) -> Error {
        change(Arc::make_mut(&mut self.0));
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0.text)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, text, ranks, operation, since, source } = &*self.0;
        let mut out = formatter.debug_struct("Error");
        out.field("kind", kind).field("text", text);
        if !ranks.is_empty() {
            out.field("ranks", ranks);
        }
        if let Some(operation) = operation {
            out.field("operation", operation);
        }
        if let Some(since) = since {
            out.field("since", since);
        }
        if let Some(source) = source {
            out.field("source", source);
        }
        out.finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| &**source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_the_system_is_the_source() {
        let refused = || io::Error::from(io::ErrorKind::AddrInUse);
        let error = Error::system("cannot bind 10.0.0.1:4800")(refused());
        assert_eq!(error.kind(), ErrorKind::System);
        assert_eq!(error.to_string(), format!("cannot bind 10.0.0.1:4800: {}", refused()));
        let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
        assert_eq!(source.map(io::Error::kind), Some(io::ErrorKind::AddrInUse));
        assert!(error.clone().source().is_some(), "a clone keeps it");
    }

    #[test]
    fn programs_learn_ranks_operation_and_time() {
        let error = Error::new(ErrorKind::Timeout, "rank 3 has not contributed")
            .with_ranks([3, 1, 3])
            .with_operation(Some(17))
            .with_since(Some(Duration::from_secs(30)));
        let other = error.clone().with_operation(None);
        assert_eq!((error.kind(), error.ranks()), (ErrorKind::Timeout, &[1, 3][..]));
        assert_eq!((error.operation(), error.since()), (Some(17), Some(Duration::from_secs(30))));
        assert_eq!(other.operation(), None);
        let debug = "Error { kind: Timeout, text: \"rank 3 has not contributed\", ranks: [1, 3], \
                     operation: 17, since: 30s }";
        assert_eq!(format!("{error:?}"), debug);
    }
}
