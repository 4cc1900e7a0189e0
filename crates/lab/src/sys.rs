//! The system calls that no safe interface offers. Everything `unsafe` of this crate is here.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Write as _};
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

/// True if the effective user is root.
pub(crate) fn is_root() -> bool {
    // SAFETY: the call takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// The kernel's number for an open file.
pub(crate) fn file_number(file: BorrowedFd<'_>) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    File::from(file.try_clone_to_owned()?).metadata().map(|data| data.ino())
}

/// Ends a process at once. One that has ended needs no more.
pub(crate) fn kill(number: u32) {
    // SAFETY: the call takes integers only. The number is positive, so it is one process and no group.
    unsafe { libc::kill(number as libc::pid_t, libc::SIGKILL) };
}

/// Moves the calling thread into a new network namespace.
pub(crate) fn leave_network() -> io::Result<()> {
    // SAFETY: the call takes no pointers and changes only which network this thread sees.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) })
}

/// The network namespace of the calling thread. It lives as long as the file is open.
pub(crate) fn this_network() -> io::Result<OwnedFd> {
    File::open("/proc/thread-self/ns/net").map(OwnedFd::from)
}

/// Moves the calling thread into a network namespace.
pub(crate) fn enter_network(network: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the call takes an open file and changes only which network this thread sees.
    check(unsafe { libc::setns(network.as_raw_fd(), libc::CLONE_NEWNET) })
}

/// Makes the command run in a network namespace, and die when the thread that starts it ends.
pub(crate) fn enter_before_start(command: &mut Command, network: Arc<OwnedFd>) {
    let parent = std::process::id();
    let enter = move || {
        enter_network(std::os::fd::AsFd::as_fd(&*network))?;
        // SAFETY: the call takes integers only.
        check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) })?;
        // The parent may have died before the child could ask to die with it.
        // SAFETY: the call takes nothing and cannot fail.
        if unsafe { libc::getppid() } as u32 == parent {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(libc::ESRCH))
        }
    };
    // SAFETY: the closure runs between fork and exec. It makes three system calls that may be made
    // there, allocates nothing, and takes no locks.
    unsafe { command.pre_exec(enter) };
}

/// Makes the command, which leads a process group, write the group's number into a pipe before it begins.
pub(crate) fn tell_before_start(command: &mut Command, pipe: OwnedFd) {
    let tell = move || {
        let mut line = io::Cursor::new([0; 16]);
        writeln!(line, "{}", std::process::id())?;
        let bytes = line.position() as usize;
        // SAFETY: the kernel reads as many bytes as the line has, which lives in this frame.
        let written =
            unsafe { libc::write(pipe.as_raw_fd(), line.get_ref().as_ptr().cast(), bytes) };
        if written == bytes as isize { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: the closure runs between fork and exec. It makes two system calls that may be made there, allocates
    // nothing, and takes no locks.
    unsafe { command.pre_exec(tell) };
}

/// Sends a signal to the process group that a process leads. The process must not have been waited
/// for, or its number could be somebody else's by now.
pub(crate) fn signal_group(leader: u32, signal: i32) {
    // A group that is already gone needs no signal, and signals to one's own children are allowed.
    // SAFETY: the call takes integers only.
    let _ = unsafe { libc::kill(-(leader as libc::pid_t), signal) };
}

/// True if a child has ended. It can still be waited for.
pub(crate) fn has_ended(child: u32) -> io::Result<bool> {
    // SAFETY: it is a structure of integers, for which zero is valid.
    let mut info: libc::siginfo_t = unsafe { mem::zeroed() };
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: the call writes one structure that lives in this frame.
    check(unsafe { libc::waitid(libc::P_PID, child, &mut info, options) })?;
    // SAFETY: the call has filled the structure in, or left the zeroes where nothing has ended.
    Ok(unsafe { info.si_pid() } != 0)
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
