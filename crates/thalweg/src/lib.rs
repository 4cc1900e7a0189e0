//! Sums gradients over many workers, on real networks.
//!
//! A [`Session`] is one rank's part in a job: it joins through the control channel of a
//! [server](daemon::ServerDaemon), and then every rank calls the same collectives in the same order.
//! Sums of `f32`, `f16` and `bf16` go through aggregation, by the [switch](daemon::SwitchDaemon) of
//! the rack where there is one; everything else goes over reliable flows directly between the ranks;
//! ranks of one host combine through shared memory first.
//!
//! ```
//! use thalweg::{Reduce, Session};
//!
//! # use thalweg::daemon::{Secret, ServerDaemon, ServerDaemonConfig};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let loopback = "127.0.0.1:0".parse()?;
//! # let daemon = ServerDaemon::start(&ServerDaemonConfig::new(loopback, Secret([7; 16])))?;
//! # let (server, rank, ranks) = (daemon.address().to_string(), 0, 1);
//! let session = Session::builder(server, "resnet").rank(rank, ranks).join()?;
//! let mean = session.all_reduce(vec![1.0f32; 1_000_000], Reduce::Mean).wait()?.values;
//! # assert_eq!(mean, vec![1.0; 1_000_000]);
//! session.leave()?;
//! # Ok(())
//! # }
//! ```
//!
//! The protocols are the machines that simulations run; this crate brings them together with sockets,
//! threads and the control channel.

// A caller learns from the documentation which errors to expect.
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

#[cfg(target_endian = "big")]
compile_error!("values travel as little-endian bytes, and are not turned round here");

mod cancel;
mod channels;
mod counters;
pub mod daemon;
mod engine;
mod error;
mod events;
mod handle;
mod lossy;
#[doc = include_str!("guide.md")]
pub mod guide {}
pub mod metrics;
mod pacing;
mod policy;
mod session;
pub mod tagging;
mod tap;
mod tuning;
mod value;
mod window;

pub use cancel::Cancel;
pub use counters::{Counters, DeliveryCounters};
pub use error::{Error, ErrorKind};
pub use half::{bf16, f16};
pub use handle::{Handle, HandleFuture};
pub use pacing::{AGENT_SOCKET, Pacing};
pub use policy::{Collective, Numeric, Policy, Priority, Reduce, Reliability};
pub use session::{
    Delivered, Memory, ReceivePost, ReduceOptions, Reduced, SendPost, Session, SessionBuilder,
    SessionConfig,
};
pub use thalweg_aggregate::Recovery;
pub use thalweg_core::Element;
pub use thalweg_deliver::{LossBound, Lost};
pub use thalweg_net::{Offload, Wait};
pub use thalweg_values::{Coverage, Missing, Part};
pub use value::Value;
pub use window::Window;

/// Types of the counters.
pub mod stats {
    pub use thalweg_aggregate::server::{Refusals, Stats as ServerStats};
    pub use thalweg_aggregate::switch::Stats as SwitchStats;
    pub use thalweg_aggregate::worker::{RoundTrips, Stats as WorkerStats};
    pub use thalweg_deliver::Stats as DeliveryStats;
    pub use thalweg_net::Stats as SocketStats;
}

/// Parts of the library for other languages and for tests. They may change in any version.
#[doc(hidden)]
pub mod internal {
    pub use thalweg_collective::mesh::{Call, Outcome, Request};
    pub use thalweg_core::fingerprint::digest_of_lengths;
    pub use thalweg_core::{Combine, Intent, Reduction};

    pub use crate::channels::{Channel, ChannelKey, Channels, Direction, RequestMemory, draw_key};
    pub use crate::events::{Event, listen};
    pub use crate::lossy::{Lossy, PacketLimit};
    pub use crate::session::ByteMemory;
    pub use crate::tap::{Fate, Tap};
    pub use crate::value::Array;
}
