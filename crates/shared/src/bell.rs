//! Sleep of members until something happens.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::sys;

/// A word to sleep on, and how many do.
///
/// No ring is missed by who takes a ticket, then looks whether it still has to wait, and then sleeps:
/// what is written before a ring is either seen by that look, or the ring sees the sleeper and makes
/// its ticket void. For this every write before a ring, and every read of that look, must be `SeqCst`.
pub(crate) struct Bell<'a> {
    pub(crate) rings: &'a AtomicU32,
    pub(crate) sleepers: &'a AtomicU32,
}

/// Lets its holder sleep until the next ring.
pub(crate) struct Ticket<'a> {
    bell: &'a Bell<'a>,
    rings: u32,
}

impl Bell<'_> {
    /// Wakes all sleepers. Costs next to nothing when nobody does.
    pub(crate) fn ring(&self) {
        if self.sleepers.load(SeqCst) != 0 {
            self.rings.fetch_add(1, SeqCst);
            sys::futex_wake(self.rings);
        }
    }

    /// Says that the caller is about to sleep.
    pub(crate) fn ticket(&self) -> Ticket<'_> {
        self.sleepers.fetch_add(1, SeqCst);
        Ticket { bell: self, rings: self.rings.load(SeqCst) }
    }
}

impl Ticket<'_> {
    /// Sleeps until the bell rings, or has rung since the ticket was taken, at most so long. May end
    /// early.
    pub(crate) fn sleep(self, at_most: Duration) {
        sys::futex_wait(self.bell.rings, self.rings, at_most);
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.bell.sleepers.fetch_sub(1, SeqCst);
    }
}
