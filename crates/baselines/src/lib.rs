//! What only researchers run: published systems that ours is compared with.

mod messages;
pub mod ndp;
pub mod pfabric;
pub mod switchml;
