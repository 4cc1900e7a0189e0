//! Tables of the tuner interface.

use std::ffi::{c_char, c_int, c_void};

use super::{Absent, Close, Logger, Status};

/// `init` of version 4: numbers of ranks and nodes, a logger, and the context.
pub type Init = unsafe extern "C" fn(usize, usize, Option<Logger>, *mut *mut c_void) -> Status;
/// `init` from version 5 on: context, identifier, numbers of ranks and nodes, a logger, and two structures of NCCL's.
pub type InitContext = unsafe extern "C" fn(
    *mut *mut c_void,
    u64,
    usize,
    usize,
    Option<Logger>,
    *mut c_void,
    *mut c_void,
) -> Status;
/// `getCollInfo`: context, function, bytes, operations in the group, the table of costs with its two dimensions, whether
/// buffers can be registered, and the number of channels. NCCL declares the table as `float**`; it is a flat array.
pub type Choose = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    usize,
    c_int,
    *mut f32,
    c_int,
    c_int,
    c_int,
    *mut c_int,
) -> Status;

/// A table of any version.
#[repr(C)]
pub struct TunerTable<I, Rest> {
    /// Name of the plug-in.
    pub name: *const c_char,
    /// Begins for a communicator.
    pub init: I,
    /// Changes the costs of an operation.
    pub choose: Choose,
    /// Ends a communicator.
    pub finalize: Close,
    /// Functions that later versions have.
    pub rest: Rest,
}

/// The last function of version 6.
#[repr(C)]
pub struct TunerRestV6 {
    /// Changes the length of the pieces that an operation is made of.
    pub chunk_bytes: Absent,
}

/// Version 4.
pub type TunerV4 = TunerTable<Init, ()>;
/// Version 5.
pub type TunerV5 = TunerTable<InitContext, ()>;
/// Version 6.
pub type TunerV6 = TunerTable<InitContext, TunerRestV6>;

#[cfg(test)]
mod tests {
    use std::mem::size_of;

    use super::super::assert_offsets;
    use super::*;

    #[test]
    fn tables_have_the_published_offsets() {
        assert_offsets!(TunerV4, name: 0, init: 8, choose: 16, finalize: 24);
        assert_offsets!(TunerV5, name: 0, init: 8, choose: 16, finalize: 24);
        assert_offsets!(TunerV6, name: 0, init: 8, choose: 16, finalize: 24, rest: 32);
        assert_eq!(
            (size_of::<TunerV4>(), size_of::<TunerV5>(), size_of::<TunerV6>()),
            (32, 32, 40)
        );
    }
}
