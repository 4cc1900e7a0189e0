//! The programs that a cluster runs: switches that sum, and servers that complete sums and know who is
//! in which job. All that they remember can be lost: a daemon that is started again goes on.

mod pilot;
mod secret;
mod server;
mod switch;

pub use thalweg_control::JobSummary;

pub use self::secret::{SecretError, read_secret};
pub use self::server::{ServerDaemon, ServerDaemonConfig, ServerSnapshot};
pub use self::switch::{SwitchDaemon, SwitchDaemonConfig, SwitchSnapshot};
