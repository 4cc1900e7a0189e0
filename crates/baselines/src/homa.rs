//! Homa: receivers grant leave to send to the messages that have least left, and say with which
//! priority.
//!
//! A sender starts with a round trip's worth of packets that nobody granted, so that short messages
//! never wait. Their priority follows from the size of the message, by [cutoffs](Priorities) that
//! balance the bytes of each priority. Everything beyond is *scheduled*: of the messages that arrive
//! with more to come, a receiver keeps those with the least left busy, each with a round trip's worth
//! of packets in flight. They are as many as there are priorities for scheduled packets: more than
//! its link can carry, so that it stays busy when a sender does not answer (*overcommitment*). The
//! shortest has the highest priority of them, and all are as low as possible, so that the next one
//! that is shorter finds a free one above them.
//!
//! Single packets are not acknowledged. A receiver that waits too long asks for what is missing again,
//! and says when it has all. A sender that hears nothing sends the header of a packet, for an answer.
//!
//! The packets are those of [`thalweg_wire::flow`]. A grant is a [`Credit`](thalweg_wire::flow::Credit)
//! with a priority; an [`Ack`](thalweg_wire::flow::Ack) that asks for packets again is a RESEND, and
//! one that does not tells of the end. The rank of a data packet is the size that its message is
//! estimated to have, so that receivers rank as senders do.
//!
//! Departures from the published system: messages are one-way, so the receiver tells of the end where
//! the response of a remote call would; there is no BUSY, since a request for packets that were sent
//! lately, or not yet, changes nothing at the sender, and a receiver that asked in vain several times
//! grants nothing more until it hears of the message. Switches have to spray the packets.

mod config;
mod granted;
mod grants;
mod priorities;
#[cfg(test)]
mod tests;

pub use config::Config;
pub use granted::Granted;
pub use priorities::{Priorities, PrioritiesError};
pub use thalweg_transport::MessageConfigError as ConfigError;

/// Sends and receives the messages of one node, as receivers grant them.
pub type Endpoint = thalweg_transport::Endpoint<Granted>;
