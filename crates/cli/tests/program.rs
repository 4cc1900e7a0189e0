//! The program as a user meets it: what it prints where, and how it ends.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const SMALL: &str = r#"
title = "Four hosts"

[topology.one-switch]
hosts = 4
host-cable = { rate = "10Gbps", delay = "1us" }

[[traffic]]
[traffic.permutation]
bytes-each = "100KB"
"#;

fn thalweg(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_thalweg");
    Command::new(program).args(arguments).output().expect("the program starts")
}

/// A folder of the test's own, removed when it ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("thalweg-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Folder(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("a temporary file");
        path.display().to_string()
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

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).expect("the file was written")
}

#[test]
fn a_run_prints_a_table_and_ends_well() {
    let folder = Folder::new("table");
    let file = folder.file("small.toml", SMALL);
    let output = thalweg(&["sim", &file]);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for word in
        ["Four hosts", "flow size", "10 – 100 KB", "slowdown", "switch to host", "dropped: 0"]
    {
        assert!(printed.contains(word), "{word:?} is missing in:\n{printed}");
    }
    assert!(!printed.contains('\u{1b}'), "no colours into a pipe");
}

#[test]
fn json_is_one_document_and_the_seed_decides_it() {
    let folder = Folder::new("json");
    let file = folder.file("small.toml", SMALL);
    let run = |seed: &str| -> Value {
        let output = thalweg(&["sim", &file, "--json", "--seed", seed]);
        serde_json::from_slice(&output.stdout).expect("standard output is JSON and nothing else")
    };
    let first = run("7");
    assert_eq!(first["seed"], 7);
    assert_eq!(first["flows"], 4);
    assert_eq!(first["unfinished_flows"], 0);
    assert_eq!(first["classes"][0]["count"], 4);
    assert_eq!(first["digest"], run("7")["digest"]);
    assert_ne!(first["digest"], run("8")["digest"]);
}

/// Documents of daemons and benchmarks have their schema in the tests of these.
#[test]
fn documents_have_a_name_and_a_version() {
    let folder = Folder::new("documents");
    let file = folder.file("small.toml", SMALL);
    let sweep = folder.file("sweep.toml", &format!("{SMALL}\n[sweep]\nseeds = [1, 2]\n"));
    let secret = folder.file("secret", &"5".repeat(32));
    let token = thalweg(&["token", "new", "--secret-file", &secret, "--job", "a"]);
    let token = text(&token.stdout);
    let cases: [(&[&str], &str); 8] = [
        (&["sim", &file, "--json"], "thalweg.sim/1"),
        (&["sim", &sweep, "--json"], "thalweg.sim-sweep/1"),
        (&["figure", "atp-table1", "--quick", "--json"], "thalweg.figure/1"),
        (&["figure", "--list", "--json"], "thalweg.figure-entry/1"),
        (&["plan", "--layers", "resnet50"], "thalweg.plan/1"),
        (&["plan", "--for", "flows", "--mark", "97500B"], "thalweg.plan-flows/1"),
        (&["token", "show", token.trim(), "--json"], "thalweg.token/1"),
        (&["bench", "aggregate", "--rounds", "1", "--json"], "thalweg.bench-aggregate/1"),
    ];
    for (arguments, schema) in cases {
        let output = thalweg(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
        let document: Value = serde_json::from_slice(&output.stdout).expect("one document");
        let entries = document.as_array().cloned().unwrap_or_else(|| vec![document]);
        let of_others = entries.iter().find(|entry| entry["schema"] != schema);
        assert_eq!((of_others, entries.is_empty()), (None, false), "{arguments:?}");
    }
}

#[test]
fn out_holds_a_page_json_and_one_line_a_flow() {
    let folder = Folder::new("out");
    let file = folder.file("small.toml", SMALL);
    let out = folder.path("results");
    let output = thalweg(&["sim", &file, "--out", &out]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let csv = read(Path::new(&out).join("flows.csv"));
    let mut lines = csv.lines();
    let header = "id,src,dst,bytes,start_us,fct_us,ideal_us,retransmissions";
    assert_eq!(lines.next(), Some(header));
    for line in lines.clone() {
        let fields: Vec<f64> = line.split(',').map(|f| f.parse().expect("a number")).collect();
        assert_eq!(fields.len(), 8);
        assert!(fields[5] >= fields[6], "no flow beats the ideal: {line}");
    }
    assert_eq!(lines.count(), 4);
    let page = read(Path::new(&out).join("report.html"));
    assert!(page.starts_with("<!DOCTYPE html>") || page.starts_with("<!doctype html>"));
    assert!(page.contains("<svg") && page.contains("Four hosts"));
    let json: Value =
        serde_json::from_str(&read(Path::new(&out).join("result.json"))).expect("JSON");
    assert_eq!((&json["schema"], &json["flows"]), (&"thalweg.sim/1".into(), &4.into()));
}

#[test]
fn traces_open_by_their_ending() {
    let folder = Folder::new("trace");
    let file = folder.file("small.toml", SMALL);
    let plain: Value =
        serde_json::from_slice(&thalweg(&["sim", &file, "--json"]).stdout).expect("JSON");
    for (name, start) in [("t.pcapng", &b"\x0a\x0d\x0d\x0a"[..]), ("t.jsonl", b"{\"ps\":")] {
        let path = folder.path(name);
        let output = thalweg(&["sim", &file, "--json", "--trace", &path]);
        assert!(std::fs::read(&path).expect("a trace").starts_with(start));
        let traced: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(traced["digest"], plain["digest"], "tracing changes nothing");
    }
    let output = thalweg(&["sim", &file, "--trace", &folder.path("t.txt")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains(".pcapng"));
}

#[test]
fn a_bad_file_names_line_key_and_fix() {
    let folder = Folder::new("bad");
    let file = folder.file("bad.toml", &SMALL.replace("10Gbps", "10Gb"));
    let output = thalweg(&["sim", &file]);
    assert_eq!(output.status.code(), Some(2));
    let message = text(&output.stderr);
    assert!(message.contains("bad.toml:6: topology.one-switch.host-cable.rate:"), "{message}");
    assert!(message.contains("Gbps"), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(output.stdout.is_empty());
}

#[test]
fn a_missing_file_and_a_missing_command_are_bad_input() {
    let output = thalweg(&["sim", "nowhere/none.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("nowhere/none.toml"));
    assert_eq!(thalweg(&["sim"]).status.code(), Some(2));
    assert_eq!(thalweg(&["simulate"]).status.code(), Some(2));
}

#[test]
fn a_sweep_has_a_row_for_every_run() {
    let folder = Folder::new("sweep");
    let sweep =
        "\n[sweep]\nseeds = [1, 2]\n[sweep.vary]\n\"transport.control\" = [\"dctcp\", \"cubic\"]\n";
    let file = folder.file("sweep.toml", &format!("{SMALL}\n[transport]\n{sweep}"));
    let output = thalweg(&["sim", &file, "--json", "--threads", "2"]);
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let runs = json["runs"].as_array().expect("a list");
    let seeds: Vec<u64> = runs.iter().filter_map(|run| run["seed"].as_u64()).collect();
    assert_eq!(seeds, [1, 2, 1, 2]);
    assert_eq!(runs[2]["variant"], "transport.control = \"cubic\"");
    let out = folder.path("results");
    assert_eq!(thalweg(&["sim", &file, "--out", &out]).status.code(), Some(0));
    let page = read(Path::new(&out).join("run-002/report.html"));
    assert!(page.contains("the file above with transport.control = "), "says what was varied");
}

#[test]
fn a_reader_may_stop_early() {
    let folder = Folder::new("pipe");
    let file = folder.file("small.toml", SMALL);
    let mut program = Command::new(env!("CARGO_BIN_EXE_thalweg"))
        .args(["sim", &file])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    drop(program.stdout.take());
    let output = program.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
}

#[test]
fn figures_are_listed_for_people_and_programs() {
    let output = thalweg(&["figure", "--list"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    assert!(printed.contains("atp-table1") && printed.contains("full run"), "{printed}");
    let output = thalweg(&["figure", "--list", "--json"]);
    let list: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let entry = &list.as_array().expect("a list")[0];
    for key in ["figure", "title", "source", "about", "full_run_s", "quick_run_s"] {
        assert!(!entry[key].is_null(), "{key} is missing in {entry}");
    }
}

#[test]
fn an_unknown_figure_is_answered_with_names() {
    let output = thalweg(&["figure", "atp-tabel1", "--json"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let message = text(&output.stderr);
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.contains("did you mean atp-table1?"), "{message}");
    assert!(message.contains("the figures are: atp-8, atp-9"), "{message}");
    assert_eq!(thalweg(&["figure"]).status.code(), Some(2));
    assert_eq!(thalweg(&["figure", "atp-table1", "--list"]).status.code(), Some(2));
    assert_eq!(thalweg(&["figure", "atp-table1", "--seeds", "0"]).status.code(), Some(2));
}

#[test]
fn a_figure_is_one_document_and_the_seed_decides_it() {
    let run = |arguments: &[&str]| -> Value {
        let output = thalweg(&[&["figure", "atp-table1", "--quick", "--json"], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let mut json: Value =
            serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
        let seconds = json["seconds"].take();
        assert!(seconds.as_f64().is_some_and(|seconds| seconds > 0.0), "{seconds}");
        json
    };
    let json = run(&["--seed", "7", "--threads", "1"]);
    assert_eq!(json["figure"], "atp-table1");
    assert_eq!(json["seed"], 7);
    assert_eq!(json["paper"][1]["value"], "37,002, 231,528, 1,156,126, 14,602,998");
    assert_eq!(json["ours"].as_array().map(Vec::len), Some(6));
    assert_eq!(json["ours"][0]["claim"], json["paper"][0]["claim"]);
    assert_eq!(json["holds"], true, "{}", json["verdict"]);
    assert_eq!(json, run(&["--seed", "7", "--threads", "3"]));
    let seeds = run(&["--seed", "7", "--seeds", "2"]);
    assert_eq!(seeds["seeds"], serde_json::json!([7, 8]));
    let values = seeds["ours"][5]["values"].as_array().expect("a value for each seed");
    assert_eq!(values[0], json["ours"][5]["value"]);
    assert_ne!(values[0], values[1]);
}

#[test]
fn a_figure_leaves_drawing_json_csv_and_page() {
    let folder = Folder::new("figure");
    let out = folder.path("results");
    let output = thalweg(&["figure", "atp-table1", "--quick", "--out", &out]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    assert!(printed.ends_with("atp-table1: holds: all 6 claims\n"), "{printed}");
    let file = |name: &str| read(Path::new(&out).join(name));
    assert!(file("atp-table1.svg").starts_with("<svg"));
    assert!(
        file("index.html").contains("Run it again: thalweg figure atp-table1 --quick --seed 1")
    );
    assert_eq!(file("atp-table1.csv").lines().count(), 1 + 2 * 4);
    let json: Value = serde_json::from_str(&file("atp-table1.json")).expect("JSON");
    assert_eq!(json["figure"], "atp-table1");
}

/// Runs git in a folder, without the user's settings, at the beginning of time.
fn git(folder: &Path, arguments: &[&str]) {
    let mut git = Command::new("git");
    git.arg("-C").arg(folder).args(["-c", "user.name=t", "-c", "user.email=t@t"]).args(arguments);
    for date in ["GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"] {
        git.env(date, "2001-01-01T00:00:00Z");
    }
    let output = git.output().expect("git is there");
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn results_are_recorded_with_their_commit_and_give_a_page() {
    let folder = Folder::new("results");
    let (results, page) = (folder.path("results"), folder.path("page.md"));
    let record = ["figure", "--record", &*results, "atp-table1", "--quick"];
    let refused = |arguments: &[&str], reason: &str| {
        let output = thalweg(arguments);
        let message = text(&output.stderr);
        assert!(output.status.code() == Some(2) && message.contains(reason), "{message}");
    };
    refused(&record, "must be in a clone of the sources");
    let source = folder.0.join("crates/sample/src");
    std::fs::create_dir_all(&source).expect("a temporary folder");
    std::fs::write(source.join("lib.rs"), "//! One.\n").expect("a temporary file");
    git(&folder.0, &["init", "--quiet"]);
    refused(&record, "has changes that are not committed");
    git(&folder.0, &["add", "."]);
    git(&folder.0, &["commit", "--quiet", "-m", "one"]);
    let output = thalweg(&record);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let file = Path::new(&results).join("atp-table1.json");
    let recorded: Value = serde_json::from_str(&read(&file)).expect("JSON");
    assert_eq!(recorded["schema"], "thalweg.figure-result/1");
    assert_eq!(recorded["quick"]["seeds"], serde_json::json!([1]));
    assert_eq!(recorded["quick"]["claims"].as_array().map(Vec::len), Some(6));
    assert_eq!(recorded["quick"]["commit"].as_str().map(str::len), Some(40));
    assert!(recorded.get("full").is_none());

    std::fs::write(Path::new(&results).join("introduction.md"), "# Page\n").expect("a file");
    let output = thalweg(&["figure", "--page", &results]);
    let printed = text(&output.stdout);
    assert!(printed.starts_with("# Page\n") && printed.contains("| 6 of 6 | not recorded |"));
    std::fs::write(&page, &printed).expect("a file");
    let check = ["figure", "--check", &*results, &*page];
    assert_eq!(thalweg(&check).status.code(), Some(0));
    std::fs::write(&page, printed.replace("6 of 6", "7 of 6")).expect("a file");
    let output = thalweg(&check);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("write it with: thalweg figure --page"));
    std::fs::write(&file, read(&file).replace("at least 2×", "at least 1×")).expect("a file");
    let output = thalweg(&check);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("has another rule"), "{}", text(&output.stderr));

    std::fs::write(source.join("lib.rs"), "//! Two.\n").expect("a temporary file");
    refused(&record, "crates/sample/src/lib.rs has changes that are not committed");
    refused(&["figure", "atp-table1", "atp-9", "--quick"], "only be run with --record");
}

#[test]
fn help_teaches() {
    let printed = text(&thalweg(&["--help"]).stdout);
    assert!(printed.contains("Examples:") && printed.contains("thalweg sim scenarios/"));
    assert!(text(&thalweg(&["sim", "--help"]).stdout).contains("Slowdown"));
}

// spec: T-06 sockets
#[test]
fn a_secret_is_new_private_and_can_follow_another() {
    let printed = thalweg(&["secret", "new"]);
    let secret = text(&printed.stdout);
    assert!(secret.len() == 33 && secret.trim().chars().all(|digit| digit.is_ascii_hexdigit()));
    assert_ne!(text(&thalweg(&["secret", "new"]).stdout), secret, "another one each time");

    let folder = Folder::new("secret");
    let last_digit = |text: &str| u8::from_str_radix(&text.trim()[31..], 16).expect("a digit");
    for digit in ["6", "7"] {
        let old = folder.file("old", &format!("{}{digit}\n", "0".repeat(31)));
        let next = folder.path(&format!("next-{digit}"));
        let made = thalweg(&["secret", "new", "--after", &old, "--out", &next]);
        assert!(made.status.success() && made.stdout.is_empty());
        assert_ne!(last_digit(&read(&next)) % 2, last_digit(&read(&old)) % 2);
        let mode = std::fs::metadata(&next).expect("it was written").permissions();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);
        let again = thalweg(&["secret", "new", "--out", &next]);
        assert_eq!(again.status.code(), Some(2), "a secret that may be in use stays");
    }
    let wrong = thalweg(&["secret", "new", "--after", &folder.file("no", "secret\n")]);
    assert_eq!(wrong.status.code(), Some(2));
}
