//! All-reduces of a communicator: operations of a session.
//!
//! NCCL calls `listen` at one rank of every node, gathers the handles, and calls `connect` once at each of them. That call
//! waits, as NCCL allows: a communicator that is not there when it returns is a failure to NCCL, which goes on without
//! CollNet. It only compares notes within a node, so that connecting has to succeed everywhere or fail everywhere:
//! [`meeting`] sees to that.
// spec: N-02

mod comm;
mod daemons;
mod line;
mod meeting;
mod place;

use std::ffi::{c_int, c_void};

pub use self::comm::{Comm, Request};
use crate::abi::{HANDLE_BYTES, status};
use crate::failure::Failure;
use crate::handle::{Handle, Kind};
use crate::{listening, settings};
use thalweg::Element;

/// `ncclSum`.
const SUM: c_int = 0;

/// Begins to listen. Writes the handle, and returns what NCCL calls the listen communicator.
pub fn listen(handle: &mut [u8; HANDLE_BYTES]) -> Result<*mut c_void, Failure> {
    listening::open(Kind::Coll, handle)
}

/// Connects all ranks, and waits for them. NCCL forgets what listens if this fails.
pub fn connect(
    handles: &[[u8; HANDLE_BYTES]],
    rank: usize,
    listening: *mut c_void,
) -> Result<Box<Comm>, Failure> {
    let connected = connect_all(handles, rank, listening);
    if connected.is_err() {
        listening::close(listening);
    }
    connected
}

fn connect_all(
    handles: &[[u8; HANDLE_BYTES]],
    rank: usize,
    listening: *mut c_void,
) -> Result<Box<Comm>, Failure> {
    let listening = listening::find(listening)?;
    let read: Vec<_> = handles.iter().map(|bytes| Handle::read(bytes, Kind::Coll)).collect();
    let without: Vec<usize> = (0..read.len()).filter(|rank| read[*rank].is_none()).collect();
    // All ranks have the same handles, and so the same verdict.
    let Some(Some(root)) = read.first().filter(|_| without.is_empty()) else {
        let text = format!(
            "no CollNet: ranks {without:?} do not have this version of the plug-in: install it at all ranks"
        );
        return Err(Failure::new(status::REMOTE, text));
    };
    let loaded = settings::current();
    let part = meeting::Part { rank, ranks: handles.len(), loaded: &loaded };
    let met = if rank == 0 { part.host(&listening) } else { part.attend(root) };
    let joined = met.map_err(|text| Failure::new(status::REMOTE, format!("no CollNet: {text}")))?;
    Ok(Comm::new(joined))
}

/// Returns whether a sum of this type can be made.
pub fn is_supported(data_type: c_int, operation: c_int) -> bool {
    operation == SUM && element(data_type).is_some()
}

/// The type of a number of NCCL's, of those that switches sum.
pub fn element(data_type: c_int) -> Option<Element> {
    match data_type {
        6 => Some(Element::F16),
        7 => Some(Element::F32),
        9 => Some(Element::Bf16),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_three_types_are_supported() {
        let supported: Vec<_> = (-1..12)
            .flat_map(|data_type| (0..5).map(move |operation| (data_type, operation)))
            .filter(|(data_type, operation)| is_supported(*data_type, *operation))
            .collect();
        assert_eq!(supported, [(6, 0), (7, 0), (9, 0)]);
    }
}
