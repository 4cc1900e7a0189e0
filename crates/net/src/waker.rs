//! Waker by which other threads reach a driver that sleeps.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crate::sys;

/// Ends the sleep of one driver, from any thread.
///
/// For an application whose commands come from other threads: put the command where the driver's
/// thread looks for it, then wake it. A wake-up while the driver is awake is not lost: its next sleep
/// ends at once. Several before that sleep count as one.
#[derive(Clone, Debug)]
pub struct Waker {
    event: Arc<File>,
}

impl Waker {
    pub(crate) fn new() -> io::Result<Waker> {
        Ok(Waker { event: Arc::new(File::from(sys::event()?)) })
    }

    /// Wakes the driver.
    pub fn wake(&self) {
        // It fails only where the counter of wake-ups is full, and then the driver wakes anyway.
        let _ = (&*self.event).write(&1u64.to_ne_bytes());
    }

    /// Forgets the wake-ups so far.
    pub(crate) fn clear(&self) {
        // It fails where no wake-up waits, which is the goal.
        let _ = (&*self.event).read(&mut [0; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
