//! Rules broken on purpose, as `specs/mutations.toml` lists them: a test that cannot fail proves nothing.
//!
//! Each change is made in a copy of the tree. The copy starts with the build of the target directory that this
//! program was built in, so only the changed crate and the crates above it are compiled again. Environment
//! variables say what to run:
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `THALWEG_MUTATIONS` | `all`; `3/40`, the third of forty slices; `sample`; or an id or words of an entry | `all` |
//! | `THALWEG_MUTATIONS_TURN` | number that chooses the sample: all are chosen once in a full turn | 0 |
//! | `THALWEG_MUTATIONS_TARGET` | target directory to start with | the own one |
//! | `THALWEG_MUTATIONS_LIMIT_S` | seconds after which a test program counts as hung | 300 |
//!
//! Slices use different copies, so they may run at the same time.

mod choice;
mod copy;
mod list;
mod trial;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::choice::Choice;
use crate::copy::Copy;
use crate::list::{List, Mutation, Program};
use crate::trial::{Outcome, Trial};

/// Time after which a sample begins no further mutation.
const SAMPLE_BUDGET: Duration = Duration::from_secs(150);

/// Time after which a test program counts as hung.
const LIMIT: Duration = Duration::from_secs(300);

#[test]
fn every_place_is_there_once() {
    for mutation in List::read(&root()).mutation {
        let text = fs::read_to_string(root().join(&mutation.file)).expect("the file is there");
        let places = text.matches(&mutation.find).count();
        let Mutation { id, breaks, file, .. } = &mutation;
        assert_eq!(places, 1, "{id} ({breaks}): {} has {places} such places", file.display());
        assert_ne!(mutation.find, mutation.replace, "{id} ({breaks}) changes nothing");
    }
}

#[test]
fn every_test_program_is_there() {
    let list = List::read(&root());
    for mutation in &list.mutation {
        let Mutation { id, breaks, .. } = mutation;
        let programs = list.programs(&root(), mutation);
        assert!(!programs.is_empty(), "{id} ({breaks}): no test is to notice it");
        for program in programs {
            assert!(program.is_in(&root()), "{id} ({breaks}): there is no {program}");
        }
    }
}

#[test]
fn a_sample_has_mutations_to_choose_from() {
    let list = List::read(&root());
    for name in list.crates.keys() {
        let is_there = root().join("crates").join(name).is_dir() || root().join(name).is_dir();
        assert!(is_there, "there is no crate {name}");
    }
    assert!(!list.cheap().is_empty());
}

#[test]
#[ignore = "compiles and tests every change, see the head of this file"]
fn every_broken_rule_is_noticed() {
    let list = List::read(&root());
    let choice = Choice::parse(&setting("THALWEG_MUTATIONS").unwrap_or_default())
        .expect("THALWEG_MUTATIONS is well formed");
    let turn = setting("THALWEG_MUTATIONS_TURN").map_or(0, |turn| number(&turn));
    let chosen = choice.of(&list, turn);
    assert!(!chosen.is_empty(), "no mutation is called {choice:?}");
    println!("{} of {} mutations, turn {turn}", chosen.len(), list.mutation.len());

    let programs = all_programs(&list, &chosen);
    let names = chosen.iter().map(|mutation| mutation.crate_name()).collect();
    let copy = Copy::make(&root(), &copy_path(&choice), &prebuilt(), &names, &programs);
    let limit = setting("THALWEG_MUTATIONS_LIMIT_S").map(|limit| number(&limit));
    let limit = limit.map_or(LIMIT, Duration::from_secs);
    let trial = Trial { copy: copy.path(), skip: &list.skip, limit };
    check_unchanged(&trial, &programs);

    let problems = run(&list, &chosen, &trial, choice == Choice::Sample);
    assert!(problems.is_empty(), "no test notices {problems:#?}");
}

/// The tests have to pass without any change, or their failing means nothing.
fn check_unchanged(trial: &Trial<'_>, programs: &BTreeSet<Program>) {
    let start = now();
    for program in programs {
        match trial.run(program) {
            Outcome::Passed => {}
            outcome => panic!("{program}, without any change, {outcome}"),
        }
    }
    println!("{} test programs pass without any change, {} s", programs.len(), seconds(start));
}

/// Makes each change in turn. Returns the entries that no test noticed or that do not compile.
fn run(list: &List, chosen: &[&Mutation], trial: &Trial<'_>, is_sample: bool) -> Vec<String> {
    let began = now();
    let mut problems = Vec::new();
    for (done, mutation) in chosen.iter().enumerate() {
        if is_sample && began.elapsed() > SAMPLE_BUDGET {
            println!("{} left out, the time is used up", chosen.len() - done);
            break;
        }
        let Mutation { id, breaks, file, find, replace, .. } = *mutation;
        let start = now();
        let path = trial.copy.join(file);
        let text = fs::read_to_string(&path).expect("the file is there");
        fs::write(&path, text.replace(find, replace)).expect("the copy can be written");
        let programs = list.programs(&root(), mutation);
        let outcome = trial.first_failure(&programs);
        // Written anew, and so newer than what was compiled from the change.
        fs::write(&path, text).expect("the copy can be written");
        let took = seconds(start);
        let (verdict, text) = match outcome {
            Some((program, outcome @ (Outcome::Failed(_) | Outcome::Hung(_)))) => {
                ("noticed", format!("{program} {outcome}"))
            }
            Some((program, outcome)) => ("NOT noticed", format!("{program} {outcome}")),
            None => ("NOT noticed", "all tests pass".to_owned()),
        };
        println!("{id}: {breaks}: {verdict}, {text}, {took} s");
        if verdict != "noticed" {
            problems.push(format!("{id}: {breaks}: {text}"));
        }
    }
    problems
}

fn all_programs(list: &List, chosen: &[&Mutation]) -> BTreeSet<Program> {
    chosen.iter().flat_map(|mutation| list.programs(&root(), mutation)).collect()
}

/// Another one for every choice, so that slices do not meet.
fn copy_path(choice: &Choice) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mutated-{}", choice.name()))
}

/// The target directory to start with.
fn prebuilt() -> PathBuf {
    let own = || Path::new(env!("CARGO_TARGET_TMPDIR")).join("..");
    setting("THALWEG_MUTATIONS_TARGET").map_or_else(own, PathBuf::from)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[expect(clippy::disallowed_methods, reason = "a test program has no arguments of its own")]
fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("`{text}` is no number"))
}

#[expect(clippy::disallowed_methods, reason = "programs take real time")]
fn now() -> Instant {
    Instant::now()
}

fn seconds(since: Instant) -> u64 {
    since.elapsed().as_secs()
}
