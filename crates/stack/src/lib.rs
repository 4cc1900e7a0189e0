//! Host machine: joins the planes, still without I/O.
//!
//! A [`Host`] is the machine of a node: ordinary flows, a server of in-network aggregation, and a
//! [`JobMachine`] for every job that the node works for, taking turns on one interface. Sessions and
//! daemons run the [`TrainingHost`], simulations a host with published transports as well. What a switch
//! runs is [`thalweg_aggregate::Switch`], or that of a baseline. [`Tagging`] gives ordinary flows
//! their priorities.
//!
//! A part of the crate `thalweg`, without a promise of stability: depend on that one.

mod host;
mod pacing;
mod participant;
mod policy;
mod tagging;
mod turn;

pub use host::{ClassSource, Event, Host, HostError, TrainingHost, Transport};
pub use pacing::{Ledger, LedgerStats, PacedFlow, PacedJob, Pacing, PacingStats, Way};
pub use participant::{JobEvent, JobMachine, Participant};
pub use policy::{Packets, Policy};
pub use tagging::{Known, Scheme, Tagging};
pub use thalweg_collective::Event as SumEvent;
