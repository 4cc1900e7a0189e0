//! A deterministic packet-level simulator: machines of the contract on hosts and in switches, with
//! links, queues, routes and faults between them.
//!
//! It knows no protocol. [`Fabric`] runs any [`Machine`](thalweg_core::Machine); a [`Director`]
//! plays the application. Equal inputs give equal runs, to the picosecond, and a
//! [`Digest`](thalweg_core::Digest) to prove it.

mod agenda;
mod check;
mod config;
mod director;
mod fabric;
mod fault;
mod link;
mod network;
mod pool;
pub mod queue;
mod routing;
mod stats;
pub mod topology;
pub mod trace;

pub use check::Violation;
pub use config::{Buffer, Config, Discipline};
pub use director::{Bystander, Director, Hosts};
pub use fabric::{Fabric, Intercept, Limit, Pause, Program, SwitchMachine};
pub use fault::{Effect, Outage, Place, Rule};
pub use pool::PacketRef;
pub use queue::{Marking, QueueLimit, TrimmingSpec};
pub use routing::Spread;
pub use stats::{DropReason, FabricStats, LinkStats};
pub use topology::{LinkId, Topology, TopologyError};
