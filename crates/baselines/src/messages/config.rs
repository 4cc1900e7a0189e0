//! What settings of all transports of messages have to keep.

use thiserror::Error;

/// Why settings cannot work. The configuration is at fault.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
pub enum ConfigError {
    /// Those of messages.
    #[error(transparent)]
    Messages(#[from] thalweg_flow::ConfigError),
    /// A setting that has to be positive.
    #[error("{0} is zero: set it to 1 or more")]
    Zero(&'static str),
}

/// Whether messages can have such settings, and all that has to be positive is.
pub(crate) fn check<const N: usize>(
    messages: &thalweg_flow::Config,
    counts: [(&'static str, u64); N],
) -> Result<(), ConfigError> {
    messages.check()?;
    match counts.into_iter().find(|(_, count)| *count == 0) {
        Some((name, _)) => Err(ConfigError::Zero(name)),
        None => Ok(()),
    }
}
