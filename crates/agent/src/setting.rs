//! A setting of the kernel that processes change while they run.
//!
//! Its original value is written to a file before the setting is changed, so that the value survives the process: who
//! starts after a process was killed finds it there, and does not mistake the changed value for the original. Every
//! process that needs the change holds a shared lock on the file, which the kernel gives back when the process ends,
//! however that happens. The last one restores the original, and removes the file.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Seek};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thalweg_control::local::{Lines, write_line};

/// A setting and the value that is needed.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// File of the kernel.
    pub(crate) path: PathBuf,
    /// Value that is needed.
    pub(crate) needed: String,
    /// Folder of the file with the original value.
    pub(crate) state_dir: PathBuf,
    /// Part of the world that it holds for.
    pub(crate) scope: Scope,
}

/// The part of the world that a setting holds for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Scope {
    /// The kernel's number for this boot. Settings do not outlive it.
    pub(crate) boot: String,
    /// The kernel's name for the network namespace.
    pub(crate) network: String,
}

/// The contents of the file.
#[derive(Serialize, Deserialize)]
struct Saved {
    #[serde(flatten)]
    scope: Scope,
    setting: PathBuf,
    original: String,
}

/// A setting that is changed until the last of these is dropped.
#[derive(Debug)]
pub(crate) struct Changed {
    setting: Setting,
    /// Holds the lock.
    file: File,
}

impl Scope {
    /// The scope of the calling thread.
    pub(crate) fn current() -> io::Result<Scope> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
        let network = fs::read_link("/proc/thread-self/ns/net")?.display().to_string();
        Ok(Scope { boot, network })
    }
}

impl Setting {
    /// Changes it. `None` if there is no such setting, or if it has the needed value anyway.
    // spec: E-14
    pub(crate) fn change(self) -> io::Result<Option<Changed>> {
        let Some(present) = self.present()? else { return Ok(None) };
        if present == self.needed && self.saved_now().is_none() {
            return Ok(None);
        }
        let mut file = self.open_shared()?;
        // Somebody who ended may have restored it meanwhile.
        let Some(present) = self.present()? else { return Ok(None) };
        if present != self.needed {
            // What is set now is what a person or the system wants, whatever an older file says.
            let (scope, setting) = (self.scope.clone(), self.path.clone());
            file.set_len(0)?;
            file.rewind()?;
            write_line(&file, &Saved { scope, setting, original: present })?;
            if let Err(error) = fs::write(&self.path, &self.needed) {
                drop(Changed { setting: self, file });
                return Err(error);
            }
        }
        Ok(Some(Changed { setting: self, file }))
    }

    /// Restores it if no process needs the change any more. Returns whether nothing is left to restore.
    pub(crate) fn restore(&self) -> io::Result<bool> {
        match File::open(self.state_file()) {
            Ok(file) => self.restore_with(&file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn restore_with(&self, file: &File) -> io::Result<bool> {
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        if !is_at(file, &self.state_file()) {
            return Ok(true);
        }
        // A value that somebody else has set since stays.
        if self.present()?.is_some_and(|present| present == self.needed)
            && let Some(original) = self.saved(file)
        {
            fs::write(&self.path, original)?;
        }
        fs::remove_file(self.state_file())?;
        Ok(true)
    }

    fn present(&self) -> io::Result<Option<String>> {
        match fs::read_to_string(&self.path) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn saved_now(&self) -> Option<String> {
        self.saved(&File::open(self.state_file()).ok()?)
    }

    /// The original value in a file that was written in this scope.
    fn saved(&self, mut file: &File) -> Option<String> {
        file.rewind().ok()?;
        let saved: Saved = Lines::new(file).next_line().ok()??;
        (saved.scope == self.scope && saved.setting == self.path).then_some(saved.original)
    }

    fn state_file(&self) -> PathBuf {
        let number = self.scope.network.chars().filter(char::is_ascii_digit).collect::<String>();
        self.state_dir.join(format!("network-{number}.json"))
    }

    /// The file with a shared lock on it.
    fn open_shared(&self) -> io::Result<File> {
        DirBuilder::new().recursive(true).mode(0o755).create(&self.state_dir)?;
        let path = self.state_file();
        loop {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            let file = options.open(&path)?;
            file.lock_shared()?;
            // Another process may have removed it before it was locked.
            if is_at(&file, &path) {
                return Ok(file);
            }
        }
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        // The process ends: nobody is left to handle an error, and the file keeps the original.
        let _ = self.setting.restore_with(&self.file);
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let same = |data: fs::Metadata| file.metadata().is_ok_and(|own| own.ino() == data.ino());
    fs::metadata(path).is_ok_and(same)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with a file that stands for a setting of the kernel.
    struct Kernel(PathBuf);

    impl Kernel {
        fn new(name: &str, value: &str) -> Kernel {
            let folder = format!("thalweg-setting-{}-{name}", std::process::id());
            let folder = std::env::temp_dir().join(folder);
            fs::create_dir_all(&folder).unwrap();
            let kernel = Kernel(folder);
            fs::write(kernel.path(), value).unwrap();
            kernel
        }

        fn path(&self) -> PathBuf {
            self.0.join("setting")
        }

        fn value(&self) -> String {
            fs::read_to_string(self.path()).unwrap().trim().to_owned()
        }

        fn setting(&self, boot: &str) -> Setting {
            let scope = Scope { boot: boot.into(), network: "net:[7]".into() };
            let state_dir = self.0.join("state");
            Setting { path: self.path(), needed: "0".into(), state_dir, scope }
        }

        fn has_state(&self) -> bool {
            self.0.join("state/network-7.json").exists()
        }

        /// A process that changes the setting and is killed.
        fn killed(&self) {
            let changed = self.setting("a").change().unwrap().unwrap();
            let Changed { file, .. } = &*std::mem::ManuallyDrop::new(changed);
            file.unlock().unwrap();
        }
    }

    impl Drop for Kernel {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_clean_end_restores_the_original_and_the_last_process_does_so() {
        let kernel = Kernel::new("clean", "9\n");
        let first = kernel.setting("a").change().unwrap().expect("it was something else");
        assert_eq!((kernel.value().as_str(), kernel.has_state()), ("0", true));
        let second = kernel.setting("a").change().unwrap().expect("it needs it too");
        drop(first);
        assert_eq!(kernel.value(), "0", "the second one still needs it");
        drop(second);
        assert_eq!((kernel.value().as_str(), kernel.has_state()), ("9", false));
    }

    // spec: E-14 machine
    #[test]
    fn the_successor_of_a_killed_process_restores_the_true_original() {
        let kernel = Kernel::new("killed", "9\n");
        kernel.killed();
        assert_eq!(kernel.value(), "0");
        let successor = kernel.setting("a").change().unwrap().expect("the file says so");
        drop(successor);
        assert_eq!((kernel.value().as_str(), kernel.has_state()), ("9", false));
        kernel.killed();
        assert!(kernel.setting("a").restore().unwrap(), "without a successor, by a guardian");
        assert_eq!((kernel.value().as_str(), kernel.has_state()), ("9", false));
    }

    #[test]
    fn a_file_of_another_boot_or_of_another_value_is_ignored() {
        let kernel = Kernel::new("stale", "9\n");
        kernel.killed();
        assert!(kernel.setting("b").change().unwrap().is_none(), "zero is the original there");
        assert_eq!(kernel.value(), "0");
        fs::write(kernel.path(), "5\n").unwrap();
        drop(kernel.setting("a").change().unwrap().expect("it is changed"));
        assert_eq!(kernel.value(), "5", "somebody has set it since");
        let changed = kernel.setting("a").change().unwrap().expect("it is changed");
        fs::write(kernel.path(), "3\n").unwrap();
        drop(changed);
        assert_eq!((kernel.value().as_str(), kernel.has_state()), ("3", false), "it stays");
    }

    #[test]
    fn what_cannot_be_written_down_is_not_changed() {
        let kernel = Kernel::new("closed", "9\n");
        fs::write(kernel.0.join("state"), "a file").unwrap();
        assert!(kernel.setting("a").change().is_err());
        assert_eq!(kernel.value(), "9");
    }
}
