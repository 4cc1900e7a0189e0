//! The example in Rust depends on one crate, compiles and runs.
//!
//! It is compiled against the library that this test was built with, and nothing else: building it as a package of
//! its own would build all dependencies again, with other features.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

// spec: E-08 machine
#[test]
fn a_program_needs_one_crate() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/rust");
    let manifest = fs::read_to_string(example.join("Cargo.toml")).expect("the example is there");
    let dependencies = manifest.split_once("[dependencies]\n").expect("it has some").1.trim();
    assert_eq!(dependencies, "thalweg = { path = \"../../crates/thalweg\" }");
    let libraries = libraries();
    let program = libraries.join(format!("thalweg-example-{}", std::process::id()));
    let compiled = Command::new(rustc())
        .args(["--edition", "2024", "--crate-name", "thalweg_example"])
        .arg(example.join("src/main.rs"))
        .arg("--extern")
        .arg(format!("thalweg={}", newest(&libraries).display()))
        .arg("-L")
        .arg(format!("dependency={}", libraries.display()))
        .arg("-o")
        .arg(&program)
        .output()
        .expect("the compiler runs");
    let text = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{text}");
    let ran = Command::new(&program).output().expect("it runs");
    // A file that stays costs room, no more.
    let _ = fs::remove_file(&program);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(ran.status.success(), "{}{}", text(&ran.stdout), text(&ran.stderr));
    assert_eq!(text(&ran.stdout).matches("aborted by rank 0").count(), 2, "{}", text(&ran.stdout));
}

// Cargo's view of it, without building or downloading: its own lock file is complete and up to date. To compile all
// dependencies again takes minutes, and `cargo metadata` would need those of other platforms as well.
// spec: E-08 machine
#[test]
fn the_example_has_a_lock_file_of_its_own_that_is_up_to_date() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/rust/Cargo.toml");
    let found = Command::new(env!("CARGO"))
        .args(["update", "--workspace", "--locked", "--offline", "--manifest-path"])
        .arg(&manifest)
        .output()
        .expect("cargo runs");
    assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
}

/// The directory of the libraries that this test is made of.
fn libraries() -> PathBuf {
    let test = env::current_exe().expect("a test has a file");
    test.parent().expect("it is in a directory").to_owned()
}

/// The library as it was built last.
fn newest(libraries: &Path) -> PathBuf {
    let is_library = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("libthalweg-") && name.ends_with(".rlib")
    };
    let files = fs::read_dir(libraries).expect("a directory");
    let found = files.filter_map(Result::ok).map(|file| file.path()).filter(is_library);
    let built = |path: &PathBuf| fs::metadata(path).and_then(|file| file.modified()).ok();
    found.max_by_key(built).expect("this test is linked with it")
}

#[expect(clippy::disallowed_methods, reason = "cargo says which compiler it uses")]
fn rustc() -> String {
    env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned())
}
