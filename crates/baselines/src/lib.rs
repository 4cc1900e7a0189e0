//! Published systems for comparison, which only researchers run.

pub mod homa;
mod messages;
pub mod ndp;
pub mod pfabric;
pub mod switchml;

pub use messages::Past;
