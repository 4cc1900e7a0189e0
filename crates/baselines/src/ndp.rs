//! NDP: switches cut packets to their headers, and receivers pull the rest at the pace of their link.
//!
//! A sender starts with a whole window at the rate of its link, every packet on another path. Ports
//! with very short queues cut what does not fit to its header, which overtakes all data
//! (`Trimming` of `thalweg-fabric`), so that the receiver soon knows everything that was sent.
//! It answers every packet at once, saying whether its payload came, and puts a *pull* into a queue
//! that all its flows share in turn. Pulls leave at the pace at which full packets can come in. Each
//! makes a sender send one packet: first those that were cut, then new ones. Headers that find no room in a port come
//! back to their sender. Only packets that vanished with their headers wait for a timeout.
//!
//! The packets are those of [`thalweg_wire::flow`]: a pull is a
//! [`Credit`](thalweg_wire::flow::Credit), and an [`Ack`](thalweg_wire::flow::Ack) that asks for a
//! packet again is the negative acknowledgement of its `index`.
//!
//! Departures from the published system: packets whose headers came back leave when nothing else of the message is in
//! flight, a quarter of a window at a time; the receiver counts what is in flight and pulls no more than is missing,
//! where the published one takes superfluous pulls out of its queue at the end.

mod config;
mod pulled;
mod pulls;
#[cfg(test)]
mod tests;

pub use config::Config;
pub use pulled::Pulled;
pub use thalweg_transport::MessageConfigError as ConfigError;

/// Sends and receives the messages of one node, as receivers pull them.
pub type Endpoint = thalweg_transport::Endpoint<Pulled>;
