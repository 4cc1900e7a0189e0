//! Combines the tensors of processes on one host through shared memory.
//!
//! The ranks of a job that run on the same host ([`host_identity`] says which do) form a [`Team`] and
//! combine their tensors among themselves, so that a host sends once and a job on one host needs no
//! network. Data moves in chunks through a small ring of slots in a file in `/dev/shm`, which stays
//! in the processor's cache, and every member combines its share of each chunk. The members are
//! processes, or threads of one, that know nothing of each other but a name.
//!
//! What another member writes is never trusted with more than the values of a tensor: lengths and
//! positions come from the caller's own arguments, and calls that do not fit together are refused.
//!
//! Linux only. Processes of one user only: the file can be opened by nobody else, and those who may
//! open it may also cut it short, which ends the members as any signal of that user would.
//!
//! A part of the crate `thalweg`, without a promise of stability: depend on that one.

mod assemble;
mod bell;
mod board;
pub mod call;
mod clock;
pub mod error;
mod file;
mod gate;
pub mod identity;
mod layout;
mod memory;
mod pipeline;
mod process;
mod steps;
mod sys;
pub mod team;
mod verdict;

pub use call::{Call, Step};
pub use error::{Misuse, TeamError};
pub use identity::host_identity;
pub use team::{Config, DEFAULT_CHUNK_BYTES, DEFAULT_PATIENCE, MAX_MEMBERS, Team};
