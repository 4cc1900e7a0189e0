//! Errors of the layers below, as errors of the library.

use std::time::Duration;

use thalweg_aggregate::switch;
use thalweg_control::{AttendError, Failure, FailureKind, ServiceError, SettingsError};
use thalweg_net::{DriverError, OpenError};
use thalweg_shared::TeamError;

use super::{Error, ErrorKind};

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        let Failure { kind, text, culprits, operation, since } = failure;
        let since = since.map(|since| Duration::from_nanos(since.as_ps() / 1_000));
        let text = match kind {
            FailureKind::Path => format!("{text}; the next operations use shorter ones"),
            _ => text,
        };
        Error::new(kind_of(kind, &culprits), text)
            .with_ranks(culprits)
            .with_operation(operation)
            .with_since(since)
    }
}

fn kind_of(kind: FailureKind, culprits: &[u32]) -> ErrorKind {
    match kind {
        FailureKind::Peer => ErrorKind::Peer,
        FailureKind::Timeout => ErrorKind::Timeout,
        FailureKind::Aborted => ErrorKind::Aborted,
        FailureKind::Agreement => ErrorKind::Disagreement,
        FailureKind::Refused => ErrorKind::Config,
        FailureKind::Path => ErrorKind::Path,
        // A rank that cannot go on failed; without one, the server could not do its part.
        FailureKind::Other if culprits.is_empty() => ErrorKind::Internal,
        FailureKind::Other => ErrorKind::Peer,
    }
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Error {
        let kind = match &error {
            OpenError::Block { .. } | OpenError::Shards { .. } => ErrorKind::Config,
            OpenError::Bind { .. } | OpenError::Setup { .. } => ErrorKind::System,
        };
        Error::of(kind, error)
    }
}

impl From<DriverError> for Error {
    fn from(error: DriverError) -> Error {
        let kind = match &error {
            DriverError::Socket(_) => ErrorKind::System,
            DriverError::Family { .. } => ErrorKind::Network,
            // The library chooses these.
            DriverError::Burst(_)
            | DriverError::PacketSize(_)
            | DriverError::OutboxSize(_)
            | DriverError::Oversize { .. } => ErrorKind::Internal,
        };
        Error::of(kind, error)
    }
}

impl From<ServiceError> for Error {
    fn from(error: ServiceError) -> Error {
        let kind = match &error {
            ServiceError::Bind { .. } | ServiceError::Thread(_) => ErrorKind::System,
            ServiceError::Open(_)
            | ServiceError::EmptyToken
            | ServiceError::Token
            | ServiceError::File { .. }
            | ServiceError::Tls(_) => ErrorKind::Config,
        };
        Error::of(kind, error)
    }
}

impl From<AttendError> for Error {
    fn from(error: AttendError) -> Error {
        let kind = match &error {
            AttendError::Access(_) => ErrorKind::Config,
            AttendError::Thread(_) => ErrorKind::System,
        };
        Error::of(kind, error)
    }
}

impl From<SettingsError> for Error {
    fn from(error: SettingsError) -> Error {
        Error::of(ErrorKind::Config, error)
    }
}

impl From<switch::ConfigError> for Error {
    fn from(error: switch::ConfigError) -> Error {
        Error::of(ErrorKind::Config, error)
    }
}

impl From<TeamError> for Error {
    fn from(error: TeamError) -> Error {
        let text = format!("on this host: {error}");
        let operation = error.operation();
        Error::caused(kind_of_team(&error), text, error).with_operation(operation)
    }
}

/// Kind of a failure among the ranks of a host.
fn kind_of_team(error: &TeamError) -> ErrorKind {
    match error {
        // The library names teams and counts their members.
        TeamError::Name { .. } | TeamError::Member { .. } => ErrorKind::Internal,
        TeamError::NoSharedMemory { .. }
        | TeamError::TooSmall { .. }
        | TeamError::System { .. }
        | TeamError::Foreign { .. }
        | TeamError::Overwritten { .. } => ErrorKind::System,
        TeamError::Taken { .. } => ErrorKind::Config,
        TeamError::Absent { .. } | TeamError::Stalled { .. } => ErrorKind::Timeout,
        TeamError::Died { .. } | TeamError::Gone { .. } | TeamError::Stopped { .. } => {
            ErrorKind::Peer
        }
        TeamError::Disagreement { .. } => ErrorKind::Disagreement,
        TeamError::Misused { .. } => ErrorKind::Call,
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use thalweg_core::Span;

    use super::*;

    #[test]
    fn a_failure_of_the_job_keeps_its_kind_ranks_operation_and_time() {
        let failure = Failure {
            operation: Some(5),
            since: Some(Span::from_ms(1_500)),
            ..Failure::new(FailureKind::Aborted, "rank 2 aborts", vec![2])
        };
        let error = Error::from(failure);
        assert_eq!((error.kind(), error.ranks()), (ErrorKind::Aborted, &[2][..]));
        assert_eq!(
            (error.operation(), error.since()),
            (Some(5), Some(Duration::from_millis(1_500)))
        );
        assert_eq!(error.to_string(), "rank 2 aborts");
    }

    #[test]
    fn an_address_in_use_is_no_mistake_in_the_settings() {
        let address = ([10, 0, 0, 1], 4_800).into();
        let taken = || std::io::Error::from(std::io::ErrorKind::AddrInUse);
        let error = Error::from(OpenError::Bind { address, source: taken() });
        assert_eq!(error.kind(), ErrorKind::System);
        assert!(error.source().is_some());
        assert_eq!(
            Error::from(OpenError::Block { port: 4_801, paths: 1 }).kind(),
            ErrorKind::Config
        );
        let error = Error::from(ServiceError::Bind { bind: address, reason: taken() });
        assert_eq!(error.kind(), ErrorKind::System);
        assert_eq!(Error::from(ServiceError::EmptyToken).kind(), ErrorKind::Config);
    }
}
