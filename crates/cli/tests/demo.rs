//! The demo as a user meets it: a verdict, an end, and nothing left behind.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use thalweg_lab::{Lab, Spec};

/// A folder of the test's own, removed when it ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("thalweg-demo-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Folder(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn demo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.arg("demo").args(arguments).stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// The processes that a process has started, by what `/proc` says of every process.
fn children_of(parent: u32) -> Vec<u32> {
    let status = |id: u32| std::fs::read_to_string(format!("/proc/{id}/stat")).ok();
    let parent_of = |id: u32| -> Option<u32> {
        // The name, in brackets, may hold anything.
        let text = status(id)?;
        text.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let entries = std::fs::read_dir("/proc").expect("a list of processes").flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|&id| parent_of(id) == Some(parent)).collect()
}

fn is_running(id: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    // A process that has ended may wait for its parent to take note of it.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// Waits until none of them runs any more; they may take a moment.
#[expect(clippy::disallowed_methods, reason = "processes take real time to end")]
fn all_end(ids: &[u32]) -> bool {
    let until = Instant::now() + Duration::from_secs(5);
    while ids.iter().any(|&id| is_running(id)) {
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

#[test]
fn a_quick_demo_is_as_it_should_be() {
    let folder = Folder::new("quick");
    let output: Output =
        demo(&["--quick", "--json", "--out", &folder.path("out")]).output().expect("it starts");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let verdict: Value = serde_json::from_slice(&output.stdout).expect("one document");
    assert_eq!(verdict["schema"], "thalweg.demo/1");
    assert_eq!(verdict["ok"], true);
    assert_eq!(verdict["problems"], Value::Array(Vec::new()));
    let tenants = verdict["tenants"].as_array().expect("tenants");
    assert_eq!((&tenants[0]["workers"], &tenants[1]["workers"]), (&4.into(), &3.into()));
    for tenant in tenants {
        assert_eq!(tenant["identical"], true, "{tenant}");
        assert!(tenant["largest_difference"].as_f64().expect("a number") < 1e-3, "{tenant}");
        assert!(tenant["goodput_gbps"].as_f64().expect("a number") > 0.0, "{tenant}");
        assert!(tenant["aggregated_share"].as_f64().expect("a number") > 0.1, "{tenant}");
        assert_eq!(tenant["sums_wrong"], 0, "{tenant}");
        assert_eq!(tenant["sums_checked"], tenant["steps"], "{tenant}");
    }
    let network = if has_lab() { "lab" } else { "loopback" };
    assert_eq!(verdict["network"]["kind"], network, "{}", verdict["network"]);
    let ways: Vec<_> = verdict["comparison"].as_array().expect("ways").iter().collect();
    let named: Vec<_> = ways.iter().map(|way| (way["collective"].as_str(), &way["loss"])).collect();
    assert_eq!(format!("{named:?}"), expected_ways());
    assert!(ways.iter().all(|way| way["exact"] == true), "{ways:?}");
    assert!(verdict["switch"]["lost_on_purpose"].as_u64().expect("a count") > 0);
    let page = std::fs::read_to_string(folder.0.join("out/report.html")).expect("it was written");
    assert!(page.contains("everything is as it should be"));
}

/// Returns whether this user can have labs.
fn has_lab() -> bool {
    Lab::build(&Spec { hosts: 1, ..Spec::default() }).is_ok()
}

fn expected_ways() -> String {
    let lossy = Value::from(0.01);
    let clean = Value::from(0.0);
    let rows = [
        (Some("aggregate"), &lossy),
        (Some("aggregate"), &clean),
        (Some("ring"), &clean),
        (Some("server"), &clean),
    ];
    format!("{:?}", rows.to_vec())
}

#[test]
fn bad_input_is_reported_before_anything_starts() {
    let folder = Folder::new("bad");
    let (empty, out) = (folder.path(""), folder.path("out"));
    let output = demo(&["--data", &empty, "--out", &out]).output().expect("it starts");
    assert_eq!(output.status.code(), Some(2));
    let message = text(&output.stderr);
    assert!(
        message.contains("train-images-idx3-ubyte") && message.lines().count() == 1,
        "{message}"
    );
    std::fs::write(folder.path("train-images-idx3-ubyte"), b"\x1f\x8b").expect("a file");
    for name in ["train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"] {
        std::fs::write(folder.path(name), b"").expect("a file");
    }
    let output = demo(&["--data", &empty, "--out", &out]).output().expect("it starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("gz is not supported"), "{}", text(&output.stderr));
    let output = demo(&["--loss", "0.5", "--out", &out]).output().expect("it starts");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(text(&output.stderr), "thalweg: --loss 0.5: give a share from 0 to 0.2\n");
    assert!(!folder.0.join("out").exists(), "nothing was begun");
}

/// Starts a demo that would take long, signals one of its processes or itself when training is under
/// way, and returns its exit code, its last line, and whether all processes have ended.
fn signalled(signal: &str, whom: fn(u32, &[u32]) -> u32) -> (Option<i32>, String, bool) {
    let folder = Folder::new(signal);
    let mut child = demo(&["--steps", "4000", "--out", &folder.path("out")])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut errors = BufReader::new(child.stderr.take().expect("piped"));
    let mut line = String::new();
    errors.read_line(&mut line).expect("a line");
    assert!(line.starts_with("switch at 127.0.0.1:"), "{line}");
    let children = wait_for_children(child.id());
    let target = whom(child.id(), &children).to_string();
    assert!(Command::new("kill").args([signal, &target]).status().expect("kill").success());
    let code = child.wait().expect("it ends").code();
    let message = errors.lines().map_while(Result::ok).last().unwrap_or_default();
    (code, message, all_end(&children))
}

/// A switch, a server and seven workers.
#[expect(clippy::disallowed_methods, reason = "processes take real time to start")]
fn wait_for_children(parent: u32) -> Vec<u32> {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let children = children_of(parent);
        if children.len() == 9 || Instant::now() > until {
            assert_eq!(children.len(), 9);
            return children;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn nothing_is_left_after_an_interruption() {
    let itself = |id: u32, _: &[u32]| id;
    let (code, message, all_ended) = signalled("-INT", itself);
    assert_eq!((code, message.as_str(), all_ended), (Some(130), "thalweg: interrupted", true));
    let (code, _, all_ended) = signalled("-KILL", itself);
    assert_eq!((code, all_ended), (None, true));
}

#[test]
fn a_worker_that_dies_ends_the_demo_with_its_reason() {
    let last = |_: u32, children: &[u32]| *children.iter().max().expect("there are children");
    let (code, message, all_ended) = signalled("-ABRT", last);
    assert_eq!((code, all_ended), (Some(1), true), "{message}");
    assert!(message.starts_with("thalweg: worker ") && message.contains("signal: 6"), "{message}");
}
