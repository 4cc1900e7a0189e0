//! Sums gradients over many workers, on real networks.
//!
//! A [`Session`] is one rank's part in a job: it joins through the control channel of a
//! [server](daemon::ServerDaemon), and then every rank calls the same collectives in the same order.
//! Sums of `f32`, `f16` and `bf16` go through aggregation, by the [switch](daemon::SwitchDaemon) of
//! the rack where there is one; everything else goes over reliable flows straight between the ranks;
//! ranks of one host combine through shared memory first.
//!
//! ```no_run
//! use thalweg::{Reduce, Session, SessionConfig};
//!
//! # fn main() -> Result<(), thalweg::Error> {
//! let session = Session::join(SessionConfig::new("10.0.0.1:4808", "resnet", 0, 4))?;
//! let sum = session.all_reduce(vec![1.0f32; 1_000_000], Reduce::Mean)?.wait()?;
//! # drop(sum);
//! session.leave()
//! # }
//! ```
//!
//! The protocols are the machines that simulations run; this crate brings them together with sockets,
//! threads and the control channel.

#[cfg(target_endian = "big")]
compile_error!("values travel as little-endian bytes, and are not turned round here");

mod cancel;
mod counters;
pub mod daemon;
mod engine;
mod error;
mod handle;
mod lossy;
mod pacing;
mod policy;
mod session;
mod tuning;
mod value;
mod window;

pub use cancel::Cancel;
pub use counters::{Counters, DeliveryCounters};
pub use error::{Error, ErrorKind};
pub use handle::{Handle, HandleFuture};
pub use lossy::Lossy;
pub use pacing::Pacing;
pub use policy::{Collective, Numeric, Policy, Priority, Reduce, Reliability};
pub use session::{Memory, Note, Reduced, Session, SessionConfig};
pub use thalweg_deliver::LossBound;
pub use thalweg_values::{Coverage, Missing, Part};
pub use value::{Array, Value};
pub use window::Window;
