//! Metrics of daemons, sessions and agents, in Prometheus' text format, and the address where they are served.
//!
//! [`Session::metrics`](crate::Session::metrics), [`ServerDaemon::metrics`](crate::daemon::ServerDaemon::metrics)
//! and [`SwitchDaemon::metrics`](crate::daemon::SwitchDaemon::metrics) return the text of one moment. To serve it,
//! give a session an address ([`SessionBuilder::metrics`](crate::SessionBuilder::metrics)), or start an [`Endpoint`]
//! beside a daemon:
//!
//! ```
//! use std::sync::Arc;
//! use thalweg::daemon::{Secret, SwitchDaemon, SwitchDaemonConfig};
//! use thalweg::metrics::Endpoint;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let loopback = "127.0.0.1:0".parse()?;
//! let config = SwitchDaemonConfig::new(loopback, Secret([7; 16]));
//! let switch = Arc::new(SwitchDaemon::start(&config)?);
//! let source = Arc::clone(&switch);
//! let about = "a switch".to_owned();
//! let endpoint = Endpoint::start(loopback, about, move || source.metrics())?;
//! println!("http://{}/metrics", endpoint.local_address());
//! # Ok(())
//! # }
//! ```

mod endpoint;
mod exposition;
mod operations;
mod server;
mod session;
mod sockets;
mod switch;
mod tables;

pub use self::endpoint::Endpoint;
#[doc(hidden)]
pub use self::exposition::{Exposition, Kind};
pub use self::exposition::{Sample, parse};
pub(crate) use self::operations::OperationTimes;
pub(crate) use self::server::server;
pub(crate) use self::session::{Source, counters_of};
pub use self::switch::switch;
pub use self::tables::tables;

use std::fmt::Display;

use thalweg_core::JobId;

/// Begins the metrics of a process with its role and address.
#[doc(hidden)]
pub fn begin(role: &str, address: impl Display) -> Exposition {
    let mut exposition = Exposition::default();
    exposition.family(
        "thalweg_build_info",
        Kind::Gauge,
        "Role, address and version of the process. Always 1.",
    );
    let address = address.to_string();
    let labels = [("role", role), ("address", &address), ("version", env!("CARGO_PKG_VERSION"))];
    exposition.sample(&labels, 1);
    exposition
}

/// Name of a job whose own name is not known.
fn label(job: JobId) -> String {
    format!("{:016x}", job.0)
}

#[cfg(test)]
fn assert_reported(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|found| found == *line), "{line} is missing in:\n{text}");
    }
}
