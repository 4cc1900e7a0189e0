//! What only researchers run: published systems that ours is compared with.

pub mod switchml;
