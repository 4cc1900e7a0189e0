//! The generated code in the tree is what the protocol file says.

use std::path::{Path, PathBuf};
use std::{env, fs, process};

const FILE: &str = "thalweg.v1.rs";

#[test]
fn the_generated_code_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let kept = root.join("src/generated").join(FILE);
    let fresh = generate(root);
    if is_blessed() {
        fs::write(&kept, &fresh).unwrap();
    }
    let is_same = fs::read_to_string(&kept).is_ok_and(|text| text == fresh);
    assert!(
        is_same,
        "src/generated/{FILE} does not fit proto/thalweg/v1/*.proto: run this test once with \
         THALWEG_BLESS=1, before writing code that needs the change, and commit the result"
    );
}

fn generate(root: &Path) -> String {
    let directory = Scratch::new();
    let files = ["thalweg/v1/control.proto", "thalweg/v1/pacing.proto"];
    let descriptors = protox::compile(files, [root.join("proto")]).expect("they parse");
    tonic_prost_build::configure()
        .build_transport(false)
        .out_dir(&directory.0)
        .compile_fds(descriptors)
        .expect("code can be generated");
    fs::read_to_string(directory.0.join(FILE)).expect("one file for the package")
}

#[expect(clippy::disallowed_methods, reason = "whoever changes the protocol asks for new code")]
fn is_blessed() -> bool {
    env::var("THALWEG_BLESS").is_ok_and(|value| value == "1")
}

/// A directory that goes when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        let path = env::temp_dir().join(format!("thalweg-control-{}", process::id()));
        fs::create_dir_all(&path).expect("temporary files can be made");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
