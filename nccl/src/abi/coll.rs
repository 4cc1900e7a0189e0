//! Tables of the CollNet interface.

use std::ffi::{c_char, c_int, c_void};

use super::properties::{PropertiesV8, PropertiesV9, PropertiesV11, PropertiesV12};
use super::{
    Absent, Close, Deregister, Devices, InitWithLog, Listen, ListenIn, Logger, Properties,
    Register, Status, Test,
};

/// `init` from version 11 on: a context for each communicator, its identifier, and a logger.
pub type InitContext = unsafe extern "C" fn(*mut *mut c_void, u64, Option<Logger>) -> Status;
/// `connect`: handles of all ranks, their number, this rank, what listens, and the communicator.
pub type Connect =
    unsafe extern "C" fn(*mut *mut c_void, c_int, c_int, *mut c_void, *mut *mut c_void) -> Status;
/// `reduceSupport`: type of the values, operation, and the answer.
pub type Supports = unsafe extern "C" fn(c_int, c_int, *mut c_int) -> Status;
/// `iallreduce`, with a count of a type.
pub type AllReduce<Count> = unsafe extern "C" fn(
    *mut c_void,
    *mut c_void,
    *mut c_void,
    Count,
    c_int,
    c_int,
    *mut c_void,
    *mut c_void,
    *mut *mut c_void,
) -> Status;
/// `iflush`.
pub type Flush =
    unsafe extern "C" fn(*mut c_void, *mut c_void, c_int, *mut c_void, *mut *mut c_void) -> Status;

/// A table of any version. Types that differ between versions are parameters.
#[repr(C)]
pub struct CollTable<P, I, L, A, Rest> {
    /// Name of the plug-in.
    pub name: *const c_char,
    /// Begins, for the process or for a communicator.
    pub init: I,
    /// Number of devices.
    pub devices: Devices,
    /// Properties of a device.
    pub properties: Properties<P>,
    /// Begins to listen, and writes the handle that all ranks get.
    pub listen: L,
    /// Connects all ranks.
    pub connect: Connect,
    /// Answers whether an operation on a type can be done.
    pub supports: Supports,
    /// Registers memory.
    pub register: Register,
    /// Registers memory of a device.
    pub register_dmabuf: Absent,
    /// Ends the registration of memory.
    pub deregister: Deregister,
    /// Begins an all-reduce.
    pub all_reduce: A,
    /// Begins an all-gather.
    pub all_gather: Absent,
    /// Begins a reduce-scatter.
    pub reduce_scatter: Absent,
    /// Makes memory of a device visible.
    pub flush: Flush,
    /// Asks whether a request has ended.
    pub test: Test,
    /// Closes a communicator.
    pub close: Close,
    /// Ends listening.
    pub close_listen: Close,
    /// Functions that later versions have.
    pub rest: Rest,
}

/// The last functions of versions 9 and 10.
#[repr(C)]
pub struct CollRestV9 {
    /// Makes one device of several.
    pub make_virtual: Absent,
}

/// The last functions from version 11 on.
#[repr(C)]
pub struct CollRestV11 {
    /// Makes one device of several.
    pub make_virtual: Absent,
    /// Ends a communicator.
    pub finalize: Close,
}

/// Version 8.
pub type CollV8 = CollTable<PropertiesV8, InitWithLog, Listen, AllReduce<c_int>, ()>;
/// Versions 9 and 10.
pub type CollV9 = CollTable<PropertiesV9, InitWithLog, Listen, AllReduce<usize>, CollRestV9>;
/// Version 11 or 12, which differ in their properties.
type CollWithContext<P> = CollTable<P, InitContext, ListenIn, AllReduce<usize>, CollRestV11>;
/// Version 11.
pub type CollV11 = CollWithContext<PropertiesV11>;
/// Version 12.
pub type CollV12 = CollWithContext<PropertiesV12>;

#[cfg(test)]
mod tests {
    use std::mem::size_of;

    use super::super::assert_offsets;
    use super::*;

    macro_rules! assert_table {
        ($table:ty, $bytes:expr) => {
            assert_offsets!($table, name: 0, init: 8, devices: 16, properties: 24, listen: 32);
            assert_offsets!($table, connect: 40, supports: 48, register: 56, register_dmabuf: 64);
            assert_offsets!($table, deregister: 72, all_reduce: 80, all_gather: 88);
            assert_offsets!($table, reduce_scatter: 96, flush: 104, test: 112, close: 120);
            assert_offsets!($table, close_listen: 128, rest: 136);
            assert_eq!(size_of::<$table>(), $bytes);
        };
    }

    #[test]
    fn tables_have_the_published_offsets() {
        assert_table!(CollV8, 136);
        assert_table!(CollV9, 144);
        assert_table!(CollV11, 152);
        assert_table!(CollV12, 152);
        assert_offsets!(CollRestV11, make_virtual: 0, finalize: 8);
    }
}
