//! The CollNet interface.
#![expect(unsafe_code, reason = "functions of tables are called by their addresses")]

use std::ffi::{c_int, c_void};
use std::ops::Deref;

use crate::interface::{Interface, Object};
use crate::library::Table;
use crate::{CallError, log, succeeded};

type Pointer = *mut c_void;

/// The CollNet interface: all-reduces of all ranks of a communicator.
#[derive(Debug)]
pub struct Coll(Interface);

impl Deref for Coll {
    type Target = Interface;

    fn deref(&self) -> &Interface {
        &self.0
    }
}

impl Coll {
    pub(crate) fn begin(table: Table, version: u32) -> Result<Coll, CallError> {
        let mut context = std::ptr::null_mut();
        // SAFETY: the published signatures.
        let status = unsafe {
            if version < 11 {
                table.function::<fn(Pointer) -> c_int>(1)?(log::pointer())
            } else {
                type Init = fn(*mut Pointer, u64, Pointer) -> c_int;
                table.function::<Init>(1)?(&raw mut context, 7, log::pointer())
            }
        };
        succeeded("init", status)?;
        Ok(Coll(Interface { table, version, context, test_slot: 14 }))
    }

    /// Connects all ranks, whose handles are given in order. It may block.
    pub fn connect(
        &self,
        handles: &[Vec<u8>],
        rank: usize,
        listening: Object,
    ) -> Result<Object, CallError> {
        type Connect = fn(*mut Pointer, c_int, c_int, Pointer, *mut Pointer) -> c_int;
        let mut handles: Vec<Vec<u8>> = handles.to_vec();
        // A handle has 128 bytes, whatever another rank has sent.
        handles.iter_mut().for_each(|handle| handle.resize(128, 0));
        let mut pointers: Vec<Pointer> =
            handles.iter_mut().map(|handle| handle.as_mut_ptr().cast()).collect();
        let mut comm = std::ptr::null_mut();
        let number = |value: usize| c_int::try_from(value).expect("ranks are few");
        let (ranks, rank) = (number(pointers.len()), number(rank));
        // SAFETY: the published signature.
        let status = unsafe {
            let connect = self.table.function::<Connect>(5)?;
            connect(pointers.as_mut_ptr(), ranks, rank, listening.0, &raw mut comm)
        };
        succeeded("connect", status).map(|()| Object(comm))
    }

    /// Returns true if values of a type can be reduced by an operation.
    pub fn supports(&self, data_type: c_int, operation: c_int) -> Result<bool, CallError> {
        let mut answer = -1;
        // SAFETY: the published signature.
        let status = unsafe {
            self.table.function::<fn(c_int, c_int, *mut c_int) -> c_int>(6)?(
                data_type,
                operation,
                &raw mut answer,
            )
        };
        succeeded("reduceSupport", status).map(|()| answer == 1)
    }

    /// Begins a sum. The request is null if the plug-in takes it later.
    ///
    /// # Safety
    ///
    /// Both addresses have memory for this number of values until the request has ended.
    pub unsafe fn all_reduce(
        &self,
        comm: Object,
        (from, to): (*const u8, *mut u8),
        count: usize,
        data_type: c_int,
    ) -> Result<Object, CallError> {
        type Short = fn(
            Pointer,
            Pointer,
            Pointer,
            c_int,
            c_int,
            c_int,
            Pointer,
            Pointer,
            *mut Pointer,
        ) -> c_int;
        type Long = fn(
            Pointer,
            Pointer,
            Pointer,
            usize,
            c_int,
            c_int,
            Pointer,
            Pointer,
            *mut Pointer,
        ) -> c_int;
        let mut request = std::ptr::null_mut();
        let none = std::ptr::null_mut();
        let (from, to, at) = (from.cast_mut().cast(), to.cast(), &raw mut request);
        // SAFETY: the published signatures, and the caller's memory.
        let status = unsafe {
            if self.version == 8 {
                let count = c_int::try_from(count).expect("requests are short");
                let call = self.table.function::<Short>(10)?;
                call(comm.0, from, to, count, data_type, 0, none, none, at)
            } else {
                let call = self.table.function::<Long>(10)?;
                call(comm.0, from, to, count, data_type, 0, none, none, at)
            }
        };
        succeeded("iallreduce", status).map(|()| Object(request))
    }

    /// Ends a communicator.
    pub fn close_coll(&self, comm: Object) -> Result<(), CallError> {
        self.close("closeColl", 15, comm.0)
    }

    /// Ends the use of the interface.
    pub fn finalize(self) -> Result<(), CallError> {
        if self.version < 11 { Ok(()) } else { self.close("finalize", 18, self.context) }
    }
}
