//! Tables of the CollNet interface, versions 8 to 12.
#![expect(unsafe_code, reason = "functions are called by NCCL, with pointers")]

use std::ffi::{c_int, c_void};

use super::{
    Exported, Listens, close_listen, deregister, devices, finalize, init, init_context, listen,
    listen_in_context, properties, register,
};
use crate::NAME;
use crate::abi::coll::{CollRestV9, CollRestV11, CollTable, CollV8, CollV9, CollV11, CollV12};
use crate::abi::{HANDLE_BYTES, Logger, Status};
use crate::coll::{self, Comm, Request};
use crate::device::Device;
use crate::entry::{borrowed, guarded, handle, write, write_if_asked};
use crate::failure::Failure;
use crate::memory::Memory;

/// Listening for ranks of a sum.
struct Sums;

impl Listens for Sums {
    fn listen(handle: &mut [u8; HANDLE_BYTES]) -> Result<*mut c_void, Failure> {
        coll::listen(handle)
    }
}

/// A table: functions that all versions share, and those that differ.
const fn table<P: From<&'static Device>, I, L, A, Rest>(
    init: I,
    listen: L,
    all_reduce: A,
    rest: Rest,
) -> Exported<CollTable<P, I, L, A, Rest>> {
    Exported(CollTable {
        name: NAME.as_ptr(),
        init,
        devices,
        properties: properties::<P>,
        listen,
        connect,
        supports,
        register,
        register_dmabuf: None,
        deregister,
        all_reduce,
        all_gather: None,
        reduce_scatter: None,
        flush,
        test,
        close,
        close_listen,
        rest,
    })
}

const REST_V9: CollRestV9 = CollRestV9 { make_virtual: None };
const REST_V11: CollRestV11 = CollRestV11 { make_virtual: None, finalize };

/// Version 8.
#[unsafe(no_mangle)]
pub static ncclCollNetPlugin_v8: Exported<CollV8> = table(init, listen::<Sums>, all_reduce_int, ());

/// Version 9.
#[unsafe(no_mangle)]
pub static ncclCollNetPlugin_v9: Exported<CollV9> =
    table(init, listen::<Sums>, all_reduce, REST_V9);

/// Version 10.
#[unsafe(no_mangle)]
pub static ncclCollNetPlugin_v10: Exported<CollV9> =
    table(init, listen::<Sums>, all_reduce, REST_V9);

/// Version 11.
#[unsafe(no_mangle)]
pub static ncclCollNetPlugin_v11: Exported<CollV11> =
    table(init_in_context, listen_in_context::<Sums>, all_reduce, REST_V11);

/// Version 12.
#[unsafe(no_mangle)]
pub static ncclCollNetPlugin_v12: Exported<CollV12> =
    table(init_in_context, listen_in_context::<Sums>, all_reduce, REST_V11);

unsafe extern "C" fn init_in_context(
    context: *mut *mut c_void,
    _: u64,
    logger: Option<Logger>,
) -> Status {
    // SAFETY: the caller's arguments.
    unsafe { init_context(context, logger) }
}

unsafe extern "C" fn connect(
    handles: *mut *mut c_void,
    ranks: c_int,
    rank: c_int,
    listening: *mut c_void,
    comm: *mut *mut c_void,
) -> Status {
    guarded("connect", || {
        let (Ok(ranks), Ok(rank)) = (usize::try_from(ranks), usize::try_from(rank)) else {
            return Err(Failure::argument("the rank is negative"));
        };
        if handles.is_null() || rank >= ranks {
            return Err(Failure::argument(format!("rank {rank} of {ranks}")));
        }
        // SAFETY: NCCL's place for the communicator, and its array of a handle for each rank.
        unsafe {
            write(comm, std::ptr::null_mut())?;
            let read = |pointer: &*mut c_void| handle(*pointer).map(|bytes| *bytes);
            let handles: Vec<[u8; HANDLE_BYTES]> = std::slice::from_raw_parts(handles, ranks)
                .iter()
                .map(read)
                .collect::<Result<_, Failure>>()?;
            write(comm, Box::into_raw(coll::connect(&handles, rank, listening)?).cast())
        }
    })
}

unsafe extern "C" fn supports(data_type: c_int, operation: c_int, answer: *mut c_int) -> Status {
    guarded("reduceSupport", || {
        // SAFETY: NCCL's place for the answer.
        unsafe { write(answer, c_int::from(coll::is_supported(data_type, operation))) }
    })
}

unsafe extern "C" fn all_reduce(
    comm: *mut c_void,
    from: *mut c_void,
    to: *mut c_void,
    count: usize,
    data_type: c_int,
    operation: c_int,
    _: *mut c_void,
    _: *mut c_void,
    request: *mut *mut c_void,
) -> Status {
    guarded("iallreduce", || {
        if !coll::is_supported(data_type, operation) {
            let text = format!("operation {operation} of type {data_type} is not supported");
            return Err(Failure::argument(text));
        }
        let element = coll::element(data_type).ok_or_else(|| Failure::argument("no type"))?;
        let bytes = count.saturating_mul(element.bytes());
        let (from, to) = (Memory::new(from, bytes)?, Memory::new(to, bytes)?);
        // SAFETY: NCCL's place for the request, and a communicator that it has not closed.
        unsafe {
            write(request, std::ptr::null_mut())?;
            let begun = borrowed::<Comm>(comm)?.all_reduce(from, to, element)?;
            let begun = begun
                .map_or(std::ptr::null_mut(), |begun| std::ptr::from_ref(begun).cast_mut().cast());
            write(request, begun)
        }
    })
}

unsafe extern "C" fn all_reduce_int(
    comm: *mut c_void,
    from: *mut c_void,
    to: *mut c_void,
    count: c_int,
    data_type: c_int,
    operation: c_int,
    from_registration: *mut c_void,
    to_registration: *mut c_void,
    request: *mut *mut c_void,
) -> Status {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let registrations = (from_registration, to_registration);
    // SAFETY: the caller's arguments.
    unsafe {
        all_reduce(
            comm,
            from,
            to,
            count,
            data_type,
            operation,
            registrations.0,
            registrations.1,
            request,
        )
    }
}

/// Memory of the host needs no flush: there is no request to wait for.
unsafe extern "C" fn flush(
    _: *mut c_void,
    _: *mut c_void,
    _: c_int,
    _: *mut c_void,
    request: *mut *mut c_void,
) -> Status {
    // SAFETY: NCCL's place for the request.
    guarded("iflush", || unsafe { write(request, std::ptr::null_mut()) })
}

unsafe extern "C" fn test(request: *mut c_void, done: *mut c_int, bytes: *mut c_int) -> Status {
    guarded("test", || {
        // SAFETY: a request that NCCL was given, of a communicator that it has not closed; and its places for the results.
        unsafe {
            write(done, 0)?;
            let request = borrowed::<Request>(request)?;
            let comm = borrowed::<Comm>(request.comm().cast_mut().cast())?;
            if let Some(summed) = request.test(comm)? {
                write_if_asked(bytes, c_int::try_from(summed).unwrap_or(c_int::MAX));
                write(done, 1)?;
            }
            Ok(())
        }
    })
}

unsafe extern "C" fn close(comm: *mut c_void) -> Status {
    guarded("closeColl", || {
        if !comm.is_null() {
            // SAFETY: it came from a box, and NCCL closes it once.
            unsafe { Box::from_raw(comm.cast::<Comm>()) }.close();
        }
        Ok(())
    })
}
