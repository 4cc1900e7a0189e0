//! Flows over TCP with priorities, replayed in a lab: `thalweg bench flows`.
//!
//! The example `flows` is the same command without the rest of the program, and is compiled far sooner.

mod flows;
pub mod tools;

pub use flows::{FlowsArguments, flows};
