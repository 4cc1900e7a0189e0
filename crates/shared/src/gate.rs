//! Waits of members for each other.
//!
//! Every member counts the chunks it has put in and those it has merged, in words that only it writes
//! and that only grow. A member waits until all of them have reached a number. The last member to reach it wakes those
//! that sleep, so that a step costs one wake-up and not one a member.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::board::{Board, LEFT, Progress};
use crate::call::{Call, Step};
use crate::clock::Stopwatch;
use crate::error::TeamError;
use crate::process::Process;

/// Looks before going to sleep, a few microseconds: the others are often only just behind. Longer
/// gains nothing, since members seldom wait at all while there is another chunk to put in, and takes
/// the core from those who are waited for. Yielding it instead is worse: beside other work on the
/// machine the scheduler lets that run first, whereas it runs who is woken soon.
const SPINS: u32 = 200;

/// Interval at which sleeping members check that the others still live.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Interval at which a member that sleeps checks its stop flag, if it has one.
pub(crate) const STOP_LOOK_EVERY: Duration = Duration::from_millis(50);

/// A member's view of how far everybody is.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) board: Board,
    pub(crate) me: u32,
    own: Process,
    patience: Duration,
    /// Progress that all members were seen to have reached.
    seen_put: u64,
    seen_merged: u64,
    /// The operation that the member is in, for errors.
    operation: u64,
    call: Step,
    /// Flag that makes this member end when another thread sets it.
    pub(crate) stop: Option<Arc<AtomicBool>>,
}

impl Gate {
    pub(crate) fn new(board: Board, me: u32, own: Process, patience: Duration) -> Gate {
        Gate {
            board,
            me,
            own,
            patience,
            seen_put: 0,
            seen_merged: 0,
            operation: 0,
            call: Call(None).into(),
            stop: None,
        }
    }

    /// Says that an operation begins. Others see it with the next progress.
    pub(crate) fn begin(&mut self, operation: u64, call: Step) {
        (self.operation, self.call) = (operation, call);
        self.board.announce(self.me, operation, &call);
    }

    /// Checks that everybody has begun the same operation. Only after everybody has put something in.
    pub(crate) fn compare_calls(&self) -> Result<(), TeamError> {
        let operation = self.operation;
        for other in 0..self.board.layout.members {
            let other_call = self.board.announced(other, operation);
            if !other_call.agrees(&self.call) {
                // In order, so that both of a pair say the same.
                let (own, other) = ((self.me, self.call), (other, other_call));
                let (one, other) = if own.0 < other.0 { (own, other) } else { (other, own) };
                return Err(self.board.condemn(TeamError::Disagreement {
                    operation,
                    one: one.0,
                    one_call: Box::new(one.1),
                    other: other.0,
                    other_call: Box::new(other.1),
                }));
            }
        }
        Ok(())
    }

    /// Fails if the team has failed in this operation. If it has in a later one, others have done this
    /// one already, and this member may too.
    pub(crate) fn check(&self) -> Result<(), TeamError> {
        let is_later = |verdict: &TeamError| {
            verdict.operation().is_some_and(|operation| operation > self.operation)
        };
        self.board.verdict().filter(|verdict| !is_later(verdict)).map_or(Ok(()), Err)
    }

    /// Says that this member has reached a number.
    pub(crate) fn arrive(&self, of: Progress, count: u64) {
        self.board.progress(self.me, of).store(count, SeqCst);
        // Of all who do this, the last one finds that nobody is behind.
        if self.everybody_has(of, count) {
            self.board.bell().ring();
        }
    }

    /// Returns when every member has reached a number.
    pub(crate) fn wait(&mut self, of: Progress, count: u64) -> Result<(), TeamError> {
        let seen = match of {
            Progress::Put => self.seen_put,
            Progress::Merged => self.seen_merged,
        };
        if seen < count {
            if !self.everybody_has(of, count) && !self.comes_soon(of, count) {
                self.sleep_until(of, count)?;
            }
            let everybody = self.least(of);
            match of {
                Progress::Put => self.seen_put = everybody,
                Progress::Merged => self.seen_merged = everybody,
            }
        }
        Ok(())
    }

    fn comes_soon(&self, of: Progress, count: u64) -> bool {
        for _ in 0..SPINS {
            std::hint::spin_loop();
            if self.everybody_has(of, count) {
                return true;
            }
        }
        false
    }

    fn sleep_until(&self, of: Progress, count: u64) -> Result<(), TeamError> {
        let waited = Stopwatch::start();
        let mut next_look = LOOK_EVERY;
        loop {
            let bell = self.board.bell();
            let ticket = bell.ticket();
            if self.everybody_has(of, count) {
                return Ok(());
            }
            self.check()?;
            self.check_stop()?;
            let elapsed = waited.elapsed();
            let looks = elapsed >= next_look;
            if looks {
                next_look = elapsed + LOOK_EVERY;
            }
            self.find_gone(of, count, looks)?;
            if elapsed >= self.patience {
                return self.give_up(of, count);
            }
            let nap = if self.stop.is_some() { STOP_LOOK_EVERY } else { LOOK_EVERY };
            ticket.sleep((self.patience - elapsed).min(next_look - elapsed).min(nap));
        }
    }

    /// Fails the team if this member is to end.
    fn check_stop(&self) -> Result<(), TeamError> {
        if !self.stop.as_ref().is_some_and(|stop| stop.load(SeqCst)) {
            return Ok(());
        }
        let (operation, member) = (self.operation, self.me);
        Err(self.board.condemn(TeamError::Stopped { operation, member }))
    }

    /// Fails if somebody who is waited for will not come. That a member has left costs nothing to
    /// see; that its process has ended is `looked` for.
    fn find_gone(&self, of: Progress, count: u64, looked: bool) -> Result<(), TeamError> {
        // First whether it is gone, then whether it came before.
        let is_gone = |member: u32| {
            self.board.membership(member).load(SeqCst) == LEFT
                || (looked && self.board.has_ended(member, &self.own))
        };
        let members: Vec<u32> = self
            .others()
            .filter(|member| self.is_behind(*member, of, count) && is_gone(*member))
            .filter(|member| self.is_behind(*member, of, count))
            .collect();
        if members.is_empty() {
            return Ok(());
        }
        let (operation, call) = (self.operation, self.call.call);
        Err(self.board.condemn(TeamError::Gone { operation, call, members }))
    }

    fn give_up(&self, of: Progress, count: u64) -> Result<(), TeamError> {
        let missing: Vec<u32> =
            self.others().filter(|member| self.is_behind(*member, of, count)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(self.board.condemn(TeamError::Stalled {
            operation: self.operation,
            call: self.call.call,
            missing,
            after: self.patience,
        }))
    }

    fn others(&self) -> impl Iterator<Item = u32> {
        let me = self.me;
        (0..self.board.layout.members).filter(move |member| *member != me)
    }

    fn is_behind(&self, member: u32, of: Progress, count: u64) -> bool {
        self.board.progress(member, of).load(SeqCst) < count
    }

    fn everybody_has(&self, of: Progress, count: u64) -> bool {
        !(0..self.board.layout.members).any(|member| self.is_behind(member, of, count))
    }

    fn least(&self, of: Progress) -> u64 {
        let counts = (0..self.board.layout.members)
            .map(|member| self.board.progress(member, of).load(SeqCst));
        counts.min().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use thalweg_core::OperationKind;

    use super::*;
    use crate::board::test_board;

    #[test]
    fn a_failure_in_a_later_operation_leaves_this_one_alone() {
        let own = Process::own();
        let mut gate = Gate::new(test_board(3, 64), 1, own, Duration::from_millis(1));
        let call = Call::bare(OperationKind::Barrier);
        let gone = TeamError::Gone { operation: 5, call, members: vec![2] };
        gate.board.condemn(gone.clone());
        gate.begin(4, call.into());
        assert_eq!(gate.check(), Ok(()));
        gate.begin(5, call.into());
        assert_eq!(gate.check(), Err(gone));
    }

    #[test]
    fn who_arrived_before_it_left_is_not_missed() {
        let own = Process::own();
        let mut gate = Gate::new(test_board(2, 64), 0, own, Duration::from_secs(9));
        gate.begin(0, Call::bare(OperationKind::Barrier).into());
        gate.arrive(Progress::Put, 2);
        gate.board.progress(1, Progress::Put).store(1, SeqCst);
        gate.board.membership(1).store(LEFT, SeqCst);
        assert_eq!(gate.wait(Progress::Put, 1), Ok(()));
        let gone = TeamError::Gone {
            operation: 0,
            call: Call::bare(OperationKind::Barrier),
            members: vec![1],
        };
        assert_eq!(gate.wait(Progress::Put, 2), Err(gone));
    }
}
