//! The log that a plug-in writes to.
#![expect(unsafe_code, reason = "the plug-in calls it with pointers")]

use std::ffi::{CStr, c_char, c_int, c_ulong, c_void};
use std::sync::{PoisonError, RwLock};

/// Level of a warning.
pub const WARN: i32 = 2;

/// A function that gets lines: level and text.
pub type Listener = fn(i32, &str);

static LISTENER: RwLock<Option<Listener>> = RwLock::new(None);

/// Sets the function that gets the lines of all libraries of this process.
pub fn listen(listener: Listener) {
    *LISTENER.write().unwrap_or_else(PoisonError::into_inner) = Some(listener);
}

/// The logger. NCCL's takes any number of arguments behind the format; plug-ins that know their text give `%s` and one
/// argument, and on the machines that NCCL runs on it is passed in the same place.
unsafe extern "C" fn logger(
    level: c_int,
    _: c_ulong,
    _: *const c_char,
    _: c_int,
    format: *const c_char,
    text: *const c_char,
) {
    // SAFETY: a plug-in gives a format.
    let format = unsafe { CStr::from_ptr(format) };
    let listener = *LISTENER.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(listener) = listener
        && format == c"%s"
    {
        // SAFETY: the format asks for one text.
        listener(level, &unsafe { CStr::from_ptr(text) }.to_string_lossy());
    }
}

/// The logger, as a plug-in takes it.
pub(crate) fn pointer() -> *mut c_void {
    logger as *const () as *mut c_void
}
