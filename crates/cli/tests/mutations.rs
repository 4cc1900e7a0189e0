//! Rules broken on purpose, as `specs/mutations.toml` lists them: a test that cannot fail proves nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

#[derive(Deserialize)]
struct File {
    mutation: Vec<Mutation>,
}

/// One place of the code that is changed.
#[derive(Deserialize)]
struct Mutation {
    /// The requirement that no longer holds then.
    id: String,
    /// What goes wrong.
    breaks: String,
    file: PathBuf,
    find: String,
    replace: String,
}

#[test]
fn every_place_is_there_once() {
    for mutation in mutations() {
        let text = fs::read_to_string(root().join(&mutation.file)).expect("the file is there");
        let places = text.matches(&mutation.find).count();
        let Mutation { id, breaks, file, .. } = &mutation;
        assert_eq!(places, 1, "{id} ({breaks}): {} has {places} such places", file.display());
    }
}

#[test]
#[ignore = "builds and tests a copy of the tree for every rule, about half a minute each"]
fn every_broken_rule_is_noticed() {
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutated");
    copy_tree(&root(), &copy);
    let planes = ["aggregate", "deliver", "flow", "pace", "stack", "baselines"];
    for plane in planes.map(|plane| format!("crates/{plane}")) {
        assert!(passes(&copy, Path::new(&plane)), "{plane}: the tests fail without any change");
    }
    let mut unnoticed = Vec::new();
    for Mutation { id, breaks, file, find, replace } in mutations() {
        let path = copy.join(&file);
        let text = fs::read_to_string(&path).expect("the file is there");
        fs::write(&path, text.replace(&find, &replace)).expect("the copy can be written");
        let is_noticed = !passes(&copy, &file);
        println!("{id}: {breaks}: {}", if is_noticed { "noticed" } else { "NOT noticed" });
        if !is_noticed {
            unnoticed.push(format!("{id}: {breaks}"));
        }
        fs::write(&path, text).expect("the copy can be written");
    }
    assert!(unnoticed.is_empty(), "no test notices {unnoticed:#?}");
}

/// Whether the tests that are to notice a change of a file pass in a copy: first those of the plane, then
/// the swarm, if another crate has it. Tests of literal tables are left out.
fn passes(copy: &Path, file: &Path) -> bool {
    let alone = ["deliver", "flow", "pace", "stack", "baselines"];
    let alone = alone.into_iter().find(|plane| file.starts_with(Path::new("crates").join(plane)));
    let packages = match alone {
        Some(plane) => vec![format!("thalweg-{plane}")],
        None => vec!["thalweg-aggregate".to_owned(), "thalweg-stack".to_owned()],
    };
    packages.iter().all(|package| {
        let output = Command::new(env!("CARGO"))
            .current_dir(copy)
            .env("CARGO_TARGET_DIR", copy.join("target"))
            .args(["test", "-q", "-p", package.as_str(), "--"])
            .args(["--skip", "table::", "--skip", "judge::"])
            .output()
            .expect("cargo runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!errors.contains("could not compile"), "the change does not compile:\n{errors}");
        output.status.success()
    })
}

fn mutations() -> Vec<Mutation> {
    let text = fs::read_to_string(root().join("specs/mutations.toml")).expect("it is committed");
    toml::from_str::<File>(&text).expect("it is well formed").mutation
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Copies what is needed to build: everything but what was built and what begins with a dot, except
/// cargo's settings.
fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the copy can be written");
    for entry in fs::read_dir(from).expect("the tree can be read") {
        let entry = entry.expect("the tree can be read");
        let name = entry.file_name();
        let is_hidden = name.to_string_lossy().starts_with('.') && name != ".cargo";
        if name == "target" || is_hidden {
            continue;
        }
        let (path, copy) = (entry.path(), to.join(&name));
        if path.is_dir() {
            copy_tree(&path, &copy);
        } else {
            fs::copy(&path, &copy).expect("the copy can be written");
        }
    }
}
