//! Reliable messages between two nodes.
//!
//! An [`Endpoint`] is the machine of one node. It cuts messages into packets, sends as many as the
//! congestion control of each message allows, sends lost ones again, and puts incoming messages
//! together. See [`Endpoint`] for what it promises and [`Config`] for its settings.
//!
//! Way of a packet: `endpoint` (which message?) → `outgoing`, `sender`, `scoreboard` (what to send,
//! what was lost?) → the other side's `endpoint` → `incoming`, `receiver` (where does it belong?),
//! and its acknowledgement back.

mod bits;
mod config;
mod endpoint;
mod incoming;
mod message;
mod outgoing;
mod receiver;
mod reordering;
mod scoreboard;
mod sender;

pub use config::{Config, ConfigError, LossDetection, MAX_PACKETS};
pub use endpoint::{Dropped, Endpoint};
pub use incoming::{ArrivalStats, Incoming, Refusal};
pub use message::{Event, FlowId, FlowTagger, Message, Payload, Received, Sent, StartError};
pub use sender::packets_of;
