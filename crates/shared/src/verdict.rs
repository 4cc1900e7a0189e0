//! Why a team has failed, written down so that every member says the same.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use crate::board::Board;
use crate::call::{Call, STEP_WORDS, Step};
use crate::clock::Stopwatch;
use crate::error::{Misuse, TeamError};
use crate::layout;

// Places after `layout::VERDICT`.
const CLAIMED_BY: usize = 0;
const KIND: usize = 4;
const OPERATION: usize = 8;
const AFTER_MS: usize = 16;
const ONE: usize = 24;
const OTHER: usize = 28;
const ONE_CALL: usize = 32;
const OTHER_CALL: usize = ONE_CALL + 8 * STEP_WORDS;
const WHY: usize = OTHER_CALL + 8 * STEP_WORDS;

const NONE: u32 = 0;
const ABSENT: u32 = 1;
const DIED: u32 = 2;
const STALLED: u32 = 3;
const GONE: u32 = 4;
const DISAGREEMENT: u32 = 5;
const MISUSED: u32 = 6;
const STOPPED: u32 = 7;

const MISUSES: [Misuse; 3] = [Misuse::PartialValue, Misuse::NoSuchRoot, Misuse::WrongRoom];

/// Time that the first writer of a verdict may take. It is a matter of nanoseconds, unless
/// it was stopped or killed in between.
const WRITTEN_WITHIN: Duration = Duration::from_millis(100);

/// An error in words: the members it blames stand in their records.
#[derive(Default)]
struct Words<'a> {
    kind: u32,
    operation: u64,
    after: Duration,
    one: u32,
    other: u32,
    calls: [Option<Step>; 2],
    why: u32,
    blamed: &'a [u32],
}

impl Board {
    /// Fails the team for all members, unless it has failed already, and gives back the error that
    /// stands.
    pub(crate) fn condemn(&self, error: TeamError) -> TeamError {
        let Some(words) = encode(&error) else { return error };
        let claim = self.memory.word(layout::VERDICT + CLAIMED_BY);
        if claim.compare_exchange(0, 1, SeqCst, SeqCst).is_ok() {
            self.write_verdict(&words);
            self.bell().ring();
            return error;
        }
        self.await_verdict().unwrap_or(error)
    }

    /// Why the team has failed, if it has.
    pub(crate) fn verdict(&self) -> Option<TeamError> {
        let kind = self.memory.word(layout::VERDICT + KIND).load(SeqCst);
        (kind != NONE).then(|| self.read_verdict(kind))
    }

    /// The verdict that somebody has begun to write.
    pub(crate) fn await_verdict(&self) -> Option<TeamError> {
        let waited = Stopwatch::start();
        loop {
            let verdict = self.verdict();
            if verdict.is_some() || waited.elapsed() > WRITTEN_WITHIN {
                return verdict;
            }
            std::thread::yield_now();
        }
    }

    fn write_verdict(&self, words: &Words<'_>) {
        let at = layout::VERDICT;
        let after_ms = u64::try_from(words.after.as_millis()).unwrap_or(u64::MAX);
        self.memory.long(at + OPERATION).store(words.operation, Relaxed);
        self.memory.long(at + AFTER_MS).store(after_ms, Relaxed);
        self.memory.word(at + ONE).store(words.one, Relaxed);
        self.memory.word(at + OTHER).store(words.other, Relaxed);
        self.memory.word(at + WHY).store(words.why, Relaxed);
        for (at, call) in [at + ONE_CALL, at + OTHER_CALL].into_iter().zip(words.calls) {
            self.write_step(at, &call.unwrap_or(Call(None).into()));
        }
        for member in words.blamed {
            self.is_blamed(*member).store(1, Relaxed);
        }
        self.memory.word(at + KIND).store(words.kind, SeqCst);
    }

    fn read_verdict(&self, kind: u32) -> TeamError {
        let at = layout::VERDICT;
        let operation = self.memory.long(at + OPERATION).load(Relaxed);
        let after = Duration::from_millis(self.memory.long(at + AFTER_MS).load(Relaxed));
        let one = self.memory.word(at + ONE).load(Relaxed);
        let other = self.memory.word(at + OTHER).load(Relaxed);
        let [one_call, other_call] = [at + ONE_CALL, at + OTHER_CALL].map(|at| self.read_step(at));
        let call = one_call.call;
        let why = MISUSES.get(self.memory.word(at + WHY).load(Relaxed) as usize);
        let members = 0..self.layout.members;
        let blamed = members.filter(|member| self.is_blamed(*member).load(Relaxed) != 0).collect();
        match (kind, why) {
            (ABSENT, _) => TeamError::Absent { missing: blamed, after },
            (DIED, _) => TeamError::Died { members: blamed },
            (STALLED, _) => TeamError::Stalled { operation, call, missing: blamed, after },
            (GONE, _) => TeamError::Gone { operation, call, members: blamed },
            (DISAGREEMENT, _) => {
                let [one_call, other_call] = [one_call, other_call].map(Box::new);
                TeamError::Disagreement { operation, one, one_call, other, other_call }
            }
            (STOPPED, _) => TeamError::Stopped { operation, member: one },
            (MISUSED, Some(&why)) => TeamError::Misused { operation, member: one, call, why },
            _ => TeamError::Overwritten { what: "the reason of its failure" },
        }
    }
}

/// Nothing for errors that are one member's own.
fn encode(error: &TeamError) -> Option<Words<'_>> {
    let words = Words::default();
    Some(match *error {
        TeamError::Absent { ref missing, after } => {
            Words { kind: ABSENT, blamed: missing, after, ..words }
        }
        TeamError::Died { ref members } => Words { kind: DIED, blamed: members, ..words },
        TeamError::Stalled { operation, call, ref missing, after } => {
            let calls = [Some(call.into()), None];
            Words { kind: STALLED, operation, calls, blamed: missing, after, ..words }
        }
        TeamError::Gone { operation, call, ref members } => {
            let calls = [Some(call.into()), None];
            Words { kind: GONE, operation, calls, blamed: members, ..words }
        }
        TeamError::Disagreement { operation, one, ref one_call, other, ref other_call } => {
            let calls = [Some(**one_call), Some(**other_call)];
            Words { kind: DISAGREEMENT, operation, one, other, calls, ..words }
        }
        TeamError::Misused { operation, member, call, why } => {
            let why = MISUSES.iter().position(|known| *known == why).unwrap_or(MISUSES.len());
            let (calls, why) = ([Some(call.into()), None], why as u32);
            Words { kind: MISUSED, operation, one: member, calls, why, ..words }
        }
        TeamError::Stopped { operation, member } => {
            Words { kind: STOPPED, operation, one: member, ..words }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use thalweg_core::{Element, Fingerprint, OperationKind};

    use super::*;
    use crate::board::test_board;

    #[test]
    fn every_verdict_reads_as_it_was_written() {
        let call = Call::copy(OperationKind::Broadcast, Some(1), 77);
        let after = Duration::from_millis(2_500);
        for error in [
            TeamError::Absent { missing: vec![0, 2], after },
            TeamError::Died { members: vec![1] },
            TeamError::Stalled { operation: 9, call, missing: vec![2], after },
            TeamError::Gone { operation: 1 << 40, call, members: vec![0, 1, 2] },
            TeamError::Disagreement {
                operation: 3,
                one: 0,
                one_call: Box::new(Step {
                    call,
                    operation: Some(Fingerprint::of_sum(Element::F32, 9)),
                }),
                other: 2,
                other_call: Box::new(Call::bare(OperationKind::Barrier).into()),
            },
            TeamError::Stopped { operation: 8, member: 1 },
            TeamError::Misused { operation: 0, member: 2, call, why: Misuse::WrongRoom },
        ] {
            let board = test_board(3, 64);
            assert_eq!(board.verdict(), None);
            assert_eq!(board.condemn(error.clone()), error);
            assert_eq!(board.verdict(), Some(error));
        }
    }

    #[test]
    fn the_first_verdict_stands() {
        let board = test_board(2, 64);
        let first = TeamError::Died { members: vec![1] };
        board.condemn(first.clone());
        assert_eq!(board.condemn(TeamError::Died { members: vec![0] }), first);
    }

    #[test]
    fn nonsense_is_a_verdict_too() {
        let board = test_board(2, 64);
        board.memory.word(layout::VERDICT + KIND).store(99, SeqCst);
        let verdict = board.verdict().unwrap();
        assert_eq!(verdict, TeamError::Overwritten { what: "the reason of its failure" });
    }
}
