//! The thread that runs a rank's machines over its sockets.
//!
//! Everything reaches it as a [`Command`]: operations from the application, and what the control
//! channel says. Nothing on it waits for anybody but the kernel.

mod command;
mod comparison;
mod departure;
mod gathering;
mod membership;
mod paths;
mod pending;
mod watch;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use thalweg_control::{Attendance, Failure, FailureKind, FromRank, Settings};
use thalweg_core::{NodeId, Span, Time};
use thalweg_net::{Driver, DriverError, Waker};
use thalweg_stack::{Event, TrainingHost};

pub(crate) use command::{Command, Deliver, DeliverCall, Sum, Summed};
pub(crate) use comparison::{JointOperation, OpenPart};
pub(crate) use departure::Leaving;
pub(crate) use membership::{Joined, ring_of};

use crate::cancel::Cancel;
use crate::error::{Error, ErrorKind};
use crate::events::Notes;
use crate::handle::Reply;
use crate::lossy::Lossy;
use crate::tagging::Tagging;
use crate::tap::Tapped;
use crate::tuning::Sending;
use comparison::Comparison;
use departure::{Departing, Departures};
use membership::Membership;
use paths::Paths;
use pending::{Fault, Hearsay, Pending};
use watch::Watch;

/// Longest time that it sleeps: the time it may take to notice that an operation stalls.
const NAP: Duration = Duration::from_millis(50);

/// Longest time that a rank that leaves goes on answering those that lack something.
const LINGER_MAX: Span = Span::from_s(5);

/// The same for a session that is dropped.
const HASTY_LINGER: Span = Span::from_ms(300);

/// The control channel: there as soon as it has begun, gone when the rank has left.
pub(crate) type Control = Arc<Mutex<Option<Attendance>>>;

/// The control channel. A thread that panicked while it held it did not change it.
pub(crate) fn lock(control: &Control) -> std::sync::MutexGuard<'_, Option<Attendance>> {
    control.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The end of a rank's part in a job, for threads that wait for other ranks of the host, and for the session.
#[derive(Default)]
pub(crate) struct End {
    error: Mutex<Option<Error>>,
    threads: Mutex<Threads>,
    is_there: Condvar,
    /// Set when there is an error.
    pub flag: Arc<AtomicBool>,
    /// Called with the error, unless there is one already.
    watcher: Mutex<Option<Watcher>>,
}

/// Takes the error that a part in a job ends with. It must not wait.
type Watcher = Box<dyn FnOnce(&Error) + Send>;

/// The sending threads of a part in a job.
#[derive(Default)]
struct Threads {
    posts: Vec<Post>,
    /// True once the rank attends its job: an interruption before that reaches no other rank.
    is_attending: bool,
    interrupt: Option<Interrupt>,
}

/// Wish of the application to end its part in a job at once.
#[derive(Clone, Debug)]
pub(crate) enum Interrupt {
    /// For all ranks, for this reason.
    Abort(String),
    /// For this rank.
    Leave,
}

impl Threads {
    fn tell_interrupt(&self) {
        if let (true, Some(first), Some(wish)) =
            (self.is_attending, self.posts.first(), &self.interrupt)
        {
            first.send(wish.clone().command());
        }
    }
}

impl Interrupt {
    /// The command to the first thread, with which the others end.
    fn command(self) -> Command {
        match self {
            Interrupt::Abort(reason) => Command::Abort(reason),
            Interrupt::Leave => Command::Stop(Error::closed()),
        }
    }
}

impl End {
    /// Why the session is over, if that is known in time.
    pub fn wait_for(&self, at_most: Duration) -> Option<Error> {
        let error = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.is_there.wait_timeout_while(error, at_most, |error| error.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// The error, if there is one.
    pub fn error(&self) -> Option<Error> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has a function take the error once there is one, at once if there is.
    pub fn watch(&self, watcher: Watcher) {
        *self.watcher.lock().unwrap_or_else(PoisonError::into_inner) = Some(watcher);
        self.tell_watcher();
    }

    /// Calls the watcher if there are both, it and an error. Called after either has come.
    fn tell_watcher(&self) {
        let Some(error) = self.error() else { return };
        let watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(watcher) = watcher {
            watcher(&error);
        }
    }

    /// Adds a sending thread of the session, which ends with the others.
    pub fn add(&self, thread: Post) {
        self.threads().posts.push(thread);
    }

    /// The rank attends its job, with its first thread.
    pub fn attend(&self) {
        let mut threads = self.threads();
        threads.is_attending = true;
        threads.tell_interrupt();
    }

    /// The first interruption, if there was one.
    pub fn interrupted(&self) -> Option<Interrupt> {
        self.threads().interrupt.clone()
    }

    /// Interrupts the part, as soon as the rank attends its job. The first interruption stands.
    pub fn interrupt(&self, interrupt: Interrupt) {
        let mut threads = self.threads();
        if threads.interrupt.is_none() {
            threads.interrupt = Some(interrupt);
            threads.tell_interrupt();
        }
    }

    fn threads(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails all sending threads of the session, because one of them has failed.
    // spec: F-04
    fn fail_all(&self, error: &Error) {
        for thread in &self.threads().posts {
            thread.send(Command::Stop(error.clone()));
        }
    }

    /// Ends the session. The first error stands.
    pub fn set(&self, error: &Error) {
        let mut place = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        place.get_or_insert_with(|| error.clone());
        self.flag.store(true, Ordering::SeqCst);
        drop(place);
        self.is_there.notify_all();
        self.tell_watcher();
    }
}

/// State that an engine shares with other threads.
#[derive(Clone)]
pub(crate) struct Shared {
    pub control: Control,
    pub notes: Notes,
    pub end: Arc<End>,
    /// Settings of all transports of the session.
    pub sending: Sending,
    /// Classes of the packets of deliveries.
    pub tagging: Tagging,
    /// Interrupts the session.
    pub cancel: Cancel,
}

/// Identity of a sending thread of a rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub rank: u32,
    /// Number of the thread, and of its tree of the job. The first one speaks for the rank.
    pub thread: u32,
    pub node: NodeId,
    /// The switch of its rack, if it names one.
    pub switch: Option<NodeId>,
}

/// Time beyond the deadline of an operation after which a flow gives up by itself, should the registrar not have failed
/// the job: the registrar knows more.
const FLOW_MARGIN: Span = Span::from_s(5);

/// Time that a rank waits for something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadlines {
    /// Until a stall is reported.
    pub stall_after: Span,
    /// Until an operation that does not move fails.
    pub operation_timeout: Span,
    /// Until all ranks have joined.
    pub join_timeout: Span,
    /// Longest time that a rank that leaves goes on answering others.
    linger: Span,
}

impl Deadlines {
    pub fn of(settings: &Settings) -> Deadlines {
        Deadlines {
            stall_after: settings.stall_after,
            operation_timeout: settings.operation_timeout,
            join_timeout: settings.join_timeout,
            linger: settings.failure_after.min(LINGER_MAX),
        }
    }

    /// Time until a flow gives up.
    pub fn give_up_after(&self) -> Span {
        self.operation_timeout + FLOW_MARGIN
    }
}

/// Handle by which other threads reach the engine.
#[derive(Clone, Debug)]
pub(crate) struct Post {
    commands: Sender<Command>,
    waker: Waker,
    /// The process that has the engine. A child of it does not.
    pid: u32,
}

impl Post {
    /// Hands over a command. If the engine is gone the command is dropped, and its reply reports that the session is over.
    pub fn send(&self, command: Command) {
        if std::process::id() == self.pid && self.commands.send(command).is_ok() {
            self.waker.wake();
        }
    }

    /// Hands over what can wait until the engine wakes for another reason.
    pub fn leave_note(&self, command: Command) {
        if std::process::id() == self.pid {
            let _ = self.commands.send(command);
        }
    }
}

/// The driver of a rank's machines. It loses packets in tests.
pub(crate) type HostDriver = Driver<Lossy<Tapped<TrainingHost>>>;

/// The engine, on its own thread.
pub(crate) struct Engine {
    driver: HostDriver,
    inbox: Receiver<Command>,
    identity: Identity,
    deadlines: Deadlines,
    sending: Sending,
    tagging: Tagging,
    cancel: Cancel,
    control: Control,
    notes: Notes,
    end: Arc<End>,
    comparison: Comparison,
    /// Failure that another rank reported to this one, and the time of that report. That rank knows more.
    hearsay: Option<(Time, Hearsay)>,
    /// Until the rank has its place, with the time at which it began.
    joining: Option<(Time, Reply)>,
    /// Ranks that have left.
    departures: Departures,
    membership: Option<Membership>,
    paths: Paths,
    pending: Pending,
    watch: Watch,
    /// Why nothing goes on any more.
    failure: Option<Error>,
    /// Valid once it leaves.
    leaving: Option<Departing>,
}

impl Engine {
    /// Starts the thread. `joining` ends when the rank has its place in the job.
    pub fn start(
        mut driver: HostDriver,
        identity: Identity,
        deadlines: Deadlines,
        shared: Shared,
        joining: Reply,
    ) -> Result<(Post, JoinHandle<()>), Error> {
        let waker = driver.waker().map_err(Error::system("cannot make a wake-up"))?;
        let (commands, inbox) = channel();
        let Shared { control, notes, end, sending, tagging, cancel } = shared;
        let joining = Some((driver.now(), joining));
        let engine = Engine {
            driver,
            inbox,
            identity,
            deadlines,
            sending,
            tagging,
            cancel,
            control,
            notes,
            end,
            comparison: Comparison::default(),
            hearsay: None,
            joining,
            departures: Departures::default(),
            membership: None,
            paths: Paths::default(),
            pending: Pending::default(),
            watch: Watch::default(),
            failure: None,
            leaving: None,
        };
        let thread = std::thread::Builder::new()
            .name(format!("thalweg-{}", identity.rank))
            .spawn(move || engine.run())
            .map_err(Error::system("cannot start a thread"))?;
        Ok((Post { commands, waker, pid: std::process::id() }, thread))
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
        self.driver.command(|lossy, now| command(lossy.machine_mut().machine_mut(), now), events)
    }

    /// Takes in the events of the machines.
    fn take_in(&mut self, events: &mut Vec<Event>) {
        if !events.is_empty() {
            self.report_precision();
        }
        for event in events.drain(..) {
            if let Event::Paths(report) = event {
                self.take_paths(report);
            } else if let Some(fault) = self.pending.end(event) {
                self.spread(fault);
            }
        }
    }

    /// Tells everybody, this rank too, so that all fail alike.
    fn spread(&mut self, fault: Fault) {
        let failure = match fault {
            Fault::Own(failure) => failure,
            Fault::Sums(failure) => self.name_ranks(failure),
            Fault::Hearsay(hearsay) => {
                self.hearsay.get_or_insert((self.driver.now(), hearsay));
                return;
            }
        };
        self.say(FromRank::Failing(failure));
    }

    /// A failure of sums, which names nodes and seats, in terms of ranks.
    fn name_ranks(&self, failure: thalweg_collective::Failure) -> Failure {
        use thalweg_collective::Failure as Sums;
        let membership = self.membership.as_ref();
        let rank_of = |node| membership.and_then(|own| own.rank_of(node));
        let name = |rank: Option<u32>| rank.map_or("a rank".into(), |rank| format!("rank {rank}"));
        match failure {
            Sums::Differs(mismatch) => {
                let rank = |seat| membership.and_then(|own| own.leader(seat)).unwrap_or(seat);
                let mismatch = mismatch.renumbered(rank);
                let ranks = mismatch.ranks().to_vec();
                Failure::new(FailureKind::Agreement, mismatch.to_string(), ranks)
            }
            Sums::Lost(node) => {
                let rank = rank_of(node);
                let text =
                    format!("{} did not answer for too long: check it and its path", name(rank));
                Failure::new(FailureKind::Timeout, text, rank.into_iter().collect())
            }
            Sums::Mismatch(node) => {
                let rank = rank_of(node);
                let text = format!(
                    "{} sent values of another length or kind: use the same settings at every rank",
                    name(rank)
                );
                Failure::new(FailureKind::Agreement, text, rank.into_iter().collect())
            }
            Sums::Start(_) => Failure::new(FailureKind::Other, failure.to_string(), Vec::new()),
        }
    }

    fn say(&self, message: FromRank) {
        if let Some(control) = &*lock(&self.control) {
            control.send_of(self.identity.thread, message);
        }
    }

    /// Ends everything that is under way, and everything to come, with one error.
    fn fail(&mut self, error: Error) {
        if self.failure.is_some() {
            return;
        }
        // Who hears of it may use the memory that he has lent for something else.
        self.command(|host, _| host.leave_all(), |_| {});
        // Before anybody hears of it: what they call then is not for this job.
        self.end.set(&error);
        self.pending.fail(&error);
        self.end.fail_all(&error);
        if let Some((_, joining)) = self.joining.take() {
            joining.fail(error.clone());
        }
        self.failure = Some(error);
    }

    /// Ends the job for all ranks, because the application wants it.
    // spec: E-03
    fn abort(&mut self, reason: &str) {
        let rank = self.identity.rank;
        self.say(FromRank::Aborting { reason: reason.to_owned() });
        let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        let text = format!("aborted by rank {rank}{reason}");
        self.fail(Error::failed(Failure::new(FailureKind::Aborted, text, vec![rank])));
    }

    fn break_down(mut self, error: DriverError) {
        let rank = self.identity.rank;
        let text = format!("rank {rank} cannot go on: {error}");
        let failure = Failure::new(FailureKind::Other, text.clone(), vec![rank]);
        self.say(FromRank::Failing(failure));
        self.fail(Error::caused(ErrorKind::System, text, error).with_ranks([rank]));
    }
}
