//! The shared memory as the members see it: named words and places.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::bell::Bell;
use crate::call::{Call, Step};
use crate::layout::{self, Layout};
use crate::memory::Memory;
use crate::process::Process;

const MAGIC: u64 = u64::from_le_bytes(*b"thalwegT");
/// To be raised whenever the layout or the meaning of a word changes.
const VERSION: u32 = 3;

/// A member that has not come.
pub(crate) const EMPTY: u32 = 0;
/// It has come, and has the memory mapped.
pub(crate) const JOINED: u32 = 1;
/// It has left the team.
pub(crate) const LEFT: u32 = 2;

/// Progress of a member, in chunks since the team was formed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// Chunks that it has put into its slots.
    Put,
    /// Chunks whose parts it needs no more, because it has combined or copied them.
    Merged,
}

/// The shared memory of a team.
#[derive(Debug)]
pub(crate) struct Board {
    pub(crate) memory: Memory,
    pub(crate) layout: Layout,
}

impl Board {
    /// Writes down what the memory is for. Only before others can see it.
    pub(crate) fn initialise(&self) {
        self.memory.long(layout::MAGIC).store(MAGIC, SeqCst);
        self.memory.word(layout::VERSION).store(VERSION, SeqCst);
        self.memory.word(layout::MEMBERS).store(self.layout.members, SeqCst);
        self.memory.long(layout::CHUNK_BYTES).store(self.layout.chunk_bytes as u64, SeqCst);
    }

    /// The bell that all members hear.
    pub(crate) fn bell(&self) -> Bell<'_> {
        Bell { rings: self.memory.word(layout::BELL), sleepers: self.memory.word(layout::SLEEPERS) }
    }

    /// State of the team: it is forming, stands or has failed to form.
    pub(crate) fn state(&self) -> &AtomicU32 {
        self.memory.word(layout::STATE)
    }

    pub(crate) fn progress(&self, member: u32, of: Progress) -> &AtomicU64 {
        let at = match of {
            Progress::Put => layout::PUT,
            Progress::Merged => layout::MERGED,
        };
        self.memory.long(self.layout.record(member) + at)
    }

    /// [`EMPTY`], [`JOINED`] or [`LEFT`].
    pub(crate) fn membership(&self, member: u32) -> &AtomicU32 {
        self.memory.word(self.layout.record(member) + layout::MEMBERSHIP)
    }

    /// True if this member is a reason for the team's failure.
    pub(crate) fn is_blamed(&self, member: u32) -> &AtomicU32 {
        self.memory.word(self.layout.record(member) + layout::IS_BLAMED)
    }

    /// Joins a process as a member, or returns the process that is this member already.
    pub(crate) fn join(&self, member: u32, process: &Process) -> Result<(), u32> {
        let record = self.layout.record(member);
        let pid = self.memory.word(record + layout::PID);
        pid.compare_exchange(0, process.pid, SeqCst, SeqCst)?;
        self.memory.long(record + layout::STARTED).store(process.started, SeqCst);
        self.memory.long(record + layout::NAMESPACE).store(process.namespace, SeqCst);
        self.membership(member).store(JOINED, SeqCst);
        Ok(())
    }

    /// True if a member's process has certainly ended, as process `own` sees it.
    pub(crate) fn has_ended(&self, member: u32, own: &Process) -> bool {
        if self.membership(member).load(SeqCst) == EMPTY {
            return false;
        }
        let record = self.layout.record(member);
        let process = Process {
            pid: self.memory.word(record + layout::PID).load(SeqCst),
            started: self.memory.long(record + layout::STARTED).load(SeqCst),
            namespace: self.memory.long(record + layout::NAMESPACE).load(SeqCst),
        };
        process.has_ended(own)
    }

    /// Writes down what a member calls. Two operations have places in turns: a member in the next
    /// one may still have to be compared with in this one.
    pub(crate) fn announce(&self, member: u32, operation: u64, step: &Step) {
        let at = self.call_at(member, operation);
        self.memory.long(at).store(operation, Relaxed);
        self.write_step(at + 8, step);
    }

    /// Writes a step to a place.
    pub(crate) fn write_step(&self, at: usize, step: &Step) {
        for (word, value) in step.encode().into_iter().enumerate() {
            self.memory.long(at + 8 * word).store(value, Relaxed);
        }
    }

    /// The step that is written in a place.
    pub(crate) fn read_step(&self, at: usize) -> Step {
        Step::decode(std::array::from_fn(|word| self.memory.long(at + 8 * word).load(Relaxed)))
    }

    /// Call of a member as this operation, once it has put in the first chunk.
    pub(crate) fn announced(&self, member: u32, operation: u64) -> Step {
        let at = self.call_at(member, operation);
        let step = self.read_step(at + 8);
        let is_this = self.memory.long(at).load(Relaxed) == operation;
        if is_this { step } else { Call(None).into() }
    }

    fn call_at(&self, member: u32, operation: u64) -> usize {
        let turn = (operation % 2) as usize;
        self.layout.record(member) + layout::CALLS + turn * layout::CALL_BYTES
    }
}

/// The layout that a file's header tells, or what is wrong with it.
pub(crate) fn layout_of(header: &Memory) -> Result<Layout, String> {
    let version = header.word(layout::VERSION).load(SeqCst);
    let members = header.word(layout::MEMBERS).load(SeqCst);
    let chunk_bytes = header.long(layout::CHUNK_BYTES).load(SeqCst);
    if header.long(layout::MAGIC).load(SeqCst) != MAGIC {
        return Err("is not a team's memory".into());
    }
    if version != VERSION {
        return Err(format!("is of version {version} and this program speaks version {VERSION}"));
    }
    let layout = usize::try_from(chunk_bytes).ok().and_then(|bytes| Layout::new(members, bytes));
    layout.ok_or_else(|| format!("claims {members} members with chunks of {chunk_bytes} bytes"))
}

#[cfg(test)]
pub(crate) fn test_board(members: u32, chunk_bytes: usize) -> Board {
    let layout = Layout::new(members, chunk_bytes).unwrap();
    let file = crate::file::unnamed(crate::file::DIRECTORY.as_ref(), layout.bytes).unwrap();
    let board = Board { memory: Memory::map(&file, layout.bytes).unwrap(), layout };
    board.initialise();
    board
}

#[cfg(test)]
mod tests {
    use thalweg_core::OperationKind;

    use super::*;

    #[test]
    fn headers_are_checked() {
        let Board { memory, layout } = test_board(3, 128);
        assert_eq!(layout_of(&memory), Ok(layout));
        memory.long(layout::CHUNK_BYTES).store(u64::MAX, SeqCst);
        let problem = || layout_of(&memory).unwrap_err();
        assert_eq!(problem(), "claims 3 members with chunks of 18446744073709551615 bytes");
        memory.word(layout::VERSION).store(9, SeqCst);
        assert_eq!(problem(), "is of version 9 and this program speaks version 3");
        memory.long(layout::MAGIC).store(9, SeqCst);
        assert_eq!(problem(), "is not a team's memory");
    }

    #[test]
    fn a_member_is_one_process() {
        let board = test_board(2, 64);
        let own = Process::own();
        assert_eq!(board.join(1, &own), Ok(()));
        assert_eq!(board.join(1, &Process { pid: 5, ..own }), Err(own.pid));
        assert_eq!(board.membership(1).load(SeqCst), JOINED);
        assert_eq!(board.membership(0).load(SeqCst), EMPTY);
        assert!(!board.has_ended(1, &own));
    }

    #[test]
    fn calls_of_two_operations_stand_side_by_side() {
        let board = test_board(2, 64);
        let (first, second) = (
            Call::bare(OperationKind::Barrier).into(),
            Call::copy(OperationKind::AllGather, None, 3).into(),
        );
        board.announce(1, 6, &first);
        board.announce(1, 7, &second);
        assert_eq!(board.announced(1, 6), first);
        assert_eq!(board.announced(1, 7), second);
        assert_eq!(board.announced(1, 8), Call(None).into(), "not called yet");
    }
}
