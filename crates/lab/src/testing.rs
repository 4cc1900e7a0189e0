//! Tests that need what a machine may not have.
//!
//! Such a test calls [`skip`] and returns. It passes then, but not silently: the reason goes to standard
//! error past the test harness, which hides what passing tests print, and into the file that
//! `THALWEG_SKIPS` names, one line a test. `.ci/run` counts those lines in its summary. A machine that
//! must run everything names in `THALWEG_NO_SKIPS` what it has: tests that lack it fail.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::{self, Display};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::error::LabError;
use crate::lab::Lab;
use crate::spec::Spec;

/// The absolute path of the file that lists skipped tests: what they lack, their name and the reason, with
/// tabs between them.
pub const RECORD_VARIABLE: &str = "THALWEG_SKIPS";
/// The names of what no test may lack, with commas or spaces between them.
pub const REQUIRED_VARIABLE: &str = "THALWEG_NO_SKIPS";

/// A thing that a test needs and that some machines do not have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Lack {
    /// Root, with its powers over networks.
    Root,
    /// A feature of the kernel.
    Kernel,
    /// An address or a protocol that the machine's own network does not have.
    Network,
    /// A program, such as `python3`, or its packages.
    Program,
    /// Reference data beside the project.
    Data,
}

impl Lack {
    /// All of them.
    pub const ALL: [Lack; 5] = [Lack::Root, Lack::Kernel, Lack::Network, Lack::Program, Lack::Data];

    /// The name in variables and records.
    pub const fn name(self) -> &'static str {
        match self {
            Lack::Root => "root",
            Lack::Kernel => "kernel",
            Lack::Network => "network",
            Lack::Program => "program",
            Lack::Data => "data",
        }
    }
}

/// Says that the calling test does not run here, and why. Panics where [`REQUIRED_VARIABLE`] names what is
/// lacking. Of several calls of one test with the same reason, the first counts.
pub fn skip(lack: Lack, reason: impl Display) {
    let test = test_name();
    let line = Skip { lack, test: &test, reason: &reason.to_string() }.to_string();
    assert!(
        !is_required(lack, &variable(REQUIRED_VARIABLE)),
        "{test} may not be skipped here, because {REQUIRED_VARIABLE} names \"{}\": {reason}",
        lack.name()
    );
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    // On the main thread tests have no names, so that equal lines may be of several.
    let is_new = seen.insert(line.clone()) || is_main_thread();
    if !is_new {
        return;
    }
    let record = variable(RECORD_VARIABLE);
    if !record.is_empty() {
        let path = Path::new(&record);
        append(path, &line).unwrap_or_else(|error| panic!("cannot write {path:?}: {error}"));
    }
    // The macros that print would be captured. A closed standard error has no readers.
    let _ = writeln!(io::stderr(), "skipped: {test}: {reason}");
}

/// Builds a lab, or [skips](skip) the calling test where this user, this container or this kernel cannot
/// have one. Panics where a lab fails for any other reason.
pub fn build_or_skip(spec: &Spec) -> Option<Lab> {
    match Lab::build(spec) {
        Ok(lab) => return Some(lab),
        Err(error @ (LabError::NotRoot | LabError::NotPermitted { .. })) => skip(Lack::Root, error),
        Err(error @ LabError::Missing { .. }) => skip(Lack::Kernel, error),
        Err(error) => panic!("{error}"),
    }
    None
}

/// Lines of this process.
static SEEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// One line of the record.
struct Skip<'a> {
    lack: Lack,
    test: &'a str,
    reason: &'a str,
}

impl Display for Skip<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = self.reason.replace(['\n', '\t'], " ");
        write!(f, "{}\t{}\t{reason}", self.lack.name(), self.test)
    }
}

/// The test program and the test, as in `conformance::in_the_lab::fixed_point`.
fn test_name() -> String {
    let program = std::env::current_exe().unwrap_or_default();
    let program = program.file_stem().unwrap_or_default().to_string_lossy();
    // Cargo appends a hash.
    let program = program.rsplit_once('-').map_or(&*program, |(name, _)| name);
    format!("{program}::{}", std::thread::current().name().unwrap_or("a thread without a name"))
}

fn is_main_thread() -> bool {
    std::thread::current().name() == Some("main")
}

/// Panics where the list names something unknown: a misspelt word would let tests be skipped.
fn is_required(lack: Lack, list: &OsString) -> bool {
    let list = list.to_string_lossy();
    let words = list.split([',', ' ']).filter(|word| !word.is_empty());
    let known = words.map(|word| {
        let found = Lack::ALL.into_iter().find(|known| known.name() == word);
        found.unwrap_or_else(|| {
            let names = Lack::ALL.map(Lack::name).join(", ");
            panic!("{REQUIRED_VARIABLE} names \"{word}\": write some of {names}")
        })
    });
    known.collect::<Vec<_>>().contains(&lack)
}

/// One write a line, so that test programs can share the file.
fn append(path: &Path, line: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(format!("{line}\n").as_bytes())
}

#[expect(clippy::disallowed_methods, reason = "test programs take their own arguments only")]
fn variable(name: &str) -> OsString {
    std::env::var_os(name).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_name_what_is_required() {
        let is_required = |lack, list: &str| is_required(lack, &list.into());
        assert!(!is_required(Lack::Root, ""));
        assert!(is_required(Lack::Root, "root") && is_required(Lack::Root, "kernel, root"));
        assert!(is_required(Lack::Kernel, "root kernel") && !is_required(Lack::Kernel, "root"));
    }

    #[test]
    #[should_panic(expected = "names \"rot\": write some of root, kernel, network, program, data")]
    fn unknown_words_are_refused() {
        is_required(Lack::Root, &"root,rot".into());
    }

    #[test]
    fn records_have_one_line_a_test() {
        let skip = Skip { lack: Lack::Kernel, test: "a::b", reason: "no\tclsact\nhere" };
        assert_eq!(skip.to_string(), "kernel\ta::b\tno clsact here");
        assert!(test_name().ends_with("::testing::tests::records_have_one_line_a_test"));
    }
}
