//! Parts of transports that send and receive messages.

pub mod bits;
pub mod config;
pub mod held;
pub mod incoming;
pub mod message;
pub mod ready;
mod receiver;
mod reordering;
pub mod replies;
pub mod turns;

pub use config::{MAX_ACK_BATCH_PACKETS, MAX_PACKETS, MessageConfig, MessageConfigError};
pub use held::AckTime;
pub use incoming::{ArrivalStats, Incoming, Refusal};
pub use message::{
    Event, FlowId, FlowTagger, Message, Payload, Received, Sent, StartError, packets_of,
};
pub use ready::Ready;
pub use replies::Replies;
pub use turns::Turns;
