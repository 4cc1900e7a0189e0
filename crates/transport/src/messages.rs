//! Parts of transports that send and receive messages.

pub mod replies;

pub use replies::Replies;
