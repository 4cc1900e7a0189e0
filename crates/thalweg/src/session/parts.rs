//! The parts of a session in jobs, one after the other.
//!
//! A path that becomes narrower ends the job at all ranks with one error. Their sessions join it again under its name: the
//! server probes all paths, and its fragments have a length that passes. Before an operation begins there, ranks tell each
//! other how many operations they have called. The most of all is where the new job begins. Operations below end with the
//! error at all ranks that have not ended them, also at those that have yet to call them; what has ended before is right.
//! So ranks that had come to different points go on with the same operation, and nothing of one job can mix with another:
//! each has an id and keys of its own.
// spec: F-01

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::SessionConfig;
use super::part::{Agreed, Calls, Part};
use crate::engine::{End, Interrupt, Post};
use crate::error::{Error, ErrorKind};
use crate::events::{Note, Notes};
use crate::handle::{Handle, pair, ready};

/// The parts of one session.
pub(super) struct Parts {
    config: SessionConfig,
    calls: Arc<Calls>,
    notes: Notes,
    state: RwLock<State>,
    /// Number of meetings that have begun and not ended, for those that wait for the end of them.
    meetings: Mutex<u32>,
    has_met: Condvar,
    /// Takes the address and the threads of a new part.
    on_join: Box<dyn Fn(&Part) + Send + Sync>,
}

enum State {
    /// Operations begin.
    Active(Part),
    /// Ranks meet again. Operations wait in the order of the calls.
    Meeting(Meeting),
    /// Nothing begins any more.
    Over(Error),
}

struct Meeting {
    /// The part that has ended, until it is left.
    ended: Option<Part>,
    /// The end of the part that comes.
    end: Arc<End>,
    /// Why ranks meet.
    narrow: Error,
    /// True once a thread carries it out.
    is_claimed: bool,
    waiting: Mutex<Vec<Waiting>>,
}

/// A call that waits for a part, or for the reason why there will be none.
type Waiting = Box<dyn FnOnce(Result<&Part, &Error>) + Send>;

impl Parts {
    /// Begins with a part.
    pub fn begin_with(
        config: SessionConfig,
        part: Part,
        on_join: impl Fn(&Part) + Send + Sync + 'static,
    ) -> Arc<Parts> {
        let end = Arc::clone(&part.lanes.end);
        let parts = Arc::new(Parts {
            calls: Arc::clone(&part.calls),
            notes: Notes::new(&config.job, config.rank),
            config,
            state: RwLock::new(State::Active(part)),
            meetings: Mutex::new(0),
            has_met: Condvar::new(),
            on_join: Box::new(on_join),
        });
        parts.watch(&end);
        parts
    }

    /// Begins an operation, at once or when ranks have met again.
    pub fn begin<T: Send + 'static>(
        &self,
        begin: impl FnOnce(&Part) -> Handle<T> + Send + 'static,
    ) -> Handle<T> {
        match &*self.read() {
            State::Active(part) if part.narrowed().is_none() => return begin(part),
            State::Over(error) => return ready(Err(error.clone())),
            State::Active(_) | State::Meeting(_) => {}
        }
        let mut state = self.write();
        self.begin_to_meet(&mut state);
        match &mut *state {
            State::Active(part) => begin(part),
            State::Over(error) => ready(Err(error.clone())),
            State::Meeting(meeting) => {
                let (handle, reply) = pair(|result: T| Ok(result));
                meeting.waiting().push(Box::new(move |part| match part {
                    Ok(part) => begin(part).forward(reply),
                    Err(error) => reply.fail(error.clone()),
                }));
                handle
            }
        }
    }

    /// A sending thread of the part, if it has that many.
    pub fn post(&self, thread: usize) -> Result<Option<Post>, Error> {
        match &*self.read() {
            State::Active(part) => Ok(part.lanes.get(thread).cloned()),
            State::Meeting(Meeting { narrow: error, .. }) | State::Over(error) => {
                Err(error.clone())
            }
        }
    }

    /// Ends the job for all ranks. Does not wait.
    // spec: E-03
    pub fn abort(&self, reason: &str) {
        match &*self.read() {
            State::Active(part) => part.lanes.abort(reason),
            State::Meeting(Meeting { end, .. }) => {
                end.interrupt(Interrupt::Abort(reason.to_owned()))
            }
            State::Over(_) => {}
        }
    }

    /// Leaves when everything that was begun has ended. Where a path becomes narrow meanwhile, ranks meet once more: others
    /// may need this one to go on.
    pub fn leave(self: &Arc<Parts>) -> Result<(), Error> {
        loop {
            self.wait_until_met();
            let mut state = self.write();
            match std::mem::replace(&mut *state, State::Over(Error::closed())) {
                State::Active(part) => {
                    drop(state);
                    let end = Arc::clone(&part.lanes.end);
                    let left = part.leave();
                    let narrow = end.error().filter(|error| error.kind() == ErrorKind::Path);
                    let Some(narrow) = narrow else { return left };
                    let meeting = Meeting { is_claimed: true, ..Meeting::of(None, narrow) };
                    *self.write() = State::Meeting(meeting);
                    *self.meetings() += 1;
                    self.meet();
                }
                // A path became narrow just now.
                meeting @ State::Meeting(_) => *state = meeting,
                State::Over(error) => return Err(error),
            }
        }
    }

    /// Ends everything at once.
    pub fn close(&self) {
        let before = std::mem::replace(&mut *self.write(), State::Over(Error::closed()));
        match before {
            State::Meeting(mut meeting) => {
                meeting.end.interrupt(Interrupt::Leave);
                meeting.waiting().drain(..).for_each(|call| call(Err(&Error::closed())));
                drop(meeting.ended);
                if !meeting.is_claimed {
                    self.note_end();
                }
            }
            State::Active(part) => drop(part),
            State::Over(_) => {}
        }
        self.wait_until_met();
    }

    /// Has ranks meet once the part with this end is over because of a path.
    fn watch(self: &Arc<Parts>, end: &End) {
        let parts = Arc::downgrade(self);
        end.watch(Box::new(move |error| {
            let Some(parts) = parts.upgrade().filter(|_| error.kind() == ErrorKind::Path) else {
                return;
            };
            let name = format!("thalweg-{}-meets", parts.config.rank);
            let meeting = Arc::clone(&parts);
            let meet = move || {
                if meeting.claim() {
                    meeting.meet();
                }
            };
            if let Err(error) = std::thread::Builder::new().name(name).spawn(meet)
                && parts.claim()
            {
                parts.end(&Error::system("cannot start a thread")(error));
                parts.note_end();
            }
        }));
    }

    /// Returns true for one of those who would carry out the next meeting.
    fn claim(&self) -> bool {
        let mut state = self.write();
        self.begin_to_meet(&mut state);
        match &mut *state {
            State::Meeting(meeting) => !std::mem::replace(&mut meeting.is_claimed, true),
            State::Active(_) | State::Over(_) => false,
        }
    }

    /// Takes the part away if a path has ended it: whatever is called from now on waits.
    fn begin_to_meet(&self, state: &mut State) {
        let State::Active(part) = &*state else { return };
        let Some(narrow) = part.narrowed() else { return };
        *self.meetings() += 1;
        let before = std::mem::replace(state, State::Over(Error::closed()));
        let State::Active(part) = before else { return };
        *state = State::Meeting(Meeting::of(Some(part), narrow));
    }

    /// Leaves the part that has ended and joins the job again, until that succeeds.
    fn meet(self: &Arc<Parts>) {
        let mut joined = self.rejoin();
        while let Err(error) = &joined {
            if error.kind() != ErrorKind::Path || !self.meet_once_more(error) {
                break;
            }
            joined = self.rejoin();
        }
        match joined {
            Ok(part) => self.go_on(part),
            Err(error) => self.end(&error),
        }
        self.note_end();
    }

    /// A meeting has ended.
    fn note_end(&self) {
        *self.meetings() -= 1;
        self.has_met.notify_all();
    }

    /// Begins another meeting, because a path became narrow in this one. Returns false if the session is over.
    fn meet_once_more(&self, error: &Error) -> bool {
        match &mut *self.write() {
            State::Meeting(meeting) => {
                let end = Arc::<End>::default();
                meeting.end.interrupted().into_iter().for_each(|wish| end.interrupt(wish));
                (meeting.end, meeting.narrow) = (end, error.clone());
                true
            }
            State::Active(_) | State::Over(_) => false,
        }
    }

    /// Joins the job again, and agrees with the other ranks where to go on.
    fn rejoin(&self) -> Result<Part, Error> {
        let (ended, end, narrow) = match &mut *self.write() {
            State::Meeting(Meeting { ended, end, narrow, .. }) => {
                (ended.take(), Arc::clone(end), narrow.clone())
            }
            State::Active(_) | State::Over(_) => return Err(Error::closed()),
        };
        self.notes.send(Note::Narrowed(narrow.to_string()));
        // Its sockets and its memory are free before the next part has some. It has failed, and says so.
        let _ = ended.map(Part::leave);
        let config = self.config.clone().rejoining();
        let part = Part::join(&config, end, Arc::clone(&self.calls))?;
        let Agreed { first, has_transfers } = part.agree_on_calls()?;
        if has_transfers {
            // The others learn of it before this rank is gone: all end for the same reason.
            let _ = part.leave();
            let text = format!(
                "{narrow}; but values were sent from rank to rank, and some may be lost: start the job again"
            );
            return Err(Error::new(ErrorKind::Network, text));
        }
        self.calls.fail_below(first, &narrow);
        Ok(part)
    }

    /// Begins what waits, in the order of the calls, and everything that follows.
    fn go_on(self: &Arc<Parts>, part: Part) {
        (self.on_join)(&part);
        loop {
            let mut state = self.write();
            let State::Meeting(meeting) = &mut *state else { return };
            let waiting = std::mem::take(meeting.waiting());
            if waiting.is_empty() {
                let end = Arc::clone(&part.lanes.end);
                *state = State::Active(part);
                drop(state);
                return self.watch(&end);
            }
            drop(state);
            waiting.into_iter().for_each(|call| call(Ok(&part)));
        }
    }

    /// Ends the session, and what waits.
    fn end(&self, error: &Error) {
        let mut state = self.write();
        let State::Meeting(meeting) = &mut *state else { return };
        let waiting = std::mem::take(meeting.waiting());
        *state = State::Over(error.clone());
        drop(state);
        waiting.into_iter().for_each(|call| call(Err(error)));
    }

    fn wait_until_met(&self) {
        let meetings = self.meetings();
        let met = self.has_met.wait_while(meetings, |meetings| *meetings > 0);
        drop(met.unwrap_or_else(PoisonError::into_inner));
    }

    fn meetings(&self) -> MutexGuard<'_, u32> {
        self.meetings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Meeting {
    fn of(ended: Option<Part>, narrow: Error) -> Meeting {
        let (end, waiting) = (Arc::default(), Mutex::default());
        Meeting { ended, end, narrow, is_claimed: false, waiting }
    }

    fn waiting(&mut self) -> &mut Vec<Waiting> {
        self.waiting.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}
