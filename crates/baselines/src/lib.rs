//! What only researchers run: published systems that ours is compared with.

pub mod homa;
mod messages;
pub mod ndp;
pub mod pfabric;
pub mod switchml;

pub use messages::Past;
