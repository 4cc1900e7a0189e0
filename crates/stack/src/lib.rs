//! Where the planes meet, still without I/O.
//!
//! A [`Host`] is the machine of a node: ordinary flows, a server of in-network aggregation, and a
//! [`Participant`] for every job that the node works for, taking turns on one interface. What a
//! switch runs is [`thalweg_aggregate::Switch`], or that of a baseline. [`Tagging`] gives ordinary flows
//! their priorities.

mod deliveries;
mod host;
mod pacing;
mod participant;
mod tagging;
mod transport;
mod turn;

pub use deliveries::{Deliveries, Layer};
pub use host::{Event, Host, HostError};
pub use pacing::{Ledger, LedgerStats, PacedFlow, PacedJob, Pacing, PacingStats, Way};
pub use participant::Participant;
pub use tagging::{Known, Scheme, Tagging};
pub use transport::{About, Transport};
