//! Layouts and numbers of NCCL's plug-in interface.

pub mod coll;
pub mod net;
pub mod properties;
pub mod tuner;

use std::ffi::{c_char, c_int, c_ulong, c_void};

/// Status code of a call, `ncclResult_t`.
pub type Status = c_int;

/// Status codes that the plug-in returns.
pub mod status {
    use super::Status;

    /// The call worked.
    pub const SUCCESS: Status = 0;
    /// The system refused something.
    pub const SYSTEM: Status = 2;
    /// A defect.
    pub const INTERNAL: Status = 3;
    /// An argument is invalid.
    pub const INVALID_ARGUMENT: Status = 4;
    /// Ranks made calls that do not fit each other, or a setting is invalid.
    pub const INVALID_USAGE: Status = 5;
    /// Another rank, a switch or a server is at fault.
    pub const REMOTE: Status = 6;
}

/// Bytes of a handle.
pub const HANDLE_BYTES: usize = 128;
/// Memory of the host, the only kind that the plug-in takes.
pub const PTR_HOST: c_int = 1;
/// Largest message or sum: 1 GiB.
pub const BYTES_MAX: usize = 1 << 30;
/// `ncclFuncAllReduce`.
pub const FUNC_ALL_REDUCE: c_int = 4;
/// `NCCL_ALGO_COLLNET_CHAIN`.
pub const ALGO_COLLNET_CHAIN: usize = 3;
/// `NCCL_PROTO_SIMPLE`.
pub const PROTO_SIMPLE: usize = 2;
/// Entry of a cost table for what NCCL does not allow.
pub const COST_IGNORED: f32 = -1.0;

/// NCCL's function that writes to its log.
pub type Logger =
    unsafe extern "C" fn(c_int, c_ulong, *const c_char, c_int, *const c_char, ...) -> ();

/// Level of a message that NCCL shows by default where it shows anything.
pub const LOG_WARN: c_int = 2;
/// Level of a message for those that ask for it.
pub const LOG_INFO: c_int = 3;
/// Subsystems of messages: initialisation and network.
pub const LOG_INIT_NET: c_ulong = 0x11;

/// A function of a table that the plug-in does not have.
pub type Absent = Option<unsafe extern "C" fn()>;

/// `init` with a logger alone.
pub type InitWithLog = unsafe extern "C" fn(Option<Logger>) -> Status;
/// `listen` before version 11.
pub type Listen = unsafe extern "C" fn(c_int, *mut c_void, *mut *mut c_void) -> Status;
/// `listen` with a context.
pub type ListenIn =
    unsafe extern "C" fn(*mut c_void, c_int, *mut c_void, *mut *mut c_void) -> Status;
/// `regMr`.
pub type Register =
    unsafe extern "C" fn(*mut c_void, *mut c_void, usize, c_int, *mut *mut c_void) -> Status;
/// `deregMr`.
pub type Deregister = unsafe extern "C" fn(*mut c_void, *mut c_void) -> Status;
/// `devices`.
pub type Devices = unsafe extern "C" fn(*mut c_int) -> Status;
/// `getProperties`.
pub type Properties<P> = unsafe extern "C" fn(c_int, *mut P) -> Status;
/// `test`.
pub type Test = unsafe extern "C" fn(*mut c_void, *mut c_int, *mut c_int) -> Status;
/// Closing, and `finalize`.
pub type Close = unsafe extern "C" fn(*mut c_void) -> Status;

/// Asserts offsets of fields, in bytes.
#[cfg(test)]
macro_rules! assert_offsets {
    ($table:ty, $($field:ident: $offset:expr),+ $(,)?) => {
        $(assert_eq!(std::mem::offset_of!($table, $field), $offset, stringify!($field));)+
    };
}
#[cfg(test)]
use assert_offsets;
