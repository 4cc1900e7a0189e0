//! The list of mutations.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// Crates beside the workspace: folders of the root.
const APART: [&str; 1] = ["nccl"];

/// `specs/mutations.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    /// Parts of the names of tests that are left out.
    pub skip: Vec<String>,
    /// Rules for the mutations of a crate, by the name of its folder.
    pub crates: BTreeMap<String, CrateRule>,
    pub mutation: Vec<Mutation>,
}

/// Rules for the mutations of a crate.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct CrateRule {
    /// Test programs that have to notice them, in the order in which they run. Default all of the crate's package.
    #[serde(default)]
    pub tests: Vec<String>,
    /// True if the crate's mutations are compiled and tested fast enough for a sample.
    #[serde(default)]
    pub sample: bool,
}

/// One place of the code that is changed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutation {
    /// The requirement that no longer holds then.
    pub id: String,
    /// The behaviour that is wrong then.
    pub breaks: String,
    pub file: PathBuf,
    pub find: String,
    pub replace: String,
    /// Test programs that have to notice it, where they are others than the crate's.
    #[serde(default)]
    pub tests: Vec<String>,
}

/// A test program: the unit tests of a package, or a file or folder of its `tests/`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Program {
    pub package: String,
    /// `None` for the unit tests.
    pub test: Option<String>,
}

impl List {
    pub fn read(root: &Path) -> List {
        let path = root.join("specs/mutations.toml");
        let text = fs::read_to_string(path).expect("it is committed");
        toml::from_str(&text).expect("it is well formed")
    }

    /// All mutations, those of one file beside each other: what they have in common is compiled once.
    pub fn by_file(&self) -> Vec<&Mutation> {
        let mut all: Vec<&Mutation> = self.mutation.iter().collect();
        all.sort_by(|one, other| one.file.cmp(&other.file));
        all
    }

    /// Mutations that a sample chooses from, in the same order.
    pub fn cheap(&self) -> Vec<&Mutation> {
        let is_cheap = |mutation: &&Mutation| {
            self.crates.get(&mutation.crate_name()).is_some_and(|rule| rule.sample)
        };
        self.by_file().into_iter().filter(is_cheap).collect()
    }

    /// The test programs that have to notice a mutation, in the order in which they run.
    pub fn programs(&self, root: &Path, mutation: &Mutation) -> Vec<Program> {
        let name = mutation.crate_name();
        let of_crate = self.crates.get(&name).map_or(&[][..], |rule| &rule.tests);
        let tests = if mutation.tests.is_empty() { of_crate } else { &mutation.tests };
        if tests.is_empty() {
            return Program::all_of(root, &package_of(&name));
        }
        tests.iter().flat_map(|text| Program::parse(root, text)).collect()
    }
}

impl Mutation {
    /// The name of the crate's folder.
    pub fn crate_name(&self) -> String {
        let mut folders = self.file.iter().map(|name| name.to_string_lossy().into_owned());
        let first = folders.next().expect("mutated files are in folders");
        if APART.contains(&first.as_str()) {
            return first;
        }
        folders.next().expect("mutated files are in crates/")
    }
}

impl Program {
    /// `thalweg-flow:lib` for unit tests, `thalweg-flow:pair` for one of `tests/`, `thalweg-flow` for all.
    fn parse(root: &Path, text: &str) -> Vec<Program> {
        match text.split_once(':') {
            None => Program::all_of(root, text),
            Some((package, test)) => {
                let test = (test != "lib").then(|| test.to_owned());
                vec![Program { package: package.to_owned(), test }]
            }
        }
    }

    /// The unit tests first: they are the fastest.
    fn all_of(root: &Path, package: &str) -> Vec<Program> {
        let folder = folder_of(root, package).join("tests");
        let entries = fs::read_dir(folder).into_iter().flatten();
        let mut tests: Vec<String> = entries
            .map(|entry| entry.expect("the tree can be read").path())
            .filter(|path| path.extension().is_some_and(|end| end == "rs") || has_main(path))
            .filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()))
            .collect();
        tests.sort();
        let program = |test| Program { package: package.to_owned(), test };
        std::iter::once(None).chain(tests.into_iter().map(Some)).map(program).collect()
    }

    /// Returns whether a tree has the program.
    pub fn is_in(&self, root: &Path) -> bool {
        let folder = self.folder(root);
        match &self.test {
            None => folder.join("src/lib.rs").is_file(),
            Some(test) => {
                let tests = folder.join("tests");
                tests.join(format!("{test}.rs")).is_file() || has_main(&tests.join(test))
            }
        }
    }

    /// The folder of its package.
    pub fn folder(&self, root: &Path) -> PathBuf {
        folder_of(root, &self.package)
    }

    /// Returns whether its package is a workspace of its own.
    pub fn is_apart(&self) -> bool {
        APART.iter().any(|name| package_of(name) == self.package)
    }

    /// The beginning of its file's name in a target directory.
    pub fn file_stem(&self) -> String {
        self.test.as_ref().unwrap_or(&self.package).replace('-', "_")
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.package, self.test.as_deref().unwrap_or("lib"))
    }
}

fn has_main(folder: &Path) -> bool {
    folder.join("main.rs").is_file()
}

fn package_of(crate_name: &str) -> String {
    if crate_name == "thalweg" { crate_name.to_owned() } else { format!("thalweg-{crate_name}") }
}

fn folder_of(root: &Path, package: &str) -> PathBuf {
    let name = package.strip_prefix("thalweg-").unwrap_or(package);
    if APART.contains(&name) { root.join(name) } else { root.join("crates").join(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> List {
        let text = r#"
            skip = []
            [crates.flow]
            tests = ["thalweg-flow:lib", "thalweg-stack:swarm"]
            sample = true
            [[mutation]]
            id = "Q-06"
            breaks = "one"
            file = "crates/flow/src/a.rs"
            find = "a"
            replace = "b"
            [[mutation]]
            id = "C-01"
            breaks = "two"
            file = "crates/cli/src/b.rs"
            find = "a"
            replace = "b"
            tests = ["thalweg-cli:plan"]
        "#;
        toml::from_str(text).expect("it is well formed")
    }

    fn names(programs: &[Program]) -> Vec<String> {
        programs.iter().map(Program::to_string).collect()
    }

    #[test]
    fn an_entrys_own_programs_come_before_those_of_its_crate() {
        let list = list();
        let nowhere = Path::new("nowhere");
        let programs = |at: usize| names(&list.programs(nowhere, &list.mutation[at]));
        assert_eq!(programs(0), ["thalweg-flow:lib", "thalweg-stack:swarm"]);
        assert_eq!(programs(1), ["thalweg-cli:plan"]);
        assert_eq!(list.cheap().len(), 1);
        assert_eq!(list.by_file()[0].breaks, "two");
    }

    #[test]
    fn a_package_stands_for_all_its_programs() {
        let programs = Program::parse(&crate::root(), "thalweg-collective");
        assert_eq!(names(&programs), ["thalweg-collective:lib", "thalweg-collective:suite"]);
        assert!(programs.iter().all(|program| program.is_in(&crate::root())));
        assert!(!Program::parse(&crate::root(), "thalweg-flow:none")[0].is_in(&crate::root()));
        assert!(programs.iter().all(|program| !program.is_apart()));
        let apart = Program::parse(&crate::root(), "thalweg-nccl");
        assert_eq!(names(&apart), ["thalweg-nccl:lib", "thalweg-nccl:harness"]);
        assert!(apart.iter().all(|program| program.is_in(&crate::root()) && program.is_apart()));
    }
}
