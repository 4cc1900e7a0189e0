//! Limits that a process sets on connections of a program, in a file.
//!
//! Programs set limits of their own, at any time. A process that lifts the limits of one that hangs or was killed has to tell the two
//! apart. So the process writes each limit into the file before it sets it, beside the one that it had set before: a
//! connection with one of the two has a limit of the process, and one with any other has a limit of the program.
// spec: E-14

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Name of a file, before the number of the program's first process.
const PREFIX: &str = "set-";

/// Bytes of a record: the kernel's number of the socket, the limit that was set before, and the one that is set next.
const RECORD_BYTES: usize = 24;

/// Records after which places of connections that are gone are used again.
const RECORDS_KEPT: usize = 1_024;

/// The last two limits that were set on each connection, by the kernel's number of the socket.
pub(crate) type Written = BTreeMap<u64, [u64; 2]>;

/// The file of this process. Removed when dropped, after the limits were lifted.
#[derive(Debug)]
pub(crate) struct WrittenLimits {
    path: PathBuf,
    file: File,
    /// Places of records, by the kernel's number of the socket.
    places: BTreeMap<u64, u64>,
    /// Places of connections that are gone.
    free: Vec<u64>,
}

impl WrittenLimits {
    /// Begins a file for the program whose first process has this number.
    pub(crate) fn begin(state_dir: &Path, first: u32) -> io::Result<WrittenLimits> {
        DirBuilder::new().recursive(true).mode(0o755).create(state_dir)?;
        let path = path(state_dir, first);
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        Ok(WrittenLimits { path, file, places: BTreeMap::new(), free: Vec::new() })
    }

    /// Writes down the limit that is set next, and the one that was set before.
    pub(crate) fn write(&mut self, inode: u64, before: u64, next: u64) -> io::Result<()> {
        let used = self.places.len() as u64 + self.free.len() as u64;
        let place = match self.places.get(&inode) {
            Some(place) => *place,
            None => self.free.pop().unwrap_or(used),
        };
        self.places.insert(inode, place);
        let mut record = [0; RECORD_BYTES];
        for (bytes, word) in record.chunks_exact_mut(8).zip([inode, before, next]) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        self.file.write_all_at(&record, place * RECORD_BYTES as u64)
    }

    /// Forgets connections that are gone, if there are many.
    pub(crate) fn keep_only(&mut self, is_known: impl Fn(u64) -> bool) {
        if self.places.len() > RECORDS_KEPT {
            let gone = self.places.extract_if(.., |inode, _| !is_known(*inode));
            self.free.extend(gone.map(|(_, place)| place));
        }
    }
}

impl Drop for WrittenLimits {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Reads the file of a process. `None` without a file: then nobody knows which limits are its own.
pub(crate) fn read(state_dir: &Path, first: u32) -> Option<Written> {
    let bytes = fs::read(path(state_dir, first)).ok()?;
    let records = bytes.chunks_exact(RECORD_BYTES).map(|record| {
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&record[at..at + 8]);
            u64::from_ne_bytes(bytes)
        };
        (word(0), [word(8), word(16)])
    });
    Some(records.collect())
}

/// Removes the file of a process that was killed.
pub(crate) fn remove(state_dir: &Path, first: u32) {
    // One that stays is overwritten by the next process of that number.
    let _ = fs::remove_file(path(state_dir, first));
}

/// Returns whether the limit that a connection has was set by the process, as far as that is known.
pub(crate) fn is_own(written: Option<&Written>, inode: u64, limit: u64) -> bool {
    written.is_none_or(|written| written.get(&inode).is_some_and(|set| set.contains(&limit)))
}

fn path(state_dir: &Path, first: u32) -> PathBuf {
    state_dir.join(format!("{PREFIX}{first}.bin"))
}

#[cfg(test)]
mod tests {
    use std::mem::ManuallyDrop;

    use super::*;

    // spec: E-14 machine
    #[test]
    fn limits_of_a_process_differ_from_those_of_its_program() {
        let folder = format!("thalweg-written-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        let mut written = WrittenLimits::begin(&folder, 7).unwrap();
        written.write(1, u64::MAX, 1_000).unwrap();
        written.write(2, 500, 400).unwrap();
        written.write(1, 1_000, 2_000).unwrap();
        let killed = ManuallyDrop::new(written);
        let read_back = read(&folder, 7).unwrap();
        let is_own = |inode, limit| super::is_own(Some(&read_back), inode, limit);
        assert!(is_own(1, 2_000), "the limit that was set");
        assert!(is_own(1, 1_000), "the process was killed before it set the next one");
        assert!(!is_own(1, 3_000), "the program has set another since");
        assert!(!is_own(3, 1_000), "the process has never limited it");
        assert!(super::is_own(None, 3, 1_000), "nobody knows, so that it is lifted");
        assert_eq!(fs::metadata(&killed.path).unwrap().len(), 2 * RECORD_BYTES as u64);
        remove(&folder, 7);
        assert!(read(&folder, 7).is_none());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn places_of_connections_that_are_gone_are_used_again() {
        let folder = format!("thalweg-written-again-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        let mut written = WrittenLimits::begin(&folder, 8).unwrap();
        for inode in 0..10_000 {
            written.keep_only(|known| known + 9 > inode);
            written.write(inode, 1, 2).unwrap();
        }
        let bytes = fs::metadata(&written.path).unwrap().len();
        assert!(bytes <= (RECORDS_KEPT as u64 + 2) * RECORD_BYTES as u64, "{bytes}");
        assert!(is_own(read(&folder, 8).as_ref(), 9_999, 2));
        drop(written);
        assert!(read(&folder, 8).is_none());
        fs::remove_dir_all(&folder).unwrap();
    }
}
