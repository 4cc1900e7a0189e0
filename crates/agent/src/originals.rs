//! Limits that connections of a program had before they were limited, in a file.
//!
//! The file is written before the first connection is limited, and again before one is that has a limit of its own. The process
//! that limits holds a lock on it, which the kernel gives back however the process ends. Who starts after the process and its
//! guardian were both killed finds a file that nobody has locked, restores the limits, and removes it.
// spec: E-14

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thalweg_control::local::{Lines, write_line};
use tracing::warn;

use crate::events::TARGET;
use crate::foreign::{self, Process, UNLIMITED};
use crate::group::{Group, Members};
use crate::setting::Scope;
use crate::written::{self, Written};

/// Name of a file, before the number of its process.
const PREFIX: &str = "limits-";

/// A file of this process. Removed when dropped, after the limits were restored.
#[derive(Debug)]
pub(crate) struct Originals {
    path: PathBuf,
    /// Holds the lock.
    file: File,
}

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Line {
    /// Connections of these processes are limited. Always the first line.
    Begin {
        scope: Scope,
        members: Members,
        /// When the first process began, by the kernel: its number may be another's later.
        first_began: Option<u64>,
    },
    /// A connection had a limit of its own before.
    Keep { inode: u64, limit: u64 },
}

impl Originals {
    /// Begins a file for a program, after those of processes that were killed.
    pub(crate) fn begin(state_dir: &Path, members: &Members) -> io::Result<Originals> {
        DirBuilder::new().recursive(true).mode(0o755).create(state_dir)?;
        let name = format!("{PREFIX}{}.jsonl", members.first());
        let (path, new_path) = (state_dir.join(&name), state_dir.join(format!("new-{name}")));
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).mode(0o600);
        let file = file.open(&new_path)?;
        file.lock()?;
        let (scope, first_began) = (Scope::current()?, foreign::began(members.first()));
        write_line(&file, &Line::Begin { scope, members: members.clone(), first_began })?;
        // Nobody finds it before it is locked.
        fs::rename(&new_path, &path)?;
        Ok(Originals { path, file })
    }

    /// Writes down the limit, in bytes a second, of a connection that will be limited.
    pub(crate) fn keep(&self, inode: u64, limit: u64) -> io::Result<()> {
        write_line(&self.file, &Line::Keep { inode, limit })
    }
}

impl Drop for Originals {
    fn drop(&mut self) {
        // A file that stays makes the next process lift limits that are not there.
        let _ = fs::remove_file(&self.path);
    }
}

/// Restores the limits of all programs whose process was killed. Returns whether none is left: the lock of a process that is
/// ending may still be held.
pub(crate) fn restore(state_dir: &Path) -> io::Result<bool> {
    let entries = match fs::read_dir(state_dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    };
    let mut is_done = true;
    for entry in entries {
        let entry = entry?;
        let has_limits = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        if has_limits {
            is_done &= restore_from(&entry.path())?;
        }
    }
    Ok(is_done)
}

/// The same, and a warning where it does not work.
pub(crate) fn restore_left_over(state_dir: &Path) {
    if let Err(error) = restore(state_dir) {
        warn!(
            target: TARGET, event = "unrestored",
            "limits of programs before, kept in {}, cannot be restored: {error}", state_dir.display()
        );
    }
}

fn restore_from(path: &Path) -> io::Result<bool> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(false),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let mut lines = Lines::new(&file);
    let begin = lines.next_line().ok().flatten();
    if let Some(Line::Begin { scope, members, first_began }) = begin
        && scope.boot == Scope::current()?.boot
    {
        let mut originals = BTreeMap::new();
        // What was not written in full was not done.
        while let Ok(Some(Line::Keep { inode, limit })) = lines.next_line() {
            originals.insert(inode, limit);
        }
        let first = members.first();
        let written = path.parent().and_then(|state_dir| written::read(state_dir, first));
        let is_same = first_began.is_some() && first_began == foreign::began(first);
        let numbers = if is_same { members.numbers() } else { members.listed() };
        lift(numbers, &originals, written.as_ref());
        drop(Group::adopt(members));
        path.parent().into_iter().for_each(|state_dir| written::remove(state_dir, first));
    }
    fs::remove_file(path)?;
    Ok(true)
}

/// Gives connections of some processes the limits that they had, if those that they have are known to be of the process that
/// limited them, or if nobody knows which are.
pub(crate) fn lift(numbers: Vec<u32>, originals: &BTreeMap<u64, u64>, written: Option<&Written>) {
    for process in numbers.into_iter().flat_map(Process::open) {
        for socket in process.sockets().unwrap_or_default() {
            let Ok(Some(seen)) = process.visit(socket, None) else { continue };
            if !written::is_own(written, socket.inode, seen.limit) {
                continue;
            }
            let original = originals.get(&socket.inode).copied().unwrap_or(UNLIMITED);
            // What has just closed needs nothing.
            let _ = process.visit(socket, Some(original));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::ManuallyDrop;

    use super::*;

    /// A folder of this test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let folder = format!("thalweg-originals-{}-{name}", std::process::id());
            Folder(std::env::temp_dir().join(folder))
        }

        fn files(&self) -> usize {
            fs::read_dir(&self.0).map_or(0, Iterator::count)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn family() -> Members {
        Members::Family(std::process::id())
    }

    // spec: E-14 machine
    #[test]
    fn limits_are_written_down_and_a_successor_reads_them() {
        let folder = Folder::new("written");
        let originals = Originals::begin(&folder.0, &family()).unwrap();
        originals.keep(7, 1_000).unwrap();
        let text = fs::read_to_string(&originals.path).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("\"inode\":7") && text.contains("\"limit\":1000"), "{text}");
        assert!(!restore(&folder.0).unwrap(), "its process lives");
        assert_eq!(folder.files(), 1);
        // The process is killed: its lock goes, and the file stays.
        let killed = ManuallyDrop::new(originals);
        killed.file.unlock().unwrap();
        assert!(restore(&folder.0).unwrap());
        assert_eq!(folder.files(), 0);
        assert!(restore(&folder.0).unwrap(), "there is nothing left to do");
    }

    #[test]
    fn a_clean_end_leaves_nothing_behind() {
        let folder = Folder::new("clean");
        drop(Originals::begin(&folder.0, &family()).unwrap());
        assert_eq!(folder.files(), 0);
        assert!(restore(&folder.0.join("nowhere")).unwrap());
    }

    #[test]
    fn a_file_that_makes_no_sense_is_removed() {
        let folder = Folder::new("odd");
        fs::create_dir_all(&folder.0).unwrap();
        fs::write(folder.0.join("limits-1.jsonl"), "{\"begin\":").unwrap();
        fs::write(folder.0.join("another"), "stays").unwrap();
        assert!(restore(&folder.0).unwrap());
        assert_eq!(folder.files(), 1);
    }

    // spec: E-14 machine
    #[test]
    fn a_process_that_has_the_number_of_another_is_left_alone() {
        let own = foreign::began(std::process::id());
        assert!(own.is_some() && foreign::began(0).is_none());
        assert!(Members::Family(std::process::id()).listed().is_empty());
    }
}
