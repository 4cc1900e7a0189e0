//! Tables of the net interface.

use std::ffi::{c_char, c_int, c_void};

use super::properties::{PropertiesV8, PropertiesV9, PropertiesV11, PropertiesV12};
use super::{
    Absent, Close, Deregister, Devices, InitWithLog, Listen, ListenIn, Logger, Properties,
    Register, Status, Test,
};

/// `init` of version 10, with a callback of profilers.
pub type InitWithProfiler = unsafe extern "C" fn(Option<Logger>, *mut c_void) -> Status;
/// `init` from version 11 on: a context for each communicator, its identifier, a configuration, and as before.
pub type InitContext =
    unsafe extern "C" fn(*mut *mut c_void, u64, *mut c_void, Option<Logger>, *mut c_void) -> Status;
/// `connect` of versions 8 and 9.
pub type Connect =
    unsafe extern "C" fn(c_int, *mut c_void, *mut *mut c_void, *mut *mut c_void) -> Status;
/// `connect` of version 10, with a configuration.
pub type ConnectWith = unsafe extern "C" fn(
    c_int,
    *mut c_void,
    *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
) -> Status;
/// `connect` with a context.
pub type ConnectIn = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
) -> Status;
/// `accept`.
pub type Accept = unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *mut *mut c_void) -> Status;
/// `isend` of version 8.
pub type SendInt = unsafe extern "C" fn(
    *mut c_void,
    *mut c_void,
    c_int,
    c_int,
    *mut c_void,
    *mut *mut c_void,
) -> Status;
/// `isend` of version 9.
pub type Send = unsafe extern "C" fn(
    *mut c_void,
    *mut c_void,
    usize,
    c_int,
    *mut c_void,
    *mut *mut c_void,
) -> Status;
/// `isend` with a handle of profilers.
pub type SendProfiled = unsafe extern "C" fn(
    *mut c_void,
    *mut c_void,
    usize,
    c_int,
    *mut c_void,
    *mut c_void,
    *mut *mut c_void,
) -> Status;
/// `irecv`, with sizes of a type.
pub type Receive<Size> = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    *mut *mut c_void,
    *mut Size,
    *mut c_int,
    *mut *mut c_void,
    *mut *mut c_void,
) -> Status;
/// `irecv` with handles of profilers.
pub type ReceiveProfiled = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    *mut *mut c_void,
    *mut usize,
    *mut c_int,
    *mut *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
) -> Status;
/// `iflush`.
pub type Flush = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    *mut *mut c_void,
    *mut c_int,
    *mut *mut c_void,
    *mut *mut c_void,
) -> Status;

/// A table of any version. Types that differ between versions are parameters.
#[repr(C)]
pub struct NetTable<P, I, L, C, S, R, Rest> {
    /// Name of the plug-in.
    pub name: *const c_char,
    /// Begins, for the process or for a communicator.
    pub init: I,
    /// Number of devices.
    pub devices: Devices,
    /// Properties of a device.
    pub properties: Properties<P>,
    /// Begins to listen, and writes the handle that others connect to.
    pub listen: L,
    /// Connects to a handle, in any number of calls.
    pub connect: C,
    /// Accepts a connection, in any number of calls.
    pub accept: Accept,
    /// Registers memory.
    pub register: Register,
    /// Registers memory of a device.
    pub register_dmabuf: Absent,
    /// Ends the registration of memory.
    pub deregister: Deregister,
    /// Begins to send.
    pub send: S,
    /// Begins to receive.
    pub receive: R,
    /// Makes memory of a device visible.
    pub flush: Flush,
    /// Asks whether a request has ended.
    pub test: Test,
    /// Closes a connection of the sending side.
    pub close_send: Close,
    /// Closes a connection of the receiving side.
    pub close_receive: Close,
    /// Ends listening.
    pub close_listen: Close,
    /// Registration for devices that send by themselves.
    pub device_registration: Absent,
    /// Notice of such devices.
    pub receive_consumed: Absent,
    /// Functions that later versions have.
    pub rest: Rest,
}

/// The last functions of versions 9 and 10.
#[repr(C)]
pub struct NetRestV9 {
    /// Makes one device of several.
    pub make_virtual: Absent,
}

/// The last functions from version 11 on.
#[repr(C)]
pub struct NetRestV11 {
    /// Makes one device of several.
    pub make_virtual: Absent,
    /// Ends a communicator.
    pub finalize: Close,
    /// Hints about use.
    pub set_attributes: Absent,
}

/// Version 8.
pub type NetV8 = NetTable<PropertiesV8, InitWithLog, Listen, Connect, SendInt, Receive<c_int>, ()>;
/// Version 9.
pub type NetV9 =
    NetTable<PropertiesV9, InitWithLog, Listen, Connect, Send, Receive<usize>, NetRestV9>;
/// Version 10.
pub type NetV10 = NetTable<
    PropertiesV9,
    InitWithProfiler,
    Listen,
    ConnectWith,
    SendProfiled,
    ReceiveProfiled,
    NetRestV9,
>;
/// Version 11 or 12, which differ in their properties.
type NetWithContext<P> =
    NetTable<P, InitContext, ListenIn, ConnectIn, SendProfiled, ReceiveProfiled, NetRestV11>;
/// Version 11.
pub type NetV11 = NetWithContext<PropertiesV11>;
/// Version 12.
pub type NetV12 = NetWithContext<PropertiesV12>;

#[cfg(test)]
mod tests {
    use std::mem::size_of;

    use super::super::assert_offsets;
    use super::*;

    macro_rules! assert_table {
        ($table:ty, $bytes:expr) => {
            assert_offsets!($table, name: 0, init: 8, devices: 16, properties: 24, listen: 32);
            assert_offsets!($table, connect: 40, accept: 48, register: 56, register_dmabuf: 64);
            assert_offsets!($table, deregister: 72, send: 80, receive: 88, flush: 96, test: 104);
            assert_offsets!($table, close_send: 112, close_receive: 120, close_listen: 128);
            assert_offsets!($table, device_registration: 136, receive_consumed: 144, rest: 152);
            assert_eq!(size_of::<$table>(), $bytes);
        };
    }

    #[test]
    fn tables_have_the_published_offsets() {
        assert_table!(NetV8, 152);
        assert_table!(NetV9, 160);
        assert_table!(NetV10, 160);
        assert_table!(NetV11, 176);
        assert_table!(NetV12, 176);
        assert_offsets!(NetRestV11, make_virtual: 0, finalize: 8, set_attributes: 16);
    }
}
