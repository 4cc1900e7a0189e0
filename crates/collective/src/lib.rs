//! Collectives without help from the network, over reliable flows: sums through parameter servers and
//! rings, and everything else straight between ranks.
//!
//! [`ring::Ring`], [`server::Node`] and [`mesh::Mesh`] are the machines of one host each. All are a
//! [`Member`] around a part that knows who sends what to whom; see there for how to use them. The
//! first two sum tensors of floats, also where a simulation carries only their lengths.
//!
//! Way of a tensor: `plan` cuts it into pieces, which are numbered through over all operations → the
//! part decides which piece may leave (`window`) → `post` hands it to the flow endpoint as a message
//! whose number says what it is → the part of the receiver adds or keeps it (`payload`).

mod config;
mod event;
mod member;
pub mod mesh;
mod payload;
mod plan;
mod post;
pub mod ring;
pub mod server;
mod window;

pub use config::ConfigError;
pub use event::{Event, Failure, SubmitError};
pub use member::Member;
pub use post::Counters;
