//! The agent of a host: plans for all jobs on it when their flows send, and how fast (C-08).
//!
//! Jobs register over a Unix socket and say how far they are ([`thalweg_control::local`]); the agent asks
//! the tables of switches, decides once a slot with [`thalweg_pace::Host`], and hands rates back.
//! [`Enforcer`] makes any program obey them, by the pacing that the kernel has for TCP.
//!
//! Limits fail open (E-14): a [guardian](guard) lifts them when the process that set them hangs or is killed, and
//! original values of settings are kept in files ([`Safeguards`]).
//!
//! Agents and paced programs report [events] to any subscriber of `tracing`; [`AgentDaemon::metrics`] returns
//! the metrics of an agent, which a [`thalweg::metrics::Endpoint`] serves.

mod clock;
mod daemon;
mod enforcer;
mod error;
pub mod events;
mod foreign;
mod group;
mod guardian;
pub mod interface;
mod limits;
mod mark;
mod metrics;
mod originals;
mod pieces;
mod record;
mod scan;
pub mod scheduler;
mod setting;
mod stats;
mod sys;
mod written;

pub use daemon::{AgentConfig, AgentDaemon};
pub use enforcer::{Enforcer, EnforcerConfig, Orders};
pub use error::AgentError;
pub use guardian::{Safeguards, guard};
pub use record::Record;
pub use stats::{AgentStats, JobStats, TablesStats};
