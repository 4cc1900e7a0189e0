//! Operations that are under way.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::error::Error;

/// The promise of a result.
///
/// The operation goes on whether anybody waits or not; dropping the handle does not end it, since the
/// other ranks count on this one.
///
/// # Errors
///
/// The ways to get the result, by a wait or in a runtime, give the same errors:
///
/// - [`Call`](crate::ErrorKind::Call) if an argument of the operation is invalid, as its documentation says, or if the
///   result was handed out before. The session goes on.
/// - [`Disagreement`](crate::ErrorKind::Disagreement) if the ranks called different operations.
/// - [`Peer`](crate::ErrorKind::Peer) if a rank or its host died, or a rank left that others still need.
/// - [`Timeout`](crate::ErrorKind::Timeout) if the operation made no progress for
///   [`operation_timeout`](crate::SessionConfig::operation_timeout).
/// - [`Aborted`](crate::ErrorKind::Aborted) if a rank [aborted](crate::Session::abort) the job, or its
///   [token](crate::Cancel) was cancelled.
/// - [`Network`](crate::ErrorKind::Network) if the server did not answer for
///   [`failure_after`](crate::SessionConfig::failure_after), and [`Config`](crate::ErrorKind::Config) if it came back and
///   refuses this rank.
/// - [`System`](crate::ErrorKind::System) if a socket or the shared memory of this host broke.
/// - [`Path`](crate::ErrorKind::Path) if a path of the job became narrower than its packets. The session goes on.
/// - [`Closed`](crate::ErrorKind::Closed) if the session was left or dropped before the operation ended.
/// - [`Internal`](crate::ErrorKind::Internal) if the library has a defect.
///
/// All but the first and the last three are failures of the job: they end every operation that is in flight and every
/// later one. What becomes of both when a path becomes narrower is in the documentation of
/// [`Session`](crate::Session).
///
/// A program without a runtime [waits](Handle::wait); one with any runtime awaits the handle:
///
/// ```
/// # async fn train(session: &thalweg::Session) -> Result<(), thalweg::Error> {
/// let mean = session.all_reduce(vec![1.0f32; 1_000], thalweg::Reduce::Mean).await?;
/// # assert_eq!(mean.values, vec![1.0; 1_000]);
/// # Ok(())
/// # }
/// # use thalweg::daemon::{Secret, ServerDaemon, ServerDaemonConfig};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let loopback = "127.0.0.1:0".parse()?;
/// # let daemon = ServerDaemon::start(&ServerDaemonConfig::new(loopback, Secret([7; 16])))?;
/// # let (server, rank, ranks) = (daemon.address().to_string(), 0, 1);
/// # let session = thalweg::Session::builder(server, "resnet").rank(rank, ranks).join()?;
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(train(&session))?;
/// # Ok(())
/// # }
/// ```
#[must_use = "the result, or the error, comes by waiting"]
pub struct Handle<T> {
    shared: Arc<Shared>,
    /// Gone once the result was handed out.
    finish: Option<Finish<T>>,
}

/// Makes a result of what an operation ends with.
type Finish<T> = Box<dyn FnOnce(Done) -> Result<T, Error> + Send>;

/// Outcome of an operation, before it is what its caller expects.
pub(crate) type Done = Box<dyn std::any::Any + Send>;

/// Called when an operation has ended.
type Watcher = Box<dyn FnOnce() + Send>;

/// Source of an operation's end: keep it as long as there may be one.
pub(crate) struct Reply {
    shared: Option<Arc<Shared>>,
}

/// Functions and the task that are called when an operation has ended.
#[derive(Default)]
struct Watchers {
    calls: Vec<Watcher>,
    /// The task that polled last. A task may be polled for many other reasons, so that it has one place.
    task: Option<Waker>,
}

struct Shared {
    /// Called when it has ended.
    watchers: Mutex<Watchers>,
    end: Mutex<Option<Result<Done, Error>>>,
    is_there: Condvar,
}

/// A handle, and what ends it.
pub(crate) fn pair<D: Send + 'static, T>(
    finish: impl FnOnce(D) -> Result<T, Error> + Send + 'static,
) -> (Handle<T>, Reply) {
    let shared = Arc::new(Shared {
        watchers: Mutex::default(),
        end: Mutex::new(None),
        is_there: Condvar::new(),
    });
    let finish = move |done: Done| {
        let done = done.downcast::<D>().expect("an operation ends with what it began for");
        finish(*done)
    };
    let reply = Reply { shared: Some(Arc::clone(&shared)) };
    (Handle { shared, finish: Some(Box::new(finish)) }, reply)
}

/// A handle whose result is there.
pub(crate) fn ready<T: Send + 'static>(result: Result<T, Error>) -> Handle<T> {
    let (handle, reply) = pair(|value: T| Ok(value));
    reply.end(result);
    handle
}

/// The promise of what follows from the results of several operations. It is there when all of them have ended.
pub(crate) fn all<T: 'static, U>(
    handles: Vec<Handle<T>>,
    finish: impl FnOnce(Vec<T>) -> Result<U, Error> + Send + 'static,
) -> Handle<U> {
    let operations: Vec<Arc<Shared>> =
        handles.iter().map(|handle| Arc::clone(&handle.shared)).collect();
    let (handle, reply) = pair(move |(): ()| {
        let results: Vec<Result<T, Error>> = handles.into_iter().map(Handle::wait).collect();
        finish(results.into_iter().collect::<Result<Vec<T>, Error>>()?)
    });
    // The last one that ends drops the last of these.
    let last = Arc::new(Last(Some(reply)));
    for operation in operations {
        let last = Arc::clone(&last);
        operation.watch(|watchers| watchers.calls.push(Box::new(move || drop(last))));
    }
    handle
}

/// Ends an operation when it is dropped.
struct Last(Option<Reply>);

impl Drop for Last {
    fn drop(&mut self) {
        if let Some(reply) = self.0.take() {
            reply.end(Ok(()));
        }
    }
}

impl<T> Handle<T> {
    /// Waits for the result. A job that does not progress fails in the end, so this does not wait for ever.
    ///
    /// # Errors
    ///
    /// Those of [every handle](Handle#errors): [`Call`](crate::ErrorKind::Call) for an invalid argument,
    /// [`Closed`](crate::ErrorKind::Closed) if the session was left first, or the kind of the failure of the job.
    pub fn wait(mut self) -> Result<T, Error> {
        let mut end = self.shared.lock();
        loop {
            if end.is_some() {
                drop(end);
                return self.take().unwrap_or_else(|| Err(taken()));
            }
            end = self.shared.is_there.wait(end).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for the result for at most this time. `None` if it is not there by then; the operation goes on, and the
    /// caller may wait again.
    ///
    /// # Errors
    ///
    /// As [`Handle::wait`]. After it has returned the result, every further call is a
    /// [`Call`](crate::ErrorKind::Call) error.
    pub fn wait_timeout(&mut self, at_most: Duration) -> Option<Result<T, Error>> {
        let end = self.shared.lock();
        let waited = self.shared.is_there.wait_timeout_while(end, at_most, |end| end.is_none());
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        self.take()
    }

    /// Returns the result if it is there, without waiting. `None` if it is not.
    ///
    /// # Errors
    ///
    /// As [`Handle::wait_timeout`].
    pub fn poll(&mut self) -> Option<Result<T, Error>> {
        self.take()
    }

    /// The result, if it is there.
    fn take(&mut self) -> Option<Result<T, Error>> {
        let Some(finish) = self.finish.take() else { return Some(Err(taken())) };
        let Some(end) = self.shared.lock().as_mut().map(|end| {
            // The end stays known: others may ask whether it is there.
            std::mem::replace(end, Err(taken()))
        }) else {
            self.finish = Some(finish);
            return None;
        };
        Some(end.and_then(finish))
    }

    /// The same promise, of something that follows from the result.
    pub(crate) fn and_then<U>(
        self,
        next: impl FnOnce(T) -> Result<U, Error> + Send + 'static,
    ) -> Handle<U>
    where
        T: 'static,
    {
        let Handle { shared, finish } = self;
        let finish =
            finish.map(|finish| -> Finish<U> { Box::new(move |done| next(finish(done)?)) });
        Handle { shared, finish }
    }

    /// Ends another operation as this one ends.
    pub(crate) fn forward(self, reply: Reply)
    where
        T: Send + 'static,
    {
        let shared = Arc::clone(&self.shared);
        shared.watch(|watchers| {
            watchers.calls.push(Box::new(move || reply.end(self.wait())));
        });
    }

    /// Calls `watcher` when the operation has ended, at once if it has. It runs on the thread that ended it,
    /// and must not wait for anything.
    pub fn when_ready(&self, watcher: impl FnOnce() + Send + 'static) {
        self.shared.watch(|watchers| watchers.calls.push(Box::new(watcher)));
    }

    /// Returns whether the result, or an error, is there.
    pub fn is_ready(&self) -> bool {
        self.shared.lock().is_some()
    }
}

/// A caller that asks for a result twice.
fn taken() -> Error {
    Error::call("the result of this operation was handed out already")
}

impl<T> fmt::Debug for Handle<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Handle").field("is_ready", &self.is_ready()).finish()
    }
}

impl<T> IntoFuture for Handle<T> {
    type Output = Result<T, Error>;
    type IntoFuture = HandleFuture<T>;

    fn into_future(self) -> HandleFuture<T> {
        HandleFuture { handle: self }
    }
}

/// The future of a [`Handle`]. It needs no runtime of its own: the thread that ends the operation wakes it.
#[must_use = "a future does nothing until it is awaited"]
pub struct HandleFuture<T> {
    handle: Handle<T>,
}

impl<T> fmt::Debug for HandleFuture<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("HandleFuture").field(&self.handle).finish()
    }
}

impl<T> Future for HandleFuture<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T, Error>> {
        if let Some(result) = self.handle.poll() {
            return Poll::Ready(result);
        }
        let task = context.waker().clone();
        self.handle.shared.watch(|watchers| watchers.task = Some(task));
        Poll::Pending
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Result<Done, Error>>> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self, add: impl FnOnce(&mut Watchers)) {
        add(&mut self.watchers.lock().unwrap_or_else(PoisonError::into_inner));
        self.tell_watchers();
    }

    /// Calls the watchers once the end is there. Both who ends it and who comes to watch call this, so that
    /// one of them finds the other's.
    fn tell_watchers(&self) {
        if self.lock().is_none() {
            return;
        }
        let watchers =
            std::mem::take(&mut *self.watchers.lock().unwrap_or_else(PoisonError::into_inner));
        watchers.calls.into_iter().for_each(|call| call());
        if let Some(task) = watchers.task {
            task.wake();
        }
    }

    fn end(&self, result: Result<Done, Error>) {
        *self.lock() = Some(result);
        self.is_there.notify_all();
        self.tell_watchers();
    }
}

impl Reply {
    /// Ends the operation.
    pub fn end<D: Send + 'static>(mut self, result: Result<D, Error>) {
        if let Some(shared) = self.shared.take() {
            shared.end(result.map(|done| Box::new(done) as Done));
        }
    }
}

impl Reply {
    /// Ends the operation with a result that is packed already.
    pub fn end_with(mut self, done: Done) {
        if let Some(shared) = self.shared.take() {
            shared.end(Ok(done));
        }
    }

    /// Ends the operation with an error.
    pub fn fail(self, error: Error) {
        self.end::<()>(Err(error));
    }
}

impl Drop for Reply {
    /// Ends the operation as closed if it has no end yet, since none will come.
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            shared.end(Err(Error::closed()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_result_comes_once_it_is_there() {
        let (mut handle, reply) = pair(|length: usize| Ok(length + 1));
        assert!(!handle.is_ready() && handle.poll().is_none());
        assert!(handle.wait_timeout(Duration::from_millis(1)).is_none(), "too early");
        std::thread::spawn(move || reply.end(Ok(41_usize)));
        assert_eq!(handle.wait().unwrap(), 42);
    }

    #[test]
    fn a_result_is_handed_out_once() {
        let mut handle = ready(Ok(7));
        assert_eq!(handle.poll().expect("it is there").unwrap(), 7);
        assert!(handle.is_ready());
        let again = handle.wait_timeout(Duration::ZERO).expect("it has ended");
        assert_eq!(again.unwrap_err().kind(), ErrorKind::Call);
        assert_eq!(handle.wait().unwrap_err().kind(), ErrorKind::Call);
    }

    #[test]
    fn who_watches_is_told_once_before_or_after() {
        let (sender, told) = std::sync::mpsc::channel();
        let (handle, reply) = pair(|(): ()| Ok(()));
        let early = sender.clone();
        handle.when_ready(move || early.send("early").unwrap());
        assert!(told.try_recv().is_err(), "nothing has ended");
        reply.end(Ok(()));
        handle.when_ready(move || sender.send("late").unwrap());
        assert_eq!(told.iter().collect::<Vec<_>>(), ["early", "late"]);
    }

    // spec: F-04 machine
    #[test]
    fn several_operations_end_with_the_last_of_them() {
        let parts: Vec<_> = (0..3).map(|_| pair(|part: usize| Ok(part))).collect();
        let (handles, replies): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        let handle = all(handles, |parts| Ok(parts.into_iter().sum::<usize>()));
        for (part, reply) in replies.into_iter().enumerate().rev() {
            assert!(!handle.is_ready(), "part {part} is missing");
            reply.end(Ok(part + 1));
        }
        assert_eq!(handle.wait().unwrap(), 6);
        let (failing, reply) = pair(|(): ()| Ok(()));
        let handle = all(vec![ready(Ok(())), failing], |_| Ok(()));
        assert!(!handle.is_ready(), "memory may still be written");
        reply.fail(Error::new(ErrorKind::Peer, "rank 3 is gone"));
        assert_eq!(handle.wait().unwrap_err().to_string(), "rank 3 is gone");
    }

    /// Runs a future on this thread, which sleeps until the future wakes it.
    fn block_on<F: Future>(future: F) -> F::Output {
        struct Unpark(std::thread::Thread);
        impl std::task::Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let mut future = std::pin::pin!(future);
        let waker = Arc::new(Unpark(std::thread::current())).into();
        loop {
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(output) => return output,
                Poll::Pending => std::thread::park(),
            }
        }
    }

    #[test]
    fn a_handle_can_be_awaited_without_a_runtime() {
        let (handle, reply) = pair(|length: usize| Ok(length + 1));
        assert_eq!(format!("{handle:?}"), "Handle { is_ready: false }");
        std::thread::spawn(move || reply.end(Ok(41_usize)));
        assert_eq!(block_on(handle.into_future()).unwrap(), 42);
        let (handle, reply) = pair(|(): ()| Ok(()));
        drop(reply);
        let end = block_on(async { handle.await });
        assert_eq!(end.unwrap_err().kind(), ErrorKind::Closed);
    }

    #[test]
    fn an_operation_ends_as_another_one_does() {
        let (handle, reply) = pair(|length: usize| Ok(length + 1));
        let (other, of_other) = pair(|length: usize| Ok(length * 2));
        handle.forward(of_other);
        assert!(!other.is_ready());
        reply.end(Ok(20_usize));
        assert_eq!(other.wait().unwrap(), 42);
        let (other, of_other) = pair(|(): ()| Ok(()));
        ready::<()>(Err(Error::new(ErrorKind::Peer, "rank 3 is gone"))).forward(of_other);
        assert_eq!(other.wait().unwrap_err().kind(), ErrorKind::Peer);
    }

    #[test]
    fn who_never_answers_has_closed() {
        let (handle, reply) = pair(|(): ()| Ok(()));
        drop(reply);
        assert!(handle.is_ready());
        assert_eq!(handle.wait().unwrap_err().kind(), ErrorKind::Closed);
        let (handle, reply) = pair(|(): ()| Ok(()));
        reply.end::<()>(Err(Error::new(ErrorKind::Peer, "rank 3 is gone")));
        assert_eq!(handle.wait().unwrap_err().to_string(), "rank 3 is gone");
    }
}
