//! The files of the repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Directories that hold no source, for the walk that stands in for git.
const SKIPPED: &[&str] = &[".git", "target", "artifacts", "out", "__pycache__"];

/// One text file; the path is relative to the root and uses `/`.
pub struct TextFile {
    pub path: String,
    pub text: String,
}

/// The root of the repository, two levels above this package.
pub fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).expect("the package lies in crates/").to_path_buf()
}

/// All text files whose path is `wanted`, in the order of their paths.
pub fn text_files(wanted: impl Fn(&str) -> bool) -> Vec<TextFile> {
    let root = root();
    let mut paths = listed_by_git(&root).unwrap_or_else(|| walked(&root));
    paths.sort();
    paths.dedup();
    paths
        .into_iter()
        .filter(|path| wanted(path) && root.join(path).is_file())
        // What is not UTF-8 is not text.
        .filter_map(|path| {
            fs::read_to_string(root.join(&path)).ok().map(|text| TextFile { path, text })
        })
        .collect()
}

/// Tracked files and those about to be; `None` without git, or where git knows nothing.
fn listed_by_git(root: &Path) -> Option<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .ok()?;
    let listing = String::from_utf8(output.stdout).ok()?;
    let paths: Vec<String> =
        listing.split('\0').filter(|path| !path.is_empty()).map(String::from).collect();
    (output.status.success() && !paths.is_empty()).then_some(paths)
}

fn walked(root: &Path) -> Vec<String> {
    let mut paths = Vec::new();
    let mut pending = vec![root.to_path_buf()];
    while let Some(directory) = pending.pop() {
        // What vanishes during the walk is no part of the tree.
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            let name = entry.file_name();
            if kind.is_dir() && !SKIPPED.iter().any(|skipped| name == *skipped) {
                pending.push(entry.path());
            } else if kind.is_file() {
                paths.push(relative(root, &entry.path()));
            }
        }
    }
    paths
}

/// `path` as seen from `root`, for messages.
pub fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/")
}

#[test]
fn the_walk_finds_this_file_and_skips_build_output() {
    let paths = walked(&root());
    assert!(paths.iter().any(|path| path == "crates/cli/tests/tidy/tree.rs"));
    assert!(!paths.iter().any(|path| path.starts_with("target/") || path.starts_with(".git/")));
}

#[test]
fn text_files_come_in_order_and_only_as_wanted() {
    let paths: Vec<String> =
        text_files(|path| path.ends_with("Cargo.toml")).into_iter().map(|file| file.path).collect();
    assert!(paths.contains(&"crates/cli/Cargo.toml".to_string()));
    assert!(paths.is_sorted());
    assert!(paths.iter().all(|path| path.ends_with("Cargo.toml")));
}
