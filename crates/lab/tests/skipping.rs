//! Skipped tests as their reader meets them: this program runs itself.

use std::path::PathBuf;
use std::process::{Command, Output};

use thalweg_lab::testing::{Lack, RECORD_VARIABLE, REQUIRED_VARIABLE, skip};

#[test]
#[ignore = "for the other tests, which run it"]
fn skipped_for_root() {
    skip(Lack::Root, "root is needed");
    skip(Lack::Root, "root is needed");
}

#[test]
#[ignore = "for the other tests, which run it"]
fn skipped_for_data() {
    skip(Lack::Data, "data are needed");
}

/// Runs both, where these things are required.
fn run(name: &str, required: &str) -> (Output, String) {
    let record: PathBuf =
        std::env::temp_dir().join(format!("thalweg-skips-{}-{name}", std::process::id()));
    let output = Command::new(std::env::current_exe().expect("this program has a path"))
        .args(["--ignored", "--test-threads", "2"])
        .env(RECORD_VARIABLE, &record)
        .env(REQUIRED_VARIABLE, required)
        .output()
        .expect("it starts");
    let text = std::fs::read_to_string(&record).unwrap_or_default();
    // There is no record where nothing was skipped.
    let _ = std::fs::remove_file(&record);
    (output, text)
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn skipped_tests_pass_and_say_why() {
    let (output, record) = run("allowed", "kernel");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let expected = [
        "data\tskipping::skipped_for_data\tdata are needed",
        "root\tskipping::skipped_for_root\troot is needed",
    ];
    assert_eq!(sorted(&record), expected);
    let expected = [
        "skipped: skipping::skipped_for_data: data are needed",
        "skipped: skipping::skipped_for_root: root is needed",
    ];
    assert_eq!(sorted(&String::from_utf8_lossy(&output.stderr)), expected);
}

#[test]
fn tests_that_lack_what_is_required_fail() {
    let (output, record) = run("required", "root,kernel");
    assert_eq!(output.status.code(), Some(101), "{output:?}");
    let printed = String::from_utf8_lossy(&output.stdout);
    let expected = "skipping::skipped_for_root may not be skipped here, because THALWEG_NO_SKIPS names \
                    \"root\": root is needed";
    assert!(printed.contains(expected), "{printed}");
    assert!(printed.contains("1 passed; 1 failed"), "{printed}");
    assert_eq!(sorted(&record), ["data\tskipping::skipped_for_data\tdata are needed"]);
}
