//! Recorded results in a folder: writing them, and the page that they give.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use thalweg_console::{Failure, files};
use thalweg_figures::results::{ResultFile, ResultSet, SizeResult};
use thalweg_figures::{Figure, Settings};

use super::{failure, timed};

/// Start of the page, beside the results.
const INTRODUCTION: &str = "introduction.md";

/// Paths of the sources that decide the results, as git matches them.
const SOURCES: [&str; 5] = [
    ":(top,glob)crates/*/src/**",
    ":(top,glob)crates/figures/plans/*",
    ":(top,glob)crates/figures/shared/*",
    ":(top,glob)crates/*/Cargo.toml",
    ":(top)Cargo.lock",
];

/// Runs figures one after the other and writes the result of each when it ends.
pub(super) fn record(
    folder: &Path,
    figures: &[&'static Figure],
    settings: Settings,
) -> Result<(), Failure> {
    files::create_folder(folder)?;
    let commit = commit(folder)?;
    for figure in figures {
        let path = folder.join(format!("{}.json", figure.name()));
        let mut file = match path.exists() {
            true => ResultFile::parse(&files::read(&path)?).map_err(|why| unusable(&path, &why))?,
            false => ResultFile::empty(figure),
        };
        let report = timed(|watch| thalweg_figures::run(figure, settings, watch))?;
        file.record(settings.quick, SizeResult::of(&report, &commit));
        files::write(&path, file.to_text())?;
        eprintln!("wrote {}", path.display());
    }
    Ok(())
}

/// Prints the page.
pub(super) fn page(folder: &Path) -> Result<(), Failure> {
    files::print(&read(folder)?.page().map_err(failure)?)
}

/// Fails if the results do not fit their plans, or if the page is not the one that they give.
pub(super) fn check(folder: &Path, page: &Path) -> Result<(), Failure> {
    match read(folder)?.difference(&files::read(page)?).map_err(failure)? {
        Some(difference) => Err(Failure::ran(format!(
            "{}: {difference}; write it with: thalweg figure --page {}",
            page.display(),
            folder.display()
        ))),
        None => Ok(()),
    }
}

/// Reads a folder of results.
fn read(folder: &Path) -> Result<ResultSet, Failure> {
    let introduction = files::read(&folder.join(INTRODUCTION))?;
    let mut texts = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(|error| files::unreadable(folder, &error))? {
        let path = entry.map_err(|error| files::unreadable(folder, &error))?.path();
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned());
        if let (Some(name), Some("json")) = (name, path.extension().and_then(|end| end.to_str())) {
            texts.insert(name, files::read(&path)?);
        }
    }
    ResultSet::parse(&introduction, &texts).map_err(|problems| {
        Failure::ran(format!(
            "{}: {}; record the figures again",
            folder.display(),
            problems.join("; ")
        ))
    })
}

/// Returns the last commit of the sources. An error says that the program may not be built from it.
fn commit(folder: &Path) -> Result<String, Failure> {
    let changes = git(folder, &["status", "--porcelain"])?;
    if let Some(first) = changes.lines().next() {
        let path = first.split_whitespace().last().unwrap_or(first);
        return Err(Failure::usage(format!(
            "{path} has changes that are not committed: commit them, so that the result names its sources"
        )));
    }
    let last = git(folder, &["log", "-1", "--format=%H %ct"])?;
    let found = last.trim().split_once(' ');
    let (commit, seconds) = found.ok_or_else(|| no_clone(folder, "no commit has the sources"))?;
    let committed = UNIX_EPOCH + Duration::from_secs(seconds.parse().unwrap_or(0));
    let program = std::env::current_exe().and_then(fs::metadata).and_then(|it| it.modified());
    match program {
        Ok(built) if built >= committed => Ok(commit.to_owned()),
        _ => Err(Failure::usage(format!(
            "this program is older than {commit}, the last commit of its sources: build it again, after \
             `touch crates/cli/src/main.rs` if cargo finds nothing to do"
        ))),
    }
}

/// Runs git on the sources of the clone that a folder is in.
fn git(folder: &Path, arguments: &[&str]) -> Result<String, Failure> {
    let mut git = Command::new("git");
    git.arg("-C").arg(folder).args(arguments).arg("--").args(SOURCES);
    let output = git.output().map_err(|error| no_clone(folder, &error.to_string()))?;
    if !output.status.success() {
        return Err(no_clone(folder, String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn no_clone(folder: &Path, why: &str) -> Failure {
    let why = why.lines().next().unwrap_or_default();
    Failure::usage(format!(
        "{} must be in a clone of the sources, so that results name their commit: git: {why}",
        folder.display()
    ))
}

fn unusable(path: &Path, why: &str) -> Failure {
    Failure::ran(format!("{}: {why}; remove it to record anew", path.display()))
}
