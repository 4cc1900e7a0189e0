//! A thread that runs one machine.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use thalweg_core::Reports;
use thalweg_net::{Driver, DriverError, Waker};

use crate::error::{Error, ErrorKind};

/// Longest time that it sleeps.
const NAP: Duration = Duration::from_millis(100);

type Command<M> = Box<dyn FnOnce(&mut Driver<M>) + Send>;

/// Handle by which other threads reach a machine that runs on its own.
pub(super) struct Pilot<M> {
    commands: Sender<Command<M>>,
    waker: Waker,
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<Thread>>,
}

type Thread = JoinHandle<Result<(), DriverError>>;

impl<M: Reports + Send + 'static> Pilot<M> {
    /// Starts the thread. `on_event` gets what the machine reports, on that thread.
    pub fn start(
        name: &str,
        mut driver: Driver<M>,
        on_event: impl FnMut(M::Event) + Send + 'static,
    ) -> Result<Pilot<M>, Error> {
        let waker = driver.waker().map_err(Error::system("cannot make a wake-up"))?;
        let (commands, queue) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || fly(driver, &queue, &flag, on_event))
            .map_err(Error::system("cannot start a thread"))?;
        Ok(Pilot { commands, waker, stop, thread: Mutex::new(Some(thread)) })
    }

    /// Has something done on the thread, soon.
    pub fn tell(&self, command: impl FnOnce(&mut Driver<M>) + Send + 'static) {
        if self.commands.send(Box::new(command)).is_ok() {
            self.waker.wake();
        }
    }

    /// Has something done on the thread, and waits for its result. `None` if the thread has ended.
    pub fn ask<R: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Driver<M>) -> R + Send + 'static,
    ) -> Option<R> {
        let (answer, answered) = channel();
        self.tell(move |driver| {
            // Who no longer waits does not need it.
            let _ = answer.send(question(driver));
        });
        answered.recv().ok()
    }

    /// Returns whether the thread still runs: it ends by itself only when its socket is broken.
    pub fn is_running(&self) -> bool {
        self.thread().as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Ends the thread, and says what it died of if it already had.
    pub fn stop(&self) -> Result<(), Error> {
        match self.end() {
            None | Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(error))) => {
                let text = format!("the data path ended: {error}");
                Err(Error::caused(ErrorKind::System, text, error))
            }
            Some(Err(_)) => Err(Error::internal("the thread of the data path panicked")),
        }
    }
}

impl<M> Pilot<M> {
    fn end(&self) -> Option<std::thread::Result<Result<(), DriverError>>> {
        self.stop.store(true, Ordering::Relaxed);
        self.waker.wake();
        let thread = self.thread().take();
        thread.map(JoinHandle::join)
    }

    fn thread(&self) -> MutexGuard<'_, Option<Thread>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M> Drop for Pilot<M> {
    fn drop(&mut self) {
        // No caller is left to take the outcome.
        let _ = self.end();
    }
}

fn fly<M: Reports>(
    mut driver: Driver<M>,
    queue: &Receiver<Command<M>>,
    stop: &AtomicBool,
    mut on_event: impl FnMut(M::Event),
) -> Result<(), DriverError> {
    while !stop.load(Ordering::Relaxed) {
        while let Ok(command) = queue.try_recv() {
            command(&mut driver);
        }
        if driver.turn(&mut on_event)?.is_idle {
            driver.wait(NAP)?;
        }
    }
    Ok(())
}
