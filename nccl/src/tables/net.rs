//! Tables of the net interface, versions 8 to 12.
#![expect(unsafe_code, reason = "functions are called by NCCL, with pointers")]

use std::ffi::{c_int, c_void};

use super::{
    Exported, Listens, check_device, close_listen, deregister, devices, finalize, init,
    init_context, listen, listen_in_context, properties, register,
};
use crate::NAME;
use crate::abi::net::{NetRestV9, NetRestV11, NetTable, NetV8, NetV9, NetV10, NetV11, NetV12};
use crate::abi::{HANDLE_BYTES, Logger, Status};
use crate::device::Device;
use crate::entry::{borrowed, guarded, handle, write, write_if_asked};
use crate::failure::Failure;
use crate::memory::Memory;
use crate::net::{self, Channel, Request};

/// Listening for messages.
struct Messages;

impl Listens for Messages {
    fn listen(handle: &mut [u8; HANDLE_BYTES]) -> Result<*mut c_void, Failure> {
        net::listen(handle)
    }
}

/// A table: functions that all versions share, and those that differ.
const fn table<P: From<&'static Device>, I, L, C, S, R, Rest>(
    init: I,
    listen: L,
    connect: C,
    send: S,
    receive: R,
    rest: Rest,
) -> Exported<NetTable<P, I, L, C, S, R, Rest>> {
    Exported(NetTable {
        name: NAME.as_ptr(),
        init,
        devices,
        properties: properties::<P>,
        listen,
        connect,
        accept,
        register,
        register_dmabuf: None,
        deregister,
        send,
        receive,
        flush,
        test,
        close_send: close,
        close_receive: close,
        close_listen,
        device_registration: None,
        receive_consumed: None,
        rest,
    })
}

const REST_V9: NetRestV9 = NetRestV9 { make_virtual: None };
const REST_V11: NetRestV11 = NetRestV11 { make_virtual: None, finalize, set_attributes: None };

/// Version 8.
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v8: Exported<NetV8> =
    table(init, listen::<Messages>, connect, send_int, receive_int, ());

/// Version 9.
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v9: Exported<NetV9> =
    table(init, listen::<Messages>, connect, send, receive, REST_V9);

/// Version 10.
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v10: Exported<NetV10> = table(
    init_with_profiler,
    listen::<Messages>,
    connect_with,
    send_profiled,
    receive_profiled,
    REST_V9,
);

/// Version 11.
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v11: Exported<NetV11> = table(
    init_in_context,
    listen_in_context::<Messages>,
    connect_in_context,
    send_profiled,
    receive_profiled,
    REST_V11,
);

/// Version 12.
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v12: Exported<NetV12> = table(
    init_in_context,
    listen_in_context::<Messages>,
    connect_in_context,
    send_profiled,
    receive_profiled,
    REST_V11,
);

unsafe extern "C" fn init_with_profiler(logger: Option<Logger>, _: *mut c_void) -> Status {
    // SAFETY: the caller's arguments.
    unsafe { init(logger) }
}

unsafe extern "C" fn init_in_context(
    context: *mut *mut c_void,
    _: u64,
    _: *mut c_void,
    logger: Option<Logger>,
    _: *mut c_void,
) -> Status {
    // SAFETY: the caller's arguments.
    unsafe { init_context(context, logger) }
}

unsafe extern "C" fn connect(
    device: c_int,
    handle_bytes: *mut c_void,
    channel: *mut *mut c_void,
    device_handle: *mut *mut c_void,
) -> Status {
    guarded("connect", || {
        check_device(device)?;
        // SAFETY: NCCL's places for the connection and its device handle, and its handle.
        unsafe {
            write(channel, std::ptr::null_mut())?;
            write_if_asked(device_handle, std::ptr::null_mut());
            let connected = net::connect(handle(handle_bytes)?)?;
            write(channel, connected.map_or(std::ptr::null_mut(), |new| Box::into_raw(new).cast()))
        }
    })
}

unsafe extern "C" fn connect_with(
    device: c_int,
    _: *mut c_void,
    handle_bytes: *mut c_void,
    channel: *mut *mut c_void,
    device_handle: *mut *mut c_void,
) -> Status {
    // SAFETY: the caller's arguments.
    unsafe { connect(device, handle_bytes, channel, device_handle) }
}

unsafe extern "C" fn connect_in_context(
    _: *mut c_void,
    device: c_int,
    handle_bytes: *mut c_void,
    channel: *mut *mut c_void,
    device_handle: *mut *mut c_void,
) -> Status {
    // SAFETY: the caller's arguments.
    unsafe { connect(device, handle_bytes, channel, device_handle) }
}

unsafe extern "C" fn accept(
    listening: *mut c_void,
    channel: *mut *mut c_void,
    device_handle: *mut *mut c_void,
) -> Status {
    guarded("accept", || {
        // SAFETY: NCCL's places for the connection and its device handle.
        unsafe {
            write(channel, std::ptr::null_mut())?;
            write_if_asked(device_handle, std::ptr::null_mut());
            let accepted = net::accept(listening)?;
            write(channel, accepted.map_or(std::ptr::null_mut(), |new| Box::into_raw(new).cast()))
        }
    })
}

/// Begins a request in memory.
unsafe fn begin(
    call: &str,
    channel: *mut c_void,
    memory: Result<Memory, Failure>,
    request: *mut *mut c_void,
) -> Status {
    guarded(call, || {
        // SAFETY: NCCL's place for the request, and a channel that it has not closed.
        unsafe {
            write(request, std::ptr::null_mut())?;
            let begun = borrowed::<Channel>(channel)?.begin(memory?)?;
            let begun = begun
                .map_or(std::ptr::null_mut(), |begun| std::ptr::from_ref(begun).cast_mut().cast());
            write(request, begun)
        }
    })
}

unsafe extern "C" fn send(
    channel: *mut c_void,
    data: *mut c_void,
    bytes: usize,
    _: c_int,
    _: *mut c_void,
    request: *mut *mut c_void,
) -> Status {
    // SAFETY: the caller's arguments.
    unsafe { begin("isend", channel, Memory::new(data, bytes), request) }
}

unsafe extern "C" fn send_int(
    channel: *mut c_void,
    data: *mut c_void,
    bytes: c_int,
    tag: c_int,
    registration: *mut c_void,
    request: *mut *mut c_void,
) -> Status {
    // A negative length is none that any message has. SAFETY: the caller's arguments.
    unsafe {
        send(
            channel,
            data,
            usize::try_from(bytes).unwrap_or(usize::MAX),
            tag,
            registration,
            request,
        )
    }
}

unsafe extern "C" fn send_profiled(
    channel: *mut c_void,
    data: *mut c_void,
    bytes: usize,
    tag: c_int,
    registration: *mut c_void,
    _: *mut c_void,
    request: *mut *mut c_void,
) -> Status {
    // SAFETY: the caller's arguments.
    unsafe { send(channel, data, bytes, tag, registration, request) }
}

/// The only memory of a receive.
unsafe fn only(
    count: c_int,
    data: *mut *mut c_void,
    bytes: impl FnOnce() -> usize,
) -> Result<Memory, Failure> {
    if count != 1 || data.is_null() {
        return Err(Failure::argument(format!("{count} receives in one: a device takes 1")));
    }
    // SAFETY: arrays of one address and one length.
    Memory::new(unsafe { *data }, bytes())
}

unsafe extern "C" fn receive(
    channel: *mut c_void,
    count: c_int,
    data: *mut *mut c_void,
    bytes: *mut usize,
    _: *mut c_int,
    _: *mut *mut c_void,
    request: *mut *mut c_void,
) -> Status {
    // SAFETY: the caller's arguments: arrays of `count` entries.
    unsafe { begin("irecv", channel, only(count, data, || *bytes), request) }
}

unsafe extern "C" fn receive_int(
    channel: *mut c_void,
    count: c_int,
    data: *mut *mut c_void,
    bytes: *mut c_int,
    _: *mut c_int,
    _: *mut *mut c_void,
    request: *mut *mut c_void,
) -> Status {
    // SAFETY: as in `receive`.
    unsafe {
        let bytes = || usize::try_from(*bytes).unwrap_or(usize::MAX);
        begin("irecv", channel, only(count, data, bytes), request)
    }
}

unsafe extern "C" fn receive_profiled(
    channel: *mut c_void,
    count: c_int,
    data: *mut *mut c_void,
    bytes: *mut usize,
    tags: *mut c_int,
    registrations: *mut *mut c_void,
    _: *mut *mut c_void,
    request: *mut *mut c_void,
) -> Status {
    // SAFETY: the caller's arguments.
    unsafe { receive(channel, count, data, bytes, tags, registrations, request) }
}

/// Memory of the host needs no flush: there is no request to wait for.
unsafe extern "C" fn flush(
    _: *mut c_void,
    _: c_int,
    _: *mut *mut c_void,
    _: *mut c_int,
    _: *mut *mut c_void,
    request: *mut *mut c_void,
) -> Status {
    // SAFETY: NCCL's place for the request.
    guarded("iflush", || unsafe { write(request, std::ptr::null_mut()) })
}

unsafe extern "C" fn test(request: *mut c_void, done: *mut c_int, bytes: *mut c_int) -> Status {
    guarded("test", || {
        // SAFETY: a request that NCCL was given, of a channel that it has not closed; and its places for the results.
        unsafe {
            write(done, 0)?;
            let request = borrowed::<Request>(request)?;
            let channel = borrowed::<Channel>(request.channel().cast_mut().cast())?;
            if let Some(moved) = request.test(channel)? {
                write_if_asked(bytes, c_int::try_from(moved).unwrap_or(c_int::MAX));
                write(done, 1)?;
            }
            Ok(())
        }
    })
}

unsafe extern "C" fn close(channel: *mut c_void) -> Status {
    guarded("close", || {
        // SAFETY: it came from a box, and NCCL closes it once.
        drop(unsafe { (!channel.is_null()).then(|| Box::from_raw(channel.cast::<Channel>())) });
        Ok(())
    })
}
