//! Thalweg as a plug-in of NCCL: `libnccl-net-thalweg.so`.
//!
//! NCCL loads the library and looks for tables of functions, one for each version of its interface
//! (`docs/nccl.md` is the guide):
//!
//! - **net**, messages between two ranks, over TCP ([`net`]);
//! - **CollNet**, all-reduces, which are sums of a [`Session`](thalweg::Session) ([`coll`]);
//! - **tuner**, which prefers CollNet where it should win ([`tuner`]).
//!
//! [`abi`] has the tables' layouts, and [`tables`] the functions in them: they turn pointers into values of Rust, call the
//! one interface behind all versions, and turn results into status codes. No panic leaves them.
//!
//! NCCL unloads the library after the last communicator. The build script has the loader keep it, so that threads which
//! end late, and a server that other ranks still use, are harmless.

#![cfg(target_pointer_width = "64")]

mod abi;
mod coll;
mod device;
mod entry;
mod failure;
mod handle;
mod listening;
mod log;
mod memory;
mod net;
mod settings;
mod tables;
mod tuner;

/// Largest number of requests of a communicator, or of a connection, that are in flight.
const REQUESTS_MAX: usize = 32;

/// Name of the plug-in in NCCL's log.
const NAME: &std::ffi::CStr = c"thalweg";
