//! Laws for any bytes, for the fuzz targets. Each file is a part of a test as well, of the crate
//! that it is about.

mod agent;
mod board;
mod checks;
mod control;

pub use agent::agent;
pub use board::board;
pub use checks::{aggregate, coverage, deliver, flow, frame, pace, prefix, tag, trailer};
pub use control::control;
