//! The tables that NCCL looks for, and the functions in them.
//!
//! All versions call the same functions of [`net`](crate::net), [`coll`](crate::coll) and [`tuner`](crate::tuner). A
//! function here has NCCL's arguments in NCCL's order; those that the plug-in does not use have no names.
#![expect(unsafe_code, reason = "functions are called by NCCL, with pointers")]

mod coll;
mod net;
mod tuner;

use std::ffi::{c_int, c_void};

use crate::abi::{HANDLE_BYTES, Logger, PTR_HOST, Status, status};
use crate::device::{Device, device};
use crate::entry::{guarded, handle, write};
use crate::failure::Failure;
use crate::{listening, log, settings};

/// A table, which any thread may read.
#[repr(transparent)]
pub struct Exported<T>(T);

// SAFETY: tables have functions and a pointer to a constant text, and nobody changes them.
unsafe impl<T> Sync for Exported<T> {}

/// Contexts have no state: NCCL gets a number that is not null.
const CONTEXT: *mut c_void = std::ptr::dangling_mut::<u8>().cast();

/// Begins for the process.
unsafe extern "C" fn init(logger: Option<Logger>) -> Status {
    guarded("init", || {
        log::attach(logger);
        settings::load();
        Ok(())
    })
}

/// Begins for a communicator.
unsafe fn init_context(context: *mut *mut c_void, logger: Option<Logger>) -> Status {
    guarded("init", || {
        log::begin_context(logger);
        settings::load();
        // SAFETY: NCCL's place for the context.
        unsafe { write(context, CONTEXT) }
    })
}

/// Ends a communicator.
unsafe extern "C" fn finalize(_: *mut c_void) -> Status {
    guarded("finalize", || {
        log::end_context();
        Ok(())
    })
}

/// One device, at every rank: NCCL fails where their numbers differ.
unsafe extern "C" fn devices(count: *mut c_int) -> Status {
    // SAFETY: NCCL's place for the number.
    guarded("devices", || unsafe { write(count, 1) })
}

unsafe extern "C" fn properties<P: From<&'static Device>>(
    device_number: c_int,
    to: *mut P,
) -> Status {
    guarded("getProperties", || {
        check_device(device_number)?;
        // SAFETY: NCCL's place for the properties, of the version of the table that has this function.
        unsafe { write(to, P::from(device())) }
    })
}

/// An interface whose ranks listen for each other.
trait Listens {
    /// Begins to listen. Writes the handle.
    fn listen(handle: &mut [u8; HANDLE_BYTES]) -> Result<*mut c_void, Failure>;
}

unsafe extern "C" fn listen<L: Listens>(
    device: c_int,
    handle_bytes: *mut c_void,
    listening: *mut *mut c_void,
) -> Status {
    guarded("listen", || {
        check_device(device)?;
        // SAFETY: NCCL's handle, and its place for what listens.
        unsafe { write(listening, L::listen(handle(handle_bytes)?)?) }
    })
}

unsafe extern "C" fn listen_in_context<L: Listens>(
    _: *mut c_void,
    device: c_int,
    handle_bytes: *mut c_void,
    listening: *mut *mut c_void,
) -> Status {
    // SAFETY: the caller's arguments.
    unsafe { listen::<L>(device, handle_bytes, listening) }
}

unsafe extern "C" fn register(
    _: *mut c_void,
    _: *mut c_void,
    _: usize,
    kind: c_int,
    registration: *mut *mut c_void,
) -> Status {
    guarded("regMr", || {
        if kind != PTR_HOST {
            return Err(Failure::argument("only memory of the host can be used"));
        }
        // NCCL ends a registration that is not null. SAFETY: NCCL's place for it.
        unsafe { write(registration, CONTEXT) }
    })
}

unsafe extern "C" fn deregister(_: *mut c_void, _: *mut c_void) -> Status {
    status::SUCCESS
}

unsafe extern "C" fn close_listen(listening: *mut c_void) -> Status {
    guarded("closeListen", || {
        listening::close(listening);
        Ok(())
    })
}

fn check_device(number: c_int) -> Result<(), Failure> {
    if number == 0 {
        Ok(())
    } else {
        Err(Failure::argument(format!("there is no device {number}")))
    }
}
