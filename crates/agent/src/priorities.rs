//! Priorities for flows of programs that are not changed.

mod program;
mod tags;

pub use tags::{TagCounts, Tags};
