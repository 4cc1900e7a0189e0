//! Calls that net and CollNet have in the same slots.
#![expect(unsafe_code, reason = "functions of tables are called by their addresses")]

use std::ffi::{c_char, c_int, c_void};

use crate::library::{Table, text};
use crate::{CallError, Handle, succeeded};

type Pointer = *mut c_void;

/// Something of the plug-in: a connection, a communicator, a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object(pub(crate) Pointer);

impl Object {
    /// Nothing.
    pub const NULL: Object = Object(std::ptr::null_mut());

    /// Returns true if it is nothing: the plug-in has it later.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }
}

/// Properties of a device.
#[derive(Clone, Debug)]
pub struct Properties {
    /// Name of the interface.
    pub name: String,
    /// Speed in Mbps.
    pub speed_mbps: i32,
    /// The bytes that the plug-in has written, and behind them those that it has left at `0xaa`.
    pub bytes: [u8; 256],
}

/// One of the two interfaces, of one version.
#[derive(Debug)]
pub struct Interface {
    pub(crate) table: Table,
    pub(crate) version: u32,
    pub(crate) context: Pointer,
    /// Slot of `test`.
    pub(crate) test_slot: usize,
}

impl Interface {
    /// Name of the plug-in.
    pub fn plugin_name(&self) -> String {
        self.table.plugin_name()
    }

    /// Number of devices.
    pub fn devices(&self) -> Result<c_int, CallError> {
        let mut count = 0;
        // SAFETY: the published signature.
        let status = unsafe { self.table.function::<fn(*mut c_int) -> c_int>(2)?(&raw mut count) };
        succeeded("devices", status).map(|()| count)
    }

    /// Properties of a device.
    pub fn properties(&self, device: c_int) -> Result<Properties, CallError> {
        let mut bytes = [0xaa_u8; 256];
        // SAFETY: the published signature, with more memory than any version writes.
        let status = unsafe {
            self.table.function::<fn(c_int, *mut u8) -> c_int>(3)?(device, bytes.as_mut_ptr())
        };
        succeeded("getProperties", status)?;
        let (name, rest) = bytes.split_first_chunk().expect("it has more bytes");
        let speed_at = if self.version == 8 { 32 } else { 36 } - name.len();
        let speed = rest[speed_at..].first_chunk().expect("it has more bytes");
        // SAFETY: the plug-in has written the address of a name.
        let name = unsafe { text(usize::from_ne_bytes(*name) as *const c_char) };
        let speed_mbps = i32::from_ne_bytes(*speed);
        Ok(Properties { name: name.unwrap_or_default(), speed_mbps, bytes })
    }

    /// Begins to listen at device 0.
    pub fn listen(&self) -> Result<(Handle, Object), CallError> {
        let mut handle = [0; 128];
        let mut listening = std::ptr::null_mut();
        let (at, to): (Pointer, _) = (handle.as_mut_ptr().cast(), &raw mut listening);
        // SAFETY: the published signatures.
        let status = unsafe {
            if self.version < 11 {
                self.table.function::<fn(c_int, Pointer, *mut Pointer) -> c_int>(4)?(0, at, to)
            } else {
                type Listen = fn(Pointer, c_int, Pointer, *mut Pointer) -> c_int;
                self.table.function::<Listen>(4)?(self.context, 0, at, to)
            }
        };
        succeeded("listen", status).map(|()| (handle, Object(listening)))
    }

    /// Registers memory of a kind: 1 for that of the host, 2 for that of a GPU.
    pub fn register(
        &self,
        comm: Object,
        memory: &mut [u8],
        kind: c_int,
    ) -> Result<Object, CallError> {
        type Register = fn(Pointer, Pointer, usize, c_int, *mut Pointer) -> c_int;
        let mut registration = std::ptr::null_mut();
        let at: Pointer = memory.as_mut_ptr().cast();
        // SAFETY: the published signature. Plug-ins for memory of the host keep nothing of it.
        let status = unsafe {
            self.table.function::<Register>(7)?(
                comm.0,
                at,
                memory.len(),
                kind,
                &raw mut registration,
            )
        };
        succeeded("regMr", status).map(|()| Object(registration))
    }

    /// Ends a registration.
    pub fn deregister(&self, comm: Object, registration: Object) -> Result<(), CallError> {
        // SAFETY: the published signature.
        let status = unsafe {
            self.table.function::<fn(Pointer, Pointer) -> c_int>(9)?(comm.0, registration.0)
        };
        succeeded("deregMr", status)
    }

    /// Number of bytes of a request that has ended, and `None` before.
    pub fn test(&self, request: Object) -> Result<Option<usize>, CallError> {
        type Test = fn(Pointer, *mut c_int, *mut c_int) -> c_int;
        let (mut done, mut bytes) = (-1, -1);
        // SAFETY: the published signature.
        let status = unsafe {
            self.table.function::<Test>(self.test_slot)?(request.0, &raw mut done, &raw mut bytes)
        };
        succeeded("test", status)?;
        Ok((done == 1).then(|| usize::try_from(bytes).unwrap_or(usize::MAX)))
    }

    /// Calls a function that ends something.
    pub(crate) fn close(
        &self,
        call: &'static str,
        slot: usize,
        object: Pointer,
    ) -> Result<(), CallError> {
        // SAFETY: the published signature.
        let status = unsafe { self.table.function::<fn(Pointer) -> c_int>(slot)?(object) };
        succeeded(call, status)
    }

    /// Ends what listens.
    pub fn close_listen(&self, listening: Object) -> Result<(), CallError> {
        self.close("closeListen", 16, listening.0)
    }
}
