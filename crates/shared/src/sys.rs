//! The system calls that need pointers.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps until the word is woken, at most so long, unless it has another value already. A signal
/// ends it early, and so does the kernel when it likes: the caller looks again.
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32, at_most: Duration) {
    let timeout = libc::timespec {
        tv_sec: at_most.as_secs().min(i32::MAX as u64) as libc::time_t,
        tv_nsec: at_most.subsec_nanos() as _,
    };
    // SAFETY: the word and the timeout outlive the call, which reads them and writes nothing. The
    // word is shared between processes, so the operation is not the private one.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            expected,
            ptr::from_ref(&timeout),
        );
    }
}

/// Wakes everybody who sleeps on the word.
pub(crate) fn futex_wake(word: &AtomicU32) {
    // SAFETY: the kernel uses the address only to find who sleeps there.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// Makes the file so long, with its pages set aside: a write to them cannot fail later.
pub(crate) fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    let bytes = libc::off_t::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
    loop {
        // SAFETY: the call takes no pointers, and the descriptor is open.
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes) } {
            0 => return Ok(()),
            libc::EINTR => {}
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// Bytes that a user may still fill in the file system of a path.
pub(crate) fn free_bytes(path: &Path) -> io::Result<u64> {
    let path = c_path(path)?;
    // SAFETY: all fields are integers, for which zero is valid.
    let mut stat: libc::statvfs = unsafe { mem::zeroed() };
    // SAFETY: the path ends in a zero byte, and the call fills in one `statvfs`; both are in this
    // frame.
    check(unsafe { libc::statvfs(path.as_ptr(), &mut stat) })?;
    // One that is not limited says that it has no blocks at all.
    if stat.f_blocks == 0 {
        return Ok(u64::MAX);
    }
    #[allow(clippy::unnecessary_cast, reason = "the types differ between systems")]
    Ok((stat.f_bavail as u64).saturating_mul(stat.f_frsize as u64))
}

/// Gives an open file without a name its name, unless the name is taken.
pub(crate) fn link(file: &File, path: &Path) -> io::Result<()> {
    let from = c_path(format!("/proc/self/fd/{}", file.as_raw_fd()).as_ref())?;
    let to = c_path(path)?;
    let here = libc::AT_FDCWD;
    // SAFETY: both paths end in a zero byte and are in this frame.
    check(unsafe { libc::linkat(here, from.as_ptr(), here, to.as_ptr(), libc::AT_SYMLINK_FOLLOW) })
}

/// User that owns the files of this process.
pub(crate) fn user() -> u32 {
    // SAFETY: the call takes no arguments and cannot fail.
    unsafe { libc::geteuid() }
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
