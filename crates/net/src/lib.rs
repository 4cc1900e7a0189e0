//! Runs protocols over UDP sockets.
//!
//! [`Driver`] calls a [`Machine`](thalweg_core::Machine) by the rules of
//! [`thalweg_core::machine`], on a thread that the caller owns, and knows no protocol. A datagram is
//! the 64-byte header area followed by the body, and nothing else.
//!
//! The data path allocates nothing per packet and copies nothing that it need not: a machine sees
//! received packets where the kernel put them, and what it forwards or multicasts is sent from
//! there; what it sends itself, it writes where the kernel takes it from.
//!
//! [`Meta::entropy`](thalweg_core::Meta::entropy) picks the source port where an endpoint has several;
//! on receiving it is the sender's port. Linux only. Not carried:
//! [`Meta::rank`](thalweg_core::Meta::rank), which IP has no field for.
//!
//! A part of the crate `thalweg`, without a promise of stability: depend on that one.

mod clock;
mod cut;
mod depth;
pub mod descriptors;
pub mod driver;
pub mod fork;
pub mod interface;
mod layout;
mod memory;
pub mod message;
pub mod network;
mod outbox;
pub mod pacer;
pub mod peers;
mod queue;
pub mod socket;
pub mod stats;
mod sys;
pub mod tcp;
pub mod thread;
pub mod waker;

pub use clock::SHARED_PHASE;
pub use driver::{Driver, DriverConfig, DriverError, Turn, Wait};
pub use interface::{interface_of, link_rate_of, mtu_of};
pub use message::{Arrival, MESSAGES_PER_CALL, Message};
pub use network::{Network, PORTS_PER_NODE, SHARD_PORTS, shard_of};
pub use pacer::HostPacer;
pub use peers::{MAX_NODES, PeerError, Peers, STRANGER};
pub use socket::{
    Endpoint, EndpointConfig, Offload, OpenError, Readiness, SEGMENTS_PER_SEND, SEND_BYTES,
    local_address_towards,
};
pub use stats::Stats;
pub use waker::Waker;
