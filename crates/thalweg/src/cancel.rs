//! Interruption of a session from another thread.

use std::sync::{Arc, OnceLock};

/// Interrupts a session, whatever it waits for: joining, an operation, or leaving.
///
/// Clones are the same token. Once it is cancelled, [`Session::join`](crate::Session::join) fails, and a session that has
/// joined is [aborted](crate::Session::abort), both within about 50 ms and for all ranks of the job.
///
/// ```
/// use thalweg::{Cancel, ErrorKind, Session, SessionConfig};
///
/// # use thalweg::daemon::{Secret, ServerDaemon, ServerDaemonConfig};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let loopback = "127.0.0.1:0".parse()?;
/// # let daemon = ServerDaemon::start(&ServerDaemonConfig::new(loopback, Secret([7; 16])))?;
/// # let server = daemon.address().to_string();
/// let cancel = Cancel::new();
/// let mut config = SessionConfig::new(server, "resnet", 0, 4); // the others have not started
/// config.cancel = cancel.clone();
/// std::thread::spawn(move || {
///     // The user presses Ctrl-C.
///     cancel.cancel("interrupted");
/// });
/// let error = Session::join(config).err().expect("it cannot join alone");
/// assert_eq!(error.kind(), ErrorKind::Aborted);
/// # Ok(())
/// # }
/// ```
// spec: E-02
#[derive(Clone, Debug, Default)]
pub struct Cancel {
    reason: Arc<OnceLock<String>>,
}

impl Cancel {
    /// A token that is not cancelled.
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// Cancels it, for a reason that all ranks are given. The first reason stands.
    pub fn cancel(&self, reason: impl Into<String>) {
        // A second reason changes nothing.
        let _ = self.reason.set(reason.into());
    }

    /// Returns whether it is cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.reason().is_some()
    }

    /// The reason, once it is cancelled.
    pub fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_are_one_token_and_the_first_reason_stands() {
        let token = Cancel::new();
        let other = token.clone();
        assert!(!other.is_cancelled() && other.reason().is_none());
        token.cancel("Ctrl-C");
        other.cancel("later");
        assert_eq!((token.reason(), other.is_cancelled()), (Some("Ctrl-C"), true));
        assert!(!Cancel::new().is_cancelled());
    }
}
