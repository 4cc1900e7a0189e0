//! NCCL's part in front of a plug-in: loads the library as NCCL does, and calls its tables in NCCL's order, without a GPU.
//!
//! [`Library`] has the tables of one library: [`Net`], [`Coll`] and [`Tuner`]. They are read by slots, from the published
//! numbers, and not by the definitions of any plug-in. [`bootstrap`] starts one process a rank and gathers bytes of all
//! ranks, and [`check`] is an exchange of such processes that needs no unsafe code.
//!
//! Functions that lend memory to a request are unsafe: a plug-in works on it until the request has ended.

pub mod bootstrap;
pub mod check;
mod coll;
mod interface;
mod library;
pub mod log;
mod net;
mod signature;
mod tuner;

pub use coll::Coll;
pub use interface::{Interface, Object, Properties};
pub use library::{Library, Versions};
pub use net::Net;
pub use tuner::{Costs, Tuner};

use std::ffi::c_int;
use std::path::PathBuf;

use thiserror::Error;

/// Status code of a call that worked.
pub const SUCCESS: c_int = 0;
/// `ncclFloat16`.
pub const F16: c_int = 6;
/// `ncclFloat32`.
pub const F32: c_int = 7;
/// `ncclBfloat16`.
pub const BF16: c_int = 9;

/// Bytes by which another rank finds one that listens.
pub type Handle = [u8; 128];

/// A call that did not work.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CallError {
    /// The system does not load the file.
    #[error("{path} is not loaded: {reason}")]
    NotLoaded {
        /// Path of the library.
        path: PathBuf,
        /// Text of the system.
        reason: String,
    },
    /// The library lacks a table.
    #[error("the library has no {0}")]
    NoTable(String),
    /// The table lacks a function that NCCL needs.
    #[error("{table} has no function in slot {slot}")]
    NoFunction {
        /// Name of the table.
        table: String,
        /// Number of the slot, the name being slot 0.
        slot: usize,
    },
    /// The function returned another status than success.
    #[error("{call} returned status {status}")]
    Status {
        /// Name of the function.
        call: &'static str,
        /// Status code, `ncclResult_t`.
        status: c_int,
    },
    /// The result of an exchange is wrong, or late.
    #[error("{0}")]
    Exchange(String),
}

/// Success, or the status of a call as an error.
fn succeeded(call: &'static str, status: c_int) -> Result<(), CallError> {
    if status == SUCCESS { Ok(()) } else { Err(CallError::Status { call, status }) }
}
