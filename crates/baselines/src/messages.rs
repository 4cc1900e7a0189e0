//! What transports of messages have in common, however they decide what to send when.
//!
//! They speak with the packets of [`thalweg_wire::flow`] and tell the application what
//! [`thalweg_flow::Endpoint`] tells it, so that they can take its place. An acknowledgement that
//! asks for a packet again says that its header came without its payload.

mod belief;
mod config;
mod inbound;
mod outbound;
mod probes;
mod ready;
mod transfer;

pub(crate) use belief::Belief;
pub use belief::Past;
pub use config::ConfigError;
pub(crate) use config::check;
pub(crate) use inbound::{Inbound, Name, Taken, send_credit};
pub(crate) use outbound::{Outbound, Outgoing};
pub(crate) use probes::Probes;
pub(crate) use ready::Ready;
pub(crate) use transfer::{Label, Transfer};
