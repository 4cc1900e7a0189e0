//! A copy of the tree, with what was built of it.
//!
//! Cargo tells by a file's time whether it has changed, and knows a package by its place in the workspace. So nothing
//! has to be compiled in a copy that keeps all times.

use std::collections::BTreeSet;
use std::fs::{self, File, FileTimes};
use std::path::{Path, PathBuf};

use crate::list::Program;
use crate::trial::{COMPANION_TEST, COMPANIONS};

/// A copy of the tree. Removed when it is dropped.
pub struct Copy {
    path: PathBuf,
}

impl Copy {
    /// Copies a tree, and from a target directory what the test programs are built from.
    pub fn make(
        root: &Path,
        path: &Path,
        prebuilt: &Path,
        crates: &BTreeSet<String>,
        programs: &BTreeSet<Program>,
    ) -> Copy {
        if path.exists() {
            fs::remove_dir_all(path).expect("an older copy can be removed");
        }
        copy_sources(root, path);
        let (from, to) = (prebuilt.join("debug"), path.join("target/debug"));
        if from.is_dir() {
            copy_build(&from, &to, crates, programs);
        } else {
            println!("{} has no folder debug: everything is compiled", prebuilt.display());
        }
        Copy { path: path.to_owned() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        // One that stays does no harm: the next run replaces it.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Copies everything but what was built and what begins with a dot, except cargo's settings.
fn copy_sources(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the copy can be written");
    for (name, path) in entries(from) {
        let is_hidden = name.starts_with('.') && name != ".cargo";
        if name == "target" || is_hidden {
            continue;
        }
        if path.is_dir() {
            copy_sources(&path, &to.join(name));
        } else {
            copy_file(&path, &to.join(name));
        }
    }
}

/// Copies cargo's records and all libraries, and of the rest what belongs to the crates and programs.
fn copy_build(from: &Path, to: &Path, crates: &BTreeSet<String>, programs: &BTreeSet<Program>) {
    for records in [".fingerprint", "build"] {
        copy_folder(&from.join(records), &to.join(records));
    }
    let mut stems: BTreeSet<String> = programs.iter().map(Program::file_stem).collect();
    let is_needed = |stems: &BTreeSet<String>, name: &str| {
        name.rsplit_once('-').is_some_and(|(stem, _)| stems.contains(stem))
    };
    let crate_stems = crates.iter().map(|name| format!("thalweg_{name}"));
    let incremental: BTreeSet<String> = stems.iter().cloned().chain(crate_stems).collect();
    for (name, path) in entries(&from.join("incremental")) {
        if is_needed(&incremental, &name) {
            copy_folder(&path, &to.join("incremental").join(name));
        }
    }
    stems.extend(COMPANIONS.map(|package| package.replace('-', "_")));
    stems.insert(COMPANION_TEST.to_owned());
    fs::create_dir_all(to.join("deps")).expect("the copy can be written");
    for (name, path) in entries(&from.join("deps")) {
        let copy = to.join("deps").join(&name);
        let is_library = [".rlib", ".rmeta", ".so"].iter().any(|end| name.ends_with(end));
        if is_library && !name.starts_with("libthalweg") {
            // Nothing here changes others' libraries, so both may have the same file.
            fs::hard_link(&path, &copy).unwrap_or_else(|_| copy_file(&path, &copy));
        } else if is_library || (!name.contains('.') && is_needed(&stems, &name)) {
            copy_file(&path, &copy);
        }
    }
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the copy can be written");
    for (name, path) in entries(from) {
        if path.is_dir() {
            copy_folder(&path, &to.join(name));
        } else {
            copy_file(&path, &to.join(name));
        }
    }
}

/// Copies a file with its time.
fn copy_file(from: &Path, to: &Path) {
    let copied = || {
        fs::copy(from, to)?;
        let modified = fs::metadata(from)?.modified()?;
        File::options().append(true).open(to)?.set_times(FileTimes::new().set_modified(modified))
    };
    copied().unwrap_or_else(|error| panic!("{} cannot be copied: {error}", from.display()));
}

/// Names and paths of the entries of a folder; empty if there is no such folder.
fn entries(folder: &Path) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries
        .map(|entry| entry.expect("the folder can be read"))
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copied_file_keeps_its_time() {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("times");
        fs::create_dir_all(&folder).expect("there is room");
        let (from, to) = (folder.join("from"), folder.join("to"));
        fs::write(&from, "text").expect("there is room");
        let old = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 123_456_789);
        let file = File::options().append(true).open(&from).expect("it was written");
        file.set_times(FileTimes::new().set_modified(old)).expect("it was opened to write");
        copy_file(&from, &to);
        assert_eq!(fs::metadata(&to).and_then(|data| data.modified()).expect("it is there"), old);
        assert_eq!(fs::read_to_string(&to).expect("it is there"), "text");
    }
}
