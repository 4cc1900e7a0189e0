//! Reliable messages between two nodes.
//!
//! An [`Endpoint`] is the machine of one node. It cuts messages into packets, sends as many as the
//! congestion control of each message allows, sends lost ones again, and puts incoming messages
//! together. See [`thalweg_transport::Endpoint`] for what it promises and [`Config`] for its settings.
//!
//! Way of a packet: `Endpoint` (which message?) → `windowed`, `sender`, `scoreboard` (what to send,
//! what was lost?) → the other side's `Endpoint` and
//! [`Incoming`](thalweg_transport::messages::Incoming) (where does it belong?), and its
//! acknowledgement back.
//!
//! A part of the crate `thalweg`, without a promise of stability: depend on that one.

mod config;
mod scoreboard;
mod sender;
mod windowed;

pub use config::{Config, ConfigError, LossDetection, MessageOrder};
pub use thalweg_transport::messages::{
    ArrivalStats, Event, FlowId, FlowTagger, MAX_PACKETS, Message, MessageConfig,
    MessageConfigError, Payload, Received, Sent, StartError,
};
pub use thalweg_transport::{Dropped, JobClass};
pub use windowed::Windowed;

/// Sends and receives the messages of one node, as much at once as windows allow.
pub type Endpoint = thalweg_transport::Endpoint<Windowed>;
