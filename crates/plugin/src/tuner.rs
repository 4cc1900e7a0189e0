//! The tuner interface.
#![expect(unsafe_code, reason = "functions of tables are called by their addresses")]

use std::ffi::{c_int, c_void};

use crate::library::Table;
use crate::{CallError, log, succeeded};

type Pointer = *mut c_void;

/// Costs of 7 algorithms with 3 protocols.
pub type Costs = [f32; 21];

/// The tuner interface: costs of algorithms.
#[derive(Debug)]
pub struct Tuner {
    table: Table,
    context: Pointer,
}

impl Tuner {
    pub(crate) fn begin(table: Table, version: u32, nodes: usize) -> Result<Tuner, CallError> {
        type V4 = fn(usize, usize, Pointer, *mut Pointer) -> c_int;
        type V5 = fn(*mut Pointer, u64, usize, usize, Pointer, Pointer, Pointer) -> c_int;
        let mut context = std::ptr::null_mut();
        let (to, log, none) = (&raw mut context, log::pointer(), std::ptr::null_mut());
        // SAFETY: the published signatures.
        let status = unsafe {
            match version {
                4 => table.function::<V4>(1)?(nodes, nodes, log, to),
                _ => table.function::<V5>(1)?(to, 7, nodes, nodes, log, none, none),
            }
        };
        succeeded("init", status)?;
        Ok(Tuner { table, context })
    }

    /// Costs after the tuner has changed them, for a collective and a number of bytes.
    pub fn choose(
        &self,
        function: c_int,
        bytes: usize,
        mut costs: Costs,
    ) -> Result<Costs, CallError> {
        type Choose =
            fn(Pointer, c_int, usize, c_int, *mut f32, c_int, c_int, c_int, *mut c_int) -> c_int;
        let mut channels = 0;
        let (table, to) = (costs.as_mut_ptr(), &raw mut channels);
        // SAFETY: the published signature.
        let status = unsafe {
            self.table.function::<Choose>(2)?(self.context, function, bytes, 1, table, 7, 3, 0, to)
        };
        succeeded("getCollInfo", status).map(|()| costs)
    }

    /// Ends the use of the tuner.
    pub fn finalize(self) -> Result<(), CallError> {
        // SAFETY: the published signature.
        let status = unsafe { self.table.function::<fn(Pointer) -> c_int>(3)?(self.context) };
        succeeded("finalize", status)
    }
}
