//! The file that a team meets in.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::error::TeamError;
use crate::sys;

/// Directory of shared memory.
pub(crate) const DIRECTORY: &str = "/dev/shm";

const PREFIX: &str = "thalweg-";
const NAME_CHARS_MAX: usize = 200;

/// True if a team can have this name.
pub(crate) fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=NAME_CHARS_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}

/// File in which a team of this name meets.
pub(crate) fn path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{PREFIX}{name}"))
}

/// A new file without a name, which vanishes with its last user, of zeros that are set aside.
pub(crate) fn unnamed(directory: &Path, bytes: usize) -> Result<File, TeamError> {
    let refuse = |doing| move |error: io::Error| system(doing, directory, &error);
    let too_small = |free_bytes| TeamError::TooSmall {
        directory: directory.into(),
        needed_bytes: bytes as u64,
        free_bytes,
    };
    if !directory.is_dir() {
        return Err(TeamError::NoSharedMemory { directory: directory.into() });
    }
    let free_bytes = sys::free_bytes(directory).map_err(refuse("find the free space of"))?;
    if free_bytes < bytes as u64 {
        return Err(too_small(free_bytes));
    }
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .mode(0o600)
        .open(directory)
        .map_err(refuse("create a file in"))?;
    match sys::reserve(&file, bytes as u64) {
        Err(error) if error.kind() == io::ErrorKind::StorageFull => Err(too_small(free_bytes)),
        result => result.map(|()| file).map_err(refuse("reserve memory in")),
    }
}

/// Opens the file of a name, if there is one. It must be a plain file of this user.
pub(crate) fn open(path: &Path) -> Result<Option<File>, TeamError> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let opened = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
    let refuse = |error: io::Error| system("open", path, &error);
    let file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        result => result.map_err(refuse)?,
    };
    let metadata = file.metadata().map_err(refuse)?;
    let foreign = |why: &str| Err(TeamError::Foreign { path: path.into(), why: why.into() });
    if !metadata.is_file() {
        foreign("is not a plain file")
    } else if metadata.uid() != sys::user() {
        foreign("belongs to another user")
    } else {
        Ok(Some(file))
    }
}

/// Takes the name from the file, unless another file has it by now. The lock makes sure that of
/// several who try, none removes the file that somebody else has put there since.
pub(crate) fn remove(file: &File, path: &Path) -> Result<(), TeamError> {
    let refuse = |error: io::Error| system("remove", path, &error);
    file.lock().map_err(refuse)?;
    let result = remove_if_same(file, path);
    file.unlock().map_err(refuse)?;
    result.map_err(refuse)
}

fn remove_if_same(file: &File, path: &Path) -> io::Result<()> {
    let own = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(there) if (there.dev(), there.ino()) == (own.dev(), own.ino()) => fs::remove_file(path),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Wraps an error of the system.
pub(crate) fn system(doing: &'static str, path: &Path, error: &io::Error) -> TeamError {
    TeamError::System { doing, path: path.into(), code: error.raw_os_error().unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_the_directory() {
        assert!(is_name("job-1.host_2"));
        assert!(is_name(&"a".repeat(200)));
        for name in ["", "a/b", "a b", "ä", "a\0", &"a".repeat(201)] {
            assert!(!is_name(name), "{name:?}");
        }
    }

    #[test]
    fn a_missing_directory_is_named() {
        let error = unnamed("/dev/shm/not-there".as_ref(), 1).unwrap_err();
        assert_eq!(error, TeamError::NoSharedMemory { directory: "/dev/shm/not-there".into() });
        assert!(error.to_string().contains("mount -t tmpfs tmpfs /dev/shm/not-there"));
    }

    #[test]
    fn only_the_file_itself_is_removed() {
        let name = format!("remove-{}", std::process::id());
        let path = path(DIRECTORY.as_ref(), &name);
        let (old, new) =
            (unnamed(DIRECTORY.as_ref(), 64).unwrap(), unnamed(DIRECTORY.as_ref(), 64).unwrap());
        sys::link(&old, &path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let taken = sys::link(&new, &path).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        remove(&new, &path).unwrap();
        assert!(path.exists(), "it is another file");
        remove(&old, &path).unwrap();
        assert!(!path.exists());
        remove(&old, &path).unwrap();
    }

    #[test]
    fn links_and_directories_are_refused() {
        let path = path(DIRECTORY.as_ref(), &format!("link-{}", std::process::id()));
        std::os::unix::fs::symlink("/dev/null", &path).unwrap();
        let error = open(&path).unwrap_err();
        fs::remove_file(&path).unwrap();
        assert!(matches!(error, TeamError::System { code: libc::ELOOP, .. }), "{error}");
    }
}
