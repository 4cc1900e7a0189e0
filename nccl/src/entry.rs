//! The edge between NCCL's calls and Rust: panics, null pointers, results.
#![expect(unsafe_code, reason = "arguments are pointers of NCCL's")]

use std::any::Any;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::abi::{HANDLE_BYTES, Status, status};
use crate::failure::Failure;
use crate::log;

/// Runs the body of a call. A failure is logged and becomes a status code, and so does a panic: none leaves the library.
pub fn guarded(call: &str, body: impl FnOnce() -> Result<(), Failure>) -> Status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => status::SUCCESS,
        Ok(Err(failure)) => {
            if let Some(text) = failure.text {
                log::warn(&format!("{call}: {text}"));
            }
            failure.status
        }
        Err(panic) => {
            let text = text_of(panic.as_ref());
            // The logger may be the part that is broken.
            let _ = catch_unwind(|| log::warn(&format!("{call}: a defect of the plug-in: {text}")));
            status::INTERNAL
        }
    }
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no reason")
}

/// Writes a result.
///
/// # Safety
///
/// `to` is null or points to memory for the value.
pub unsafe fn write<T>(to: *mut T, value: T) -> Result<(), Failure> {
    if to.is_null() {
        return Err(Failure::argument("there is no place for the result"));
    }
    // SAFETY: it is not null, and so memory for the value. Of structures, NCCL has not written any field.
    unsafe { to.write(value) };
    Ok(())
}

/// Writes a result that the caller may not ask for.
///
/// # Safety
///
/// As for [`write`].
pub unsafe fn write_if_asked<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: as in `write`.
        unsafe { to.write(value) };
    }
}

/// A reference to something that the plug-in has handed out.
///
/// # Safety
///
/// `of` is null or a pointer to a `T` that lives as long as the call.
pub unsafe fn borrowed<'a, T>(of: *mut c_void) -> Result<&'a T, Failure> {
    // SAFETY: the caller's.
    unsafe { of.cast::<T>().as_ref() }.ok_or_else(|| Failure::argument("the object is null"))
}

/// The bytes of a handle.
///
/// # Safety
///
/// `handle` is null or points to the bytes of a handle that nobody else uses during the call.
pub unsafe fn handle<'a>(handle: *mut c_void) -> Result<&'a mut [u8; HANDLE_BYTES], Failure> {
    // SAFETY: the caller's.
    let handle = unsafe { handle.cast::<[u8; HANDLE_BYTES]>().as_mut() };
    handle.ok_or_else(|| Failure::argument("the handle is null"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_status() {
        assert_eq!(guarded("call", || panic!("on purpose")), status::INTERNAL);
        assert_eq!(guarded("call", || panic!("{}", "on purpose")), status::INTERNAL);
        assert_eq!(guarded("call", || Ok(())), status::SUCCESS);
        let refused = || Err(Failure::argument("on purpose"));
        assert_eq!(guarded("call", refused), status::INVALID_ARGUMENT);
    }
}
