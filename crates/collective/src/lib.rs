//! All-reduce without help from the network: parameter servers and rings, over reliable flows.
//!
//! [`ring::Ring`] and [`server::Node`] are the machines of one host each. Both are a [`Member`]
//! around a part that knows who sends what to whom; see there for how to use them.
//!
//! Way of a tensor: `plan` cuts it into pieces, which are numbered through over all operations → the
//! part decides which piece may leave (`window`) → `post` hands it to the flow endpoint as a message
//! whose number says what it is → the part of the receiver adds or keeps it (`payload`).

mod config;
mod event;
mod member;
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
