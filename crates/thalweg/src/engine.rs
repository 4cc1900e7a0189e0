//! The thread that runs a rank's machines over its sockets.
//!
//! Everything reaches it as a [`Command`]: operations from the application, and what the control
//! channel says. Nothing on it waits for anybody but the kernel.

mod command;
mod comparison;
mod membership;
mod pending;
mod watch;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use thalweg_control::{Attendance, Failure, FailureKind, FromRank};
use thalweg_core::{NodeId, Span, Time};
use thalweg_net::{Driver, DriverError, Waker};
use thalweg_stack::{Event, TrainingHost};

pub(crate) use command::{Command, Sum, Summed};
pub(crate) use comparison::HostOperation;
pub(crate) use membership::Joined;

use crate::error::{Error, ErrorKind};
use crate::handle::Reply;
use crate::lossy::Lossy;
use crate::session::Note;
use crate::window::Window;
use comparison::Comparison;
use membership::{Membership, failure_of_sum};
use pending::{Fault, Pending};
use watch::Watch;

/// How long it sleeps at most: the time it may take to notice that an operation stalls.
const NAP: Duration = Duration::from_millis(50);

/// How long a rank that leaves goes on answering those that have not heard everything.
const LINGER: Span = Span::from_s(5);

/// What tells people of things that go on.
pub(crate) type Notes = Arc<dyn Fn(Note) + Send + Sync>;

/// The control channel: there as soon as it has begun, gone when the rank has left.
pub(crate) type Control = Arc<Mutex<Option<Attendance>>>;

/// The control channel. Whoever panicked while it held it did not change it.
pub(crate) fn lock(control: &Control) -> std::sync::MutexGuard<'_, Option<Attendance>> {
    control.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The end of a session, for threads that wait for other ranks of the host.
#[derive(Default)]
pub(crate) struct End {
    error: Mutex<Option<Error>>,
    is_there: Condvar,
    /// Set when there is an error.
    pub flag: Arc<AtomicBool>,
}

impl End {
    /// Why the session is over, if that is known in time.
    pub fn wait_for(&self, at_most: Duration) -> Option<Error> {
        let error = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.is_there.wait_timeout_while(error, at_most, |error| error.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// Ends the session. The first error stands.
    fn set(&self, error: &Error) {
        let mut place = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        place.get_or_insert_with(|| error.clone());
        self.flag.store(true, Ordering::SeqCst);
        self.is_there.notify_all();
    }
}

/// State that an engine shares with other threads.
#[derive(Clone)]
pub(crate) struct Shared {
    pub control: Control,
    pub notes: Notes,
    pub end: Arc<End>,
    /// Congestion control of sums in the network.
    pub window: Window,
}

/// Who a rank is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub rank: u32,
    pub node: NodeId,
}

/// How long a rank waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Until it says that it stalls.
    pub stall_after: Span,
    /// Until a flow gives up.
    pub give_up_after: Span,
}

/// How other threads reach the engine.
#[derive(Clone, Debug)]
pub(crate) struct Post {
    commands: Sender<Command>,
    waker: Waker,
}

impl Post {
    /// Hands over a command. Whoever is gone drops it, and so says that the session is over.
    pub fn send(&self, command: Command) {
        if self.commands.send(command).is_ok() {
            self.waker.wake();
        }
    }

    /// Hands over what can wait until the engine wakes for another reason.
    pub fn leave_note(&self, command: Command) {
        let _ = self.commands.send(command);
    }
}

/// The driver of a rank's machines. It loses packets in tests.
pub(crate) type HostDriver = Driver<Lossy<TrainingHost>>;

/// The engine, on its own thread.
pub(crate) struct Engine {
    driver: HostDriver,
    inbox: Receiver<Command>,
    identity: Identity,
    patience: Patience,
    window: Window,
    control: Control,
    notes: Notes,
    end: Arc<End>,
    comparison: Comparison,
    /// Failure that another rank reported to this one, and the time of that report. That rank knows more.
    hearsay: Option<(Time, Failure)>,
    /// Until the rank has its place.
    joining: Option<Reply>,
    membership: Option<Membership>,
    pending: Pending,
    watch: Watch,
    /// Why nothing goes on any more.
    failure: Option<Error>,
    /// Since when it only lingers, and who waits for that.
    leaving: Option<(Time, Reply)>,
}

impl Engine {
    /// Starts the thread. `joining` ends when the rank has its place in the job.
    pub fn start(
        mut driver: HostDriver,
        identity: Identity,
        patience: Patience,
        shared: Shared,
        joining: Reply,
    ) -> Result<(Post, JoinHandle<()>), Error> {
        let waker = driver.waker().map_err(Error::system("cannot make a wake-up"))?;
        let (commands, inbox) = channel();
        let Shared { control, notes, end, window } = shared;
        let engine = Engine {
            driver,
            inbox,
            identity,
            patience,
            window,
            control,
            notes,
            end,
            comparison: Comparison::default(),
            hearsay: None,
            joining: Some(joining),
            membership: None,
            pending: Pending::default(),
            watch: Watch::default(),
            failure: None,
            leaving: None,
        };
        let thread = std::thread::Builder::new()
            .name(format!("thalweg-{}", identity.rank))
            .spawn(move || engine.run())
            .map_err(Error::system("cannot start a thread"))?;
        Ok((Post { commands, waker }, thread))
    }

    fn run(mut self) {
        let mut events = Vec::new();
        loop {
            while let Ok(command) = self.inbox.try_recv() {
                self.obey(command, &mut events);
                self.take_in(&mut events);
            }
            let is_idle = match self.driver.turn(|event| events.push(event)) {
                Ok(turn) => turn.is_idle,
                Err(error) => return self.break_down(error),
            };
            self.take_in(&mut events);
            self.look_around();
            if self.has_left() {
                return;
            }
            if is_idle && let Err(error) = self.driver.wait(NAP) {
                return self.break_down(error);
            }
        }
    }

    /// Gives the machines a command.
    fn command<R>(
        &mut self,
        command: impl FnOnce(&mut TrainingHost, Time) -> R,
        events: impl FnMut(Event),
    ) -> R {
        self.driver.command(|lossy, now| command(lossy.machine_mut(), now), events)
    }

    /// What the machines have to tell.
    fn take_in(&mut self, events: &mut Vec<Event>) {
        if !events.is_empty() {
            self.report_precision();
        }
        for event in events.drain(..) {
            if let Some(fault) = self.pending.end(event) {
                self.spread(fault);
            }
        }
    }

    /// Tells everybody, this rank too, so that all fail alike.
    fn spread(&mut self, fault: Fault) {
        match fault {
            Fault::Own(failure) => self.say(FromRank::Failing(failure)),
            Fault::Sums(failure) => {
                let failure = failure_of_sum(&failure, self.membership.as_ref());
                self.say(FromRank::Failing(failure));
            }
            Fault::Hearsay(failure) => {
                self.hearsay.get_or_insert((self.driver.now(), failure));
            }
        }
    }

    fn say(&self, message: FromRank) {
        if let Some(control) = &*lock(&self.control) {
            control.send(message);
        }
    }

    /// Ends everything that is under way, and everything to come, with one error.
    fn fail(&mut self, error: Error) {
        if self.failure.is_some() {
            return;
        }
        // Who hears of it may use the memory that he has lent for something else.
        self.command(|host, _| host.leave_all(), |_| {});
        self.pending.fail(&error);
        self.end.set(&error);
        if let Some(joining) = self.joining.take() {
            joining.fail(error.clone());
        }
        self.failure = Some(error);
    }

    fn break_down(mut self, error: DriverError) {
        let rank = self.identity.rank;
        let text = format!("rank {rank} cannot go on: {error}");
        let failure = Failure::new(FailureKind::Peer, text.clone(), vec![rank]);
        self.say(FromRank::Failing(failure));
        self.fail(Error::caused(ErrorKind::System, text, error).with_ranks([rank]));
    }

    /// Whether the rank is done, and has answered whoever still had questions.
    fn has_left(&mut self) -> bool {
        let Some((since, _)) = &self.leaving else { return false };
        let now = self.driver.now();
        let is_quiet = self.pending.is_empty() && self.driver.machine().machine().outgoing() == 0;
        let is_over = is_quiet || self.failure.is_some() || now.since(*since) >= LINGER;
        if is_over && let Some((_, reply)) = self.leaving.take() {
            reply.end(Ok(()));
        }
        is_over
    }
}
