//! What transports of messages have in common, however they decide what to send when.
//!
//! They speak with the packets of [`thalweg_wire::flow`] and tell the application what
//! [`thalweg_flow::Endpoint`] tells it, so that they can take its place. An acknowledgement that
//! asks for a packet again says that its header came without its payload.

mod inbound;
mod outbound;
mod transfer;

pub(crate) use inbound::{Inbound, lend_urgent};
pub(crate) use outbound::{Outbound, Outgoing};
pub(crate) use transfer::{Label, Transfer};
