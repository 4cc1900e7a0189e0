//! A network namespace without a name.

use std::os::fd::OwnedFd;
use std::panic;
use std::sync::Arc;
use std::thread;

use crate::error::LabError;
use crate::kernel::{NAMESPACE, NETLINK};
use crate::sys;
use thalweg_linux::Netlink;

/// A network namespace that lives as long as its file is open or a process is in it.
pub(crate) struct Namespace {
    pub(crate) file: Arc<OwnedFd>,
    pub(crate) netlink: Netlink,
}

impl Namespace {
    /// A new one, with nothing in it but a loopback device that is down.
    pub(crate) fn new() -> Result<Namespace, LabError> {
        let make = || {
            sys::leave_network().map_err(|error| NAMESPACE.refused(error))?;
            let file = sys::this_network().map_err(|error| NAMESPACE.refused(error))?;
            let netlink = Netlink::open().map_err(|error| NETLINK.refused(error))?;
            Ok(Namespace { file: Arc::new(file), netlink })
        };
        // The thread stays in its namespace for good, so it must not be the caller's.
        on_thread(make)
    }
}

/// Runs `work` on a thread of its own, and panics if it panics.
pub(crate) fn on_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join())
        .unwrap_or_else(|panic| panic::resume_unwind(panic))
}
