//! System calls on files of other processes. Everything `unsafe` of this crate is here.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Sets an option that is an unsigned long.
pub(crate) fn set_long_option(
    socket: BorrowedFd<'_>,
    level: i32,
    name: i32,
    value: u64,
) -> io::Result<()> {
    let value = libc::c_ulong::try_from(value).unwrap_or(libc::c_ulong::MAX);
    let value = value.to_ne_bytes();
    // SAFETY: the pointer and the length are those of an array that outlives the call.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    })?;
    Ok(())
}

/// Reads an option that is an unsigned long.
pub(crate) fn long_option(socket: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<u64> {
    let mut bytes = [0; 8];
    if option_bytes(socket, level, name, &mut bytes)? == bytes.len() {
        return Ok(u64::from_ne_bytes(bytes));
    }
    let [first, second, third, fourth, ..] = bytes;
    let value = u32::from_ne_bytes([first, second, third, fourth]);
    // To the kernel the largest number is no limit, however wide it is.
    Ok(if value == u32::MAX { u64::MAX } else { u64::from(value) })
}

/// Ignores the signals that ask a process to end. `SIGKILL` still ends it.
pub(crate) fn ignore_end_signals() {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the call takes integers only, and no handler is installed. It fails for unknown signals alone.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Reads an option that is a structure, as far as there is room for it; how long it was.
pub(crate) fn option_bytes(
    socket: BorrowedFd<'_>,
    level: i32,
    name: i32,
    bytes: &mut [u8],
) -> io::Result<usize> {
    let mut length = bytes.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most the stated length into a slice that is borrowed mutably, and
    // one length that lives in this frame.
    check(unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, bytes.as_mut_ptr().cast(), &mut length)
    })?;
    Ok(length as usize)
}

/// A file that stands for a process.
pub(crate) fn open_process(number: u32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes integers only.
    let file = unsafe { libc::syscall(libc::SYS_pidfd_open, number as libc::pid_t, 0) };
    let file = check(file as libc::c_int)?;
    // SAFETY: the kernel has just opened it, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

/// A copy of a file that another process has open.
pub(crate) fn copy_file(process: BorrowedFd<'_>, place: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes integers only.
    let file = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), place, 0) };
    let file = check(file as libc::c_int)?;
    // SAFETY: the kernel has just opened it, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
