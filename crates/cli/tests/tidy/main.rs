//! The rules of this repository that no compiler checks.
//!
//! Every rule is a function from text to a list of problems, so each can be tried on a few literal
//! lines; the tests here apply them to the real tree. A problem says where it is and what has to
//! change.

mod explained;
mod layers;
mod ledger;
mod lexer;
mod linked;
mod manifests;
mod mentions;
mod packages;
mod place;
mod plain;
mod purity;
mod size;
mod source;
mod status;
mod tree;
mod used;
mod words;

use std::{env, fs};

use crate::ledger::Ledger;
use crate::source::Source;
use crate::tree::TextFile;

/// Beside the ledger, and no part of it.
const MUTATIONS: &str = "specs/mutations.toml";
const WORDS: &str = "specs/words.toml";
const WORD_EXCEPTIONS: &str = "specs/words-exceptions.toml";

#[test]
fn crates_name_only_lower_layers() {
    let packages = manifests::packages(&tree::root(), "Cargo.toml");
    assert_clean("dependency direction", &layers::problems(&packages));
}

#[test]
fn the_product_links_nothing_that_only_some_users_run() {
    let root = tree::root();
    let mut packages = manifests::packages(&root, "Cargo.toml");
    // The wheel and the plug-in of NCCL are workspaces of their own.
    packages.extend(manifests::packages(&root, "python/Cargo.toml"));
    packages.extend(manifests::packages(&root, "nccl/Cargo.toml"));
    assert_clean("linked crates", &linked::problems(&packages));
}

// spec: E-08 machine
#[test]
fn the_library_can_be_packaged() {
    let root = tree::root();
    let packages = manifests::packages(&root, "Cargo.toml");
    let about = |package: &manifests::Package| {
        fs::read_to_string(root.join(package.directory()).join("src/lib.rs")).unwrap_or_default()
    };
    assert_clean("packages", &packages::problems(&packages, about));
    let page =
        fs::read_to_string(root.join("CONTRIBUTING.md")).expect("CONTRIBUTING.md must exist");
    let script = fs::read_to_string(root.join(".ci/run")).expect(".ci/run must exist");
    for name in packages::packaged(&packages) {
        let named = format!("-p {name} ");
        assert!(page.contains(&named) && script.contains(&named), "add {named}to both commands");
    }
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
fn requirements_are_built_and_tested_where_they_hold_or_listed_as_open() {
    let (ledger, _) = ledger();
    let (mentions, _) = mentions::all(&with_python());
    assert_clean("requirements", &ledger.standing(&mentions));
}

#[test]
fn the_status_table_of_the_readme_is_what_the_ledger_says() {
    let (ledger, _) = ledger();
    let (mentions, _) = mentions::all(&with_python());
    let readme = tree::root().join("README.md");
    let page = fs::read_to_string(&readme).expect("README.md must exist at the root");
    let right = status::replaced(&page, &status::table(&ledger, &mentions))
        .expect("README.md must hold the two markers of the status table");
    if is_blessed() {
        return fs::write(&readme, right).expect("README.md can be written");
    }
    assert!(
        page == right,
        "the status table of README.md is out of date: run this test once with THALWEG_BLESS=1 and \
         commit the result"
    );
}

#[expect(
    clippy::disallowed_methods,
    reason = "the author of a change to the ledger asks for a new table"
)]
fn is_blessed() -> bool {
    env::var("THALWEG_BLESS").is_ok_and(|value| value == "1")
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
    packages.extend(manifests::packages(&root, "nccl/Cargo.toml"));
    let prose = fs::read_to_string(root.join("ARCHITECTURE.md"))
        .expect("ARCHITECTURE.md must exist at the root and say why each dependency is there");
    assert_clean("dependencies", &explained::problems(&packages, &prose));
}

#[test]
fn dependencies_are_used() {
    let mut packages = manifests::packages(&tree::root(), "Cargo.toml");
    packages.extend(manifests::packages(&tree::root(), "nccl/Cargo.toml"));
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

#[test]
fn words_are_plain() {
    let read = |path: &str| {
        fs::read_to_string(tree::root().join(path))
            .unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    let words =
        plain::Words::parse(&read(WORDS)).unwrap_or_else(|error| panic!("{WORDS}: {error}"));
    let excepted = plain::parse_exceptions(&read(WORD_EXCEPTIONS))
        .unwrap_or_else(|error| panic!("{WORD_EXCEPTIONS}: {error}"));
    let present = words.count(&tree::text_files(plain::is_prose));
    if is_blessed() {
        let lowered = plain::to_toml(&plain::lowered(&present, &excepted));
        fs::write(tree::root().join(WORD_EXCEPTIONS), lowered).expect("the tree can be written");
    } else {
        assert_clean("plain words", &words.problems(&present, &excepted));
    }
}

fn assert_clean(rule: &str, problems: &[String]) {
    let count = problems.len();
    assert!(problems.is_empty(), "{rule}: {count} to fix\n  {}\n", problems.join("\n  "));
}

fn sources() -> Vec<Source> {
    let files = tree::text_files(|path| path.ends_with(".rs"));
    assert!(!files.is_empty(), "no Rust file found under {}", tree::root().display());
    let mut sources: Vec<Source> =
        files.into_iter().map(|file| Source::new(&file.path, &file.text)).collect();
    source::mark_modules_for_tests(&mut sources);
    sources
}

/// Everything that may name requirements.
fn with_python() -> Vec<Source> {
    let files = tree::text_files(|path| path.starts_with("python/") && path.ends_with(".py"));
    let python = files.iter().map(|file| Source::python(&file.path, &file.text));
    sources().into_iter().chain(python).collect()
}

fn ledger() -> (Ledger, Vec<String>) {
    let files: Vec<TextFile> = tree::text_files(|path| {
        path.starts_with("specs/")
            && path.ends_with(".toml")
            && ![MUTATIONS, WORDS, WORD_EXCEPTIONS].contains(&path)
    });
    Ledger::parse(&files)
}
