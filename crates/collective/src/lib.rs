//! Collectives without help from the network, over reliable flows or bounded deliveries: sums through parameter servers and
//! rings, and everything else directly between ranks.
//!
//! [`ring::Ring`], [`server::Node`] and [`mesh::Mesh`] are the machines of one host each. All are a
//! [`Member`] around a part that knows who sends what to whom; see there for how to use them. The
//! first two sum tensors of floats, also where a simulation carries only their lengths.
//!
//! Way of a tensor: `plan` cuts it into pieces, which are numbered through over all operations → the
//! part decides which piece may leave (`window`) → `post` hands it to the `carrier` as a message whose
//! number says what it is → the part of the receiver adds or keeps it (`block`).
//!
//! Sums can also travel as tensors of which a bounded part may be lost: [`Delivery`], carried by
//! `delivery_carrier`. The parts are the same. What flows need not know is asked of them: whether a message that
//! somebody offers is wanted now.
//!
//! Every message says which operation it belongs to, in its [frame](thalweg_wire::frame). Members whose operations
//! differ stop before a result is handed out, and so does everybody else, with a failure that names both.
//!
//! A part of the crate `thalweg`, without a promise of stability: depend on that one.

mod block;
mod call;
mod carrier;
mod config;
mod delivery;
mod delivery_carrier;
mod event;
mod member;
pub mod mesh;
mod plan;
mod post;
pub mod ring;
pub mod server;
mod window;

pub use call::SumCall;
pub use config::ConfigError;
pub use delivery::{Contents, Delivery, Results};
pub use event::{Event, Failure, SubmitError};
pub use member::Member;
pub use post::Counters;
