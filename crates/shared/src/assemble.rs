//! Formation of a team.
//!
//! The file appears under its name complete, since it is made without a name first. A member that comes maps it and
//! joins. Its state is one word, which leaves [`FORMING`] once: to [`STANDS`]
//! when the last member has come, to [`FAILED`] when somebody's patience is over, or to [`REPLACED`]
//! when somebody finds that it is what a process that has ended left behind.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::board::{Board, JOINED, layout_of};
use crate::clock::Stopwatch;
use crate::error::TeamError;
use crate::file;
use crate::gate::STOP_LOOK_EVERY;
use crate::layout::{HEADER_BYTES, Layout};
use crate::memory::Memory;
use crate::process::Process;
use crate::sys;

const FORMING: u32 = 0;
const STANDS: u32 = 1;
const FAILED: u32 = 2;
const REPLACED: u32 = 3;

/// Interval at which waiting members check that the others still live.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Limits of the time that a member waits for the others.
pub(crate) struct Wait {
    pub(crate) patience: Duration,
    /// Flag that makes it stop when another thread sets it.
    pub(crate) stop: Option<Arc<AtomicBool>>,
}

/// Returns the shared memory when all members have it.
pub(crate) fn assemble(
    directory: &Path,
    path: &Path,
    layout: Layout,
    me: u32,
    own: &Process,
    wait: &Wait,
) -> Result<Board, TeamError> {
    let waited = Stopwatch::start();
    loop {
        let Some((file, board)) = open_or_create(directory, path, layout, own)? else { continue };
        board.join(me, own).map_err(|pid| TeamError::Taken { member: me, pid })?;
        board.bell().ring();
        let Wait { patience, ref stop } = *wait;
        let meeting = Meeting { file, path, board, me, own, patience, stop: stop.as_deref() };
        if meeting.wait(waited)? {
            return Ok(meeting.board);
        }
    }
}

/// The file of this name, mapped. Nothing if it has just changed, or was left behind and is gone now.
fn open_or_create(
    directory: &Path,
    path: &Path,
    layout: Layout,
    own: &Process,
) -> Result<Option<(File, Board)>, TeamError> {
    let Some(file) = file::open(path)? else {
        return create(directory, path, layout);
    };
    let foreign = |why: String| TeamError::Foreign { path: path.into(), why };
    let length = file.metadata().map_err(|error| file::system("open", path, &error))?.len();
    if length < HEADER_BYTES as u64 {
        return Err(foreign("is not a team's memory".into()));
    }
    let theirs = layout_of(&map(&file, path, HEADER_BYTES)?).map_err(foreign)?;
    if length != theirs.bytes as u64 {
        return Err(foreign(format!("has {length} bytes and needs {}", theirs.bytes)));
    }
    let board = Board { memory: map(&file, path, theirs.bytes)?, layout: theirs };
    if give_way(&file, path, &board, own)? {
        return Ok(None);
    }
    if board.state().load(SeqCst) != FORMING {
        return Err(foreign("is of a team that stands".into()));
    }
    match difference(&theirs, &layout) {
        Some(difference) => Err(foreign(difference)),
        None => Ok(Some((file, board))),
    }
}

fn difference(theirs: &Layout, wanted: &Layout) -> Option<String> {
    if theirs.members != wanted.members {
        Some(format!("is for {} members and not for {}", theirs.members, wanted.members))
    } else if theirs.chunk_bytes != wanted.chunk_bytes {
        let (theirs, wanted) = (theirs.chunk_bytes, wanted.chunk_bytes);
        Some(format!("has chunks of {theirs} bytes and not of {wanted}"))
    } else {
        None
    }
}

/// Nothing if somebody else was faster.
fn create(
    directory: &Path,
    path: &Path,
    layout: Layout,
) -> Result<Option<(File, Board)>, TeamError> {
    let file = file::unnamed(directory, layout.bytes)?;
    let board = Board { memory: map(&file, path, layout.bytes)?, layout };
    board.initialise();
    match sys::link(&file, path) {
        Ok(()) => Ok(Some((file, board))),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(file::system("create", path, &error)),
    }
}

fn map(file: &File, path: &Path, bytes: usize) -> Result<Memory, TeamError> {
    Memory::map(file, bytes).map_err(|error| file::system("map", path, &error))
}

/// Removes a file that no team will use, and says whether it did: one that a process left behind, or
/// that was given up. Members who still wait in it come to the next one.
fn give_way(file: &File, path: &Path, board: &Board, own: &Process) -> Result<bool, TeamError> {
    let is_over = matches!(board.state().load(SeqCst), FAILED | REPLACED);
    if !is_over && !anybody_ended(board, own) {
        return Ok(false);
    }
    // Without a name first: a member that then looks for it does not find it again.
    file::remove(file, path)?;
    let _ = board.state().compare_exchange(FORMING, REPLACED, SeqCst, SeqCst);
    board.bell().ring();
    Ok(true)
}

fn anybody_ended(board: &Board, own: &Process) -> bool {
    (0..board.layout.members).any(|member| board.has_ended(member, own))
}

/// A member that has joined, and waits for the others.
struct Meeting<'a> {
    file: File,
    path: &'a Path,
    board: Board,
    me: u32,
    own: &'a Process,
    patience: Duration,
    stop: Option<&'a AtomicBool>,
}

impl Meeting<'_> {
    /// Returns true if the team stands. If not, another file has replaced this one.
    fn wait(&self, waited: Stopwatch) -> Result<bool, TeamError> {
        let mut next_look = LOOK_EVERY;
        loop {
            let bell = self.board.bell();
            let ticket = bell.ticket();
            match self.board.state().load(SeqCst) {
                FORMING => {}
                STANDS => return Ok(true),
                REPLACED => return Ok(false),
                FAILED => return Err(self.verdict()),
                _ => return Err(TeamError::Overwritten { what: "its state" }),
            }
            let missing = self.missing();
            let elapsed = waited.elapsed();
            if missing.is_empty() {
                self.close(STANDS, None)?;
            } else if self.stop.is_some_and(|stop| stop.load(SeqCst)) {
                let stopped = TeamError::Stopped { operation: 0, member: self.me };
                self.close(FAILED, Some(stopped))?;
            } else if elapsed >= self.patience {
                self.close(FAILED, Some(TeamError::Absent { missing, after: self.patience }))?;
            } else if elapsed >= next_look {
                next_look = elapsed + LOOK_EVERY;
                self.look()?;
            } else {
                let nap = if self.stop.is_some() { STOP_LOOK_EVERY } else { LOOK_EVERY };
                ticket.sleep((self.patience - elapsed).min(next_look - elapsed).min(nap));
            }
        }
    }

    fn missing(&self) -> Vec<u32> {
        let members = 0..self.board.layout.members;
        members.filter(|member| self.board.membership(*member).load(SeqCst) < JOINED).collect()
    }

    fn look(&self) -> Result<(), TeamError> {
        let members = 0..self.board.layout.members;
        let ended: Vec<u32> =
            members.filter(|member| self.board.has_ended(*member, self.own)).collect();
        if ended.is_empty() {
            return Ok(());
        }
        self.close(FAILED, Some(TeamError::Died { members: ended }))
    }

    /// Takes the name from the file and decides what becomes of the team, unless that was decided.
    fn close(&self, state: u32, error: Option<TeamError>) -> Result<(), TeamError> {
        file::remove(&self.file, self.path)?;
        let decided = self.board.state().compare_exchange(FORMING, state, SeqCst, SeqCst);
        if let (Ok(_), Some(error)) = (decided, error) {
            self.board.condemn(error);
        }
        self.board.bell().ring();
        Ok(())
    }

    fn verdict(&self) -> TeamError {
        let missing = self.missing();
        let absent = TeamError::Absent { missing, after: self.patience };
        self.board.await_verdict().unwrap_or(absent)
    }
}
