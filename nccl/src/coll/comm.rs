//! A communicator, and the requests on it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use thalweg::internal::Intent;
use thalweg::{Element, Handle, Reduce, Reduced, Session};

use super::meeting::Joined;
use crate::REQUESTS_MAX;
use crate::abi::{Status, status};
use crate::failure::Failure;
use crate::listening::lock;
use crate::log;
use crate::memory::Memory;

/// A communicator. NCCL makes the same calls in the same order at all ranks, so that the session numbers operations by
/// counting.
pub struct Comm {
    /// The session. Dropping it ends its threads: after that nothing works on memory of NCCL's.
    session: Session,
    rank: usize,
    has_failed: AtomicBool,
    requests: [Request; REQUESTS_MAX],
}

/// A request, as NCCL sees it.
pub struct Request {
    /// The communicator. It is closed after its requests are.
    comm: *const Comm,
    /// True once the operation has ended: all that `test` reads while it has not.
    is_ready: Arc<AtomicBool>,
    operation: Mutex<Operation>,
}

/// State of a request.
#[derive(Default)]
enum Operation {
    #[default]
    Free,
    Running {
        handle: Handle<Reduced<Memory>>,
        bytes: usize,
    },
    /// Failed, with this status. It stays until the communicator is closed, since NCCL may ask again.
    Failed(Status),
}

impl Comm {
    pub(super) fn new(joined: Joined) -> Box<Comm> {
        let Joined { session, rank } = joined;
        let request = |_| Request {
            comm: std::ptr::null(),
            is_ready: Arc::default(),
            operation: Mutex::default(),
        };
        let requests = std::array::from_fn(request);
        let mut comm =
            Box::new(Comm { session, rank, has_failed: AtomicBool::new(false), requests });
        let own: *const Comm = &raw const *comm;
        comm.requests.iter_mut().for_each(|request| request.comm = own);
        comm
    }

    /// Begins a sum over all ranks of what `from` holds, which replaces what `to` holds. `None` if as many requests are in
    /// flight as there may be: NCCL calls again.
    ///
    /// NCCL may give bytes behind the end of a tensor. They are summed like others, and steer nothing: every value of a
    /// sum follows from the values at its place alone.
    // spec: N-05
    pub fn all_reduce(
        &self,
        from: Memory,
        to: Memory,
        element: Element,
    ) -> Result<Option<&Request>, Failure> {
        let is_free = |request: &&Request| matches!(*lock(&request.operation), Operation::Free);
        let Some(request) = self.requests.iter().find(is_free) else { return Ok(None) };
        to.copy_from(from);
        request.is_ready.store(false, Ordering::Relaxed);
        let bytes = to.len();
        let handle = self.session.all_reduce_bytes(element, to, Reduce::Sum, Intent::default());
        let is_ready = Arc::clone(&request.is_ready);
        handle.when_ready(move || is_ready.store(true, Ordering::Release));
        *lock(&request.operation) = Operation::Running { handle, bytes };
        Ok(Some(request))
    }

    /// Closes the communicator. Where requests are in flight, ends them here and at the other ranks, at once; otherwise
    /// waits until others have what they need of this rank, for a few seconds at most.
    // spec: N-07
    pub fn close(self: Box<Comm>) {
        let Comm { session, rank, requests, .. } = *self;
        let in_flight = requests.iter().filter(|request| request.is_in_flight()).count();
        if in_flight > 0 {
            session.abort(format!(
                "rank {rank} closed its communicator with {in_flight} requests in flight"
            ));
            drop(session);
        } else if let Err(error) = session.leave() {
            log::info(&format!("rank {rank} has left: {error}"));
        }
    }
}

impl Request {
    /// The communicator of the request.
    pub fn comm(&self) -> *const Comm {
        self.comm
    }

    /// Returns the number of bytes once the request has ended, which frees it.
    pub fn test(&self, comm: &Comm) -> Result<Option<usize>, Failure> {
        if !self.is_ready.load(Ordering::Acquire) {
            return Ok(None);
        }
        let mut operation = lock(&self.operation);
        match std::mem::take(&mut *operation) {
            Operation::Running { mut handle, bytes } => match handle.poll() {
                Some(Ok(_)) => Ok(Some(bytes)),
                Some(Err(error)) => {
                    let failure = Failure::from(&error);
                    *operation = Operation::Failed(failure.status);
                    // All requests end with the failure of the job: one line is enough.
                    let is_first = !comm.has_failed.swap(true, Ordering::Relaxed);
                    Err(if is_first { failure } else { Failure::logged(failure.status) })
                }
                None => {
                    *operation = Operation::Running { handle, bytes };
                    Ok(None)
                }
            },
            Operation::Failed(status) => {
                *operation = Operation::Failed(status);
                Err(Failure::logged(status))
            }
            Operation::Free => {
                Err(Failure::new(status::INVALID_ARGUMENT, "the request has ended already"))
            }
        }
    }

    fn is_in_flight(&self) -> bool {
        match &*lock(&self.operation) {
            Operation::Running { handle, .. } => !handle.is_ready(),
            Operation::Free | Operation::Failed(_) => false,
        }
    }
}
