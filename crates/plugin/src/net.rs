//! The net interface.
#![expect(unsafe_code, reason = "functions of tables are called by their addresses")]

use std::ffi::{c_int, c_void};
use std::ops::Deref;

use crate::interface::{Interface, Object};
use crate::library::Table;
use crate::{CallError, log, succeeded};

type Pointer = *mut c_void;

/// Tag of all messages.
const TAG: c_int = 3;

/// The net interface: messages between two ranks.
#[derive(Debug)]
pub struct Net(Interface);

impl Deref for Net {
    type Target = Interface;

    fn deref(&self) -> &Interface {
        &self.0
    }
}

impl Net {
    pub(crate) fn begin(table: Table, version: u32) -> Result<Net, CallError> {
        let (mut context, none) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the published signatures.
        let status = unsafe {
            match version {
                8 | 9 => table.function::<fn(Pointer) -> c_int>(1)?(log::pointer()),
                10 => table.function::<fn(Pointer, Pointer) -> c_int>(1)?(log::pointer(), none),
                _ => {
                    type Init = fn(*mut Pointer, u64, Pointer, Pointer, Pointer) -> c_int;
                    table.function::<Init>(1)?(&raw mut context, 7, none, log::pointer(), none)
                }
            }
        };
        succeeded("init", status)?;
        Ok(Net(Interface { table, version, context, test_slot: 13 }))
    }

    /// One attempt to connect to the rank whose handle it is. Null if it has to be made again, with the same bytes.
    pub fn connect(&self, handle: &mut [u8]) -> Result<Object, CallError> {
        type Plain = fn(c_int, Pointer, *mut Pointer, *mut Pointer) -> c_int;
        type Configured = fn(c_int, Pointer, Pointer, *mut Pointer, *mut Pointer) -> c_int;
        type InContext = fn(Pointer, c_int, Pointer, *mut Pointer, *mut Pointer) -> c_int;
        assert!(handle.len() >= 128, "a handle has 128 bytes");
        let mut channel: Pointer = std::ptr::dangling_mut::<u8>().cast();
        let mut device: Pointer = std::ptr::null_mut();
        let (at, none): (Pointer, Pointer) = (handle.as_mut_ptr().cast(), std::ptr::null_mut());
        let (to, device) = (&raw mut channel, &raw mut device);
        // SAFETY: the published signatures.
        let status = unsafe {
            match self.version {
                8 | 9 => self.table.function::<Plain>(5)?(0, at, to, device),
                10 => self.table.function::<Configured>(5)?(0, none, at, to, device),
                _ => self.table.function::<InContext>(5)?(self.context, 0, at, to, device),
            }
        };
        succeeded("connect", status).map(|()| Object(channel))
    }

    /// One attempt to accept. Null if nobody has connected.
    pub fn accept(&self, listening: Object) -> Result<Object, CallError> {
        type Accept = fn(Pointer, *mut Pointer, *mut Pointer) -> c_int;
        let mut channel: Pointer = std::ptr::dangling_mut::<u8>().cast();
        let mut device: Pointer = std::ptr::null_mut();
        // SAFETY: the published signature.
        let status = unsafe {
            self.table.function::<Accept>(6)?(listening.0, &raw mut channel, &raw mut device)
        };
        succeeded("accept", status).map(|()| Object(channel))
    }

    /// Begins to send. The request is null if the plug-in takes it later.
    ///
    /// # Safety
    ///
    /// Nobody frees or changes the memory until the request has ended.
    pub unsafe fn send(&self, channel: Object, data: &[u8]) -> Result<Object, CallError> {
        type V8 = fn(Pointer, Pointer, c_int, c_int, Pointer, *mut Pointer) -> c_int;
        type V9 = fn(Pointer, Pointer, usize, c_int, Pointer, *mut Pointer) -> c_int;
        type V10 = fn(Pointer, Pointer, usize, c_int, Pointer, Pointer, *mut Pointer) -> c_int;
        let mut request = std::ptr::null_mut();
        let none = std::ptr::null_mut();
        let (at, to): (Pointer, _) = (data.as_ptr().cast_mut().cast(), &raw mut request);
        let (table, length) = (&self.table, data.len());
        let short = c_int::try_from(length).expect("messages are short");
        // SAFETY: the published signatures, and the caller's memory.
        let status = unsafe {
            match self.version {
                8 => table.function::<V8>(10)?(channel.0, at, short, TAG, none, to),
                9 => table.function::<V9>(10)?(channel.0, at, length, TAG, none, to),
                _ => table.function::<V10>(10)?(channel.0, at, length, TAG, none, none, to),
            }
        };
        succeeded("isend", status).map(|()| Object(request))
    }

    /// Begins `count` receives in one, all into the same memory. The request is null if the plug-in takes it later.
    ///
    /// # Safety
    ///
    /// Nobody frees or uses the memory until the request has ended.
    pub unsafe fn receive(
        &self,
        channel: Object,
        count: c_int,
        data: &mut [u8],
    ) -> Result<Object, CallError> {
        type Ints = *mut c_int;
        type Many = *mut Pointer;
        type V8 = fn(Pointer, c_int, Many, Ints, Ints, Many, Many) -> c_int;
        type V9 = fn(Pointer, c_int, Many, *mut usize, Ints, Many, Many) -> c_int;
        type V10 = fn(Pointer, c_int, Many, *mut usize, Ints, Many, Many, Many) -> c_int;
        // NCCL gives this value where it does not need the end reported.
        let mut request: Pointer = std::ptr::without_provenance_mut(1);
        let mut pointers = [data.as_mut_ptr().cast::<c_void>(); 2];
        let mut ints = [c_int::try_from(data.len()).expect("messages are short"); 2];
        let mut sizes = [data.len(); 2];
        let mut tags = [TAG; 2];
        let mut none: [Pointer; 2] = [std::ptr::null_mut(); 2];
        let (at, tags, none) = (pointers.as_mut_ptr(), tags.as_mut_ptr(), none.as_mut_ptr());
        let (ints, sizes, to) = (ints.as_mut_ptr(), sizes.as_mut_ptr(), &raw mut request);
        let (table, channel) = (&self.table, channel.0);
        // SAFETY: the published signatures, and the caller's memory.
        let status = unsafe {
            match self.version {
                8 => table.function::<V8>(11)?(channel, count, at, ints, tags, none, to),
                9 => table.function::<V9>(11)?(channel, count, at, sizes, tags, none, to),
                _ => table.function::<V10>(11)?(channel, count, at, sizes, tags, none, none, to),
            }
        };
        succeeded("irecv", status).map(|()| Object(request))
    }

    /// Ends a connection that sends.
    pub fn close_send(&self, channel: Object) -> Result<(), CallError> {
        self.close("closeSend", 14, channel.0)
    }

    /// Ends a connection that receives.
    pub fn close_receive(&self, channel: Object) -> Result<(), CallError> {
        self.close("closeRecv", 15, channel.0)
    }

    /// Ends the use of the interface.
    pub fn finalize(self) -> Result<(), CallError> {
        if self.version < 11 { Ok(()) } else { self.close("finalize", 20, self.context) }
    }
}
