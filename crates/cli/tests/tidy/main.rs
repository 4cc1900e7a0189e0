//! The rules of this repository that no compiler checks.
//!
//! Every rule is a function from text to a list of problems, so each can be tried on a few literal
//! lines; the tests here apply them to the real tree. A problem says where it is and what has to
//! change.

mod explained;
mod layers;
mod ledger;
mod lexer;
mod manifests;
mod mentions;
mod purity;
mod size;
mod source;
mod tree;
mod used;
mod words;

use std::fs;

use crate::ledger::Ledger;
use crate::source::Source;
use crate::tree::TextFile;

/// Beside the ledger, and no part of it.
const MUTATIONS: &str = "specs/mutations.toml";

#[test]
fn crates_name_only_lower_layers() {
    let packages = manifests::packages(&tree::root(), "Cargo.toml");
    assert_clean("dependency direction", &layers::problems(&packages));
}

#[test]
fn files_are_small() {
    let sources = sources();
    println!("median of non-test lines: {}", size::median_lines(&sources));
    assert_clean("file size", &size::problems(&sources));
}

#[test]
fn requirement_ids_in_comments_are_known() {
    let (ledger, _) = ledger();
    let (mentions, mut problems) = mentions::all(&with_python());
    problems.extend(ledger.unknown(&mentions));
    assert_clean("requirement ids in comments", &problems);
}

#[test]
fn requirement_ledger_is_well_formed() {
    let (_, problems) = ledger();
    assert_clean("specs", &problems);
}

#[test]
fn requirements_are_built_and_tested_or_listed_as_open() {
    let (ledger, _) = ledger();
    let (mentions, _) = mentions::all(&with_python());
    assert_clean("requirements", &ledger.standing(&mentions));
}

#[test]
fn nothing_is_left_for_later_in_code() {
    assert_clean("unfinished code", &words::unfinished(&sources()));
}

#[test]
fn dependencies_are_explained() {
    let root = tree::root();
    let mut packages = manifests::packages(&root, "Cargo.toml");
    // The fuzz targets are a workspace of their own.
    if root.join("fuzz/Cargo.toml").is_file() {
        packages.extend(manifests::packages(&root, "fuzz/Cargo.toml"));
    }
    let prose = fs::read_to_string(root.join("ARCHITECTURE.md"))
        .expect("ARCHITECTURE.md must exist at the root and say why each dependency is there");
    assert_clean("dependencies", &explained::problems(&packages, &prose));
}

#[test]
fn dependencies_are_used() {
    let packages = manifests::packages(&tree::root(), "Cargo.toml");
    let files = tree::text_files(|path| path.ends_with(".rs"));
    assert_clean("dependencies", &used::problems(&packages, &files));
}

#[test]
fn pure_crates_keep_the_lint_that_makes_them_pure() {
    assert_clean("purity", &purity::problems(&sources()));
}

#[test]
fn no_file_names_a_path_of_one_machine() {
    assert_clean("machine paths", &words::machine_paths(&tree::text_files(|_| true)));
}

fn assert_clean(rule: &str, problems: &[String]) {
    let count = problems.len();
    assert!(problems.is_empty(), "{rule}: {count} to fix\n  {}\n", problems.join("\n  "));
}

fn sources() -> Vec<Source> {
    let files = tree::text_files(|path| path.ends_with(".rs"));
    assert!(!files.is_empty(), "no Rust file found under {}", tree::root().display());
    files.into_iter().map(|file| Source::new(&file.path, &file.text)).collect()
}

/// Everything that may name requirements.
fn with_python() -> Vec<Source> {
    let files = tree::text_files(|path| path.starts_with("python/") && path.ends_with(".py"));
    let python = files.iter().map(|file| Source::python(&file.path, &file.text));
    sources().into_iter().chain(python).collect()
}

fn ledger() -> (Ledger, Vec<String>) {
    let files: Vec<TextFile> = tree::text_files(|path| {
        path.starts_with("specs/") && path.ends_with(".toml") && path != MUTATIONS
    });
    Ledger::parse(&files)
}
