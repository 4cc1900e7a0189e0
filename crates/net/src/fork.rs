//! Sockets that a forked child does not keep.
//!
//! A child shares the open sockets of its parent. While it has a connection, the kernel does not close that when the
//! parent dies, and the other end does not learn of the death. `exec` closes such sockets, but there are children that
//! never call it: those that load data for a training, for example.
// spec: E-01

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::sys;

/// Most sockets of a process that are closed in children. Those beyond it stay open there.
const SOCKETS_MAX: usize = 4_096;

/// In place of a socket.
const NONE: RawFd = -1;

/// Sockets that children close. No lock guards them, which a child that has just been forked could not take.
static SOCKETS: [AtomicI32; SOCKETS_MAX] = [const { AtomicI32::new(NONE) }; SOCKETS_MAX];

/// Keeps a socket from children that are forked while this lives. Drop it before the socket.
#[derive(Debug)]
pub struct KeptFromChildren {
    entry: Option<&'static AtomicI32>,
}

impl KeptFromChildren {
    /// Closes `socket` in every child that is forked from now on. The number stays in use there, so that it does not
    /// become that of another file, which the memory of the parent would take for the socket.
    pub fn new(socket: &impl AsFd) -> KeptFromChildren {
        static HANDLER: Once = Once::new();
        HANDLER.call_once(|| sys::call_in_children(close_all));
        let number = socket.as_fd().as_raw_fd();
        let take = |entry: &&AtomicI32| {
            entry.compare_exchange(NONE, number, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        KeptFromChildren { entry: SOCKETS.iter().find(take) }
    }
}

impl Drop for KeptFromChildren {
    fn drop(&mut self) {
        if let Some(entry) = self.entry {
            entry.store(NONE, Ordering::SeqCst);
        }
    }
}

/// Runs in a child that has just been forked.
extern "C" fn close_all() {
    let numbers = SOCKETS.iter().map(|entry| entry.swap(NONE, Ordering::SeqCst));
    sys::replace_by_nothing(numbers.filter(|number| *number != NONE));
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "real sockets, real time")]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;

    /// Returns whether a connection closes at its far end when the parent of a living child closes it.
    fn closes(keeps: bool) -> bool {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let kept = keeps.then(|| KeptFromChildren::new(&near));
        let child = sys::fork_sleeper();
        drop((kept, near));
        far.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let end = far.read(&mut [0]);
        sys::end_sleeper(child);
        end.is_ok_and(|bytes| bytes == 0)
    }

    // spec: E-01 sockets
    #[test]
    fn a_child_keeps_no_connection_that_is_kept_from_it() {
        assert!(!closes(false), "the child has the connection");
        assert!(closes(true));
    }

    #[test]
    fn entries_are_used_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for _ in 0..2 * SOCKETS_MAX {
            assert!(KeptFromChildren::new(&listener).entry.is_some());
        }
    }
}
