//! Test programs that are built and run in a copy.

use std::fmt;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use serde::Deserialize;

use crate::list::Program;
use crate::now;

/// Packages that are built beside the one that is tested, and a test of theirs. With them cargo chooses the same
/// features and debug information for all dependencies as for the tests of the whole workspace, so that what was
/// built for those is used again.
pub const COMPANIONS: [&str; 2] = ["thalweg-control", "thalweg-cli"];
pub const COMPANION_TEST: &str = "generated";

/// Time between two looks at a test program that runs.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Builds and runs test programs.
pub struct Trial<'a> {
    /// The tree.
    pub copy: &'a Path,
    /// Parts of the names of tests that are left out.
    pub skip: &'a [String],
    /// Time after which a test program counts as hung.
    pub limit: Duration,
}

/// The end of a test program.
#[derive(PartialEq, Eq, Debug)]
pub enum Outcome {
    Passed,
    /// With these tests, or without saying which.
    Failed(Vec<String>),
    Hung(Duration),
    /// The compiler failed with these messages.
    DoesNotCompile(String),
}

/// A line of cargo's report, as far as it matters.
#[derive(Deserialize)]
struct Artefact {
    manifest_path: PathBuf,
    target: Target,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

impl Trial<'_> {
    /// The first of some programs that does not pass. None after it is built.
    pub fn first_failure<'p>(&self, programs: &'p [Program]) -> Option<(&'p Program, Outcome)> {
        let outcomes = programs.iter().map(|program| (program, self.run(program)));
        outcomes.into_iter().find(|(_, outcome)| *outcome != Outcome::Passed)
    }

    /// Builds and runs a program.
    pub fn run(&self, program: &Program) -> Outcome {
        match self.build(program) {
            Ok(path) => self.run_built(program, &path),
            Err(text) => Outcome::DoesNotCompile(text),
        }
    }

    /// Builds one program. Returns its path, or the messages of the compiler.
    fn build(&self, program: &Program) -> Result<PathBuf, String> {
        let mut cargo = Command::new(cargo());
        // Cargo sets these for this program's own package. Build scripts that read them would run again.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
                cargo.env_remove(&name);
            }
        }
        cargo.current_dir(self.copy).env("CARGO_TARGET_DIR", self.copy.join("target"));
        cargo.args(["test", "--no-run", "--locked", "--message-format=json"]);
        match &program.test {
            None => cargo.arg("--lib"),
            Some(test) => cargo.args(["--test", test]),
        };
        if program.is_apart() {
            // It is built as it is shipped, and shares nothing with the workspace.
            cargo.arg("--release").arg("--manifest-path");
            cargo.arg(program.folder(self.copy).join("Cargo.toml"));
        } else {
            for package in [program.package.as_str()].into_iter().chain(COMPANIONS) {
                cargo.args(["--package", package]);
            }
            if program.test.is_some() {
                cargo.args(["--test", COMPANION_TEST]);
            }
        }
        let output = cargo.output().expect("cargo runs");
        let report = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{errors}{}", compiler_errors(&report)));
        }
        let is_it = |artefact: &Artefact| program.is_built_as(self.copy, artefact);
        let found = artefacts(&report).find(is_it).and_then(|artefact| artefact.executable);
        Ok(found.unwrap_or_else(|| panic!("cargo does not say where {program} is")))
    }

    /// Runs a program as cargo would, alone in a process group, which ends with it.
    fn run_built(&self, program: &Program, path: &Path) -> Outcome {
        let folder = program.folder(self.copy);
        let log_path = self.copy.join("target/output");
        let log = File::create(&log_path).expect("the copy can be written");
        let mut command = Command::new(path);
        command.current_dir(&folder).env("CARGO_MANIFEST_DIR", &folder).process_group(0);
        for part in self.skip {
            command.args(["--skip", part]);
        }
        let error_log = log.try_clone().expect("files can be shared");
        command.stdin(Stdio::null()).stdout(log).stderr(error_log);
        let mut child = command.spawn().expect("what cargo has built runs");
        let status = wait(&mut child, self.limit);
        end_group(&mut child);
        let output = fs::read(&log_path).expect("it was written");
        match status {
            None => Outcome::Hung(self.limit),
            Some(status) if status.success() => Outcome::Passed,
            Some(_) => Outcome::Failed(failed_tests(&String::from_utf8_lossy(&output))),
        }
    }
}

impl Program {
    fn is_built_as(&self, root: &Path, artefact: &Artefact) -> bool {
        let kinds: &[&str] = if self.test.is_some() { &["test"] } else { &["lib", "rlib"] };
        let is_named = self.test.as_ref().is_none_or(|test| artefact.target.name == *test);
        let manifest = self.folder(root).join("Cargo.toml");
        let is_of = |one: &Path, other: &Path| {
            one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
        };
        is_named
            && artefact.executable.is_some()
            && artefact.target.kind.iter().any(|found| kinds.contains(&found.as_str()))
            && is_of(&manifest, &artefact.manifest_path)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Passed => f.write_str("passes"),
            Outcome::Failed(tests) => match tests.as_slice() {
                [] => f.write_str("fails"),
                [one] => write!(f, "fails in {one}"),
                [first, rest @ ..] => write!(f, "fails in {first} and {} more", rest.len()),
            },
            Outcome::Hung(limit) => write!(f, "does not end within {} s", limit.as_secs()),
            Outcome::DoesNotCompile(text) => write!(f, "does not compile:\n{text}"),
        }
    }
}

/// The cargo that runs this program.
#[expect(clippy::disallowed_methods, reason = "cargo says where it is in the environment")]
fn cargo() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| env!("CARGO").into())
}

fn artefacts(report: &str) -> impl Iterator<Item = Artefact> {
    report.lines().filter_map(|line| serde_json::from_str(line).ok())
}

/// Messages of the compiler in cargo's report.
fn compiler_errors(report: &str) -> String {
    #[derive(Deserialize)]
    struct Line {
        message: Message,
    }
    #[derive(Deserialize)]
    struct Message {
        level: String,
        rendered: String,
    }
    let lines = report.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
    let errors = lines.filter(|line| line.message.level == "error");
    errors.map(|line| line.message.rendered).collect()
}

/// Waits for a process to end. `None` if it takes longer.
#[expect(clippy::disallowed_methods, reason = "processes take real time to end")]
fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let start = now();
    loop {
        if let Some(status) = child.try_wait().expect("it is a child of this process") {
            return Some(status);
        }
        if start.elapsed() >= limit {
            return None;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Ends a process and all that it has started.
fn end_group(child: &mut Child) {
    let group = format!("-{}", child.id());
    let kill = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
    kill.expect("there is a program `kill`");
    // It has ended: the group is gone.
    let _ = child.wait();
}

/// The names in the list at the end of a test program's output.
fn failed_tests(output: &str) -> Vec<String> {
    let Some((_, list)) = output.rsplit_once("\nfailures:\n") else { return Vec::new() };
    let names = list.lines().map_while(|line| line.strip_prefix("    "));
    names.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tests_are_read_from_the_list_at_the_end() {
        let output = "running 3 tests\ntest a ... FAILED\n\nfailures:\n\n---- a stdout ----\n    x\n\n\
                      failures:\n    a\n    b::c\n\ntest result: FAILED. 1 passed\n";
        assert_eq!(failed_tests(output), ["a", "b::c"]);
        assert_eq!(failed_tests("running 1 test\n"), [""; 0]);
    }

    #[test]
    fn what_hangs_is_ended_with_all_that_it_has_started() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 & echo $!; wait"]).process_group(0).stdout(Stdio::piped());
        let mut child = command.spawn().expect("there is a shell");
        let mut started = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        let read = std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut started);
        read.expect("it says what it has started");
        assert_eq!(wait(&mut child, Duration::from_millis(50)), None);
        end_group(&mut child);
        let stat = Path::new("/proc").join(started.trim()).join("stat");
        let is_gone = || fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "));
        let start = now();
        while !is_gone() {
            assert!(start.elapsed() < Duration::from_secs(10), "it runs on");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_program_is_found_in_cargos_report() {
        let program = Program { package: "thalweg-flow".to_owned(), test: Some("pair".to_owned()) };
        let root = crate::root();
        let manifest = root.join("crates/flow/Cargo.toml");
        let line = |kind: &str, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":{manifest:?},
                "target":{{"name":"pair","kind":["{kind}"]}},"executable":{executable}}}"#
            )
            .replace('\n', "")
        };
        let report =
            [line("lib", "null"), line("lib", "\"/a\""), line("test", "\"/b\"")].join("\n");
        let found = artefacts(&report).find(|artefact| program.is_built_as(&root, artefact));
        assert_eq!(found.and_then(|found| found.executable), Some(PathBuf::from("/b")));
    }
}
