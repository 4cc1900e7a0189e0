//! The part of a session in one job: all that carries out operations there.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use thalweg_collective::mesh::{Call, Request};

use super::SessionConfig;
use super::exchange::parts_of_bytes;
use super::lane::Lanes;
use super::missing::Hosts;
use super::team::TeamThread;
use crate::engine::{Command, End, Leaving};
use crate::error::{Error, ErrorKind};
use crate::handle::pair;
use crate::policy::Policy;

/// The part of a rank in a job: its sending threads, and the ranks of its host.
pub(super) struct Part {
    pub rank: u32,
    pub ranks: u32,
    pub policy: Policy,
    /// True if the job has a switch.
    pub has_switch: bool,
    pub hosts: Arc<Hosts>,
    pub calls: Arc<Calls>,
    /// The ranks of this host, if there are several. It uses the lanes, so it goes before them.
    pub team: Option<TeamThread>,
    pub lanes: Lanes,
}

impl Part {
    /// Joins the job, and waits until all ranks are there.
    #[expect(clippy::disallowed_methods, reason = "joining takes real time")]
    pub fn join(config: &SessionConfig, end: Arc<End>, calls: Arc<Calls>) -> Result<Part, Error> {
        let began = Instant::now();
        let (lanes, welcome) = Lanes::join(config, end)?;
        let team = TeamThread::join(config, &welcome, &lanes.end, began.elapsed())?;
        Ok(Part {
            rank: config.rank,
            ranks: config.ranks,
            policy: config.policy,
            has_switch: welcome.has_switch,
            hosts: Arc::new(Hosts::new(&welcome)),
            calls,
            team,
            lanes,
        })
    }

    /// The error of a path that has become narrow, if that ended the part.
    pub fn narrowed(&self) -> Option<Error> {
        self.lanes.end.error().filter(|error| error.kind() == ErrorKind::Path)
    }

    /// Leaves the job when everything that was begun has ended.
    pub fn leave(mut self) -> Result<(), Error> {
        // It has to have handed over what it works on.
        self.team = None;
        self.lanes.leave()
    }

    /// Tells the other ranks how many operations were called here, and returns the most of all.
    // spec: F-01
    pub fn agree_on_calls(&self) -> Result<Agreed, Error> {
        let data = self.calls.count().encode().to_vec();
        let (handle, reply) = pair(|outcome| Ok(parts_of_bytes(outcome)));
        let request = Request::from(Call::AllGather { data });
        self.lanes.first().send(Command::Call(request, reply));
        let counts: Vec<Vec<u8>> = handle.wait()?;
        let counts = counts.iter().map(|bytes| Counted::decode(bytes));
        let counts = counts.collect::<Option<Vec<Counted>>>();
        let counts = counts.ok_or_else(|| Error::internal("a rank counts its calls otherwise"))?;
        let agreed = Agreed::of(&counts);
        // Those that meet have the number 0.
        self.lanes.first().send(Command::CountFrom(agreed.first.max(1)));
        Ok(agreed)
    }
}

impl Drop for Part {
    /// Leaves without waiting for what is under way, within a second. Other ranks that need this one fail.
    fn drop(&mut self) {
        if self.team.is_some() {
            // Its thread may wait for other ranks of the host, or for what the others compute.
            self.lanes.end.set(&Error::closed());
            // A thread that is gone needs no goodbye.
            let _ = self.lanes.say_goodbye(Leaving::AtOnce);
        }
    }
}

/// Calls of a session, over all jobs that it was in.
///
/// All ranks make the same calls in the same order, so that an operation has the same number at each. Where a path becomes
/// narrow, some have called more than others: those that any rank has called fail at all that have no result of them.
// spec: F-01
#[derive(Default)]
pub(super) struct Calls {
    /// Operations that were called.
    called: AtomicU64,
    /// True if values were sent from rank to rank: these have no numbers.
    has_transfers: AtomicBool,
    /// Operations below this number fail with the error.
    missed: Mutex<Option<(u64, Error)>>,
}

/// Calls of one rank, as others learn of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Counted {
    called: u64,
    has_transfers: bool,
}

/// Outcome of a meeting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Agreed {
    /// The first operation that no rank has called.
    pub first: u64,
    /// True if any rank has sent values to another, or received some.
    pub has_transfers: bool,
}

impl Calls {
    /// Counts an operation that is about to begin. One that other ranks have begun in a job that is over fails.
    pub fn begin(&self) -> Result<(), Error> {
        let number = self.called.fetch_add(1, Ordering::SeqCst);
        let missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
        match &*missed {
            Some((first, error)) if number < *first => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Notes that values are sent from rank to rank.
    pub fn begin_transfer(&self) {
        self.has_transfers.store(true, Ordering::SeqCst);
    }

    /// Has operations below this number fail with an error.
    pub fn fail_below(&self, first: u64, error: &Error) {
        let mut missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
        *missed = Some((first, error.clone()));
    }

    /// The calls so far.
    pub fn count(&self) -> Counted {
        Counted {
            called: self.called.load(Ordering::SeqCst),
            has_transfers: self.has_transfers.load(Ordering::SeqCst),
        }
    }
}

/// Bytes of the calls of one rank: the number of operations, and 1 if there were transfers.
const COUNTED_BYTES: usize = 9;

impl Counted {
    fn encode(self) -> [u8; COUNTED_BYTES] {
        let mut bytes = [u8::from(self.has_transfers); COUNTED_BYTES];
        bytes[..8].copy_from_slice(&self.called.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Counted> {
        let bytes: [u8; COUNTED_BYTES] = bytes.try_into().ok()?;
        let (called, has_transfers) = bytes.split_last_chunk::<1>().map(|(called, last)| {
            let called = called.try_into().map_or(0, u64::from_le_bytes);
            (called, last[0] != 0)
        })?;
        Some(Counted { called, has_transfers })
    }
}

impl Agreed {
    fn of(counts: &[Counted]) -> Agreed {
        Agreed {
            first: counts.iter().map(|count| count.called).max().unwrap_or(0),
            has_transfers: counts.iter().any(|count| count.has_transfers),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(called: u64) -> Counted {
        Counted { called, has_transfers: false }
    }

    // spec: F-01 machine
    #[test]
    fn what_any_rank_has_called_fails_where_it_was_not_called() {
        let narrow = Error::new(ErrorKind::Path, "narrow");
        let calls = Calls::default();
        for _ in 0..3 {
            calls.begin().expect("nothing has happened");
        }
        let agreed = Agreed::of(&[counted(4), calls.count(), counted(5)]);
        assert_eq!(agreed, Agreed { first: 5, has_transfers: false });
        calls.fail_below(agreed.first, &narrow);
        let outcomes: Vec<bool> = (0..4).map(|_| calls.begin().is_ok()).collect();
        assert_eq!(outcomes, [false, false, true, true], "operations 3 and 4 are missed");
        assert_eq!(calls.count().called, 7);
    }

    // spec: F-01 machine
    #[test]
    fn all_ranks_learn_of_transfers() {
        let calls = Calls::default();
        calls.begin_transfer();
        let all = [counted(u64::MAX), calls.count()];
        let read = all.map(|counted| Counted::decode(&counted.encode()).expect("it is whole"));
        assert_eq!(read, all);
        assert!(Agreed::of(&read).has_transfers);
        assert!(!Agreed::of(&read[..1]).has_transfers);
        assert_eq!(Counted::decode(&[0; COUNTED_BYTES - 1]), None);
        assert_eq!(Counted::decode(&[0; COUNTED_BYTES + 1]), None);
    }
}
