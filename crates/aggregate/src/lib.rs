//! In-network aggregation: gradients summed in switches, completed by a server.
//!
//! Three machines play together, and `docs/aggregation.md` tells how: a [`Worker`] cuts tensors into
//! fragments and sends them, a [`Switch`] sums what it has room for, a [`Server`] completes the sums
//! and sends them back. A [`Setup`] tells workers and servers of one job who they are; the
//! [`join::Registrar`] makes it.
//!
//! Bodies may be real values or only lengths: all machines take either.
//!
//! A part of the crate `thalweg`, without a promise of stability: depend on that one.

mod account;
mod index;
pub mod join;
mod keys;
mod parameters;
mod reliability;
pub mod server;
mod setup;
pub mod switch;
mod tree;
pub mod worker;

pub use parameters::{
    AGGREGATORS, CheckedParameters, FRAGMENT_VALUES, FRAGMENT_VALUES_MAX, JobParameters,
    ParameterError, SPAN_FRAGMENTS,
};
pub use reliability::{Absences, Reliability, SumOptions};
pub use server::Server;
pub use setup::{Attempt, Indexing, Numeric, Recovery, Setup};
pub use switch::Switch;
pub use tree::{Group, GroupStation, Member, Top, Tree, TreeError};
pub use worker::Worker;
