//! Helpers that all commands of the program share: failures and exit codes, files, signals, the log, the end of a parent.
//!
//! Numbers for programs go to standard output, everything else to standard error. Exit codes: 0 done,
//! 1 it ran and failed, 2 bad input, 130 interrupted.

pub mod failure;
pub mod files;
pub mod interrupt;
pub mod log;
pub mod parent;

pub use failure::Failure;
